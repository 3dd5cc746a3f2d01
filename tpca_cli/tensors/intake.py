"""Reads many images in parallel, in order, with bounded memory: headers first, then frames in batches.

A batch is a function of the list of files alone, never of the workers or of timing, and carries a digest of
its frames that was taken where they were made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tpca_cli.errors import ImageRefused, StorageError, printable
from tpca_cli.framing import Framing
from tpca_cli.images import Header, Stamp, probe, read
from tpca_cli.parallel import ordered_map
from tpca_cli.scan import ImageRef
from tpca_cli.store import digest_of
from tpca_cli.tensors.frames import Block

_PROBES = 64
BATCH_IMAGES = 64
_BATCH_BYTES = 1 << 21
# A decoder needs the file, its own picture and ours at the same time.
_DECODER_FACTOR = 3
_IN_FLIGHT_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file of the list that gives no frames, by its position, and the error that says why."""

    index: int
    error: ImageRefused | StorageError


@dataclass(frozen=True, slots=True)
class Taken:
    """One image that was read: its position in the list, what it is, its digest and what is worth knowing."""

    index: int
    header: Header
    digest: bytes
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Frames of consecutive images."""

    frames: Block
    digest: bytes
    taken: tuple[Taken, ...]
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How every image is to be read."""

    framing: Framing
    dtype: str
    size: tuple[int, int] | None
    max_pixels: int


def probe_all(refs: Sequence[ImageRef], max_pixels: int, workers: int) -> Iterator[Header | Refusal]:
    """The header of every file, in order."""

    def probe_some(start: int) -> list[Header | Refusal]:
        return [probe_one(index) for index in range(start, min(start + _PROBES, len(refs)))]

    def probe_one(index: int) -> Header | Refusal:
        ref = refs[index]
        try:
            return probe(ref.path, max_pixels, stamp=Stamp(ref.size, ref.mtime_ns))
        except (ImageRefused, StorageError) as error:
            return Refusal(index, error)

    same: dict[Header, Header] = {}  # many images, few kinds: one object for each kind
    for results in ordered_map(probe_some, range(0, len(refs), _PROBES), workers):
        for result in results:
            yield result if isinstance(result, Refusal) else same.setdefault(result, result)


def framed(header: Header, size: tuple[int, int] | None) -> Header:
    """What an image is after the resize."""
    return header if size is None else replace(header, height=size[0], width=size[1])


def read_batches(
    refs: Sequence[ImageRef], chosen: Sequence[tuple[int, Header]], recipe: Recipe, workers: int
) -> Iterator[Batch]:
    """Frames of the chosen files (position and header), batch after batch."""
    batches = _cut(chosen, recipe)
    return ordered_map(
        lambda batch: _read_batch(refs, batch, recipe),
        batches,
        workers,
        weight=lambda batch: sum(_cost(header, recipe) for _, header in batch),
        budget=_IN_FLIGHT_BYTES,
    )


def _cut(chosen: Sequence[tuple[int, Header]], recipe: Recipe) -> Iterator[list[tuple[int, Header]]]:
    batch: list[tuple[int, Header]] = []
    room = _BATCH_BYTES
    for item in chosen:
        batch.append(item)
        after = framed(item[1], recipe.size)
        room -= after.height * after.width * recipe.framing.channels * np.dtype(recipe.dtype).itemsize
        if room <= 0 or len(batch) == BATCH_IMAGES:
            yield batch
            batch, room = [], _BATCH_BYTES
    if batch:
        yield batch


def _cost(header: Header, recipe: Recipe) -> int:
    return _DECODER_FACTOR * header.height * header.width * max(header.channels, recipe.framing.channels)


def _read_batch(refs: Sequence[ImageRef], batch: list[tuple[int, Header]], recipe: Recipe) -> Batch:
    frames: list[Block] = []
    taken: list[Taken] = []
    refused: list[Refusal] = []
    for index, expected in batch:
        ref = refs[index]
        try:
            picture = read(
                ref.path,
                max_pixels=recipe.max_pixels,
                size=recipe.size,
                channels=recipe.framing.channels,
                stamp=Stamp(ref.size, ref.mtime_ns),
            )
            h, w, _ = picture.pixels.shape
            if picture.pixels.dtype != np.dtype(recipe.dtype):
                raise ImageRefused("changed since it was listed")
            frames.append(recipe.framing.split(picture.pixels))  # (count, *frame_shape)
        except (ImageRefused, StorageError) as error:
            refused.append(Refusal(index, error))
            continue
        header = framed(expected, recipe.size)
        if (header.height, header.width, header.mode) != (h, w, picture.mode):
            header = replace(header, height=h, width=w, mode=picture.mode)
        taken.append(Taken(index, header, picture.digest, picture.warnings))
    empty = np.empty((0, *recipe.framing.frame_shape), recipe.dtype)
    whole = np.concatenate([empty, *frames])
    return Batch(whole, digest_of(whole), tuple(taken), tuple(refused))


def with_path(ref: ImageRef, error: ImageRefused | StorageError) -> ImageRefused | StorageError:
    """The error as the end of a run: a refusal gets the name of its file, a system error has it already."""
    if isinstance(error, StorageError):
        return error
    return ImageRefused(f"{printable(ref.path)}: {error}")
