"""The N x N operator of Algorithm 3."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable
from math import ceil, log2, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.interfaces import Frames
from tpca_cli.tensor_pca.algorithm1 import check_residual, holding, strongest
from tpca_cli.tensor_pca.algorithm1_streamed import Moments
from tpca_cli.tensor_pca.basis import Array, SubspaceBasis
from tpca_cli.tensor_pca.eigen import Eigenpairs, fix_signs, orthonormal_columns
from tpca_cli.tensor_pca.exact import ExactGram, Integers, centered, mirrored
from tpca_cli.tensor_pca.fold import add, join


class GramOperator:
    """a_mn = X_im X_in  (eq 4C5), int64.

    It adds over slabs of pixels, not over frames: the entry of two frames needs the pixels of both.
    """

    def __init__(self, integers: Integers) -> None:
        self.n = len(integers)
        self.integers = integers

    @classmethod
    def of(cls, frames: Frames, rows: int | None = None) -> GramOperator:
        """The operator of all frames, never holding more than twice `rows` of them."""
        return cls(frames.gram(rows))

    def matrix(
        self, *, center: bool = False, order: npt.NDArray[np.int64] | None = None, consume: bool = False
    ) -> npt.NDArray[np.float64]:
        """a in float64, its frames in the given order; with `center`, of the frames minus their mean.

        `consume` gives up the integers: this operator is of no use afterwards.
        """
        integers = self.integers if order is None else self.integers[np.ix_(order, order)]
        if consume:
            self.integers = np.zeros((0, 0), np.int64)
        if not center or self.n == 0:
            return integers.astype(np.float64)
        # <X_m - mean, X_n - mean> times N is N a_mn - s_m - s_n + mean of s, s_m = sum_n a_mn.
        sums = integers.sum(axis=1)  # (N,)
        peak = self.n**2 * int(np.diag(integers).max())
        if peak >= 1 << 62:
            sums = sums.astype(np.float64)
        outer = self.n * (sums[:, None] + sums) - sums.sum()
        return centered(self.n * integers, outer, self.n, peak) / self.n


SLAB = 1024  # pixels multiplied together: 1024 * 128^2 = 2^24, so that no sum leaves the exact integers


def gram_of_blocks(frames: Frames, rows: int | None = None) -> Integers:
    """a_mn = X_im X_in  (eq 4C5) of frames at hand, block by block."""
    gram = np.zeros((frames.count, frames.count), np.int64)
    rows = max(1, frames.count if rows is None else rows)
    for i, block in enumerate(frames.blocks(rows)):
        for j, other in enumerate(frames.blocks(rows)):
            if j >= i:
                break
            _fill(gram, np.concatenate([other, block]), j * rows, i * rows, len(other))
        if i == 0:
            _fill(gram, block, 0, 0, 0)
    return gram


def gram_of_products(count: int, products: Iterable[tuple[int, int, Integers]]) -> Integers:
    """The same from products of two runs each: (first frame of one, of the other, `cross` of both)."""
    gram = np.zeros((count, count), np.int64)
    for at, then, block in products:
        gram[at : at + block.shape[0], then : then + block.shape[1]] = block
        gram[then : then + block.shape[1], at : at + block.shape[0]] = block.T
    return gram


def _fill(gram: Integers, frames: npt.NDArray[np.unsignedinteger], at: int, then: int, split: int) -> None:
    """Set the entries among `frames`: the first `split` of them stand at `at`, the others at `then`."""
    count = len(frames)
    slabs = ExactGram(count, frames.dtype)
    pixels = frames.reshape(count, prod(frames.shape[1:]))
    slabs.add(pixels.T)  # (L, count): here a pixel is a row, and the frames are the columns
    whole = mirrored(slabs.lower())
    first, second = slice(at, at + split), slice(then, then + count - split)
    gram[first, first] = whole[:split, :split]
    gram[second, first] = whole[split:, :split]
    gram[first, second] = whole[:split, split:]
    gram[second, second] = whole[split:, split:]


def cross(one: npt.NDArray[np.unsignedinteger], other: npt.NDArray[np.unsignedinteger]) -> Integers:
    """a_mn = X_im X_in  (eq 4C5) for frames m of one set and n of another, as int64.

    Bytes are shifted by 128 and multiplied in float32. T r = Y (Z'r) is checked for a random vector r of
    signs: a BLAS that computes in less precision than it claims is found, and float64 is used instead.
    """
    shift = 1 << (8 * one.dtype.itemsize - 1)
    y, z = (_shifted(frames, shift) for frames in (one, other))
    narrow = one.dtype.itemsize == 1
    total = _product(y.astype(np.float32), z.astype(np.float32)) if narrow else _product(y, z)
    signs = np.random.default_rng(len(z)).integers(0, 2, len(z)) * 2.0 - 1.0
    if narrow and not np.array_equal(total @ signs, y @ (signs @ z)):
        total = _product(y, z)
    # x = y + s, so x x' = y y' + s (y + y') + s^2, summed over the pixels
    sums, others = (rows.sum(axis=1).astype(np.int64) for rows in (y, z))
    total += shift * (sums[:, None] + others) + shift**2 * y.shape[1]
    return total


def _shifted(frames: npt.NDArray[np.unsignedinteger], shift: int) -> npt.NDArray[np.float64]:
    rows = frames.reshape(len(frames), prod(frames.shape[1:]))
    shifted: npt.NDArray[np.float64] = np.subtract(rows, shift, dtype=np.float64)
    return shifted


def _product(y: npt.NDArray[np.floating], z: npt.NDArray[np.floating]) -> Integers:
    """Y Z', slab by slab."""
    total = np.zeros((len(y), len(z)), np.int64)
    for start in range(0, y.shape[1], SLAB):
        slab = slice(start, start + SLAB)
        total += (y[:, slab] @ z[:, slab].T).astype(np.int64)
    return total


SMALL = 8192  # up to so many frames LAPACK solves: there is no good start for an iteration here
COLUMNS = 256  # components computed together, fewer where frames are large: bounded memory,
SUMS = 1 << 22  # of so many values
CHUNK = 1 << 18  # pixels in float64 at a time: they stay in cache


def solve_subspace(
    frames: Frames,
    gram: GramOperator,
    components: int | None = None,
    *,
    energy: float | None = None,
    center: bool = False,
    tolerance: float | None = None,
    order: npt.NDArray[np.int64] | None = None,
) -> SubspaceBasis:
    """The basis Q_il = X_in b_nl (eq 4C11) of the strongest components; all that are independent by default.

    `tolerance` is the largest measured |A q - lambda q| / lambda_1; more than that is an error.
    `order` lists the frames in an order that does not depend on where they came from (by content): the
    floating-point solve then sees the same matrix, and the basis has the same bits, for any order of
    the frames. The operator is used up.
    """
    import scipy.linalg

    order = np.arange(gram.n) if order is None else order
    a = gram.matrix(center=center, order=order, consume=True)  # (N, N)
    total = float(np.trace(a))
    if energy is not None:
        pairs = holding(a, (gram.n,), gram.n, energy * total, tolerance, SMALL)
    else:
        pairs = strongest(a, (gram.n,), min(components or gram.n, gram.n), tolerance, SMALL)
    # The operator squares the condition number: below eps * N * lambda_1 there is only noise.
    pairs = pairs.first(max(1, pairs.rank()))
    mean = _mean(frames) if center else None
    if pairs.values[0] <= 0:  # frames without energy: any one direction represents them
        unit = np.eye(prod(frames.frame_shape), 1)
        return SubspaceBasis(frames.frame_shape, unit, pairs.values, total, mean, pairs.residuals)

    values = pairs.values
    b = pairs.vectors  # b_nl = U_nm Sigma^-1_ml  (eq 4C12)
    del pairs  # Q is about to take the memory
    b /= np.sqrt(values)
    if center:
        b -= b.mean(axis=0)  # (X - mean) b = X (b - the mean of b)
    by_frame = np.empty_like(b)
    by_frame[order] = b
    del b
    # Q is only as orthonormal as b is accurate, to the square root of eps: make it so.
    q, r = orthonormal_columns(combine(frames, by_frame))  # (L, M), (M, M)
    fix_signs(q)
    # For Q = X b, b <- b r^-1, A Q - Q Lambda is X rho, rho = a b - b Lambda, of norm rho' a rho.
    for start in range(0, by_frame.shape[1], COLUMNS):  # few at a time, here and below: Q has the memory
        few = slice(start, start + COLUMNS)
        by_frame[:, few] = by_frame[order, few]
    b = scipy.linalg.solve_triangular(r, by_frame.T, trans="T", overwrite_b=True, check_finite=False).T
    del r
    residuals = np.empty(len(values))
    for start in range(0, len(values), COLUMNS):
        few = slice(start, start + COLUMNS)
        rho = a @ b[:, few] - b[:, few] * values[few]
        residuals[few] = np.sqrt(np.maximum(np.einsum("nl,nl->l", rho, a @ rho), 0.0))
    check_residual(Eigenpairs(values, q, residuals), tolerance)
    return SubspaceBasis(frames.frame_shape, q, values, total, mean, residuals)


def combine(frames: Frames, b: Array) -> Array:
    """X_in b_nl, (L, M), with the same bits for any blocks and any order of the frames.

    Each column of b is written as two integers of k bits, hi + lo 2^-k, times a power of two. Sums of
    pixels times k-bit integers stay below 2^53, so float64 adds them exactly.
    """
    size, bits = prod(frames.frame_shape), 52 - 8 * frames.dtype.itemsize - ceil(log2(len(b) + 1))
    q = np.empty((size, b.shape[1]))
    columns = together(size)
    for start in range(0, b.shape[1], columns):
        part = b[:, start : start + columns]
        _, exponent = np.frexp(np.abs(part).max(axis=0))
        scaled = np.ldexp(part, bits - exponent)  # at most 2^bits
        hi = np.rint(scaled)
        lo = np.rint(np.ldexp(scaled - hi, bits))
        (both,) = frames.fold(combined, add, np.hstack([hi, lo]))
        high, low = np.hsplit(np.require(both, requirements="W"), 2)
        high += np.ldexp(low, -bits, out=low)
        np.ldexp(high, exponent - bits, out=q[:, start : start + columns])
        del both, high, low  # before the next ones are there
    return q


def together(size: int) -> int:
    """Components of `size` values that are computed together."""
    return max(16, min(COLUMNS, SUMS // (2 * size)))


def sums_held(size: int, threads: int) -> int:
    """Values that `combine` holds at most besides Q: a sum of each thread, and two more."""
    return (threads + 2) * 2 * size * together(size)


def combined(at: int, run: npt.NDArray[np.unsignedinteger], b: Array) -> tuple[Array, ...]:
    """X_in b_nl over a run of frames, whose first is frame `at`; some pixels at a time."""
    rows = run.reshape(len(run), prod(run.shape[1:]))  # (b, L)
    total, pixels = _mapped((rows.shape[1], b.shape[1])), max(1, CHUNK // len(rows))
    for start in range(0, rows.shape[1], pixels):
        few = slice(start, start + pixels)
        np.matmul(rows[:, few].astype(np.float64).T, b[at : at + len(rows)], out=total[few])
    return (total,)


def _mapped(shape: tuple[int, ...]) -> Array:
    """Zeros in pages of their own, which go back to the system with the array.

    Of what threads free, the C library keeps arrays of up to 32 MB, one or more for each of them.
    """
    return np.frombuffer(mmap.mmap(-1, 8 * prod(shape))).reshape(shape)


def _mean(frames: Frames) -> Array:
    return Moments.of(*frames.fold(counted, add)).mean()


def counted(at: int, run: npt.NDArray[np.unsignedinteger]) -> tuple[Any, ...]:
    """The moments of a run."""
    moments = Moments(run.shape[1:])
    moments.add(run)
    return moments.n, moments.sums, moments.energy


def content_order(frames: Frames) -> npt.NDArray[np.int64]:
    """The frames sorted by their pixels: an order that names and folders have no part in."""
    keys = [row.tobytes() for row in frames.fold(contents, join)]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def contents(at: int, run: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """A digest of the pixels of every frame of a run, (b, 16)."""
    keys = [hashlib.blake2b(frame.tobytes(), digest_size=16).digest() for frame in run]
    return np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 16)
