"""Algorithm 1 without its operator: A is never formed, only multiplied, a pass over the frames each time.

For frames whose L x L operator fits no memory, or is not worth its time. The start comes from Algorithm
2: rank-1 coordinates learned from a sample, the strongest of them, and D'D in these, V. One more pass gives
A V, whose span holds far better components, and another one them and their measured residuals; a `tolerance`
buys as many passes as it takes. The coefficients of V come from the coordinates, by mode products: that is a
third of the multiplications that pixels would take.

Products are in float32 while that is enough. An eigenvalue comes out of them as |X'u|^2, of which rounding
makes eps^2 lambda_1 and not eps lambda_1; but the directions of A V get lost among the rounding errors of the
strong ones long before, so that components much weaker than the first are computed in float64. What the
components leave over is a small difference of large energies, to which the strong ones bring more rounding
than it may have: theirs are measured once more, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.interfaces import Frames, Progress
from tpca_cli.tensor_pca.algorithm1 import guarded
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, solve_modes
from tpca_cli.tensor_pca.basis import Array, OperatorBasis, Rank1Basis, enough
from tpca_cli.tensor_pca.eigen import Eigenpairs, orthonormalize
from tpca_cli.tensor_pca.exact import Integers
from tpca_cli.tensor_pca.fold import add, join
from tpca_cli.tensor_pca.krylov import refine, solve_top

SAMPLE = 512  # frames that the coordinates are learned from
COORDINATES = 3  # rank-1 coordinates per wanted component that the start is computed in,
LEAST = 1024  # and at least so many, if there are: they cost less than the mode products that find them
GUARD = 16  # components more than wanted, where two products are all: without iterations they do little
SINGLE = 1e-5  # residuals below this need float64 products,
WEAK = 1e-7  # and so do eigenvalues below this share of the largest
NARROW = 1e-5  # coordinates weaker than this share of the strongest need a float64 start
MANY = 8  # from one component for so many frames on, what is left is little, and one product more is due
LITTLE = 1e-5  # of the total energy: where less is left over, all energies are measured in float64
STRONG = 8  # times what is left over: components that hold no more together are measured well by float32
NOISE = 64  # eps^2 lambda_1 is what rounding makes of no energy; so many times that is energy


def solve_stream(
    frames: Frames,
    components: int | None,
    *,
    energy: float | None = None,
    center: bool = False,
    tolerance: float | None = None,
    sine: float | None = None,
    progress: Progress | None = None,
) -> OperatorBasis:
    """The strongest `components`, or as many as hold a share `energy`, of A = X X' by passes over X.

    `tolerance` is the largest residual as a share of lambda_1; with `sine`, the space is also held to the
    true one. Without either, what two or three products give is measured and returned.
    """
    passes = _Passes(frames, progress)
    rank1 = passes.coordinates(center)
    size = prod(frames.frame_shape)
    rank = max(1, min(size, frames.count - int(center)))
    count = min(rank, 64 if components is None else components)
    while True:
        block = min(size, count + GUARD) if tolerance is None else guarded(count, size)
        moments, start = passes.start(rank1, block)
        mean = moments.mean() if center else None
        total = moments.total(center=center)
        values = start.energies
        weak = (tolerance or 1.0) < SINGLE or values[min(count, len(values)) - 1] < WEAK * values[0]
        precision = np.dtype(np.float64 if weak else np.float32)
        space = passes.lift(replace(start, mean=mean), precision)
        multiply = passes.product(mean, precision)
        if tolerance is None:
            pairs = refine(multiply, space, count, 0 if MANY * count < frames.count else 1)
        else:
            # Q with A Q is the largest thing in memory here: little room, for a few more passes.
            pairs = solve_top(multiply, space, count, tolerance=tolerance, sine=sine, room=3)
        if not weak:
            pairs = passes.measured(pairs, total, mean)
        held = float(pairs.values.sum())
        if energy is None or held >= energy * total or count == rank:
            break
        count = min(rank, 2 * count)
    if energy is not None:
        pairs = pairs.first(enough(pairs.values, energy * total))
    single = NOISE * float(np.finfo(np.float32).eps) ** 2 / len(pairs.vectors)
    noise = float(np.finfo(np.float64).eps)
    pairs = pairs.first(max(1, pairs.rank(noise if weak else max(noise, single))))
    return OperatorBasis(frames.frame_shape, pairs.vectors, pairs.values, total, mean, pairs.residuals)


class _Passes:
    """Passes over the frames on the schedule of `fold`, so that the bits depend on the frames alone."""

    def __init__(self, frames: Frames, progress: Progress | None) -> None:
        self._frames = frames
        self._progress = progress
        self._count = 0

    def coordinates(self, center: bool) -> Rank1Basis:
        """All rank-1 tensors of evenly spaced frames, in the order of their energy in these."""
        stride = max(1, self._frames.count // SAMPLE)
        sample = self._frames.fold(picked, join, stride)
        learned = ModeOperators(self._frames.frame_shape)
        learned.add(sample)
        rank1 = solve_modes(learned, center=center)
        return rank1.measured_by((rank1.project(sample, np.float32) ** 2).sum(axis=0, dtype=np.float64))

    def start(self, rank1: Rank1Basis, block: int) -> tuple[Moments, Rank1Basis]:
        """The moments of the frames, and eigentensors within the strongest coordinates."""
        coordinates = rank1.truncate(max(LEAST, COORDINATES * block))
        moments, squares = self.squares(coordinates)
        held = np.sort(np.diag(squares))[::-1]
        if held[min(block, len(held)) - 1] > NARROW * held[0]:
            squares = squares.astype(np.float32)  # half the time, and enough to start from
        return moments, coordinates.rotated(squares, block)

    def lift(self, start: Rank1Basis, dtype: npt.DTypeLike) -> Array:
        """An orthonormal basis of A V, V the start, (L, block)."""
        return orthonormalize(self._product(lifted, start, dtype))

    def squares(self, coordinates: Rank1Basis) -> tuple[Moments, Array]:
        """The moments of the frames and D'D, D their coefficients; centered if the coordinates are."""
        n, sums, energy, squares = self._frames.fold(
            squared, add, coordinates, stage="coordinates", progress=self._progress
        )
        squares = np.require(squares, np.float64, ["C", "A", "W"])
        moments = Moments.of(n, sums, energy)
        if coordinates.mean is not None:
            # The coordinates subtract the mean of the sample: take the rest of the mean away as well.
            rest = coordinates.project(moments.mean()[None])[0]
            squares = squares - moments.n * np.outer(rest, rest)
        return moments, squares

    def product(self, mean: Array | None, dtype: npt.DTypeLike) -> Callable[[Array], Array]:
        """V -> A V = X (X'V), one pass each."""
        center = None if mean is None else mean.reshape(-1).astype(dtype)

        def multiply(v: Array) -> Array:
            return self._product(multiplied, v.astype(dtype), center)  # (L, m)

        return multiply

    def _product(self, part: Callable[..., Any], *given: Any) -> Array:
        """The sum of products over all frames."""
        self._count += 1
        stage = f"product {self._count}"
        (w,) = self._frames.fold(part, add, *given, stage=stage, progress=self._progress)
        # One layout, whoever computed it and however it came here: products of it round alike then.
        return np.require(w, np.float64, ["C", "A", "W"])

    def measured(self, pairs: Eigenpairs, total: float, mean: Array | None) -> Eigenpairs:
        """The same with the energies |X'u|^2 of the strongest in float64, in the order that they have then.

        Those after them hold a few times what is left over: float32 rounds 1e-8 of each, one up, one down.
        """
        left = total - float(pairs.values.sum())
        after = np.cumsum(pairs.values[::-1])[::-1]  # the energy from each on
        few = int(np.count_nonzero(after > STRONG * left)) if left > LITTLE * total else len(after)
        if few == 0:
            return pairs
        center = None if mean is None else mean.reshape(-1)
        u = np.ascontiguousarray(pairs.vectors[:, :few])
        (energies,) = self._frames.fold(
            energies_of, add, u, center, stage="energies", progress=self._progress
        )
        values = np.concatenate([energies, pairs.values[few:]])
        order = np.argsort(-values, kind="stable")
        moved = np.flatnonzero(order != np.arange(len(order)))  # of equal energies
        pairs.vectors[:, moved] = pairs.vectors[:, order[moved]]
        return Eigenpairs(values[order], pairs.vectors, pairs.residuals[order])


