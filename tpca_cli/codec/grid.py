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


@dataclass(frozen=True, eq=False)
class Level:
    """Tiles of the pyramid that are predicted together, each from up to four coarser ones."""

    places: Ints  # (n,)
    around: Ints  # (4, n) places in two opposite pairs, 0 where there is none
    present: NDArray[np.float64]  # (4, n) one where there is a tile
    known: Ints  # (n,) how many there are
    fineness: int


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
        self.rows, self.columns = np.divmod(within, np.maximum(self.widths, 1))
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
        """Coarse to fine: first the corner of each image, then centers and edges of ever smaller squares."""
        found = [self._level(self.rows + self.columns == 0, [], 0)]
        most = int(max(self.rows.max(initial=0), self.columns.max(initial=0)))
        side = 1 << max(most.bit_length() - 1, 0)
        while side and most:
            odd_row, odd_column = self.rows // side % 2 == 1, self.columns // side % 2 == 1
            on = (self.rows % side == 0) & (self.columns % side == 0)
            center, edge = on & odd_row & odd_column, on & (odd_row != odd_column)
            fineness = max(3 - side.bit_length(), 0) + 1
            diagonal = [(-side, -side), (side, side), (-side, side), (side, -side)]
            straight = [(-side, 0), (side, 0), (0, -side), (0, side)]
            found.append(self._level(center, diagonal, fineness))
            found.append(self._level(edge, straight, fineness))
            side //= 2
        return [level for level in found if level.places.size]

    def _level(self, here: NDArray[np.bool_], offsets: list[tuple[int, int]], fineness: int) -> Level:
        rows, columns, places = self.rows[here], self.columns[here], self.places[here]
        around = np.zeros((4, places.size), np.int64)
        for k, (down, right) in enumerate(offsets):
            r, c = rows + down, columns + right
            inside = (r >= 0) & (r < self.heights[here]) & (c >= 0) & (c < self.widths[here])
            around[k] = np.where(inside, places + down * self.stride + right, 0)
        present = around > 0
        return Level(places, around, present.astype(np.float64), present.sum(axis=0), fineness)


@functools.lru_cache(maxsize=16)
def grid_of(shapes: tuple[tuple[int, int], ...]) -> Grid:
    """The grid of these shapes; blocks of one size share it."""
    return Grid(shapes)
