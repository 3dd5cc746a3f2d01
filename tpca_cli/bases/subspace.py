"""Algorithm 3: a basis of the space that N < L frames span, from their N x N operator."""

from __future__ import annotations

from math import ceil, log2, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.bases.dense import Array, SubspaceBasis
from tpca_cli.bases.operator import TOLERANCE, holding, strongest
from tpca_cli.eigen import fix_signs
from tpca_cli.operators import Frames, GramOperator, Moments, add, fold

COLUMNS = 256  # components computed together: bounded memory
CHUNK = 1 << 22  # pixels in float64 at a time


def solve_subspace(
    frames: Frames,
    gram: GramOperator,
    components: int | None = None,
    *,
    energy: float | None = None,
    center: bool = False,
    order: npt.NDArray[np.int64] | None = None,
) -> SubspaceBasis:
    """The basis Q_il = X_in b_nl (eq 4C11) of the strongest components; all that are independent by default.

    `order` lists the frames in an order that does not depend on where they came from (by content): the
    floating-point solve then sees the same matrix, and the basis has the same bits, for any order of
    the frames.
    """
    order = np.arange(gram.n) if order is None else order
    a = gram.matrix(center=center, order=order)  # (N, N)
    total = float(np.trace(a))
    if energy is not None:
        pairs = holding(a, (gram.n,), gram.n, energy * total, TOLERANCE)
    else:
        pairs = strongest(a, (gram.n,), min(components or gram.n, gram.n), TOLERANCE)
    # The operator squares the condition number: below eps * N * lambda_1 there is only noise.
    pairs = pairs.first(max(1, pairs.rank()))
    mean = _mean(frames) if center else None
    if pairs.values[0] <= 0:  # frames without energy: any one direction represents them
        unit = np.eye(prod(frames.frame_shape), 1)
        return SubspaceBasis(frames.frame_shape, unit, pairs.values, total, mean, pairs.residuals)

    b = pairs.vectors / np.sqrt(pairs.values)  # b_nl = U_nm Sigma^-1_ml  (eq 4C12)
    if center:
        b -= b.mean(axis=0)  # (X - mean) b = X (b - the mean of b)
    by_frame = np.empty_like(b)
    by_frame[order] = b
    # Q is only as orthonormal as b is accurate, to the square root of eps: make it so.
    q, r = np.linalg.qr(combine(frames, by_frame))  # (L, M), (M, M)
    signs = np.where(np.diag(r) < 0, -1.0, 1.0)  # QR may turn a tensor round: turn it back
    q, r = q * signs, r * signs[:, None]
    final = fix_signs(q)
    # For Q = X b the residual A Q - Q Lambda is X rho, rho = a b - b Lambda, of norm rho' a rho.
    b = np.linalg.solve(r.T, b.T).T
    rho = a @ b - b * pairs.values
    residuals = np.sqrt(np.maximum(np.einsum("nl,nl->l", rho, a @ rho), 0.0))
    return SubspaceBasis(frames.frame_shape, final, pairs.values, total, mean, residuals)


def combine(frames: Frames, b: Array) -> Array:
    """X_in b_nl, (L, M), with the same bits for any blocks and any order of the frames.

    Each column of b is written as two integers of k bits, hi + lo 2^-k, times a power of two. Sums of
    pixels times k-bit integers stay below 2^53, so float64 adds them exactly.
    """
    size, bits = prod(frames.frame_shape), 52 - 8 * frames.dtype.itemsize - ceil(log2(len(b) + 1))
    q = np.empty((size, b.shape[1]))
    for start in range(0, b.shape[1], COLUMNS):
        part = b[:, start : start + COLUMNS]
        _, exponent = np.frexp(np.abs(part).max(axis=0))
        scaled = np.ldexp(part, bits - exponent)  # at most 2^bits
        hi = np.rint(scaled)
        lo = np.rint(np.ldexp(scaled - hi, bits))
        (both,) = fold(frames, combined, add, np.hstack([hi, lo]))
        high, low = np.hsplit(both, 2)
        q[:, start : start + COLUMNS] = np.ldexp(high + np.ldexp(low, -bits), exponent - bits)
    return q


def combined(at: int, run: npt.NDArray[np.unsignedinteger], b: Array) -> tuple[Array, ...]:
    """X_in b_nl over a run of frames, whose first is frame `at`."""
    size = prod(run.shape[1:])
    total, rows = np.zeros((size, b.shape[1])), max(1, CHUNK // size)
    for start in range(0, len(run), rows):
        x = run[start : start + rows].reshape(-1, size).astype(np.float64)  # (b, L)
        total += x.T @ b[at + start : at + start + len(x)]
    return (total,)


def _mean(frames: Frames) -> Array:
    return Moments.of(*fold(frames, counted, add)).mean()


def counted(at: int, run: npt.NDArray[np.unsignedinteger]) -> tuple[Any, ...]:
    """The moments of a run."""
    moments = Moments(run.shape[1:])
    moments.add(run)
    return moments.n, moments.sums, moments.energy