def picked(at: int, run: npt.NDArray[np.unsignedinteger], stride: int) -> npt.NDArray[np.unsignedinteger]:
    """Every frame of a run whose number is a multiple of `stride`."""
    chosen: npt.NDArray[np.unsignedinteger] = run[-at % stride :: stride].copy()
    return chosen


def squared(at: int, run: npt.NDArray[np.unsignedinteger], coordinates: Rank1Basis) -> tuple[Any, ...]:
    """Count, sum and energy of a run, and D'D of its coefficients."""
    moments = Moments(run.shape[1:])
    moments.add(run)
    d = coordinates.project(run, np.float32)  # (b, R)
    return moments.n, moments.sums, moments.energy, d.T @ d


def lifted(
    at: int, run: npt.NDArray[np.unsignedinteger], start: Rank1Basis, dtype: npt.DTypeLike
) -> tuple[Any, ...]:
    """X (X'V) over a run, V the components of a rank-1 basis."""
    d = start.project(run, dtype)  # (b, m)
    x = run.reshape(len(run), prod(start.frame_shape)).astype(dtype)  # (b, L)
    if start.mean is not None:
        x -= start.mean.reshape(-1).astype(dtype)
    return (x.T @ d,)  # (L, m)


def multiplied(
    at: int, run: npt.NDArray[np.unsignedinteger], v: npt.NDArray[Any], center: npt.NDArray[Any] | None
) -> tuple[Any, ...]:
    """X (X'V) over a run, in the precision of V."""
    x = run.reshape(len(run), len(v)).astype(v.dtype)  # (b, L)
    if center is not None:
        x -= center
    return (x.T @ (x @ v),)  # (L, m)


