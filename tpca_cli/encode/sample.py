"""The pixels that everything is tried on before all images are coded.

A sample is fixed by the list of images: all of them if they are few and small, otherwise windows of at most
256 images, evenly spread over all pixels. It has about a million of them, however many and large the images.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.interfaces import Pixels
from tpca_cli.parallel import ordered_map
from tpca_cli.quality import peak_of
from tpca_cli.rate import Range, Target, range_for
from tpca_cli.sources.probe import Kind, Member
from tpca_cli.sources.read import read_member
from tpca_cli.sources.read_plan import Reading

SAMPLE_IMAGES = 256
MANY_IMAGES = 1024  # of which all pixels are few
SAMPLE_PIXELS = 2**20
WINDOWS = (128, 64)  # sides of a window: the larger where an image gives at least four of them
SEEN = 512  # side of what is looked at of a large image: all scales that people see errors at are in it
SPREAD = (0.7548776662466927, 0.5698402909980532)  # steps that fill a square evenly
FEWER = 4  # the part of a sample that steps are first tried on
_CHUNK = 1 << 14  # pixels that are squared together


@dataclass(frozen=True)
class Sample:
    """Pictures, whether they are all there is and uncut, and what the images are like that they came from."""

    pictures: list[Pixels]
    whole: bool
    largest: int = 0  # sample value
    variances: tuple[float, ...] = ()  # of each image that was read

    def range(self, kind: Kind, target: Target) -> Range:
        """The range of a group as far as this shows it; coding all images shows whether it holds."""
        return range_for(target, peak_of(self.largest, kind.dtype), self.variances)


def pixel_count(pictures: Sequence[Pixels]) -> int:
    """Pixels of all pictures."""
    return sum(pixels.shape[0] * pixels.shape[1] for pixels in pictures)


def fewer(sample: Sequence[Pixels]) -> Sequence[Pixels]:
    """Part of a sample, for a first look."""
    return sample[:: FEWER if len(sample) >= 4 * FEWER else 1]


def take_sample(
    members: Sequence[Member], kind: Kind, reading: Reading, *, windows: bool = True, seen_area: bool = False
) -> Sample:
    """Images at even distances, counted in pixels; where all would be too many, they give windows.

    Without `windows`, for frames that are whole images, fewer images are taken; where it is about a
    `seen_area`, of the larger ones as much as people look at together.
    """
    areas = [member.height * member.width for member in members]
    if sum(areas) <= SAMPLE_PIXELS or not windows:
        each = sum(min(area, SEEN**2) for area in areas) // len(areas) if seen_area else max(areas)
        count = min(len(members), MANY_IMAGES if windows else max(1, SAMPLE_PIXELS // each))
        shares = {len(members) * k // count: 0 for k in range(count)}
    else:
        shares = _shares(areas)

    def read(chosen: tuple[int, int]) -> tuple[list[Pixels], Moments] | None:
        position, share = chosen
        try:
            pixels = read_member(members[position], kind.channels, reading).pixels
        except (ImageRefused, StorageError):
            return None  # the pass over all images reports it
        parts = [part.copy() for part in _windows(pixels, share, position)] if share else [pixels]
        if seen_area and pixels.shape[0] * pixels.shape[1] > SEEN**2:
            parts = [_seen(pixels, position).copy()]
        return parts, moments(pixels)

    others = {position: 0 for position in range(len(members)) if position not in shares}
    pictures: list[Pixels] = []
    seen: list[Moments] = []
    for some in (shares, dict(itertools.islice(others.items(), SAMPLE_IMAGES))):
        for found in ordered_map(
            read,
            some.items(),
            reading.workers,
            weight=lambda chosen: members[chosen[0]].weight,
            budget=reading.room.size,
        ):
            if found is not None:
                pictures += found[0]
                seen.append(found[1])
        if pictures:  # otherwise those that were to speak for all cannot be read
            break
    whole = len(seen) == len(members) and pixel_count(pictures) == sum(areas)
    variances = tuple(one.deviation / max(one.samples, 1) for one in seen)
    return Sample(pictures, whole, max((one.largest for one in seen), default=0), variances)


def take_images(members: Sequence[Member], kind: Kind, reading: Reading, count: int) -> Iterator[Pixels]:
    """So many whole images at even distances, one after another, without those that cannot be read."""
    count = min(count, len(members))

    def read(member: Member) -> Pixels | None:
        try:
            return read_member(member, kind.channels, reading).pixels
        except (ImageRefused, StorageError):
            return None  # the pass over all images reports it

    chosen = [members[len(members) * k // count] for k in range(count)]
    for pixels in ordered_map(read, chosen, reading.workers):
        if pixels is not None:
            yield pixels


def _seen(pixels: Pixels, turn: int) -> Pixels:
    """A part of a large image that is looked at, elsewhere in the next one."""
    top, left = (
        int((0.5 + turn * spread) % 1 * (max(side - SEEN, 0) + 1))
        for side, spread in zip(pixels.shape[:2], SPREAD, strict=True)
    )
    return pixels[top : top + SEEN, left : left + SEEN]


def _shares(areas: Sequence[int]) -> dict[int, int]:
    """Pixels that images give, by position: the more, the larger they are."""
    ends = np.cumsum(areas)
    places = (np.arange(SAMPLE_IMAGES) + 0.5) / SAMPLE_IMAGES * ends[-1]
    chosen, times = np.unique(np.searchsorted(ends, places, side="right"), return_counts=True)
    each = SAMPLE_PIXELS // SAMPLE_IMAGES
    return {int(position): int(count) * each for position, count in zip(chosen, times, strict=True)}


def _windows(pixels: Pixels, share: int, turn: int) -> Iterator[Pixels]:
    """The image itself if it has no more pixels than its share, else cells of a grid, spread over it."""
    h, w, _ = pixels.shape
    if h * w <= share:
        yield pixels
        return
    side = next((side for side in WINDOWS if 4 * side**2 <= share), WINDOWS[-1])
    rows, columns = -(-h // side), -(-w // side)
    wanted = min(max(1, share // side**2), rows * columns)
    taken: set[tuple[int, int]] = set()
    k = turn
    while len(taken) < wanted:  # the sequence fills the square, so it comes to every cell
        row, column = int((0.5 + k * SPREAD[0]) % 1 * rows), int((0.5 + k * SPREAD[1]) % 1 * columns)
        k += 1
        if (row, column) not in taken:
            taken.add((row, column))
            yield pixels[row * side : (row + 1) * side, column * side : (column + 1) * side]


class Moments(NamedTuple):
    """Of the samples of an image: how many, the largest, the sum of their squares, and the sum of squared
    distances from the mean of their channel, all as whole numbers."""

    samples: int
    largest: int
    energy: int
    deviation: int


def moments(pixels: Pixels) -> Moments:
    """Exact for 8 and 16 bits: float64 holds every sum of a chunk."""
    h, w, c = pixels.shape
    flat = pixels.reshape(-1, c)
    sums, squares = np.zeros(c, np.int64), np.zeros(c, np.int64)
    for start in range(0, len(flat), _CHUNK):
        part = np.ascontiguousarray(flat[start : start + _CHUNK].T, np.float64)  # (c, pixels)
        sums += part.sum(axis=1).astype(np.int64)
        squares += np.einsum("cn,cn->c", part, part).astype(np.int64)
    count = h * w
    deviation = sum((count * int(q) - int(s) ** 2) // count for q, s in zip(squares, sums, strict=True))
    return Moments(pixels.size, int(pixels.max()), int(squares.sum()), deviation)
