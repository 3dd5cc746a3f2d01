"""The d mode operators of Algorithm 2, accumulated in one pass over the frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import frexp, prod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tpca_cli.interfaces import Frames
from tpca_cli.parallel import side_by_side
from tpca_cli.tensor_pca.basis import DenseBasis, Rank1Basis, chunks, enough, mode_products
from tpca_cli.tensor_pca.exact import ExactGram, Integers, centered, mirrored
from tpca_cli.tensor_pca.fold import add

Matrix = TypeVar("Matrix", Integers, npt.NDArray[np.float64])

# Values per call: small enough that the float64 copy stays in cache, and far below the exactness bound:
# 2^20 products of 16-bit pixels are at most 2^52.
_CHUNK = 1 << 20
# Frames of up to so many values are added to their L x L operator instead, whose partial traces the mode
# operators are: many multiplications more, but of one matrix, in single precision and without transposing.
_SMALL = 256


class ModeOperators:
    """A^k(i_k, j_k) = X(.., i_k, .., n) X(.., j_k, .., n) for every mode k  (eq 4B4), as int64 matrices.

    Sums of products of integers stay below 2^53 within a chunk, so the float64 product is exact
    whatever order BLAS adds in; chunks are added in int64.
    """

    def __init__(self, frame_shape: tuple[int, ...]) -> None:
        self.frame_shape = tuple(int(size) for size in frame_shape)
        self.n = 0
        self.sums = np.zeros(self.frame_shape, np.int64)
        self._matrices = tuple(np.zeros((size, size), np.int64) for size in self.frame_shape)
        self._gram: ExactGram | None = None  # of frames that are not yet in the matrices

    def add(self, frames: npt.NDArray[np.unsignedinteger]) -> None:
        """Count a block of frames, (b, I_1, .., I_d) uint8 or uint16."""
        if frames.dtype not in (np.dtype(np.uint8), np.dtype(np.uint16)):
            raise TypeError(f"frames are {frames.dtype}; an exact operator needs uint8 or uint16")
        if frames.shape[1:] != self.frame_shape:
            raise ValueError(f"frames have shape {frames.shape[1:]}, the operator {self.frame_shape}")
        size = prod(self.frame_shape)
        if size <= _SMALL:
            self._add_small(frames.reshape(len(frames), size))
            return
        rows = max(1, _CHUNK // max(1, size))
        for start in range(0, len(frames), rows):
            self._add(frames[start : start + rows])

    @property
    def matrices(self) -> tuple[Integers, ...]:
        """A^k for every mode: the arrays themselves."""
        if self._gram is not None:
            whole = mirrored(self._gram.lower())
            self._gram = None
            for k, matrix in enumerate(self._matrices):
                matrix += partial_trace(whole, self.frame_shape, k)
        return self._matrices

    def _add_small(self, rows: npt.NDArray[np.unsignedinteger]) -> None:
        if self._gram is not None and self._gram.dtype != rows.dtype:
            assert self.matrices
        if self._gram is None:
            self._gram = ExactGram(rows.shape[1], rows.dtype)
        before = self._gram.sums.copy()
        self._gram.add(rows)
        self.n += len(rows)
        self.sums += (self._gram.sums - before).reshape(self.frame_shape)

    def _add(self, frames: npt.NDArray[np.unsignedinteger]) -> None:
        self.n += len(frames)
        self.sums += frames.sum(axis=0, dtype=np.int64)
        chunk = frames.astype(np.float64)  # (b, I_1, .., I_d)
        for k, matrix in enumerate(self._matrices):
            unfolded = np.moveaxis(chunk, k + 1, -1).reshape(-1, len(matrix))  # (b L / I_k, I_k)
            for start in range(0, len(unfolded), _CHUNK):
                part = unfolded[start : start + _CHUNK]
                matrix += (part.T @ part).astype(np.int64)

    def merge(self, other: ModeOperators) -> None:
        """Add the operators of other, disjoint frames: the sum is what one pass over both would give."""
        if other.frame_shape != self.frame_shape:
            raise ValueError(f"operators of frames {other.frame_shape} and {self.frame_shape} do not add")
        self.n += other.n
        self.sums += other.sums
        for matrix, more in zip(self.matrices, other.matrices, strict=True):
            matrix += more

    def with_turned(self) -> ModeOperators:
        """The operators of the frames together with the same frames turned by half a circle.

        Turning reverses the first two modes, so A^k(i, j) is joined by A^k(I_k - i, I_k - j) there.
        """
        both = ModeOperators(self.frame_shape)
        both.n = 2 * self.n
        both.sums += self.sums + self.sums[::-1, ::-1]
        for k, (matrix, one) in enumerate(zip(both.matrices, self.matrices, strict=True)):
            matrix += one + (one[::-1, ::-1] if k < 2 else one)
        return both

    @property
    def trace(self) -> int:
        """The energy of all frames, X_in X_in: the trace of every A^k."""
        return int(np.trace(self.matrices[0]))

    def matrix(self, k: int, *, center: bool = False) -> npt.NDArray[np.float64]:
        """A^k in float64; with `center`, of the frames minus their mean: A^k - S S' / n over the mode."""
        matrix = self.matrices[k]
        if not center or self.n == 0:
            return matrix.astype(np.float64)
        slices = np.moveaxis(self.sums, k, 0).reshape(len(matrix), -1)  # (I_k, L / I_k)
        peak = int(np.abs(self.sums).max()) ** 2 * slices.shape[1]
        peak = max(peak, self.n * int(np.diag(matrix).max()))
        if peak >= 1 << 62:
            slices = slices.astype(np.float64)
        return centered(matrix, slices @ slices.T, self.n, peak)

    def to_arrays(self) -> dict[str, npt.NDArray[np.int64]]:
        """The whole state as plain arrays."""
        modes = {f"modes/{k}": matrix for k, matrix in enumerate(self.matrices)}
        return {"n": np.array([self.n], np.int64), "sums": self.sums, **modes}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.int64]]) -> ModeOperators:
        """The inverse of `to_arrays`."""
        operators = cls(arrays["sums"].shape)
        operators.n = int(arrays["n"][0])
        operators.sums += arrays["sums"]
        for k, matrix in enumerate(operators.matrices):
            matrix += arrays[f"modes/{k}"]
        return operators


