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


def solve_top(
    multiply: Product,
    start: Array,
    count: int,
    *,
    tolerance: float | None = None,
    steps: int = 40,
    room: int | None = None,
) -> Eigenpairs:
    """The `count` strongest pairs, from a start block (L, b) with b >= count.

    With a `tolerance`, until every |A u - lambda u| <= tolerance * lambda_1, and an error if `steps`
    do not reach it. Without, exactly `steps` extensions of the start, whatever residual they leave.
    `room` bounds the columns of Q, which is held twice (with A Q).
    """
    q = orthonormalize(start)  # (L, b)
    block = q.shape[1]
    room = max(3 * block, room or 6 * block)
    aq = multiply(q)  # (L, b)
    h = q.T @ aq  # (b, b)
    for step in range(steps + 1):
        ritz = solve_dense((h + h.T) / 2, block)
        u, au = q @ ritz.vectors, aq @ ritz.vectors  # (L, b)
        r = au - u * ritz.values
        residuals = np.linalg.norm(r, axis=0)
        bound = (tolerance or 0.0) * ritz.values[0]
        if step == steps or residuals[:count].max(initial=0.0) <= bound:
            break
        if q.shape[1] + block > room:
            q, aq, h = u, au, np.diag(ritz.values)
        # Half the bound: the pairs just beyond `count` keep up, at the price of few columns.
        w = r[:, residuals > bound / 2]
        w = orthonormalize(w / np.linalg.norm(w, axis=0))
        w = orthonormalize(w - q @ (q.T @ w))  # (L, m)
        if w.shape[1] == 0:
            break  # the space is invariant: nothing is left to add
        aw = multiply(w)
        cross = q.T @ aw
        h = np.block([[h, cross], [cross.T, w.T @ aw]])
        q, aq = np.hstack([q, w]), np.hstack([aq, aw])
    pairs = Eigenpairs(np.maximum(ritz.values, 0.0), fix_signs(u), residuals).first(count)
    if tolerance is not None and pairs.residual > tolerance:
        raise ConvergenceError(
            f"the eigenvalue iteration reached a residual of {pairs.residual:.1e} lambda_1 after "
            f"{step} steps, not {tolerance:.1e}; allow a larger tolerance or ask for fewer components"
        )
    return pairs
