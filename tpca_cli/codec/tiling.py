"""Pictures to planes of tiles and back, whole runs of one size at a time.

Pictures (h, w, c) become images (n, c, h, w), padded by mirroring as `framing` does, and then planes
(T, T, c, tiles): the same tiles in the same order as `Framing.split`, with the tile index last.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.lapping import lap
from tpca_cli.framing import CANVAS_PIXELS, Canvas, Framing, mirror

Pixels = NDArray[Any]
Floats = NDArray[np.float64]
Shape = tuple[int, int]

SUBBITS = 6
"""Fractional bits of lapped samples, those of the coefficients."""


def runs(shapes: Sequence[Shape]) -> Iterator[tuple[Shape, int, int]]:
    """Consecutive pictures of one size: (size, first, last + 1)."""
    at = 0
    for shape, group in itertools.groupby(shapes):
        count = len(list(group))
        yield shape, at, at + count
        at += count


def to_images(framing: Framing, pictures: Sequence[Pixels]) -> Floats:
    """Pictures of one size as padded images (n, c, h, w)."""
    h, w, _ = pictures[0].shape
    rows, columns = framing.grid(h, w)
    stacked = np.stack(pictures).transpose(0, 3, 1, 2)
    if (rows * framing.height, columns * framing.width) != (h, w):
        down, right = mirror(h, rows * framing.height), mirror(w, columns * framing.width)
        stacked = stacked[:, :, down][..., right]
    return np.ascontiguousarray(stacked, dtype=np.float64)


def to_planes(framing: Framing, images: Floats) -> Floats:
    """Padded images as planes (T, T, c, tiles)."""
    n, c, h, w = images.shape
    th, tw = framing.height, framing.width
    tiles = images.reshape(n, c, h // th, th, w // tw, tw).transpose(3, 5, 1, 0, 2, 4)
    return np.asarray(tiles.reshape(th, tw, c, -1), np.float64)


def from_planes(framing: Framing, planes: Floats, grid: Shape) -> Floats:
    """The inverse of `to_planes` for images with this grid of tiles."""
    th, tw, c, tiles = planes.shape
    rows, columns = grid
    n = tiles // (rows * columns)
    images = planes.reshape(th, tw, c, n, rows, columns).transpose(3, 2, 4, 0, 5, 1)
    return np.asarray(images.reshape(n, c, rows * th, columns * tw), np.float64)


def planes_of(framing: Framing, pictures: Sequence[Pixels], lapped: bool) -> Floats:
    """Planes of all pictures; lapped ones come in units of 2^-SUBBITS."""
    planes = []
    for _, first, last in runs([(int(p.shape[0]), int(p.shape[1])) for p in pictures]):
        images = to_images(framing, pictures[first:last])
        if lapped:
            images *= 1 << SUBBITS
            lap(images.reshape(-1, *images.shape[2:]), framing.height)
        planes.append(to_planes(framing, images))
    return planes[0] if len(planes) == 1 else np.concatenate(planes, axis=-1)


def images_of(framing: Framing, planes: Floats, shapes: Sequence[Shape], lapped: bool) -> list[Floats]:
    """For each run of shapes, the images (n, c, h, w) without padding."""
    out, at = [], 0
    for (h, w), first, last in runs(shapes):
        grid = framing.grid(h, w)
        tiles = (last - first) * grid[0] * grid[1]
        images = from_planes(framing, planes[..., at : at + tiles], grid)
        at += tiles
        if lapped:
            lap(images.reshape(-1, *images.shape[2:]), framing.height, inverse=True)
        out.append(images[:, :, :h, :w])
    return out


def batches(framing: Framing, sample: Sequence[Pixels], most: int = 1 << 17) -> list[list[Pixels]]:
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
