"""What the algorithms give: orthonormal bases of tensor space, behind one small contract.

    project(frames)       d_l = X_i U_il       (eq 4.1.2)
    reconstruct(d)        X_i = U_il d_l       (eq 4.1.1)

`OperatorBasis` (Algorithm 1) and `SubspaceBasis` (Algorithm 3) hold one matrix of eigentensors, `Rank1Basis`
(Algorithm 2) d small ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from tpca_cli.parallel import side_by_side
from tpca_cli.tensor_pca.eigen import solve_dense

Array = npt.NDArray[np.float64]
Self = TypeVar("Self", bound="DenseBasis")


@dataclass(frozen=True)
class DenseBasis:
    """M orthonormal tensors U_il as the columns of an (L, M) matrix, strongest first.

    `energies` are the eigenvalues: the energy sum_n d_nl^2 of each component over the fitted frames.
    `total` is the energy of those frames (after subtracting `mean`, where there is one). `residuals` are
    the measured |A u_l - lambda_l u_l|.
    """

    method: ClassVar[str] = ""

    frame_shape: tuple[int, ...]
    matrix: Array  # (L, M)
    energies: Array  # (M,)
    total: float
    mean: Array | None = None  # frame_shape
    residuals: Array = field(default_factory=lambda: np.zeros(0))  # (M,)

    @property
    def components(self) -> int:
        """M, the number of components."""
        return len(self.energies)

    def energy(self, components: int | None = None) -> float:
        """The share of the energy that the first `components` hold, 0 to 1."""
        return share(self.energies, self.total, components)

    def truncate(self: Self, components: int) -> Self:
        """The basis of the first `components` alone."""
        return replace(
            self,
            matrix=self.matrix[:, :components],
            energies=self.energies[:components],
            residuals=self.residuals[:components],
        )

    def project(self, frames: npt.NDArray[np.generic]) -> Array:
        """d_nl = X_in U_il  (eq 4.1.2)."""
        return self.project_rows(frames.reshape(len(frames), prod(self.frame_shape)).astype(np.float64))

    def project_rows(self, rows: Array) -> Array:
        """The same of frames as rows (n, L), which may be overwritten."""
        if self.mean is not None:
            rows -= self.mean.reshape(-1)
        return rows @ self.matrix  # (n, M)

    def reconstruct(self, coefficients: npt.NDArray[np.generic]) -> Array:
        """X_in = U_il d_nl  (eq 4.1.1); fewer columns than M use the first components."""
        kept = self.matrix[:, : coefficients.shape[1]]
        rows: Array = np.asarray(coefficients, np.float64) @ kept.T  # (n, L)
        if self.mean is not None:
            rows += self.mean.reshape(-1)
        return rows.reshape(len(rows), *self.frame_shape)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Everything as plain arrays."""
        arrays: dict[str, npt.NDArray[np.generic]] = {
            "frame_shape": np.array(self.frame_shape, np.int64),
            "matrix": self.matrix,
            "energies": self.energies,
            "total": np.array([self.total], np.float64),
            "residuals": self.residuals,
        }
        return arrays if self.mean is None else {**arrays, "mean": self.mean}

    @classmethod
    def from_arrays(cls: type[Self], arrays: Mapping[str, npt.NDArray[np.generic]]) -> Self:
        """The inverse of `to_arrays`."""
        mean = arrays.get("mean")
        return cls(
            frame_shape=tuple(int(size) for size in arrays["frame_shape"]),
            matrix=np.asarray(arrays["matrix"], np.float64),
            energies=np.asarray(arrays["energies"], np.float64),
            total=float(arrays["total"][0]),
            mean=None if mean is None else np.asarray(mean, np.float64),
            residuals=np.asarray(arrays["residuals"], np.float64),
        )


class OperatorBasis(DenseBasis):
    """The eigentensors of A (Algorithm 1): A_ij U_jl = lambda_l U_il  (eq 4A5)."""

    method: ClassVar[str] = "operator"

    @classmethod
    def of(cls, other: DenseBasis) -> OperatorBasis:
        """The same tensors, however they were found."""
        return cls.from_arrays(other.to_arrays())


class SubspaceBasis(DenseBasis):
    """The basis Q of the space that N < L frames span (Algorithm 3): Q_il = X_in b_nl  (eq 4C11)."""

    method: ClassVar[str] = "subspace"