def partial_trace(matrix: Matrix, frame_shape: tuple[int, ...], k: int) -> Matrix:
    """A^k from the L x L operator: A summed over equal indices of every mode but k."""
    before, size, after = prod(frame_shape[:k]), frame_shape[k], prod(frame_shape[k + 1 :])
    unfolded = matrix.reshape(before, size, after, before, size, after)
    traced: Matrix = np.einsum("aibajb->ij", unfolded)
    return traced


def solve_modes(
    operators: ModeOperators, components: int | None = None, *, center: bool = False
) -> Rank1Basis:
    """The rank-1 basis of counted frames, strongest products of mode eigenvalues first."""
    matrices = [operators.matrix(k, center=center) for k in range(len(operators.frame_shape))]
    mean = operators.sums / max(1, operators.n) if center else None
    return Rank1Basis.from_matrices(matrices, components, mean=mean)


def measured_rank1(
    basis: Rank1Basis, frames: Frames, components: int | None = None, *, energy: float | None = None
) -> Rank1Basis:
    """The rank-1 tensors with the most energy sum_n d_nm^2, measured on the frames (eq 4B15, 4B16).

    `basis` is complete. The strongest `components`, or the fewest that hold a share `energy`; all by default.
    """
    # Every square is rounded to a multiple of 2^-bits, the same whoever computes it, and added as an integer:
    # no sum is larger than 2^60, and none depends on blocks or on the order of the frames.
    bits = 60 - frexp(max(1.0, basis.total))[1]
    (found,) = frames.fold(energies, add, basis.modes, basis.mean, bits)
    chosen = np.ravel_multi_index(tuple(basis.indices.T), basis.frame_shape)
    ordered = basis.measured_by(np.ldexp(found.astype(np.float64), -bits)[chosen])
    if energy is not None:
        components = enough(ordered.energies, energy * basis.total)
    return ordered if components is None else ordered.truncate(components)


def energies(
    at: int,
    run: npt.NDArray[Any],
    modes: tuple[npt.NDArray[np.float64], ...],
    mean: npt.NDArray[np.float64] | None,
    bits: int,
) -> tuple[Integers]:
    """2^bits sum_n d_nm^2 of a run for all L multi-indices m in C order."""

    def part(rows: slice) -> Integers:
        block = run[rows].astype(np.float64)  # (b, I_1, .., I_d)
        if mean is not None:
            block -= mean
        d = mode_products(block, modes, by_frame=True).reshape(len(block), -1)  # (b, L)
        squares: Integers = np.rint(d * d * 2.0**bits).astype(np.int64).sum(axis=0)
        return squares

    total: Integers = np.zeros(prod(run.shape[1:]), np.int64)
    for squares in side_by_side(part, chunks(len(run), len(total))):
        total += squares
    return (total,)


def singular_rank1(basis: Rank1Basis, principal: DenseBasis) -> Rank1Basis:
    """The singular-value form of eq 4B14: sigma_l and Z_ml of D = X U, U the complete rank-1 `basis`.

    U is orthogonal, so that D D' = X X' and D'D = U'A U: the singular values of D are those of X, and its
    right singular vectors are Z = U'Q, with Q the eigentensors of A. `principal` holds these, by Algorithm
    1 or 3.
    """
    tensors = principal.matrix.T.reshape(-1, *basis.frame_shape)  # (M, I_1, .., I_d)
    z = replace(basis, mean=None).project(tensors).T  # (L, M)
    return replace(
        basis,
        rotation=np.ascontiguousarray(z),
        energies=principal.energies,
        total=principal.total,
        measured=True,
        mean=principal.mean,
        residuals=principal.residuals,
    )
