"""Algorithm 1: the eigentensors of the operator A, whole or its strongest."""

from __future__ import annotations

from math import prod

import numpy as np

from tpca_cli.bases.dense import Array, OperatorBasis, enough
from tpca_cli.bases.rank1 import Rank1Basis
from tpca_cli.eigen import Eigenpairs, solve_dense, solve_top
from tpca_cli.operators import TensorOperator, partial_trace

TOLERANCE = 1e-6
"""The largest |A u - lambda u| / lambda_1 that the exact solver leaves."""

SMALL = 1536  # up to this size LAPACK is quicker than any iteration
COORDINATES = 4  # rank-1 coordinates per wanted component that a start is computed in


def solve_operator(
    operator: TensorOperator,
    components: int | None = None,
    *,
    energy: float | None = None,
    center: bool = False,
    tolerance: float = TOLERANCE,
    consume: bool = False,
) -> OperatorBasis:
    """The basis of the strongest `components`, or as many as hold a share `energy`; all L by default.

    Where a choice is made, components without energy are left out: the rank is found, not assumed.
    `consume` reuses the memory of the operator.
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
    return OperatorBasis(shape, pairs.vectors, pairs.values, total, mean, pairs.residuals)


def strongest(matrix: Array, shape: tuple[int, ...], count: int, tolerance: float) -> Eigenpairs:
    """The `count` strongest pairs, by whichever way is quicker for this size."""
    if len(matrix) <= SMALL or 4 * count > len(matrix):
        return solve_dense(matrix, count)
    start = rank1_start(matrix, shape, guarded(count, len(matrix)))
    return solve_top(lambda v: matrix @ v, start, count, tolerance=tolerance)


def holding(matrix: Array, shape: tuple[int, ...], rank: int, energy: float, tolerance: float) -> Eigenpairs:
    """As many pairs as hold `energy`: the number is doubled until they do."""
    count = rank if len(matrix) <= SMALL else min(rank, 64)
    while True:
        pairs = strongest(matrix, shape, count, tolerance)
        if count == rank or pairs.values.sum() >= energy:
            return pairs.first(enough(pairs.values, energy))
        count = min(rank, 2 * count)


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
