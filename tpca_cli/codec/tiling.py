"""Pictures to planes of tiles and back, whole runs of one size at a time; tiles may be lapped.

Pictures (h, w, c) become images (n, c, h, w), padded by mirroring as `framing` does, and then planes
(T, T, c, tiles): the same tiles in the same order as `Framing.split`, with the tile index last.

A block transform sees nothing beyond its tile. Lapping mixes the samples on both sides of every tile border
with an integer filter before the transform, and undoes that after the inverse transform (a time-domain lapped
transform): neighbouring tiles share what crosses the border, with fewer bits and no blocks to see.
The filter is butterflies around a small matrix V = J C2' S C4 J of cosine transforms; S stretches the border
difference a little, so the pair is biorthogonal rather than orthogonal. Sums are exact as in `fixed`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.framing import CANVAS_PIXELS, Canvas, Framing, mirror
from tpca_cli.tensor_pca.fixed_basis import SCALE

Pixels = NDArray[Any]
Floats = NDArray[np.float64]
Shape = tuple[int, int]

REACH = 4
"""Samples on each side of a tile border that lapping mixes."""
LAP_BITS = 14
"""Fractional bits of the lapping filters."""
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
"""The filter before the transform, (2 REACH, 2 REACH), with LAP_BITS fractional bits; S stretches by 1.3."""
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


def shapes_of(pictures: Sequence[Pixels]) -> list[Shape]:
    """Their heights and widths."""
    return [(int(p.shape[0]), int(p.shape[1])) for p in pictures]


def runs(shapes: Sequence[Shape]) -> Iterator[tuple[Shape, int, int]]:
    """Consecutive pictures of one size: (size, first, last + 1)."""
    at = 0
    for shape, group in itertools.groupby(shapes):
        count = len(list(group))
        yield shape, at, at + count
        at += count


def by_run(values: NDArray[Any], shapes: Sequence[Shape], grids: Sequence[Shape]) -> list[NDArray[Any]]:
    """Numbers of tiles (tiles,), or one for all, as arrays (n, down, right) for each run of shapes."""
    sizes = [(last - first, *grids[first]) for _, first, last in runs(shapes)]
    ends = np.cumsum([math.prod(size) for size in sizes])
    every = np.broadcast_to(values, ends[-1])
    return [part.reshape(size) for part, size in zip(np.split(every, ends[:-1]), sizes, strict=True)]


def to_images(framing: Framing, pictures: Sequence[Pixels], grid: Shape) -> Floats:
    """Pictures of one size, which have this grid of tiles, as padded images (n, c, h, w)."""
    h, w, _ = pictures[0].shape
    rows, columns = grid
    stacked = np.stack(pictures).transpose(0, 3, 1, 2)  # (n, c, h, w)
    if (rows * framing.height, columns * framing.width) != (h, w):
        down, right = mirror(h, rows * framing.height), mirror(w, columns * framing.width)
        stacked = stacked[:, :, down][..., right]  # (n, c, rows T, columns T)
    return np.ascontiguousarray(stacked, dtype=np.float64)


def to_planes(framing: Framing, images: Floats) -> Floats:
    """Padded images as planes (T, T, c, tiles)."""
    n, c, h, w = images.shape
    th, tw = framing.height, framing.width
    tiles = images.reshape(n, c, h // th, th, w // tw, tw).transpose(3, 5, 1, 0, 2, 4)  # (T, T, c, n, ..)
    return np.asarray(tiles.reshape(th, tw, c, -1), np.float64)  # (T, T, c, tiles)


def from_planes(planes: Floats, grid: Shape) -> Floats:
    """The inverse of `to_planes` for images with this grid of tiles."""
    th, tw, c, tiles = planes.shape
    rows, columns = grid
    n = tiles // (rows * columns)
    images = planes.reshape(th, tw, c, n, rows, columns).transpose(3, 2, 4, 0, 5, 1)  # (n, c, rows, T, ..)
    return np.asarray(images.reshape(n, c, rows * th, columns * tw), np.float64)  # (n, c, h, w)


def planes_of(framing: Framing, pictures: Sequence[Pixels], grids: Sequence[Shape], lapped: bool) -> Floats:
    """Planes of all pictures, of these grids of tiles; lapped ones come in 1/SCALE, as coefficients."""
    planes = []
    for _, first, last in runs([(int(p.shape[0]), int(p.shape[1])) for p in pictures]):
        images = to_images(framing, pictures[first:last], grids[first])
        if lapped:
            images *= SCALE
            lap(images.reshape(-1, *images.shape[2:]), framing.height)
        planes.append(to_planes(framing, images))
    return planes[0] if len(planes) == 1 else np.concatenate(planes, axis=-1)


def images_of(planes: Floats, shapes: Sequence[Shape], grids: Sequence[Shape], lapped: bool) -> list[Floats]:
    """For each run of shapes, which have these grids of tiles, the images (n, c, h, w) without padding."""
    out, at = [], 0
    for (h, w), first, last in runs(shapes):
        grid = grids[first]
        tiles = (last - first) * grid[0] * grid[1]
        images = from_planes(planes[..., at : at + tiles], grid)
        at += tiles
        if lapped:
            lap(images.reshape(-1, *images.shape[2:]), len(planes), inverse=True)
        out.append(images[:, :, :h, :w])
    return out


BATCH_PIXELS = 1 << 17
TOGETHER = 1 << 40  # pixels of a batch where only the canvas counts


def parts(framing: Framing, tiles: int) -> list[slice]:
    """All tiles, as many at a time as a batch has: products take several times their memory."""
    most = max(1, BATCH_PIXELS // (framing.height * framing.width))
    return [slice(start, start + most) for start in range(0, tiles, most)]


def batches(framing: Framing, sample: Sequence[Pixels], most: int = BATCH_PIXELS) -> list[list[Pixels]]:
    """Pictures in blocks of at most `most` pixels (or one picture), none on too large a canvas."""
    out: list[list[Pixels]] = []
    room, canvas = 0, Canvas()
    frame = framing.height * framing.width
    for picture in sample:
        h, w, _ = picture.shape
        grid = framing.grid(h, w)
        if not out or h * w > room or canvas.beside(*grid).places * frame > CANVAS_PIXELS:
            out.append([])
            room, canvas = most, Canvas()
        out[-1].append(picture)
        room -= h * w
        canvas = canvas.beside(*grid)
    return out


def lap(images: Floats, tile: int, *, inverse: bool = False) -> None:
    """Filter, in place, every tile border inside images (n, h, w), whose sides are multiples of `tile`."""
    together = max(1, BATCH_PIXELS // math.prod(images.shape[1:]))
    for start in range(0, len(images), together):
        _lap(images[start : start + together], tile, inverse)


def _lap(images: Floats, tile: int, inverse: bool) -> None:
    matrix = AFTER if inverse else BEFORE
    for axis in (2, 1) if inverse else (1, 2):
        count = images.shape[axis] // tile - 1
        if count < 1:
            continue
        n, h, w = images.shape
        inside = slice(tile - REACH, tile - REACH + count * tile)
        if axis == 1:
            view = images[:, inside].reshape(n, count, tile, w)[:, :, : 2 * REACH]  # (n, borders, 8, w)
            view[...] = _round(matrix @ view)
        else:
            view = images[:, :, inside].reshape(n, h, count, tile)[..., : 2 * REACH]  # (n, h, borders, 8)
            view[...] = _round(np.ascontiguousarray(view).reshape(-1, 2 * REACH) @ matrix.T).reshape(
                view.shape
            )


def _round(values: Floats) -> Floats:
    values *= 2.0**-LAP_BITS
    values += 0.5
    return np.floor(values, out=values)


def filter_halves(matrix: Floats) -> Floats:
    """What a symmetric filter (2 REACH, 2 REACH) does to sums and differences of opposite samples."""
    top, mirrored = matrix[:REACH, :REACH], matrix[:REACH, : REACH - 1 : -1]
    return np.stack([top + mirrored, top - mirrored])  # (2, REACH, REACH)


def lapped_norms(vectors: NDArray[Any]) -> Floats:
    """Norms of the synthesis functions of tile vectors (columns) once borders are filtered back."""
    tile = len(vectors)
    after = AFTER * 2.0**-LAP_BITS
    wide = np.zeros((3 * tile, vectors.shape[1]))
    wide[tile : 2 * tile] = vectors
    for start in (tile - REACH, 2 * tile - REACH):
        wide[start : start + 2 * REACH] = after @ wide[start : start + 2 * REACH]
    return np.asarray(np.sqrt((wide * wide).sum(axis=0)), np.float64)
