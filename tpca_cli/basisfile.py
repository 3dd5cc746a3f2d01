"""The table of a basis file and the records that it is read into; docs/BASIS.md has it in words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tpca_cli import store
from tpca_cli.errors import FileRefused, printable
from tpca_cli.framing import Framing
from tpca_cli.interfaces import AnyPath
from tpca_cli.tensor_pca.algorithm1 import TensorOperator
from tpca_cli.tensor_pca.algorithm2 import ModeOperators
from tpca_cli.tensor_pca.basis import Rank1Basis, TensorBasis, from_arrays
from tpca_cli.tensors import Item

if TYPE_CHECKING:
    from tpca_cli.tensor_pca.solve import Operator

BASIS_SCHEMA = store.Schema(
    "tpca-basis",
    1,
    {
        "basis/energies": store.Field("<f8", (None,), optional=True),
        "basis/residuals": store.Field("<f8", (None,), optional=True),
        "basis/mean": store.Field("<f8", (None, None, None), optional=True),
        "basis/matrix": store.Field("<f8", (None, None), optional=True),
        "basis/modes/*": store.Field("<f8", (None, None), optional=True),
        "basis/mode_values/*": store.Field("<f8", (None,), optional=True),
        "basis/indices": store.Field("<i4", (None, None), optional=True),
        "basis/rotation": store.Field("<f8", (None, None), optional=True),
        "operator/sums": store.Field("<i8", (None, None, None), optional=True),
        "operator/modes/*": store.Field("<i8", (None, None), optional=True),
        "operator/lower": store.Field("<i8", (None,), bulk=True, optional=True),
        "operator/lower_digests": store.Field("u1", (None, 8), optional=True),
        "images/digests": store.Field("u1", (None, 8)),
    },
)


@dataclass(frozen=True)
class Origin:
    """Where a basis comes from: what was counted, and how it was asked for."""

    method: str
    framing: Framing
    dtype: str  # "u1" or "u2"; of tensors also "f4" and "f8"
    frames: int
    digests: npt.NDArray[np.uint8]  # (images, 8), sorted
    size: tuple[int, int] | None = None
    center: bool = False
    solver: str = "exact"
    choice: Mapping[str, Any] | None = None  # {"components": M}, {"energy": E}, {"all": True} or None
    item: Item | None = None  # of tensors that are no images


@dataclass(frozen=True)
class StoredBasis:
    """A basis file without its operator."""

    origin: Origin
    basis: TensorBasis | None
    operator_kind: str | None  # "modes", "tensor" or None
    digest: str
    identity: store.Identity
    leaves: Mapping[str, bytes]  # the digests of its datasets, by path, as far as they were needed

    @property
    def framing(self) -> Framing:
        """How images become frames of this basis."""
        return self.origin.framing

    @property
    def dtype(self) -> str:
        """The sample type of the images that it was fitted to: `u1` or `u2`."""
        return self.origin.dtype


@dataclass(frozen=True)
class FittedBasis(StoredBasis):
    """A basis file that holds a basis."""

    basis: TensorBasis


Arrays = dict[str, npt.NDArray[Any]]


def write(
    path: AnyPath,
    origin: Origin,
    basis: TensorBasis | None,
    operator: Operator | None,
    *,
    force: bool = False,
    expect: store.Identity | None = None,
) -> dict[str, Any]:
    """Write a basis, an operator or both; what there is to know of the file."""
    with store.create(path, BASIS_SCHEMA, force=force, expect=expect) as writer:
        writer.meta(
            {
                "method": origin.method,
                "framing": origin.framing.to_dict(),
                "dtype": origin.dtype,
                "frames": origin.frames,
                "size": origin.size,
                "center": origin.center,
                "solver": origin.solver,
                "choice": None if origin.choice is None else dict(origin.choice),
                "total": None if basis is None else basis.total,
                "measured": not isinstance(basis, Rank1Basis) or basis.measured,
                **({} if origin.item is None else {"item": origin.item.to_dict()}),
            }
        )
        writer.put("images/digests", origin.digests, compress=False)
        arrays = {} if basis is None else basis_arrays(basis, origin.framing.frame_shape)
        if operator is not None:
            arrays |= operator_arrays(operator)
        for name, array in arrays.items():
            writer.put(name, array, compress=array.dtype.kind == "i")  # the bits of a float are noise
        if isinstance(operator, TensorOperator):
            _put_triangle(writer, operator)
    return _facts(origin, basis, writer.checked.size, writer.checked.digest)


def basis_arrays(basis: TensorBasis, picture: tuple[int, ...]) -> Arrays:
    """The datasets of a basis; `total` and `measured` belong to the metadata of the file.

    `picture` is the shape in which the mean is kept.
    """
    arrays = basis.to_arrays()
    if "mean" in arrays:
        arrays["mean"] = arrays["mean"].reshape(picture)
    if "indices" in arrays:
        arrays["indices"] = arrays["indices"].astype("<i4")
    in_metadata = ("frame_shape", "total", "measured")
    return {f"basis/{name}": array for name, array in arrays.items() if name not in in_metadata}


def read(path: AnyPath) -> StoredBasis:
    """What a file holds besides its operator; there may be no basis in it."""
    with store.open_checked(path, BASIS_SCHEMA, keep="basis") as reader:
        try:
            return _read(reader)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise FileRefused(f"{printable(path)} was refused: {error}") from error


def read_basis(path: AnyPath) -> FittedBasis:
    """The basis of a file; a file with an operator alone is refused."""
    stored = read(path)
    if stored.basis is None:
        name = printable(path)
        raise FileRefused(f"{name} holds an operator without a basis: make one with `tpca merge {name}`")
    return FittedBasis(**{name: getattr(stored, name) for name in StoredBasis.__dataclass_fields__})


def _read(reader: store.Reader) -> StoredBasis:
    meta = reader.meta
    size = meta["size"]
    origin = Origin(
        method=str(meta["method"]),
        framing=Framing.from_dict(meta["framing"]),
        dtype=str(meta["dtype"]),
        frames=int(meta["frames"]),
        digests=reader.array("images/digests"),
        size=None if size is None else (int(size[0]), int(size[1])),
        center=bool(meta["center"]),
        solver=str(meta["solver"]),
        choice=meta["choice"],
        item=Item.from_dict(meta["item"]) if meta.get("item") is not None else None,
    )
    allowed = ("u1", "u2") if origin.item is None else (origin.item.dtype,)
    if origin.item is not None and origin.framing != Framing("whole", *origin.item.picture):
        raise ValueError(f"tensors {origin.item} in frames {origin.framing.frame_shape}")
    if origin.dtype not in allowed or origin.frames < 1:
        raise ValueError(f"{origin.frames} frames of type {origin.dtype!r} are no frames")
    forms = {"operator/modes/0": "modes", "operator/lower": "tensor"}
    kind = next((form for name, form in forms.items() if name in reader.shapes), None)
    basis = None
    if "basis/energies" in reader.shapes:
        basis = basis_in(reader, origin.method, origin.framing, origin.item)
    return StoredBasis(origin, basis, kind, reader.digest, reader.identity, reader.leaves)


def basis_in(reader: store.Reader, method: str, framing: Framing, item: Item | None = None) -> TensorBasis:
    """The basis that an open file holds."""
    arrays: Arrays = {
        name.removeprefix("basis/"): reader.array(name, limit=max(1 << 30, reader.stored[name]))
        for name in reader.stored
        if name.startswith("basis/")
    }
    shape = framing.frame_shape if item is None else item.shape
    arrays["frame_shape"] = np.array(shape)
    if "mean" in arrays:
        arrays["mean"] = arrays["mean"].reshape(shape)
    arrays["total"] = np.array([float(reader.meta["total"])])
    arrays["measured"] = np.array([bool(reader.meta["measured"])])
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} is not finite")
    basis = from_arrays(method, arrays)
    _check_shapes(basis)
    return basis


def _check_shapes(basis: TensorBasis) -> None:
    """A basis from a file must be able to do what a basis does."""
    shape, m = basis.frame_shape, basis.components
    if basis.mean is not None and basis.mean.shape != shape:
        raise ValueError("the mean has another shape than the frames")
    if not isinstance(basis, Rank1Basis):
        if basis.matrix.shape != (prod(shape), m) or basis.residuals.shape != (m,) or not m:
            raise ValueError(f"a matrix {basis.matrix.shape} is no basis of {m} tensors {shape}")
        return
    if [u.shape for u in basis.modes] != [(size, size) for size in shape]:
        raise ValueError("the modes do not belong to the frames")
    r = m if basis.rotation is None else len(basis.rotation)
    if basis.indices.shape != (r, len(shape)) or not m:
        raise ValueError(f"{basis.indices.shape} indices for {r} rank-1 tensors")
    if (basis.indices < 0).any() or (basis.indices >= np.array(shape)).any():
        raise ValueError("a multi-index lies outside the frame")
    if basis.residuals.shape != (len(shape) if basis.rotation is None else m,):
        raise ValueError(f"{basis.residuals.shape} residuals for {m} components")
    if basis.rotation is not None and basis.rotation.shape != (r, m):
        raise ValueError("the rotation does not belong to the components")


PIECE = 1 << 17


def operator_arrays(operator: Operator) -> Arrays:
    """The datasets of an operator that are written whole: its sums, and one matrix per mode."""
    matrices = operator.matrices if isinstance(operator, ModeOperators) else ()
    modes = {f"operator/modes/{k}": matrix for k, matrix in enumerate(matrices)}
    return {"operator/sums": operator.sums, **modes}


def _put_triangle(writer: store.Writer, operator: TensorOperator) -> None:
    stream = writer.stream("operator/lower", "<i8", (), PIECE, compress=True)
    digests = []
    for piece in _pieces(operator):
        stream.append(piece)
        digests.append(store.digest_of(piece))
    writer.put("operator/lower_digests", np.frombuffer(b"".join(digests), "u1").reshape(-1, 8))


def _pieces(operator: TensorOperator) -> Iterator[npt.NDArray[np.int64]]:
    """The packed triangle, PIECE values at a time."""
    held = np.zeros(0, np.int64)
    for row in range(0, operator.size, 64):
        held = np.concatenate([held, operator.packed(row, min(row + 64, operator.size))])
        while len(held) >= PIECE:
            yield held[:PIECE]
            held = held[PIECE:]
    if len(held):
        yield held


def add_operator(path: AnyPath, operator: Operator) -> None:
    """Add the operator of a file to one of the same kind and shape; refused where the file has none."""
    with store.open_checked(path, BASIS_SCHEMA) as reader:
        try:
            _add_operator(reader, operator)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise FileRefused(f"{printable(path)} was refused: {error}") from error


def _add_operator(reader: store.Reader, operator: Operator) -> None:
    shape, n = operator.frame_shape, int(reader.meta["frames"])
    if "operator/sums" not in reader.shapes:
        raise ValueError("it holds no operator; fit with --keep-operator or --operator-only")
    sums = reader.array("operator/sums")
    if sums.shape != shape:
        raise ValueError(f"its operator is of frames {sums.shape}, not {shape}")
    if isinstance(operator, ModeOperators):
        modes = {f"modes/{k}": reader.array(f"operator/modes/{k}") for k in range(len(shape))}
        if [matrix.shape for matrix in modes.values()] != [(size, size) for size in shape]:
            raise ValueError("the mode operators do not belong to the frames")
        operator.merge(ModeOperators.from_arrays({"n": np.array([n]), "sums": sums, **modes}))
        return
    if reader.shapes["operator/lower"] != (operator.size * (operator.size + 1) // 2,):
        raise ValueError("the operator has another size than the frames")
    _fill(operator, reader)
    operator.count(n, sums)


def _fill(operator: TensorOperator, reader: store.Reader) -> None:
    """Read the packed triangle piece by piece, each held to its digest."""
    digests, values = reader.array("operator/lower_digests"), reader.shapes["operator/lower"][0]
    held, row = np.zeros(0, np.int64), 0
    for number, start in enumerate(range(0, values, PIECE)):
        piece = reader.rows("operator/lower", start, min(values, start + PIECE))
        if store.digest_of(piece) != digests[number].tobytes():
            raise ValueError(f"the operator is damaged at value {start}")
        held = np.concatenate([held, piece])
        whole, stop = 0, row
        while whole + stop + 1 <= len(held):
            whole, stop = whole + stop + 1, stop + 1
        operator.add_packed(held[:whole], row)
        held, row = held[whole:], stop


def _facts(origin: Origin, basis: TensorBasis | None, file_bytes: int, digest: str) -> dict[str, Any]:
    """Counts, energy and measured residuals."""
    facts: dict[str, Any] = {
        "method": origin.method,
        "solver": origin.solver,
        "framing": origin.framing.kind,
        "frame_shape": list(origin.framing.frame_shape if origin.item is None else origin.item.shape),
        "dtype": origin.dtype,
        "images": len(origin.digests),
        "frames": origin.frames,
        "centered": origin.center,
        "components": None,
        "total": None,
        "energy": None,
        "residual": None,
        "residual_relative": None,
        "file_bytes": file_bytes,
        "digest": digest,
    }
    return facts if basis is None else {**facts, **_solved(basis)}


def _solved(basis: TensorBasis) -> dict[str, Any]:
    if isinstance(basis, Rank1Basis) and basis.rotation is None:
        tops = np.array([values[0] for values in basis.mode_values])
        shares = np.divide(basis.residuals, tops, out=np.zeros_like(tops), where=tops > 0)
        residual = relative = float(shares.max(initial=0.0))
        complete = len(basis.energies) == int(np.prod(basis.frame_shape))
        energy = basis.energy() if basis.measured else 1.0 if complete else None
    else:
        top = float(basis.energies[0]) if basis.energies[0] > 0 else 1.0
        residual = float(basis.residuals.max(initial=0.0)) / top
        # Below this there is only rounding, and a share of that says nothing.
        real = basis.energies > top * prod(basis.frame_shape) * np.finfo(np.float64).eps
        relative = float((basis.residuals[real] / basis.energies[real]).max(initial=0.0))
        energy = basis.energy()
    return {
        "components": len(basis.energies),
        "total": basis.total,
        "energy": energy,
        "residual": residual,
        "residual_relative": relative,
    }


class Basis:
    """The basis of a file: `project` gives coefficients, `reconstruct` gives frames back.

    basis = Basis("basis.h5")
    coefficients = basis.project(frames)              # (n, M)
    frames = basis.reconstruct(coefficients[:, :50])  # (n, h, w, c), from the first 50 components
    basis.eigentensors                                # (M, h, w, c), orthonormal, strongest first

    `eigenvalues` (M,) are the energies sum_n d_nl^2 of the components over the images of the fit; of a rank1
    basis with `measured` False they are products of mode eigenvalues, which give an order and no more. `mean`
    (h, w, c) is what `project` subtracts, None without --center. `residuals` (M,) are the measured
    |A u_l - lambda_l u_l|; a rank1 basis of chosen rank-1 tensors has one for each mode instead, the largest
    |A^k u - lambda u|.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        stored = read_basis(path)
        self._basis = stored.basis
        self.framing = stored.framing
        self.digest = stored.digest
        self.method: str = stored.basis.method
        self.frame_shape: tuple[int, ...] = stored.basis.frame_shape
        self.eigenvalues: npt.NDArray[np.float64] = stored.basis.energies
        self.residuals: npt.NDArray[np.float64] = stored.basis.residuals
        self.mean: npt.NDArray[np.float64] | None = (
            None if stored.basis.mean is None else stored.basis.mean.copy()
        )
        self.total: float = stored.basis.total
        self.measured: bool = not isinstance(stored.basis, Rank1Basis) or stored.basis.measured

    @property
    def eigentensors(self) -> npt.NDArray[np.float64]:
        """U_il, (M, h, w, c): an array of its own, made when it is asked for."""
        basis = self._basis
        columns = basis.columns() if isinstance(basis, Rank1Basis) else basis.matrix  # (L, M)
        return np.array(columns.T, order="C").reshape(self.components, *self.frame_shape)

    @property
    def components(self) -> int:
        """M, the number of components."""
        return self._basis.components

    def project(self, frames: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Coefficients (n, M) of frames (n, h, w, c); `framing.split` makes frames of an image."""
        frames = np.asarray(frames)
        if not frames.ndim or frames.shape[1:] != self.frame_shape:
            text = ", ".join(str(side) for side in self.frame_shape)
            raise ValueError(f"frames of shape {frames.shape}: (n, {text}) was expected")
        return self._basis.project(frames)

    def reconstruct(self, coefficients: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Frames (n, h, w, c) of coefficients; fewer columns use the first components."""
        return self._basis.reconstruct(checked_coefficients(coefficients, self.components))


def checked_coefficients(given: Any, components: int) -> npt.NDArray[np.float64]:
    """Coefficients (n, m) of at most so many components; ValueError for anything else."""
    found = np.asarray(given, np.float64)
    if found.ndim != 2 or found.shape[1] > components:
        raise ValueError(f"coefficients of shape {found.shape}: (n, at most {components}) was expected")
    return found
