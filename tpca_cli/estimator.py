"""`TensorPCA`: the algorithms as an estimator in the manner of scikit-learn, which need not be installed.

    model = TensorPCA("operator", n_components=20, center=True).fit(frames)  # (n, I_1, .., I_d)
    scores = model.transform(frames)            # (n, M)
    back = model.inverse_transform(scores)      # (n, I_1, .., I_d)

Frames of uint8 and uint16 are added up exactly, in integers: `partial_fit` on parts gives the operator of
the whole, to the bit, and `operator` holds none of the frames. Everything else becomes float64, is added up
in it, and is held for the next part, as are the frames of `subspace`, whose operator has an entry for every
two of them, and of `rank1`, whose energies are measured; parts then give what one `fit` gives. `save` and
`load` keep what `transform` needs, not what `partial_fit` goes on from.
"""

from __future__ import annotations

import json
import sys
from math import prod
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli import store
from tpca_cli.basisfile import BASIS_SCHEMA, checked_coefficients
from tpca_cli.errors import FileRefused, printable
from tpca_cli.frames.arrays import ArrayFrames
from tpca_cli.interfaces import AnyPath
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, measured_rank1, solve_modes
from tpca_cli.tensor_pca.basis import DenseBasis, Rank1Basis, TensorBasis, from_arrays
from tpca_cli.tensor_pca.floating import solve_floats
from tpca_cli.tensor_pca.solve import Operator, fixed_threads, new_operator, solve_frames, solve_given

Array = npt.NDArray[Any]
METHODS = ("operator", "rank1", "subspace")
EXACT = (np.dtype(np.uint8), np.dtype(np.uint16))

MODEL_SCHEMA = store.Schema(
    "tpca-model",
    1,
    {
        **{path: field for path, field in BASIS_SCHEMA.fields.items() if path.startswith("basis/")},
        "basis/mean": store.Field("<f8", (None,), optional=True),
    },
)


class _NotFitted(ValueError, AttributeError):
    """As the error of scikit-learn, so that `hasattr` says what there is before a fit."""