def energies_of(
    at: int, run: npt.NDArray[np.unsignedinteger], u: Array, center: Array | None
) -> tuple[Array, ...]:
    """|X'u|^2 over a run, in float64, a few frames at a time."""
    total, rows = np.zeros(u.shape[1]), max(1, _VALUES // len(u))
    for start in range(0, len(run), rows):
        x = run[start : start + rows].reshape(-1, len(u)).astype(np.float64)  # (b, L)
        if center is not None:
            x -= center
        d = x @ u
        total += np.einsum("nl,nl->l", d, d)
    return (total,)


_VALUES = 1 << 21  # values in float64 at a time
_ROWS = 1024  # shifted bytes: column energies stay within 2^24, exact in float32


class Moments:
    """n, S_i = X_in and the energy X_in X_in, exact for integer frames."""

    def __init__(self, frame_shape: tuple[int, ...]) -> None:
        self.n = 0
        self.sums: Integers = np.zeros(frame_shape, np.int64)
        self.energy = 0

    @classmethod
    def of(cls, n: int, sums: Integers, energy: int) -> Moments:
        """Moments that were counted elsewhere."""
        moments = cls(sums.shape)
        moments.n, moments.sums, moments.energy = n, sums, energy
        return moments

    def add(self, frames: npt.NDArray[np.unsignedinteger]) -> None:
        """Count a block of frames, (b, I_1, .., I_d)."""
        shift = 1 << (8 * frames.dtype.itemsize - 1)
        exact = np.float32 if frames.dtype.itemsize == 1 else np.float64
        for start in range(0, len(frames), _ROWS):
            part = frames[start : start + _ROWS]
            rows = part.reshape(len(part), self.sums.size)
            y = np.subtract(rows, shift, dtype=exact)  # (b, L)
            sums = (np.ones(len(y), exact) @ y).astype(np.int64)
            energy = int(np.einsum("bi,bi->i", y, y).astype(np.int64).sum())
            # x = y + s, so x^2 = y^2 + 2 s y + s^2
            self.energy += energy + 2 * shift * int(sums.sum()) + shift**2 * y.size
            self.sums += (sums + shift * len(y)).reshape(self.sums.shape)
            self.n += len(y)

    def mean(self) -> npt.NDArray[np.float64]:
        """The mean frame."""
        return self.sums / max(1, self.n)

    def total(self, *, center: bool) -> float:
        """The energy of the frames, or of the frames minus their mean."""
        if not center or self.n == 0:
            return float(self.energy)
        flat = self.sums.reshape(-1).astype(object)  # Python integers: n X^2 - S^2 must not round
        return max(0.0, float(self.n * self.energy - int(flat @ flat)) / self.n)
