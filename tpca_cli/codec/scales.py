"""How large the components of some pictures are: the few numbers per archive that the model starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.grid import Grid
from tpca_cli.codec.model import LEVELS, log_code
from tpca_cli.codec.plan import Ints

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scales:
    """Codes of mean sizes, of the lowest components' residuals (channels, LEVELS), and their centers."""

    scales: Ints
    lowest: Ints
    centers: Ints


def measure_scales(blocks: Sequence[tuple[Grid, Floats]], lowest: Sequence[int]) -> Scales:
    """Scales of coefficients (M, tiles) on their grids; `lowest` are the components at (0, 0), or -1."""
    tiles = max(sum(planes.shape[1] for _, planes in blocks), 1)
    sizes = sum(np.abs(planes).sum(axis=1) for _, planes in blocks) / tiles
    centers = np.zeros(len(lowest), np.int64)
    residuals, counts = np.zeros((len(lowest), LEVELS)), np.zeros(LEVELS)
    for grid, _ in blocks:
        for level in grid.levels:
            counts[min(level.fineness, LEVELS - 1)] += level.places.size
    for channel, component in enumerate(lowest):
        if component >= 0:
            total = sum(float(planes[component].sum()) for _, planes in blocks)
            centers[channel] = round(total / tiles)
            residuals[channel] = sum(_residuals(g, p[component], int(centers[channel])) for g, p in blocks)
    overall = residuals.sum(axis=1, keepdims=True) / max(counts.sum(), 1)
    means = np.where(counts > 0, residuals / np.maximum(counts, 1), overall)
    return Scales(log_code(np.rint(sizes)), log_code(np.rint(means)), centers)


def _residuals(grid: Grid, plane: Floats, center: int) -> Floats:
    """Sums (LEVELS,) of what prediction leaves of a lowest component, by fineness."""
    values = np.zeros(grid.size)
    values[grid.places] = plane
    total: Floats = np.zeros(LEVELS)
    for level in grid.levels:
        around = (values[level.around] * level.present).sum(axis=0)
        means = np.where(level.known > 0, around / np.maximum(level.known, 1), center)
        total[min(level.fineness, LEVELS - 1)] += np.abs(values[level.places] - means).sum()
    return total
