"""Lapped tiles: an integer filter across tile borders before the transform, and its inverse after it.

A block transform sees nothing beyond its tile. Mixing the samples on both sides of every border first (a
time-domain lapped transform) lets neighbouring tiles share what crosses the border: fewer bits, no blocks to
see. The filter is butterflies around a small matrix V = J C2' S C4 J of cosine transforms; S stretches the
border difference a little, so the pair is biorthogonal rather than orthogonal. Sums are exact as in `fixed`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

REACH = 4
BITS = 14
STRETCH = 1.3


@functools.cache
def filters() -> tuple[Floats, Floats]:
    """The integer matrices (2 REACH, 2 REACH) before and after the transform, with BITS fractional bits."""
    k = np.arange(REACH)
    second = np.cos(np.pi * (2 * k[None] + 1) * k[:, None] / (2 * REACH)) * np.sqrt(2 / REACH)
    second[0] /= np.sqrt(2)
    fourth = np.cos(np.pi * (2 * k[None] + 1) * (2 * k[:, None] + 1) / (4 * REACH)) * np.sqrt(2 / REACH)
    stretch = np.ones(REACH)
    stretch[0] = STRETCH
    flip = np.eye(REACH)[::-1]
    inner = flip @ second.T @ np.diag(stretch) @ fourth @ flip
    eye, zero = np.eye(REACH), np.zeros((REACH, REACH))
    butterfly = np.block([[eye, flip], [flip, -eye]]) / np.sqrt(2)
    before = butterfly @ np.block([[eye, zero], [zero, inner]]) @ butterfly
    return np.rint(before * 2.0**BITS), np.rint(np.linalg.inv(before) * 2.0**BITS)


def lap(images: Floats, tile: int, *, inverse: bool = False) -> None:
    """Filter, in place, every tile border inside images (n, h, w), whose sides are multiples of `tile`."""
    matrix = filters()[int(inverse)]
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


def norms(vectors: NDArray[Any]) -> Floats:
    """Norms of the synthesis functions of tile vectors (columns) once borders are filtered back."""
    tile = len(vectors)
    after = filters()[1] * 2.0**-BITS
    wide = np.zeros((3 * tile, vectors.shape[1]))
    wide[tile : 2 * tile] = vectors
    for start in (tile - REACH, 2 * tile - REACH):
        wide[start : start + 2 * REACH] = after @ wide[start : start + 2 * REACH]
    return np.asarray(np.sqrt((wide * wide).sum(axis=0)), np.float64)
