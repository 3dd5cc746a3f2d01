"""Eigenpairs of a matrix that fits in memory, by LAPACK."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tpca_cli.eigen.pairs import Array, Eigenpairs, fix_signs


def solve_dense(matrix: npt.NDArray[np.floating], count: int | None = None) -> Eigenpairs:
    """The `count` strongest pairs (all by default) of a symmetric matrix: a u = lambda u  (eq 4A4)."""
    size = len(matrix)
    count = size if count is None else min(count, size)
    if count == 0:
        return Eigenpairs(np.zeros(0), np.zeros((size, 0)), np.zeros(0))
    import scipy.linalg  # late: looking at a file must not wait for it

    # Divide and conquer gives many pairs fastest; a few are cheaper by relatively robust representations,
    # which may find fewer pairs than asked for when eigenvalues are equal.
    values: Array = np.zeros(0)
    if 6 * count <= size:
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=(size - count, size - 1), driver="evr")
    if len(values) < count:
        values, vectors = scipy.linalg.eigh(matrix, driver="evd")
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    vectors = fix_signs(np.ascontiguousarray(vectors))
    residuals = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    return Eigenpairs(np.maximum(values, 0.0), vectors, residuals)
