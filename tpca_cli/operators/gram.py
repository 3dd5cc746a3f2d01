"""The N x N operator of Algorithm 3."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tpca_cli.operators.cross import cross
from tpca_cli.operators.exact import ExactGram, Integers, centered, mirrored


class Frames(Protocol):
    """Frames that can be read again and again, a block at a time."""

    @property
    def count(self) -> int: ...
    @property
    def frame_shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def blocks(self, rows: int) -> Iterator[npt.NDArray[np.unsignedinteger]]: ...


class GramOperator:
    """a_mn = X_im X_in  (eq 4C5), int64.

    It adds over slabs of pixels, not over frames: the entry of two frames needs the pixels of both.
    """

    def __init__(self, count: int) -> None:
        self.n = count
        self.integers: Integers = np.zeros((count, count), np.int64)

    @classmethod
    def of(cls, frames: Frames, rows: int | None = None) -> GramOperator:
        """The operator of all frames, never holding more than twice `rows` of them."""
        gram = cls(frames.count)
        apart = getattr(frames, "pairs", None)
        if apart is not None:  # frames on other machines are multiplied there, run by run
            for at, then, block in apart(cross):
                gram.integers[at : at + block.shape[0], then : then + block.shape[1]] = block
                gram.integers[then : then + block.shape[1], at : at + block.shape[0]] = block.T
            return gram
        rows = max(1, frames.count if rows is None else rows)
        for i, block in enumerate(frames.blocks(rows)):
            for j, other in enumerate(frames.blocks(rows)):
                if j >= i:
                    break
                gram._add(np.concatenate([other, block]), j * rows, i * rows, len(other))
            if i == 0:
                gram._add(block, 0, 0, 0)
        return gram

    def _add(self, frames: npt.NDArray[np.unsignedinteger], at: int, then: int, split: int) -> None:
        """Set the entries among `frames`: the first `split` of them stand at `at`, the others at `then`."""
        count = len(frames)
        slabs = ExactGram(count, frames.dtype)
        pixels = frames.reshape(count, prod(frames.shape[1:]))
        slabs.add(pixels.T)  # (L, count): here a pixel is a row, and the frames are the columns
        whole = mirrored(slabs.lower())
        first, second = slice(at, at + split), slice(then, then + count - split)
        self.integers[first, first] = whole[:split, :split]
        self.integers[second, first] = whole[split:, :split]
        self.integers[first, second] = whole[:split, split:]
        self.integers[second, second] = whole[split:, split:]

    def matrix(
        self, *, center: bool = False, order: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.float64]:
        """a in float64, its frames in the given order; with `center`, of the frames minus their mean."""
        integers = self.integers if order is None else self.integers[np.ix_(order, order)]
        if not center or self.n == 0:
            return integers.astype(np.float64)
        # <X_m - mean, X_n - mean> times N is N a_mn - s_m - s_n + mean of s, s_m = sum_n a_mn.
        sums = integers.sum(axis=1)  # (N,)
        peak = self.n**2 * int(np.diag(integers).max())
        if peak >= 1 << 62:
            sums = sums.astype(np.float64)
        outer = self.n * (sums[:, None] + sums) - sums.sum()
        return centered(self.n * integers, outer, self.n, peak) / self.n
