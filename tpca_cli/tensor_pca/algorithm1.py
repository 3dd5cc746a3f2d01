"""The L x L operator of Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.errors import ConvergenceError
from tpca_cli.tensor_pca.algorithm2 import partial_trace
from tpca_cli.tensor_pca.basis import Array, OperatorBasis, Rank1Basis, enough
from tpca_cli.tensor_pca.eigen import Eigenpairs, solve_dense
from tpca_cli.tensor_pca.exact import ExactGram, Integers, centered, mirrored
from tpca_cli.tensor_pca.krylov import solve_top

_PANEL = 256  # rows of the matrix handled at a time: bounded temporaries


class TensorOperator:
    """A_ij = X_in X_jn over all frames n, with i and j as linear indices in C order (eq 4A8)."""

    def __init__(self, frame_shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8) -> None:
        self.frame_shape = tuple(int(size) for size in frame_shape)
        self.size = prod(self.frame_shape)
        self._gram = ExactGram(self.size, dtype)

    def add(self, frames: npt.NDArray[np.unsignedinteger]) -> None:
        """Count a block of frames, (b, I_1, .., I_d)."""
        if frames.shape[1:] != self.frame_shape:
            raise ValueError(f"frames have shape {frames.shape[1:]}, the operator {self.frame_shape}")
        self._gram.add(frames.reshape(len(frames), self.size))

    def merge(self, other: TensorOperator) -> None:
        """Add the operator of other, disjoint frames: the sum is what one pass over both would give."""
        if (other.frame_shape, other.dtype) != (self.frame_shape, self.dtype):
            mine, theirs = f"{self.frame_shape} {self.dtype}", f"{other.frame_shape} {other.dtype}"
            raise ValueError(f"operators of frames {theirs} and {mine} do not add")
        lower = self.lower
        lower += other.lower
        self._gram.n += other.n
        self._gram.sums += other._gram.sums

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the pixels."""
        return self._gram.dtype

    @property
    def n(self) -> int:
        """The number of frames."""
        return self._gram.n

    @property
    def sums(self) -> Integers:
        """S_i, the sum of all frames."""
        return self._gram.sums.reshape(self.frame_shape)

    @property
    def lower(self) -> Integers:
        """A in int64 with only its lower triangle filled: the array itself, not a copy."""
        return self._gram.lower()

    @property
    def trace(self) -> int:
        """The energy of all frames, X_in X_in."""
        return int(np.trace(self.lower))

    def integers(self) -> Integers:
        """A in int64, whole."""
        return mirrored(self.lower)

    def matrix(self, *, center: bool = False, consume: bool = False) -> npt.NDArray[np.float64]:
        """A in float64, whole; with `center`, of the frames minus their mean: A - S S' / n.

        `consume` turns the integers into floats where they stand, for operators that fill the memory;
        this operator is of no use afterwards.
        """
        lower = self.lower
        matrix = lower.view(np.float64) if consume else np.empty((self.size, self.size))
        n, sums = max(1, self.n), self._gram.sums
        peak = (n * int(np.iinfo(self.dtype).max)) ** 2
        if peak >= 1 << 62:
            sums = sums.astype(np.float64)
        for start in range(0, self.size, _PANEL):
            stop = min(start + _PANEL, self.size)
            panel = lower[start:stop, :stop]
            if center:
                outer = sums[start:stop, None] * sums[:stop]
                matrix[start:stop, :stop] = centered(panel, outer, n, peak)
            else:
                matrix[start:stop, :stop] = panel.astype(np.float64)
            square = matrix[start:stop, start:stop]
            square[...] = np.tril(square) + np.tril(square, -1).T
            matrix[:start, start:stop] = matrix[start:stop, :start].T
        return matrix

    def packed(
        self, start: int = 0, stop: int | None = None, dtype: npt.DTypeLike = np.int64
    ) -> npt.NDArray[np.signedinteger]:
        """Rows `start` to `stop` of the lower triangle, one after another in one vector."""
        lower, stop = self.lower, self.size if stop is None else stop
        vector = np.empty((stop * (stop + 1) - start * (start + 1)) // 2, dtype)
        at = 0
        for i in range(start, stop):
            vector[at : at + i + 1] = lower[i, : i + 1]
            at += i + 1
        return vector

    def add_packed(self, values: npt.NDArray[np.signedinteger], start: int = 0) -> int:
        """Add rows of a packed triangle from row `start` on; returns the row after the last one."""
        lower = self.lower
        at = 0
        while at < len(values):
            lower[start, : start + 1] += values[at : at + start + 1]
            at += start + 1
            start += 1
        return start

    def count(self, n: int, sums: Integers) -> None:
        """Add the frame count and the sums that belong to rows given to `add_packed`."""
        self._gram.n += n
        self._gram.sums += sums.reshape(-1)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The whole state as plain arrays."""
        counts = np.array([self.n, self.dtype.itemsize], np.int64)
        return {"counts": counts, "sums": self.sums, "lower": self.packed()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> TensorOperator:
        """The inverse of `to_arrays`."""
        n, itemsize = (int(value) for value in arrays["counts"])
        operator = cls(arrays["sums"].shape, f"u{itemsize}")
        operator.count(n, arrays["sums"].astype(np.int64))
        operator.add_packed(arrays["lower"].astype(np.int64))
        return operator


TOLERANCE = 1e-6
"""The largest |A u - lambda u| / lambda_1 that the exact solver leaves."""

SINE = 1e-6
"""The largest sine of the angle between its space and the true one, unless a tolerance is asked for."""

SMALL = 4096  # up to this size LAPACK is quicker than any iteration that is as accurate
COORDINATES = 4  # rank-1 coordinates per wanted component that a start is computed in


def solve_operator(
    operator: TensorOperator,
    components: int | None = None,
    *,
    energy: float | None = None,
    center: bool = False,
    tolerance: float | None = None,
    consume: bool = False,
) -> OperatorBasis:
    """The basis of the strongest `components`, or as many as hold a share `energy`; all L by default.

    Residuals are at most `tolerance` lambda_1; without one they are as small as it takes for the space to be
    the true one within `SINE`. Where a choice is made, components without energy are left out: the rank
    is found, not assumed. `consume` reuses the memory of the operator.
    """
    mean = operator.sums / max(1, operator.n) if center else None
    shape = operator.frame_shape
    rank = max(1, min(operator.size, operator.n - int(center)))
    matrix = operator.matrix(center=center, consume=consume)
    total = float(np.trace(matrix))
    if components is None and energy is None:
        pairs = solve_dense(matrix)
    elif components is not None:
        pairs = strongest(matrix, shape, min(components, rank), tolerance)
    else:
        pairs = holding(matrix, shape, rank, float(energy or 0.0) * total, tolerance)
    if components is not None or energy is not None:
        pairs = pairs.first(max(1, pairs.rank()))
    check_residual(pairs, tolerance)
    return OperatorBasis(shape, pairs.vectors, pairs.values, total, mean, pairs.residuals)


def strongest(
    matrix: Array, shape: tuple[int, ...], count: int, tolerance: float | None, small: int | None = None
) -> Eigenpairs:
    """The `count` strongest pairs, by LAPACK up to a size of `small`, then by what is quicker."""
    if len(matrix) <= (SMALL if small is None else small) or 4 * count > len(matrix):
        return solve_dense(matrix, count)
    start = rank1_start(matrix, shape, guarded(count, len(matrix)))
    return solve_top(
        lambda v: matrix @ v,
        start,
        count,
        tolerance=TOLERANCE if tolerance is None else tolerance,
        sine=SINE if tolerance is None else None,
    )


def holding(
    matrix: Array,
    shape: tuple[int, ...],
    rank: int,
    energy: float,
    tolerance: float | None,
    small: int | None = None,
) -> Eigenpairs:
    """As many pairs as hold `energy`: the number is doubled until they do."""
    count = rank if len(matrix) <= (SMALL if small is None else small) else min(rank, 64)
    while True:
        pairs = strongest(matrix, shape, count, tolerance, small)
        if count == rank or pairs.values.sum() >= energy:
            return pairs.first(enough(pairs.values, energy))
        count = min(rank, 2 * count)


def check_residual(pairs: Eigenpairs, tolerance: float | None) -> None:
    """An error where pairs are not as accurate as was asked for."""
    if tolerance is not None and pairs.residual > tolerance:
        raise ConvergenceError(
            f"the residual is {pairs.residual:.1e} lambda_1, not {tolerance:.1e}: rounding allows no less; "
            "give a larger --tolerance"
        )


def guarded(count: int, size: int) -> int:
    """The block for `count` pairs: a few more, so that the last wanted pair is not the last held."""
    return min(size, count + max(16, count // 20))


def rank1_start(matrix: Array, shape: tuple[int, ...], block: int) -> Array:
    """Eigentensors within the strongest rank-1 coordinates (eq 4B13): Algorithm 2 prepares Algorithm 1.

    A U and U'A U cost mode products only, with the rows of A in the place of frames.
    """
    if len(shape) == 1:  # one mode: its rank-1 tensors are the answer itself, so start from noise
        return np.random.default_rng(0).standard_normal((len(matrix), block))
    size = prod(shape)
    modes = [partial_trace(matrix, shape, k) for k in range(len(shape))]
    rank1 = Rank1Basis.from_matrices(modes, min(size, COORDINATES * block))
    au = rank1.project(matrix.reshape(size, *shape))  # (L, R)
    uau = rank1.project(au.T.reshape(-1, *shape))  # (R, R)
    return rank1.rotated((uau + uau.T) / 2, block).columns()  # (L, block)
