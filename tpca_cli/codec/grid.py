"""Where the tiles of a block lie: neighbours, checkerboard phases, and the pyramid of the lowest component.

All grids of a block are stacked on one canvas, flattened row by row, with an empty column and an empty row
between images. The tile to the right of place p is then p + 1 and the one below is p + stride, for all tiles
of all images at once; an absent neighbour is an empty place, which holds zero.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.scan_order import Ints

STRAIGHT = (-1, 0), (1, 0), (0, -1), (0, 1)
DIAGONAL = (-1, -1), (1, 1), (-1, 1), (1, -1)
"""Where the neighbors of a tile of the pyramid are, in two opposite pairs."""


@dataclass(frozen=True, eq=False)
class Level:
    """Tiles of the pyramid that are predicted together, each from up to four coarser ones."""

    places: Ints  # (n,)
    around: Ints  # (4, n) places in two opposite pairs, 0 where there is none
    fineness: int

    @functools.cached_property
    def present(self) -> NDArray[np.float64]:
        """(4, n) one where there is a tile."""
        return (self.around > 0).astype(np.float64)

    @functools.cached_property
    def known(self) -> Ints:
        """(n,) how many there are."""
        found: Ints = (self.around > 0).sum(axis=0)
        return found


class Grid:
    """The canvas of a block of images whose tile grids are `shapes` (rows, columns)."""

    def __init__(self, shapes: Sequence[tuple[int, int]]) -> None:
        self.shapes = tuple(shapes)
        self.stride = max((columns for _, columns in shapes), default=0) + 1
        tops = np.cumsum([1] + [height + 1 for height, _ in shapes])
        self.size = int(tops[-1] + 1) * self.stride + 1
        counts = [height * width for height, width in shapes]
        self.heights = np.repeat([height for height, _ in shapes], counts).astype(np.int64)  # (n,) per tile
        self.widths = np.repeat([width for _, width in shapes], counts).astype(np.int64)
        within = np.concatenate([np.arange(count) for count in counts] + [np.zeros(0, np.int64)])
        rows, columns = np.divmod(within, np.maximum(self.widths, 1))
        self.rows: Ints = rows
        self.columns: Ints = columns
        self.places = (np.repeat(tops[:-1], counts) + self.rows) * self.stride + self.columns
        odd = (self.rows + self.columns) % 2 == 1
        self.phases: tuple[Ints, Ints] = (self.places[~odd], self.places[odd])
        self.levels = self._levels()

    def regions(self, side: int) -> Ints:
        """Squares of `side` x `side` tiles (n, 5), image by image, row by row.

        The place of the first tile, tiles down and across, places of the regions to the left and above or 0.
        """
        found, first = [], 0
        for height, width in self.shapes:
            rows, columns = (part.ravel() for part in np.mgrid[:height:side, :width:side])
            places = self.places[first + rows * width + columns] if rows.size else rows
            left, above = places - side, places - side * self.stride
            down, right = np.minimum(side, height - rows), np.minimum(side, width - columns)
            left, above = np.where(columns > 0, left, 0), np.where(rows > 0, above, 0)
            found.append(np.stack([places, down, right, left, above], axis=1))
            first += height * width
        return np.concatenate(found) if found else np.zeros((0, 5), np.int64)

    def _levels(self) -> list[Level]:
        """Coarse to fine: first the corner of each image, then centers and edges of ever smaller squares.

        The side of a square is the lowest digit of its row or column; a center has this digit in both.
        """
        either: Ints = self.rows | self.columns
        both: Ints = self.rows & self.columns
        side = either & -either  # (n,), 0 in corners
        edge = (both & side) == 0
        digits = np.frexp(side)[1]
        most = int(digits.max(initial=0))
        level = np.where(side > 0, 1 + 2 * (most - digits) + edge, 0)
        order = np.argsort(level, kind="stable")
        counts = np.bincount(level, minlength=1)
        around = self._around(order, side[order], edge[order])
        found, first = [], 0
        for number, count in enumerate(counts.tolist()):
            tiles = slice(first, first + count)
            fineness = max(3 - (most - (number - 1) // 2), 0) + 1 if number else 0
            if count:
                found.append(Level(self.places[order[tiles]], around[:, tiles], fineness))
            first += count
        return found

    def _around(self, tiles: Ints, side: Ints, edge: NDArray[np.bool_]) -> Ints:
        """(4, n) the places `side` away from some tiles, straight or diagonally; 0 where there is no tile."""
        rows, columns, places = self.rows[tiles], self.columns[tiles], self.places[tiles]
        heights, widths = self.heights[tiles], self.widths[tiles]
        found = np.zeros((4, tiles.size), np.int64)
        for k, (straight, diagonal) in enumerate(zip(STRAIGHT, DIAGONAL, strict=True)):
            down, right = (side * np.where(edge, a, b) for a, b in zip(straight, diagonal, strict=True))
            r, c = rows + down, columns + right
            inside = (side > 0) & (r >= 0) & (r < heights) & (c >= 0) & (c < widths)
            found[k] = np.where(inside, places + down * self.stride + right, 0)
        return found


@functools.lru_cache(maxsize=16)
def grid_of(shapes: tuple[tuple[int, int], ...]) -> Grid:
    """The grid of these shapes; blocks of one size share it."""
    return Grid(shapes)