def share(energies: Array, total: float, components: int | None) -> float:
    """The part of `total` in the first components; a folder without energy is wholly represented."""
    if total <= 0:
        return 1.0
    return min(1.0, float(energies[:components].sum()) / total)


def enough(energies: Array, target: float) -> int:
    """The least number of leading components that together hold `target`; all if they do not."""
    held = np.cumsum(energies)
    return min(len(energies), int(np.searchsorted(held, target * (1 - 1e-12))) + 1)


_CHUNK = 1 << 20  # values per mode product: keeps the working copies in cache and memory bounded
_FEW = 8  # chunks that are not worth threads of their own
_JOINED = 256  # entries of neighboring modes that are contracted at once


@dataclass(frozen=True)
class Rank1Basis:
    """U_i,j = U_{i1,j1} U_{i2,j2} .. U_{id,jd}  (eq 4B2) for M chosen multi-indices j (eq 4B15).

    `modes[k]` is the orthogonal matrix U^k, its columns in the order of falling eigenvalues of A^k.
    `indices[m]` is j(m). Until they are measured, `energies` are products of the mode eigenvalues
    (each as a share of the total): they order the components but do not say what one holds.

    With `rotation` Z the basis is the singular-value form of eq 4B14 instead: component l is the
    combination of the rank-1 tensors of `indices` by column l of Z, and `energies` are sigma_l^2.
    """

    method: ClassVar[str] = "rank1"

    frame_shape: tuple[int, ...]
    modes: tuple[Array, ...]  # d matrices (I_k, I_k)
    mode_values: tuple[Array, ...]  # d vectors (I_k,)
    indices: npt.NDArray[np.int64]  # (M, d); with a rotation (R, d)
    energies: Array  # (M,)
    total: float
    measured: bool = False
    mean: Array | None = None  # frame_shape
    rotation: Array | None = None  # (R, M)
    # (d,) the largest |A^k u - lambda u| of each mode; with a rotation (M,), |A u_l - lambda_l u_l|
    residuals: Array = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def from_matrices(
        cls, matrices: Sequence[Array], components: int | None = None, *, mean: Array | None = None
    ) -> Rank1Basis:
        """Solve A^k U^k = U^k Sigma^k (eq 4B5) for every mode and order the L rank-1 tensors."""
        pairs = [solve_dense(matrix) for matrix in matrices]
        basis = cls(
            frame_shape=tuple(len(matrix) for matrix in matrices),
            modes=tuple(pair.vectors for pair in pairs),
            mode_values=tuple(pair.values for pair in pairs),
            indices=np.zeros((0, len(pairs)), np.int64),
            energies=np.zeros(0),
            total=float(pairs[0].values.sum()),
            mean=mean,
            residuals=np.array([pair.residuals.max(initial=0.0) for pair in pairs]),
        )
        return basis._ordered(components)

    def _ordered(self, components: int | None) -> Rank1Basis:
        """All multi-indices by falling product of mode eigenvalues; equal products in index order."""
        product = np.array([self.total])
        for values in self.mode_values:
            scale = values.sum() or 1.0
            product = np.multiply.outer(product, values / scale)
        flat = product.reshape(-1)
        order = np.argsort(-flat, kind="stable")[:components]
        indices = np.stack(np.unravel_index(order, self.frame_shape), axis=1).astype(np.int64)
        return replace(self, indices=indices, energies=flat[order])

    def in_modes(self, modes: Sequence[Array]) -> Rank1Basis:
        """All rank-1 tensors of other orthogonal modes, by what solved operators hold of them: u' A^k u."""
        values, residuals = [], []
        for new, old, eigen in zip(modes, self.modes, self.mode_values, strict=True):
            turned = new.T @ old  # (I_k, I_k): A^k u = U diag(eigen) U' u
            values.append(turned**2 @ eigen)
            off = (turned * eigen) @ old.T - values[-1][:, None] * new.T
            residuals.append(np.sqrt((off**2).sum(axis=1)).max(initial=0.0))
        new_basis = replace(
            self, modes=tuple(modes), mode_values=tuple(values), residuals=np.array(residuals), measured=False
        )
        return new_basis._ordered(None)

    def measured_by(self, energies: Array) -> Rank1Basis:
        """The same tensors in the order of energies sum_n d_nm^2 that were measured on frames."""
        order = np.argsort(-energies, kind="stable")
        return replace(self, indices=self.indices[order], energies=energies[order], measured=True)

    def rotated(self, squares: npt.NDArray[np.floating], components: int) -> Rank1Basis:
        """The singular-value form (eq 4B14) from D'D: D = Y S Z', so D'D = Z S^2 Z'  (eq 4B10)."""
        pairs = solve_dense(squares, components)
        return replace(
            self,
            rotation=pairs.vectors,
            energies=pairs.values,
            measured=True,
            residuals=pairs.residuals,
        )

    @property
    def components(self) -> int:
        """M, the number of components."""
        return len(self.energies)

    def energy(self, components: int | None = None) -> float:
        """The share of the energy in the first `components`; an estimate until `measured`."""
        return share(self.energies, self.total, components)

    def truncate(self, components: int) -> Rank1Basis:
        """The basis of the first `components` alone."""
        if self.rotation is not None:
            return replace(
                self,
                rotation=self.rotation[:, :components],
                energies=self.energies[:components],
                residuals=self.residuals[:components],
            )
        return replace(self, indices=self.indices[:components], energies=self.energies[:components])

    def project(self, frames: npt.NDArray[np.generic], dtype: npt.DTypeLike = np.float64) -> Array:
        """d_nm = X_in U_im  (eq 4B9), by mode products: the L x L matrix is never built.

        `dtype` is the precision of the products; float32 halves the time where that is enough.
        """
        modes, where = self._joined(dtype)
        result: Array = np.empty((len(frames), len(self.indices)), dtype)  # (n, R)
        mean = None if self.mean is None else self.mean.astype(dtype)

        def fill(part: slice) -> None:
            block = frames[part].astype(dtype)  # (b, I_1, .., I_d)
            if mean is not None:
                block -= mean
            every = mode_products(block, modes).reshape(len(block), -1)
            np.take(every, where, axis=1, out=result[part], mode="clip")

        parts = chunks(len(frames), prod(self.frame_shape))
        for _ in side_by_side(fill, parts) if len(parts) > _FEW else map(fill, parts):
            pass
        if self.rotation is not None:
            result = result @ self.rotation.astype(dtype)
        return result  # (n, M)

    def reconstruct(self, coefficients: npt.NDArray[np.generic]) -> Array:
        """X_in = U_im d_nm  (eq 4B8); fewer columns than M use the first components."""
        values = np.asarray(coefficients, np.float64)
        if self.rotation is not None:
            values = values @ self.rotation[:, : values.shape[1]].T  # (n, R)
        box = self._box(values.shape[1])
        chosen = self.indices[: values.shape[1]]
        where = np.ravel_multi_index(tuple(chosen.T), box) if len(chosen) else np.zeros(0, int)
        frames: Array = np.empty((len(values), *self.frame_shape))
        for part in chunks(len(values), prod(self.frame_shape)):
            core = np.zeros((len(values[part]), prod(box)))
            core[:, where] = values[part]
            back = [u[:, :j].T for u, j in zip(self.modes, box, strict=True)]
            frames[part] = mode_products(core.reshape(-1, *box), back)
        if self.mean is not None:
            frames += self.mean
        return frames

    def columns(self) -> Array:
        """The components as columns of an (L, M) matrix."""
        values = np.eye(self.components) if self.rotation is None else self.rotation.T  # (M, R)
        unit = replace(self, mean=None, rotation=None).reconstruct(values)  # (M, I_1, .., I_d)
        columns: Array = unit.reshape(len(values), -1).T
        return columns

    def _joined(self, dtype: npt.DTypeLike) -> tuple[list[Array], npt.NDArray[np.int64]]:
        """The modes as `mode_products` joins them, without what no component has; where each one is then."""
        box = self._box(len(self.indices))
        rest, last = _join([u[:, :j].astype(dtype) for u, j in zip(self.modes, box, strict=True)])
        split = len(rest)
        ends = np.ravel_multi_index(tuple(self.indices[:, split:].T), box[split:])
        kept, places = np.unique(ends, return_inverse=True)
        shape = (*box[:split], len(kept))
        where = np.ravel_multi_index((*self.indices[:, :split].T, places.reshape(-1)), shape)
        return [*rest, np.ascontiguousarray(last[:, kept])], where

    def _box(self, count: int) -> tuple[int, ...]:
        """The smallest box of mode indices that holds the first `count` multi-indices."""
        return tuple(int(j) + 1 for j in self.indices[:count].max(axis=0, initial=0))

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Everything as plain arrays."""
        arrays: dict[str, npt.NDArray[np.generic]] = {
            "frame_shape": np.array(self.frame_shape, np.int64),
            "indices": self.indices,
            "energies": self.energies,
            "total": np.array([self.total], np.float64),
            "measured": np.array([self.measured], np.uint8),
            "residuals": self.residuals,
        }
        for k, (mode, values) in enumerate(zip(self.modes, self.mode_values, strict=True)):
            arrays[f"modes/{k}"] = mode
            arrays[f"mode_values/{k}"] = values
        if self.mean is not None:
            arrays["mean"] = self.mean
        if self.rotation is not None:
            arrays["rotation"] = self.rotation
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> Rank1Basis:
        """The inverse of `to_arrays`."""
        shape = tuple(int(size) for size in arrays["frame_shape"])
        mean, rotation = arrays.get("mean"), arrays.get("rotation")
        return cls(
            frame_shape=shape,
            modes=tuple(np.asarray(arrays[f"modes/{k}"], np.float64) for k in range(len(shape))),
            mode_values=tuple(np.asarray(arrays[f"mode_values/{k}"], np.float64) for k in range(len(shape))),
            indices=np.asarray(arrays["indices"], np.int64),
            energies=np.asarray(arrays["energies"], np.float64),
            total=float(arrays["total"][0]),
            measured=bool(arrays["measured"][0]),
            mean=None if mean is None else np.asarray(mean, np.float64),
            rotation=None if rotation is None else np.asarray(rotation, np.float64),
            residuals=np.asarray(arrays["residuals"], np.float64),
        )


def chunks(count: int, size: int) -> list[slice]:
    """Slices over `count` frames of `size` values, each about `_CHUNK` values."""
    rows = max(1, _CHUNK // max(1, size))
    return [slice(start, min(start + rows, count)) for start in range(0, count, rows)]


def mode_products(
    block: npt.NDArray[np.floating], matrices: Sequence[Array], *, by_frame: bool = False
) -> npt.NDArray[np.floating]:
    """Contract every mode of (n, I_1, .., I_d) with its (I_k, J_k) matrix, giving (n, J_1, .., J_d).

    Short modes at the end become one by the Kronecker product of their matrices: more operations, but on
    memory in order, which is quicker. The others follow one by one. With `by_frame` every product is of one
    frame, so that its coefficients have the same bits wherever in a block it stands.
    """
    n = len(block)
    rest, last = _join(matrices)
    x: npt.NDArray[np.floating] = block.reshape(*((n,) if by_frame else ()), -1, len(last)) @ last
    width = last.shape[1]
    for matrix in reversed(rest):
        x = matrix.T @ x.reshape(-1, len(matrix), width)  # (I_1 .., J_k, J_k+1 .. J_d)
        width *= matrix.shape[1]
    return x.reshape(n, *(matrix.shape[1] for matrix in matrices))


def _join(matrices: Sequence[Array]) -> tuple[list[Array], Array]:
    """The matrices of the first modes, and one of all that are joined."""
    *rest, last = matrices
    while rest and rest[-1].shape[0] * len(last) <= _JOINED:
        last = np.asarray(np.kron(rest.pop(), last))  # (I_k .. I_d, J_k .. J_d)
    return rest, last


TensorBasis = OperatorBasis | Rank1Basis | SubspaceBasis

METHODS: dict[str, type[OperatorBasis] | type[Rank1Basis] | type[SubspaceBasis]] = {
    "operator": OperatorBasis,
    "rank1": Rank1Basis,
    "subspace": SubspaceBasis,
}


def from_arrays(method: str, arrays: Mapping[str, npt.NDArray[np.generic]]) -> TensorBasis:
    """The basis that `to_arrays` of the same method wrote down."""
    return METHODS[method].from_arrays(arrays)
