"""Lapped tiles: an integer filter across tile borders before the transform, and its inverse after it.

A block transform sees nothing beyond its tile. Mixing the samples on both sides of every border first (a
time-domain lapped transform) lets neighbouring tiles share what crosses the border: fewer bits, no blocks to
see. The filter is butterflies around a small matrix V = J C2' S C4 J of cosine transforms; S stretches the
border difference a little, so the pair is biorthogonal rather than orthogonal. Sums are exact as in `fixed`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

REACH = 4
BITS = 14
BEFORE = np.array(
    [
        [16946, -1319, 249, -497, 497, -249, 1319, -562],
        [2649, 15960, -3157, 1167, -1167, 3157, 424, -2649],
        [1519, 4175, 14403, -4514, 4514, 1981, -4175, -1519],
        [1850, 1899, 5065, 14974, 1410, -5065, -1899, -1850],
        [-1850, -1899, -5065, 1410, 14974, 5065, 1899, 1850],
        [-1519, -4175, 1981, 4514, -4514, 14403, 4175, 1519],
        [-2649, 424, 3157, -1167, 1167, -3157, 15960, 2649],
        [-562, 1319, -249, 497, -497, 249, -1319, 16946],
    ],
    np.float64,
)
"""The filter before the transform, (2 REACH, 2 REACH), with BITS fractional bits; S stretches by 1.3."""
AFTER = np.array(
    [
        [15438, 1141, 11, 342, -342, -11, -1141, 946],
        [-2597, 14682, 2897, 621, -621, -2897, 1702, 2597],
        [-605, -4011, 13549, 4211, -4211, 2835, 4011, 605],
        [-797, 867, -4814, 14675, 1709, 4814, -867, 797],
        [797, -867, 4814, 1709, 14675, -4814, 867, -797],
        [605, 4011, 2835, -4211, 4211, 13549, -4011, -605],
        [2597, 1702, -2897, -621, 621, 2897, 14682, -2597],
        [946, -1141, -11, -342, 342, 11, 1141, 15438],
    ],
    np.float64,
)
"""Its inverse, to the precision of the integers."""


def lap(images: Floats, tile: int, *, inverse: bool = False) -> None:
    """Filter, in place, every tile border inside images (n, h, w), whose sides are multiples of `tile`."""
    matrix = AFTER if inverse else BEFORE
    for axis in (2, 1) if inverse else (1, 2):
        count = images.shape[axis] // tile - 1
        if count < 1:
            continue
        n, h, w = images.shape
        inside = slice(tile - REACH, tile - REACH + count * tile)
        if axis == 1:
            view = images[:, inside].reshape(n, count, tile, w)[:, :, : 2 * REACH]
            view[...] = _round(matrix @ view)
        else:
            view = images[:, :, inside].reshape(n, h, count, tile)[..., : 2 * REACH]
            view[...] = _round(np.ascontiguousarray(view).reshape(-1, 2 * REACH) @ matrix.T).reshape(
                view.shape
            )


def _round(values: Floats) -> Floats:
    values *= 2.0**-BITS
    values += 0.5
    return np.floor(values, out=values)


def halves(matrix: Floats) -> Floats:
    """What a symmetric filter (2 REACH, 2 REACH) does to sums and differences of opposite samples."""
    top, mirrored = matrix[:REACH, :REACH], matrix[:REACH, : REACH - 1 : -1]
    return np.stack([top + mirrored, top - mirrored])


def norms(vectors: NDArray[Any]) -> Floats:
    """Norms of the synthesis functions of tile vectors (columns) once borders are filtered back."""
    tile = len(vectors)
    after = AFTER * 2.0**-BITS
    wide = np.zeros((3 * tile, vectors.shape[1]))
    wide[tile : 2 * tile] = vectors
    for start in (tile - REACH, 2 * tile - REACH):
        wide[start : start + 2 * REACH] = after @ wide[start : start + 2 * REACH]
    return np.asarray(np.sqrt((wide * wide).sum(axis=0)), np.float64)