class TensorPCA:
    """Tensor PCA of frames (n, I_1, .., I_d) of any order: Algorithms 1, 2 and 3 as `method`.

    `method` is `operator` (eigentensors of the whole operator), `rank1` (products of the eigenvectors of
    each mode, those with the most energy) or `subspace` (the basis of the space that fewer frames than values
    span). `n_components` None keeps all: with `rank1`, and with `operator` of uint8 or uint16, as many as a
    frame has values, also those without energy; otherwise no more than the frames span. `center` subtracts
    the mean frame first, as PCA does and the paper does not.

    After `fit`: `components_` (M, I_1, .., I_d), `explained_variance_` (M,) = sum_n d_nl^2 / (n - 1),
    `explained_variance_ratio_`, `mean_` (None without `center`), `n_components_`, `n_samples_` and
    `frame_shape_`.
    """

    def __init__(
        self, method: str = "operator", n_components: int | None = None, center: bool = True
    ) -> None:
        self.method = method
        self.n_components = n_components
        self.center = center

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, by name."""
        return {name: getattr(self, name) for name in ("method", "n_components", "center")}

    def set_params(self, **params: Any) -> TensorPCA:
        """Change parameters; what was fitted stays until the next fit."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"Invalid parameter {name!r} for estimator TensorPCA(): it has no such one")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"TensorPCA({given})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        tags = Tags("transformer", TargetTags(required=False), transformer_tags=TransformerTags())
        tags.input_tags = InputTags(two_d_array=True, three_d_array=True)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "basis_")

    def fit(self, X: Any, y: Any = None) -> TensorPCA:
        """Learn the basis of these frames."""
        self._forget()
        return self.partial_fit(X)

    def partial_fit(self, X: Any, y: Any = None) -> TensorPCA:
        """Learn the basis of these frames and of all before since `fit` began anew, by the same method."""
        self._check_params()
        frames = self._checked(X)
        if not hasattr(self, "n_samples_"):
            self.frame_shape_: tuple[int, ...] = frames.shape[1:]
            self.n_features_in_: int = prod(frames.shape[1:])
            self.dtype_: np.dtype[Any] = frames.dtype
            self.n_samples_ = 0
            self._held: list[Array] = []
            self._operator: Operator | None = None
        elif not hasattr(self, "_held"):
            raise ValueError("a model that was loaded knows its basis alone: fit all frames anew")
        elif frames.dtype != self.dtype_:
            raise ValueError(f"frames of {frames.dtype} after frames of {self.dtype_}: give them as one type")
        elif hasattr(self, "basis_") and self.method != self.basis_.method:
            raise ValueError(
                f"method {self.method!r} after parts that were added up for {self.basis_.method!r}: "
                "fit all frames anew"
            )
        self.n_samples_ += len(frames)
        if self.dtype_ in EXACT and self.method != "subspace":
            if self._operator is None:
                self._operator = new_operator(self.method, self.frame_shape_, self.dtype_)
            self._operator.add(frames)
        if self._operator is None or self.method == "rank1":
            self._held.append(np.array(frames))  # energies of rank-1 tensors are measured on frames
        self._solve()
        return self

    def _solve(self) -> None:
        most = self.n_components
        held = ArrayFrames(np.concatenate(self._held)) if self._held else None
        with fixed_threads():
            if held is None:
                assert self._operator is not None
                self.basis_: TensorBasis = solve_given(self._operator, most, center=self.center)
            elif isinstance(self._operator, ModeOperators):
                complete = solve_modes(self._operator, center=self.center)
                self.basis_ = measured_rank1(complete, held, most)
            elif self.dtype_ in EXACT:
                self.basis_ = solve_frames(held, "subspace", most, center=self.center)
            else:
                self.basis_ = solve_floats(held, self.method, most, center=self.center)
        self._describe()

    def _describe(self) -> None:
        basis = self.basis_
        self.n_components_ = basis.components
        self.mean_ = None if basis.mean is None else basis.mean.copy()
        self.explained_variance_ = basis.energies / max(1, self.n_samples_ - 1)
        self.explained_variance_ratio_ = basis.energies / (basis.total or 1.0)

    @property
    def components_(self) -> npt.NDArray[np.float64]:
        """U_il, (M, I_1, .., I_d): orthonormal, the strongest first."""
        self._check_fitted()
        basis = self.basis_
        columns = basis.columns() if isinstance(basis, Rank1Basis) else basis.matrix  # (L, M)
        return np.array(columns.T, order="C").reshape(basis.components, *self.frame_shape_)

    def transform(self, X: Any) -> npt.NDArray[np.float64]:
        """d_nl = X_in U_il (eq 4.1.2), (n, M)."""
        self._check_fitted()
        return self.basis_.project(self._checked(X))

    def fit_transform(self, X: Any, y: Any = None) -> npt.NDArray[np.float64]:
        """The coefficients of the frames that are learned from."""
        return self.fit(X).transform(X)

    def inverse_transform(self, X: Any) -> npt.NDArray[np.float64]:
        """X_in = U_il d_nl (eq 4.1.1), (n, I_1, .., I_d); fewer columns use the first components."""
        self._check_fitted()
        return self.basis_.reconstruct(checked_coefficients(X, self.n_components_))

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """`tensorpca0`, `tensorpca1`, .."""
        self._check_fitted()
        return np.array([f"tensorpca{k}" for k in range(self.n_components_)], object)

    def save(self, path: AnyPath, *, force: bool = False) -> None:
        """Write the basis to a file; an existing one is replaced only with `force`."""
        self._check_fitted()
        arrays = self.basis_.to_arrays()
        meta = {
            "params": self._fitted_params(),
            "frame_shape": self.frame_shape_,
            "dtype": self.dtype_.str,
            "samples": self.n_samples_,
            "total": self.basis_.total,
            "measured": not isinstance(self.basis_, Rank1Basis) or self.basis_.measured,
        }
        with store.create(path, MODEL_SCHEMA, force=force) as writer:
            writer.meta(json.loads(json.dumps(meta)))
            for name, array in arrays.items():
                if name == "mean":
                    array = array.reshape(-1)
                if name not in ("frame_shape", "total", "measured"):
                    kept = array.astype("<i4") if name == "indices" else array
                    writer.put(f"basis/{name}", kept, compress=False)

    def _fitted_params(self) -> dict[str, Any]:
        """The parameters of the basis, whatever was set since, as plain values."""
        most = None if self.n_components is None else int(self.n_components)
        return {
            "method": self.basis_.method,
            "n_components": most,
            "center": self.basis_.mean is not None,
        }

    @classmethod
    def load(cls, path: AnyPath) -> TensorPCA:
        """The model of a file; FileRefused unless it is whole and ours."""
        with store.open_checked(path, MODEL_SCHEMA) as reader:
            try:
                return cls._loaded(reader)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise FileRefused(f"{printable(path)} was refused: {error}") from error

    @classmethod
    def _loaded(cls, reader: store.Reader) -> TensorPCA:
        meta = reader.meta
        model = cls(**meta["params"])
        shape = tuple(int(side) for side in meta["frame_shape"])
        arrays = {
            name.removeprefix("basis/"): reader.array(name, limit=max(1 << 30, reader.stored[name]))
            for name in reader.stored
        }
        if "mean" in arrays:
            arrays["mean"] = arrays["mean"].reshape(shape)
        arrays["frame_shape"] = np.array(shape)
        arrays["total"] = np.array([float(meta["total"])])
        arrays["measured"] = np.array([bool(meta["measured"])])
        model.basis_ = from_arrays(model.method, arrays)
        if isinstance(model.basis_, DenseBasis) and len(model.basis_.matrix) != prod(shape):
            raise ValueError(f"a matrix of {len(model.basis_.matrix)} rows for frames of {shape}")
        model.frame_shape_, model.n_features_in_ = shape, prod(shape)
        model.dtype_, model.n_samples_ = np.dtype(str(meta["dtype"])), int(meta["samples"])
        model._describe()
        return model

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_") or name in ("_held", "_operator")]:
            delattr(self, name)

    def _check_params(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method {self.method!r} is not one of {', '.join(METHODS)}")
        most = self.n_components
        if most is not None and not (isinstance(most, Integral) and most >= 1):
            raise ValueError(
                f"n_components is {most!r}: it must be an integer of at least 1, or None for all"
            )

    def _check_fitted(self) -> None:
        if not hasattr(self, "basis_"):
            text = "This TensorPCA instance is not fitted yet: call 'fit' before using it."
            known = sys.modules.get("sklearn.exceptions")
            raise (known.NotFittedError if known else _NotFitted)(text)

    def _checked(self, X: Any) -> Array:
        """The frames as an array to compute with; a ValueError or TypeError says what is wrong with them."""
        if hasattr(X, "tocsr"):
            raise TypeError("Sparse data was passed, but frames are dense: use X.toarray()")
        frames = np.asarray(X)
        if np.iscomplexobj(frames):
            raise ValueError("Complex data not supported: take the real and imaginary parts as a mode")
        if frames.ndim < 2:
            raise ValueError(
                f"Expected 2D array or a tensor of frames, got {frames.ndim}D array instead. Reshape your "
                "data to (n, I_1, .., I_d)"
            )
        for axis, noun in ((0, "sample"), (1, "feature")):
            if not (len(frames) if axis == 0 else frames[0].size):
                raise ValueError(
                    f"Found array with 0 {noun}(s) (shape={frames.shape}) while a minimum of 1 is required."
                )
        if frames.dtype not in EXACT:
            frames = frames.astype(np.float64)
        if frames.dtype.kind == "f" and not np.isfinite(frames).all():
            raise ValueError("Input X contains NaN or infinity: frames must be finite")
        if hasattr(self, "frame_shape_") and frames.shape[1:] != self.frame_shape_:
            size = prod(frames.shape[1:])
            if frames.ndim == 2 and size == self.n_features_in_:
                return frames.reshape(len(frames), *self.frame_shape_)
            raise ValueError(
                f"X has {size} features, but TensorPCA is expecting {self.n_features_in_} features as input "
                f"(frames of {self.frame_shape_})"
            )
        return frames
