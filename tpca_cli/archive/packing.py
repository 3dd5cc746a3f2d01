"""How images are packed into blocks: the unit of coding, of random access and of damage.

A block holds whole images of up to about 2^17 pixels in all, counted as the frames that they become (2^19
where all are small, and so few that a reader keeps all blocks once they are decoded), or one larger image;
beyond 2^19 pixels an image is cut into bands of whole tile rows, one block each. Images of one block lie on
one canvas, as wide as the widest: one that would make it larger than 2^21 pixels begins another block. The
packing depends only on the sizes and the framing, never on workers or memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tpca_cli.archive.limits import CANVAS_NUMBERS, COMPONENTS
from tpca_cli.errors import UsageError
from tpca_cli.framing import CANVAS_PIXELS, Canvas, Framing

BLOCK_PIXELS = 2**17
BAND_PIXELS = 2**19
"""What is learned in a block is lost after it: an image that is read as a whole should be one."""
SMALL_PIXELS, FEW_PIXELS = 2**14, 2**22
"""Images of up to so many pixels each and in all are packed closely: a reader keeps eight blocks."""


@dataclass(frozen=True)
class Job:
    """Images that are coded together: one block of whole images, or one image cut into bands."""

    first: int
    count: int
    bands: tuple[tuple[int, int], ...] = ()  # (first pixel row, rows); empty for whole images


def pack(shapes: Sequence[tuple[int, int]], framing: Framing) -> list[Job]:
    """Cover the images, in order, with jobs."""
    jobs: list[Job] = []
    first, pixels, canvas = 0, 0, Canvas()
    frame = framing.height * framing.width
    areas = [math.prod(framing.grid(h, w)) * frame for h, w in shapes]
    close = max(areas, default=0) <= SMALL_PIXELS and sum(areas) <= FEW_PIXELS
    most = BAND_PIXELS if close else BLOCK_PIXELS
    for position, (h, w) in enumerate(shapes):
        grid = framing.grid(h, w)
        area = areas[position]
        crowded = pixels + area > most or canvas.beside(*grid).places * frame > CANVAS_PIXELS
        if position > first and crowded:
            jobs.append(Job(first, position - first))
            first, pixels, canvas = position, 0, Canvas()
        bands = _bands(h, w, area, framing)
        if len(bands) > 1:
            jobs.append(Job(position, 1, bands))
            first, pixels, canvas = position + 1, 0, Canvas()
        else:
            pixels += area
            canvas = canvas.beside(*grid)
    if first < len(shapes):
        jobs.append(Job(first, len(shapes) - first))
    return jobs


def check_work(
    jobs: Sequence[Job], shapes: Sequence[tuple[int, int]], framing: Framing, components: int
) -> None:
    """Refuse jobs whose archive no reader would open with its usual bounds."""
    check_components(framing, components)
    for job in jobs:
        if job.count == 1:  # the canvas of several is bounded already
            h, w = shapes[job.first]
            canvas = Canvas().beside(*framing.grid(max((rows for _, rows in job.bands), default=h), w))
            if canvas.places * components > CANVAS_NUMBERS:
                raise UsageError(
                    f"an image of {h}x{w} pixels is too wide for frames of {framing.height}x{framing.width}: "
                    "use a smaller --tile"
                )


def check_components(framing: Framing, components: int) -> None:
    """Refuse a basis that no reader would take with its usual bounds."""
    if components > COMPONENTS:
        raise UsageError(
            f"frames of {framing.height}x{framing.width} pixels have {components} components, more than "
            f"{COMPONENTS}: use a smaller --tile or --size, or --components"
        )


def _bands(h: int, w: int, area: int, framing: Framing) -> tuple[tuple[int, int], ...]:
    """The bands of an image, whose tiles have `area` pixels with their padding."""
    if framing.kind == "whole" or area <= BAND_PIXELS:
        return ((0, h),)
    return bands_of(h, -(-w // framing.width) * framing.width, framing.height)


def bands_of(h: int, w: int, tile: int) -> tuple[tuple[int, int], ...]:
    """Bands (first row, rows) of whole rows of tiles, as equal as they can be, up to `BAND_PIXELS` each."""
    tile_rows = -(-h // tile)
    count = min(tile_rows, -(-tile_rows * tile * w // BAND_PIXELS))
    starts = [tile_rows * k // count * tile for k in range(count)] + [h]
    return tuple((start, stop - start) for start, stop in pairwise(starts))
