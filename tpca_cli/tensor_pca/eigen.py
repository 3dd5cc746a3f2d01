"""The answer of every solver, and the conventions that make it unique."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tpca_cli.parallel import alone, side_by_side

Array = npt.NDArray[np.float64]
Result = TypeVar("Result")

_ROWS = 1024  # rows that are rotated together,
_FEW = 4  # and blocks of them that are not worth threads of their own
_INDEPENDENT = (
    1e-4  # columns with so much of their own: two rounds make them orthonormal without eigenvectors
)
_SMALL = 4096  # matrices that one thread of BLAS solves about as fast as two
_SIDE = 64  # of an image or tile, at most: loading SciPy takes longer than to solve for it
_COLUMNS = 64  # columns whose signs are looked at together


@dataclass(frozen=True)
class Eigenpairs:
    """lambda_l, falling, with orthonormal u_l and the measured |A u_l - lambda_l u_l|."""

    values: Array  # (M,)
    vectors: Array  # (L, M)
    residuals: Array  # (M,)

    @property
    def residual(self) -> float:
        """The largest residual as a share of lambda_1."""
        largest = float(self.residuals.max(initial=0.0))
        return largest / float(self.values[0]) if len(self.values) and self.values[0] > 0 else largest

    @property
    def relative(self) -> Array:
        """Every residual as a share of its own lambda_l; 0 where lambda_l is 0."""
        return np.divide(self.residuals, self.values, out=np.zeros_like(self.values), where=self.values > 0)

    def rank(self, precision: float = float(np.finfo(np.float64).eps)) -> int:
        """How many eigenvalues stand above what rounding alone can produce: size * precision * lambda_1."""
        if not len(self.values) or self.values[0] <= 0:
            return 0
        return int(np.count_nonzero(self.values > self.values[0] * len(self.vectors) * precision))

    def first(self, count: int) -> Eigenpairs:
        """The `count` strongest pairs."""
        return Eigenpairs(self.values[:count], self.vectors[:, :count], self.residuals[:count])


def fix_signs(vectors: Array) -> Array:
    """Each column turned so that its first entry of (almost) largest magnitude is positive; in place.

    "Almost" because symmetric images give entries of equal magnitude, and rounding must not choose.
    """
    for start in range(0, vectors.shape[1], _COLUMNS):
        part = vectors[:, start : start + _COLUMNS]
        size = np.abs(part)
        leading = np.argmax(size >= size.max(axis=0, initial=0.0) * (1 - 1e-6), axis=0)
        part *= np.where(part[leading, np.arange(part.shape[1])] < 0, -1.0, 1.0)
    return vectors


def orthonormalize(vectors: Array, rounds: int = 2) -> Array:
    """An orthonormal basis of the column space, by W (W'W)^(-1/2) on the columns that are independent.

    Matrix products instead of a QR factorization: several times faster for tall blocks. Two rounds, since
    forming W'W squares the condition number; the second time it is close to 1. Overwrites `vectors`.
    """
    for _ in range(rounds):
        squares = _squares(vectors)
        if np.abs(squares - np.eye(len(squares))).max(initial=0.0) <= 1e-13:
            break  # they were orthonormal already
        norms = np.sqrt(np.diag(squares))
        scale = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        vectors = rotate(vectors, scale[:, None] * _whitening(squares * scale * scale[:, None]))
    return vectors


def _squares(vectors: Array) -> Array:
    """V'V."""
    parts = by_rows(lambda rows: vectors[rows].T @ vectors[rows], len(vectors))
    total: Array = next(parts, np.zeros((vectors.shape[1],) * 2))
    for part in parts:
        total += part
    return total


def _whitening(squares: Array) -> Array:
    """R with R' S R = 1 on the columns that are independent, for a symmetric S with ones on its diagonal."""
    with alone() if len(squares) < _SMALL else nullcontext():
        return _inverse_root(squares)


def _inverse_root(squares: Array) -> Array:
    try:
        lower = np.linalg.cholesky(squares)  # a tenth of the time of all eigenvectors
        if np.diag(lower).min(initial=1.0) > _INDEPENDENT:
            inverse: Array = np.linalg.inv(lower).T
            return inverse
    except np.linalg.LinAlgError:
        pass
    values, rotation = np.linalg.eigh(squares)
    independent = values > values.max(initial=0.0) * len(values) * np.finfo(np.float64).eps
    found: Array = rotation[:, independent] / np.sqrt(values[independent])
    return found


def rotate(vectors: Array, rotation: Array) -> Array:
    """V R in the first columns of V, without a second V; R is square or narrower."""
    columns = rotation.shape[1]

    def turn(rows: slice) -> None:
        vectors[rows, :columns] = vectors[rows] @ rotation

    for _ in by_rows(turn, len(vectors)):
        pass
    return vectors[:, :columns]


def by_rows(function: Callable[[slice], Result], count: int) -> Iterator[Result]:
    """The results of work on so many rows, a block at a time; side by side where there are many."""
    parts = [slice(start, start + _ROWS) for start in range(0, count, _ROWS)]
    return side_by_side(function, parts) if len(parts) > _FEW else map(function, parts)


def solve_dense(matrix: npt.NDArray[np.floating], count: int | None = None) -> Eigenpairs:
    """The `count` strongest pairs (all by default) of a symmetric matrix: a u = lambda u  (eq 4A4)."""
    size = len(matrix)
    count = size if count is None else min(count, size)
    if count == 0:
        return Eigenpairs(np.zeros(0), np.zeros((size, 0)), np.zeros(0))
    with alone() if size < _SMALL else nullcontext():
        values, vectors = np.linalg.eigh(matrix) if size <= _SIDE else _largest(matrix, count)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    vectors = fix_signs(np.ascontiguousarray(vectors))
    residuals = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    return Eigenpairs(np.maximum(values, 0.0), vectors, residuals)


def _largest(matrix: npt.NDArray[np.floating], count: int) -> tuple[Array, Array]:
    """At least the `count` largest eigenvalues, rising, with their vectors."""
    import scipy.linalg  # late: looking at a file, or solving for a tile, must not wait for it

    # Divide and conquer gives many pairs fastest; a few are cheaper by relatively robust representations,
    # which may find fewer pairs than asked for when eigenvalues are equal.
    values: Array = np.zeros(0)
    if 6 * count <= len(matrix):
        last = (len(matrix) - count, len(matrix) - 1)
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=last, driver="evr")
    if len(values) < count:
        values, vectors = scipy.linalg.eigh(matrix, driver="evd")
    return values, vectors


def orthonormal_columns(vectors: Array) -> tuple[Array, Array]:
    """Q and R with V = Q R, R upper triangular with a positive diagonal; Q takes the place of V.

    As a QR factorization for columns that are nearly orthonormal, but without a second V: by Cholesky, twice,
    since the first time squares what is not orthonormal. Rows are turned a block at a time.
    """
    import scipy.linalg

    total: Array | None = None
    for _ in range(2):
        squares = vectors.T @ vectors  # symmetric: its transpose is in LAPACK's order, and is overwritten
        r = scipy.linalg.cholesky(squares.T, lower=False, overwrite_a=True, check_finite=False)
        del squares
        if total is None:
            total = r
            inverse, _ = scipy.linalg.lapack.dtrtri(r)
        else:
            total = scipy.linalg.blas.dtrmm(1.0, r, total, overwrite_b=1)
            inverse, _ = scipy.linalg.lapack.dtrtri(r, overwrite_c=1)
        rotate(vectors, inverse)
        del r, inverse
    assert total is not None
    return vectors, total
