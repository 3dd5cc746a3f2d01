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

from tpca_cli.eigen.dense import solve_dense
from tpca_cli.eigen.pairs import Array, Eigenpairs, fix_signs, orthonormalize
from tpca_cli.errors import ConvergenceError

Product = Callable[[Array], Array]
"""V (L, m) -> A V (L, m)"""

_COLUMNS = 64  # residuals computed together, and
_ROWS = 1024  # rows turned together: no second Q is ever held


def solve_top(
    multiply: Product,
    start: Array,
    count: int,
    *,
    tolerance: float | None = None,
    steps: int = 40,
    room: int = 5,
) -> Eigenpairs:
    """The `count` strongest pairs, from a start block (L, b) with b >= count; `start` is overwritten.

    With a `tolerance`, until every |A u - lambda u| <= tolerance * lambda_1, and an error if `steps`
    do not reach it. Without, exactly `steps` extensions of the start, whatever residual they leave.
    `room` is the width of Q in blocks, at least 2; Q and A Q are what takes memory.
    """
    space = _Space(multiply, orthonormalize(start), max(2, room))
    for step in range(steps + 1):
        values, y = space.ritz()
        bound = (tolerance or 0.0) * values[0]
        last = step == steps
        residuals, directions = space.residuals(values, y, np.inf if last else bound / 2)
        if last or residuals[:count].max(initial=0.0) <= bound:
            break
        if not space.extend(values, y, directions):
            break  # the space is invariant: nothing is left to add
    pairs = Eigenpairs(values, fix_signs(space.shrink(values, y)), residuals).first(count)
    if tolerance is not None and pairs.residual > tolerance:
        raise ConvergenceError(
            f"the eigenvalue iteration reached a residual of {pairs.residual:.1e} lambda_1 after "
            f"{step} steps, not {tolerance:.1e}; allow a larger tolerance or ask for fewer components"
        )
    return pairs


class _Space:
    """Q and A Q as lists of column blocks, and H = Q'AQ."""

    def __init__(self, multiply: Product, start: Array, room: int) -> None:
        self._multiply = multiply
        self._block = start.shape[1]
        self._room = room * self._block
        self._q: list[Array] = []
        self._aq: list[Array] = []
        self._h = np.zeros((0, 0))
        self._append(start)

    def _append(self, w: Array) -> None:
        """Add orthonormal columns and their products."""
        aw = self._multiply(w)
        cross = np.vstack([np.zeros((0, w.shape[1])), *(q.T @ aw for q in self._q)])
        corner = w.T @ aw
        self._h = np.block([[self._h, cross], [cross.T, (corner + corner.T) / 2]])
        self._q.append(w)
        self._aq.append(aw)

    def ritz(self) -> tuple[Array, Array]:
        """The strongest pairs of H: as many as the start had columns."""
        pairs = solve_dense(self._h, self._block)
        return pairs.values, pairs.vectors

    def residuals(self, values: Array, y: Array, bound: float) -> tuple[Array, Array]:
        """All norms |A u - lambda u|, and the residuals themselves, normalized, where above `bound`."""
        norms, large = np.zeros(len(values)), [np.zeros((len(self._q[0]), 0))]
        for start in range(0, len(values), _COLUMNS):
            part = slice(start, start + _COLUMNS)
            r = _times(self._aq, y[:, part]) - _times(self._q, y[:, part] * values[part])  # (L, columns)
            norms[part] = np.linalg.norm(r, axis=0)
            chosen = norms[part] > bound
            large.append(r[:, chosen] / norms[part][chosen])
        return norms, np.hstack(large)

    def extend(self, values: Array, y: Array, directions: Array) -> bool:
        """Grow by these directions, after a restart from the pairs where there is no room for them."""
        if len(self._h) + directions.shape[1] > self._room:
            self.shrink(values, y)
        w = orthonormalize(directions)
        for q in self._q:
            w -= q @ (q.T @ w)
        w = orthonormalize(w)  # (L, m)
        if w.shape[1] == 0:
            return False
        self._append(w)
        return True

    def shrink(self, values: Array, y: Array) -> Array:
        """Turn the space into its strongest pairs, u = Q y, and return them, (L, b)."""
        for blocks in (self._q, self._aq):
            for start in range(0, len(blocks[0]), _ROWS):
                rows = slice(start, start + _ROWS)
                blocks[0][rows] = _times([block[rows] for block in blocks], y)
            del blocks[1:]
        self._h = np.diag(values)
        return self._q[0]


def _times(blocks: list[Array], y: Array) -> Array:
    """[Q_1, Q_2, ..] y."""
    total, at = np.zeros((len(blocks[0]), y.shape[1])), 0
    for block in blocks:
        total += block @ y[at : at + block.shape[1]]
        at += block.shape[1]
    return total
