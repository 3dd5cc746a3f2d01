"""The L x L operator of Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.operators.exact import ExactGram, Integers, centered, mirrored

_PANEL = 256  # rows of the matrix handled at a time: bounded temporaries


class TensorOperator:
    """A_ij = X_in X_jn over all frames n, with i and j as linear indices in C order (eq 4A8)."""

    def __init__(self, frame_shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8) -> None:
        self.frame_shape = tuple(int(size) for size in frame_shape)
        self.size = prod(self.frame_shape)
        self._gram = ExactGram(self.size, dtype)

    def add(self, frames: npt.NDArray[np.unsignedinteger]) -> None:
        """Count a block of frames, (b, I_1, .., I_d)."""
        if frames.shape[1:] != self.frame_shape:
            raise ValueError(f"frames have shape {frames.shape[1:]}, the operator {self.frame_shape}")
        self._gram.add(frames.reshape(len(frames), self.size))

    def merge(self, other: TensorOperator) -> None:
        """Add the operator of other, disjoint frames: the sum is what one pass over both would give."""
        if (other.frame_shape, other.dtype) != (self.frame_shape, self.dtype):
            mine, theirs = f"{self.frame_shape} {self.dtype}", f"{other.frame_shape} {other.dtype}"
            raise ValueError(f"operators of frames {theirs} and {mine} do not add")
        lower = self.lower
        lower += other.lower
        self._gram.n += other.n
        self._gram.sums += other._gram.sums

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the pixels."""
        return self._gram.dtype

    @property
    def n(self) -> int:
        """The number of frames."""
        return self._gram.n

    @property
    def sums(self) -> Integers:
        """S_i, the sum of all frames."""
        return self._gram.sums.reshape(self.frame_shape)

    @property
    def lower(self) -> Integers:
        """A in int64 with only its lower triangle filled: the array itself, not a copy."""
        return self._gram.lower()

    @property
    def trace(self) -> int:
        """The energy of all frames, X_in X_in."""
        return int(np.trace(self.lower))

    def integers(self) -> Integers:
        """A in int64, whole."""
        return mirrored(self.lower)

    def matrix(self, *, center: bool = False, consume: bool = False) -> npt.NDArray[np.float64]:
        """A in float64, whole; with `center`, of the frames minus their mean: A - S S' / n.

        `consume` turns the integers into floats where they stand, for operators that fill the memory;
        this operator is of no use afterwards.
        """
        lower = self.lower
        matrix = lower.view(np.float64) if consume else np.empty((self.size, self.size))
        n, sums = max(1, self.n), self._gram.sums
        peak = (n * int(np.iinfo(self.dtype).max)) ** 2
        if peak >= 1 << 62:
            sums = sums.astype(np.float64)
        for start in range(0, self.size, _PANEL):
            stop = min(start + _PANEL, self.size)
            panel = lower[start:stop, :stop]
            if center:
                outer = sums[start:stop, None] * sums[:stop]
                matrix[start:stop, :stop] = centered(panel, outer, n, peak)
            else:
                matrix[start:stop, :stop] = panel.astype(np.float64)
            square = matrix[start:stop, start:stop]
            square[...] = np.tril(square) + np.tril(square, -1).T
            matrix[:start, start:stop] = matrix[start:stop, :start].T
        return matrix

    def packed(
        self, start: int = 0, stop: int | None = None, dtype: npt.DTypeLike = np.int64
    ) -> npt.NDArray[np.signedinteger]:
        """Rows `start` to `stop` of the lower triangle, one after another in one vector."""
        lower, stop = self.lower, self.size if stop is None else stop
        vector = np.empty((stop * (stop + 1) - start * (start + 1)) // 2, dtype)
        at = 0
        for i in range(start, stop):
            vector[at : at + i + 1] = lower[i, : i + 1]
            at += i + 1
        return vector

    def add_packed(self, values: npt.NDArray[np.signedinteger], start: int = 0) -> int:
        """Add rows of a packed triangle from row `start` on; returns the row after the last one."""
        lower = self.lower
        at = 0
        while at < len(values):
            lower[start, : start + 1] += values[at : at + start + 1]
            at += start + 1
            start += 1
        return start

    def count(self, n: int, sums: Integers) -> None:
        """Add the frame count and the sums that belong to rows given to `add_packed`."""
        self._gram.n += n
        self._gram.sums += sums.reshape(-1)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The whole state as plain arrays."""
        counts = np.array([self.n, self.dtype.itemsize], np.int64)
        return {"counts": counts, "sums": self.sums, "lower": self.packed()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> TensorOperator:
        """The inverse of `to_arrays`."""
        n, itemsize = (int(value) for value in arrays["counts"])
        operator = cls(arrays["sums"].shape, f"u{itemsize}")
        operator.count(n, arrays["sums"].astype(np.int64))
        operator.add_packed(arrays["lower"].astype(np.int64))
        return operator
