"""Steps as people see errors: coarser for fine detail and for color, finer where the picture is quiet.

An error is seen the less, the more goes on around it (masking). So each region of some pixels gets a
grade from how much brightness varies in and around it, and each grade a factor of all steps. Components get a
factor from their place in the tile: of two errors of one size, that of a slow wave is seen more.

The numbers for photographs were fitted to SSIMULACRA 2. Thumbnails, which that metric was not made for, have
their own, fitted to SSIM of brightness with color held to what WebP leaves of it (`docs/QUALITY.md`).
Everything here is chosen by the encoder; the archive holds the grades and the factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

USUAL = 16e-4
"""The variance at which the factor is 1. Brightness goes from 0 to 1."""
SMALL = 128
"""Pixels on the shorter side: images below are thumbnails."""
BITS_PER_ERROR = 0.55
"""With steps made for people, bits fall by this power of the squared error as steps grow."""
PSNR, VISUAL, THUMBNAIL = "psnr", "visual", "thumbnail"
"""What steps are made for: the least squared error, or what people see of photographs, or of thumbnails."""


@dataclass(frozen=True)
class Falls:
    """How steps differ by component."""

    luma_fall: float  # how fast components may become coarser with their frequency
    color_fall: float
    color: float  # how much coarser color is than brightness
    mean_luma: float  # the steps of the means of tiles, relative to that: neighbors show how far they are off
    mean_color: float


LEAST_ERROR = Falls(luma_fall=0.0, color_fall=0.0, color=1.0, mean_luma=1.0, mean_color=0.8)
"""For the least squared error all steps are the same but one: where they are coarse, little is left of color
but the means of tiles, and what these lose is lost all over a tile."""


@dataclass(frozen=True)
class Manner(Falls):
    """How steps follow what people see."""

    bit_price: float  # bits are worth this many squared steps
    masking: float  # a step grows as the variance around it to this power,
    quiet: float  # once it is above this
    region: int  # pixels on the side of a region
    cell: int  # pixels on the side of what variances are first taken of
    grades: int  # of regions,
    octaves: float  # from the factor of one to that of the next
    may_lap: bool  # whether tiles may be lapped, which blurs what is as small as they are

    @property
    def factors(self) -> Ints:
        """Of the steps of a region, in 1/64, by its grade."""
        octaves = (np.arange(self.grades) - self.grades // 2) * self.octaves
        found: Ints = np.rint(64 * 2**octaves).astype(np.int64)
        return found


MANNERS = {
    VISUAL: Manner(
        luma_fall=0.7,
        color_fall=1.6,
        color=1.25,
        mean_luma=0.7,
        mean_color=0.65,
        bit_price=0.04,
        masking=0.22,
        quiet=9e-4,
        region=16,
        cell=4,
        grades=12,
        octaves=0.25,
        may_lap=True,
    ),
    THUMBNAIL: Manner(
        luma_fall=0.0,
        color_fall=2.6,
        color=1.7,
        mean_luma=0.9,
        mean_color=0.65,
        bit_price=0.035,
        masking=0.3,
        quiet=6e-4,
        region=8,
        cell=2,
        grades=8,
        octaves=0.375,
        may_lap=False,
    ),
}


LAPPED_COLOR = {"color": 1.35, "color_fall": 2.3}
"""Of photographs in lapped tiles only: in others, whose steps may be grains, they cost 5 % on FLOWERS."""


def are_small(sides: Sequence[tuple[int, int]]) -> bool:
    """Whether most pixels of images of these heights and widths are those of thumbnails."""
    areas = [height * width for height, width in sides]
    small = sum(area for area, one in zip(areas, sides, strict=True) if min(one) < SMALL)
    return 2 * small >= sum(areas)


def tune_for(
    sides: Sequence[tuple[int, int]], channels: int, *, measured: bool = False, asked: bool = True
) -> str:
    """What steps are made for where people look at such images, whose quality may be measured.

    Edges of alpha are seen as those of brightness are: it must not be coarse as the color of thumbnails is.
    A quality is for what it was fitted to, photographs. Where nobody asked for it, thumbnails beside these
    have the same step and no quality: the least squared error then keeps more of them.
    """
    if measured:
        return VISUAL if asked or not are_small(sides) else PSNR
    return THUMBNAIL if are_small(sides) and channels in (1, 3) else VISUAL


def tune_of(factors: Ints) -> str:
    """What the steps of a coder are made for, by the factors of its grades."""
    return THUMBNAIL if np.array_equal(factors, MANNERS[THUMBNAIL].factors) else VISUAL


def component_factors(places: Ints, sides: tuple[int, int], tune: str, lapped: bool) -> NDArray[np.float64]:
    """By how much the steps of components at places (M, 3) of a tile are larger than the first."""
    manner = LEAST_ERROR if tune == PSNR else MANNERS[tune]
    if tune == VISUAL and lapped:
        manner = replace(manner, **LAPPED_COLOR)
    radius = np.hypot(places[:, 0] / sides[0], places[:, 1] / sides[1])
    bright = places[:, 2] == 0
    means = np.where(radius == 0, np.where(bright, manner.mean_luma, manner.mean_color), 1.0)
    falls = np.where(bright, manner.luma_fall, manner.color_fall)
    found: NDArray[np.float64] = means * np.where(bright, 1.0, manner.color) * np.exp(falls * radius)
    return found


def grades_of(pictures: Sequence[NDArray[Any]], tile: int, peak: int, tune: str) -> NDArray[np.uint8]:
    """The grade of each tile of all pictures (h, w, c), one after another; tiles of a region share one."""
    found = [_tile_grades(picture, tile, peak, tune).ravel() for picture in pictures]
    return np.concatenate(found) if found else np.zeros(0, np.uint8)


def region_tiles(tile: int, tune: str) -> int:
    """Tiles on the side of a region."""
    return max(1, MANNERS[tune].region // tile)


def _tile_grades(picture: NDArray[Any], tile: int, peak: int, tune: str) -> NDArray[np.uint8]:
    height, width = picture.shape[:2]
    tiles, side, cell = region_tiles(tile, tune), max(MANNERS[tune].region, tile), MANNERS[tune].cell
    down, right = -(-height // side), -(-width // side)
    cells = _cell_grades(_brightness(picture), peak, MANNERS[tune])
    rows = np.minimum(np.arange(down * side // cell), cells.shape[0] - 1)
    columns = np.minimum(np.arange(right * side // cell), cells.shape[1] - 1)
    each = side // cell
    total = cells[rows][:, columns].reshape(down, each, right, each).sum(axis=(1, 3))
    mean = (total + each * each // 2) // (each * each)  # in quarters of a grade
    grades = np.clip((mean + 2) >> 2, 0, MANNERS[tune].grades - 1).astype(np.uint8)
    wide = grades.repeat(tiles, axis=0).repeat(tiles, axis=1)
    cut: NDArray[np.uint8] = wide[: -(-height // tile), : -(-width // tile)]
    return cut


def _brightness(picture: NDArray[Any]) -> Ints:
    """Four times the brightness."""
    planes = picture.astype(np.int64)
    if picture.shape[2] < 3:
        return 4 * planes[:, :, 0]
    return planes[:, :, 0] + 2 * planes[:, :, 1] + planes[:, :, 2]


def _cell_grades(bright: Ints, peak: int, manner: Manner) -> Ints:
    """For cells of a few pixels, quarters of a grade by the variance around them; whole numbers only."""
    height, width = bright.shape
    cell = manner.cell
    down, right = max(height // cell, 1), max(width // cell, 1)
    inner = bright[: down * cell, : right * cell]
    pad = ((0, down * cell - inner.shape[0]), (0, right * cell - inner.shape[1]))
    inner = np.pad(inner, pad, mode="edge").reshape(down, cell, right, cell)
    count = 16 * 16 * cell * cell
    sums, squares = (_softened(part.sum(axis=(1, 3))) for part in (inner, inner * inner))
    variance = (squares * count - sums * sums) / float((4 * peak * count) ** 2)
    return np.searchsorted(_borders(manner), variance, side="right").astype(np.int64)


def _borders(manner: Manner) -> NDArray[np.float64]:
    """Variances between one quarter of a grade and the next."""
    quarters = np.arange(1, 4 * manner.grades) - 0.5 - 4 * (manner.grades // 2)
    octaves = quarters * manner.octaves / 4 / manner.masking
    found: NDArray[np.float64] = (USUAL + manner.quiet) * 2**octaves - manner.quiet
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
