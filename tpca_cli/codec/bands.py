"""Arrays of pictures in parts of a bounded size, with the rows around them that a filter looks at."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

BAND_PIXELS = 1 << 17
"""Pixels, about, that are looked at together: a larger picture is filtered in bands of rows."""


class Band(NamedTuple):
    """Pictures of an array (n, c, h, w), and which of their rows: all of some pictures, or some of one."""

    pictures: slice
    first: int
    last: int
    above: int  # rows of the margin that there are above
    margin: int

    def of(self, images: NDArray[Any]) -> NDArray[Any]:
        """The band of an array."""
        return images[self.pictures, :, self.first : self.last]

    def with_margin(self, images: NDArray[Any]) -> NDArray[Any]:
        """The same with the rows around it."""
        return images[self.pictures, :, self.first - self.above : self.last + self.margin]

    def cut(self, found: NDArray[Any]) -> NDArray[Any]:
        """What was found (.., rows, w) with a margin, without it."""
        return found[..., self.above : self.above + self.last - self.first, :]


def bands(shape: Sequence[int], margin: int, unit: int = 1) -> Iterator[Band]:
    """An array (n, c, h, w) in parts whose pixels, (n, h, w), follow one another, from whole units on."""
    n, _, h, w = shape
    together, count = max(1, BAND_PIXELS // (h * w)), min(-(-h * w // BAND_PIXELS), -(-h // unit))
    edges = sorted({h * k // count // unit * unit for k in range(count)} | {h})
    for picture in range(0, n, together):
        for first, last in itertools.pairwise(edges):
            yield Band(slice(picture, picture + together), first, last, min(first, margin), margin)
