"""The strongest eigenpairs of something that multiplies: block Krylov iteration with Rayleigh-Ritz.

The space starts as a good guess V and grows by the residuals of the pairs that are not yet accurate,

    Q <- [Q, orth(A u_l - lambda_l u_l)],   H = Q'AQ,   H y = lambda y,   u = Q y

so every product with A is kept and each pair gets the best polynomial in A that its products can buy.
Pairs that have converged cost no further products. All in float64; when Q fills its room the iteration
goes on from the current pairs alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tpca_cli.errors import ConvergenceError
from tpca_cli.tensor_pca.eigen import Array, Eigenpairs, by_rows, fix_signs, orthonormalize, solve_dense

Product = Callable[[Array], Array]
"""V (L, m) -> A V (L, m)"""

_COLUMNS = 64  # residuals computed together; rows are turned a block at a time: no second Q is ever held


def solve_top(
    multiply: Product,
    start: Array,
    count: int,
    *,
    tolerance: float,
    sine: float | None = None,
    steps: int = 80,
    room: int = 5,
) -> Eigenpairs:
    """The `count` strongest pairs, from a start block (L, b) with b >= count; `start` is overwritten.

    Until every |A u - lambda u| <= tolerance * lambda_1; an error if `steps` do not reach it. With `sine`
    also until the sine of the angle between their span and the true one is at most that, as far as float64
    can tell the two apart. `room` is the width of Q in blocks, at least 2; Q and A Q are what takes memory.
    """
    space = _Space(multiply, orthonormalize(start), max(2, room))
    for step in range(steps + 1):
        goal = _share(space.ritz()[0], count, tolerance, sine)
        residuals, directions = space.residuals(goal / 2)
        if step == steps or residuals[:count].max(initial=0.0) <= goal * space.ritz()[0][0]:
            break
        if not space.extend(directions):
            break  # the space is invariant: nothing is left to add
    pairs = space.pairs(count)
    if pairs.residual > (tolerance if sine is None else goal):
        raise ConvergenceError(
            f"the eigenvalue iteration reached a residual of {pairs.residual:.1e} lambda_1 after "
            f"{step} steps, not {goal:.1e}; allow a larger tolerance or ask for fewer components"
        )
    return pairs


FLOOR = 1e-13
"""Residuals, as a share of lambda_1, that products in float64 can be held to."""


def _share(values: Array, count: int, tolerance: float, sine: float | None) -> float:
    """The residual, as a share of lambda_1, that every pair must reach.

    sin(angle) <= |R|_F / (lambda_M - lambda_M+1), so with a wide gap after the last pair less will do. Where
    there is next to none, no algorithm tells the two sides apart, and the floor of float64 is all to be had.
    """
    if sine is None or len(values) <= count or values[0] <= 0:
        return tolerance
    gap = (values[count - 1] - values[count]) / values[0]
    return min(tolerance, max(float(sine * gap / np.sqrt(count)), FLOOR))


def refine(multiply: Product, start: Array, count: int, steps: int = 1) -> Eigenpairs:
    """The `count` strongest pairs in span(A^steps V), whatever residual they leave: steps + 1 products.

    For a start V (L, b), b >= count, that is good already, with columns as good as orthonormal; overwritten.
    """
    for _ in range(steps):
        start = orthonormalize(multiply(start))
    return _Space(multiply, start, 1).pairs(count)


class _Space:
    """Q and A Q as lists of column blocks, and H = Q'AQ."""

    def __init__(self, multiply: Product, start: Array, room: int) -> None:
        self._multiply = multiply
        self._block = start.shape[1]
        self._room = room * self._block
        self._q: list[Array] = []
        self._aq: list[Array] = []
        self._h = np.zeros((0, 0))
        self._solved: tuple[Array, Array] | None = None
        self._append(start)

    def _append(self, w: Array) -> None:
        """Add orthonormal columns and their products."""
        aw = self._multiply(w)
        cross = np.vstack([np.zeros((0, w.shape[1])), *(q.T @ aw for q in self._q)])
        corner = w.T @ aw
        self._h = np.block([[self._h, cross], [cross.T, (corner + corner.T) / 2]])
        self._q.append(w)
        self._aq.append(aw)
        self._solved = None

    def ritz(self) -> tuple[Array, Array]:
        """The strongest pairs of H: as many as the start had columns."""
        if self._solved is None:
            pairs = solve_dense(self._h, self._block)
            self._solved = pairs.values, pairs.vectors
        return self._solved

    def residuals(self, share: float) -> tuple[Array, Array]:
        """All norms |A u - lambda u|, and the residuals themselves where above `share` of lambda_1."""
        values, y = self.ritz()
        norms, large = np.zeros(len(values)), [np.zeros((len(self._q[0]), 0))]
        for start in range(0, len(values), _COLUMNS):
            part = slice(start, start + _COLUMNS)
            r = _times(self._aq, y[:, part]) - _times(self._q, y[:, part] * values[part])  # (L, columns)
            norms[part] = np.linalg.norm(r, axis=0)
            large.append(r[:, norms[part] > share * values[0]])
        return norms, np.hstack(large)

    def extend(self, directions: Array) -> bool:
        """Grow by these directions, after a restart from the pairs where there is no room for them."""
        if len(self._h) + directions.shape[1] > self._room:
            self._restart()
        # The first round makes the columns independent, the second orthonormal; in between they leave Q.
        w = orthonormalize(directions, 1)
        for q in self._q:
            w -= q @ (q.T @ w)
        w = orthonormalize(w)  # (L, m)
        for q in self._q:  # scaling small rests to norm 1 brings back what rounding left of Q in them
            w -= q @ (q.T @ w)
        w = orthonormalize(w[:, np.linalg.norm(w, axis=0) > 0.5])  # the others were rounding alone
        if w.shape[1] == 0:
            return False
        self._append(w)
        return True

    def _restart(self) -> None:
        values, y = self.ritz()
        for blocks in (self._q, self._aq):
            _turn(blocks, y)
        self._h = np.diag(values)
        self._solved = values, np.eye(len(values))

    def pairs(self, count: int) -> Eigenpairs:
        """The `count` strongest pairs with their residuals; the space is used up."""
        values, y = self.ritz()
        values, y = values[:count], y[:, :count]

        def turn(rows: slice) -> Array:
            u = _times([q[rows] for q in self._q], y)
            r = _times([aq[rows] for aq in self._aq], y) - u * values
            self._q[0][rows, : len(values)] = u  # in the place of what is no longer needed
            squares: Array = np.einsum("il,il->l", r, r)
            return squares

        squares = sum(by_rows(turn, len(self._q[0])), np.zeros(len(values)))
        return Eigenpairs(values, fix_signs(self._q[0][:, : len(values)]), np.sqrt(squares))


def _turn(blocks: list[Array], y: Array) -> Array:
    """u = Q y in place of the first block of Q, (L, columns of y); the other blocks are gone."""

    def turn(rows: slice) -> None:
        blocks[0][rows, : y.shape[1]] = _times([block[rows] for block in blocks], y)

    for _ in by_rows(turn, len(blocks[0])):
        pass
    blocks[:] = [blocks[0][:, : y.shape[1]]]
    return blocks[0]


def _times(blocks: list[Array], y: Array) -> Array:
    """[Q_1, Q_2, ..] y."""
    at = blocks[0].shape[1]
    total: Array = blocks[0] @ y[:at]
    for block in blocks[1:]:
        total += block @ y[at : at + block.shape[1]]
        at += block.shape[1]
    return total
