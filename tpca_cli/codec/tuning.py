"""Steps as people see errors: coarser for fine detail and for color, finer where the picture is quiet.

An error is seen the less, the more goes on around it (masking). So each region of 16 x 16 pixels gets a
grade from how much brightness varies in and around it, and each grade a factor of all steps. Components get a
factor from their place in the tile: of two errors of one size, that of a slow wave is seen more.

The numbers were fitted to SSIMULACRA 2 on photographs of flowers (`docs/QUALITY.md`). Everything here is
chosen by the encoder; the archive holds the grades and the factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

REGION = 16
"""Pixels on the side of a region."""
GRADES = 12
GRADE_OCTAVES = 0.25
FACTORS: Ints = np.rint(64 * 2 ** ((np.arange(GRADES) - GRADES // 2) * GRADE_OCTAVES)).astype(np.int64)
"""Of the steps of a region, in 1/64, by its grade."""
LUMA_FALL, COLOR_FALL = 0.85, 1.6
"""How fast components may become coarser with their frequency."""
MEAN_LUMA, MEAN_COLOR = 0.7, 0.8
"""The steps of the means of tiles, relative to that: neighbors show how far they are off."""
BIT_PRICE = 0.04
"""Bits are worth this many squared steps."""
MASKING = 0.22
"""A step grows as the variance around it to this power,"""
QUIET, USUAL = 9e-4, 16e-4
"""once it is above the first of these; at the second the factor is 1. Brightness goes from 0 to 1."""
CELL = 4
"""Pixels on the side of what variances are first taken of."""


def component_factors(places: Ints, sides: tuple[int, int]) -> NDArray[np.float64]:
    """By how much the steps of components at places (M, 3) of a tile are larger than the first."""
    radius = np.hypot(places[:, 0] / sides[0], places[:, 1] / sides[1])
    bright = places[:, 2] == 0
    means = np.where(radius == 0, np.where(bright, MEAN_LUMA, MEAN_COLOR), 1.0)
    found: NDArray[np.float64] = means * np.exp(np.where(bright, LUMA_FALL, COLOR_FALL) * radius)
    return found


def grades_of(pictures: Sequence[NDArray[Any]], tile: int, peak: int) -> NDArray[np.uint8]:
    """The grade of each tile of all pictures (h, w, c), one after another; tiles of a region share one."""
    found = [_tile_grades(picture, tile, peak).ravel() for picture in pictures]
    return np.concatenate(found) if found else np.zeros(0, np.uint8)


def region_tiles(tile: int) -> int:
    """Tiles on the side of a region."""
    return max(1, REGION // tile)


def _tile_grades(picture: NDArray[Any], tile: int, peak: int) -> NDArray[np.uint8]:
    height, width = picture.shape[:2]
    tiles, side = region_tiles(tile), max(REGION, tile)
    down, right = -(-height // side), -(-width // side)
    cells = _cell_grades(_brightness(picture), peak)
    rows = np.minimum(np.arange(down * side // CELL), cells.shape[0] - 1)
    columns = np.minimum(np.arange(right * side // CELL), cells.shape[1] - 1)
    each = side // CELL
    total = cells[rows][:, columns].reshape(down, each, right, each).sum(axis=(1, 3))
    mean = (total + each * each // 2) // (each * each)  # in quarters of a grade
    grades = np.clip((mean + 2) >> 2, 0, GRADES - 1).astype(np.uint8)
    wide = grades.repeat(tiles, axis=0).repeat(tiles, axis=1)
    cut: NDArray[np.uint8] = wide[: -(-height // tile), : -(-width // tile)]
    return cut


def _brightness(picture: NDArray[Any]) -> Ints:
    """Four times the brightness."""
    planes = picture.astype(np.int64)
    if picture.shape[2] < 3:
        return 4 * planes[:, :, 0]
    return planes[:, :, 0] + 2 * planes[:, :, 1] + planes[:, :, 2]


def _cell_grades(bright: Ints, peak: int) -> Ints:
    """For cells of 4 x 4 pixels, quarters of a grade by the variance around them; whole numbers only."""
    height, width = bright.shape
    down, right = max(height // CELL, 1), max(width // CELL, 1)
    inner = bright[: down * CELL, : right * CELL]
    pad = ((0, down * CELL - inner.shape[0]), (0, right * CELL - inner.shape[1]))
    inner = np.pad(inner, pad, mode="edge").reshape(down, CELL, right, CELL)
    count = 16 * 16 * CELL * CELL
    sums, squares = (_softened(part.sum(axis=(1, 3))) for part in (inner, inner * inner))
    variance = (squares * count - sums * sums) / float((4 * peak * count) ** 2)
    return np.searchsorted(_borders(), variance, side="right").astype(np.int64)


def _borders() -> NDArray[np.float64]:
    """Variances between one quarter of a grade and the next."""
    quarters = np.arange(1, 4 * GRADES) - 0.5 - 4 * (GRADES // 2)
    found: NDArray[np.float64] = (USUAL + QUIET) * 2 ** (quarters * GRADE_OCTAVES / 4 / MASKING) - QUIET
    return found


def _softened(cells: Ints) -> Ints:
    """Weighted sums over 5 x 5 cells around each; the weights of all are 256."""
    for axis in (0, 1):
        pad = [(0, 0), (0, 0)]
        pad[axis] = (2, 2)
        wide = np.pad(cells, pad, mode="edge")
        size = cells.shape[axis]
        parts = [wide.take(range(k, k + size), axis=axis) for k in range(5)]
        cells = parts[0] + parts[4] + 4 * (parts[1] + parts[3]) + 6 * parts[2]
    return cells
