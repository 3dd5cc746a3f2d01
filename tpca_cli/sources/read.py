"""Reads many images in parallel, in order, with bounded memory: headers first, then frames in batches.

A batch is a function of the list of files alone, never of the workers or of timing, and carries a checksum
of its frames that was taken where they were made.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tpca_cli import images
from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.framing import WHOLE
from tpca_cli.images import Header, Picture, Stamp, prepare_resizing, probe, read, widen
from tpca_cli.interfaces import Block
from tpca_cli.parallel import can_fork, forked_map, ordered_map
from tpca_cli.sources.probe import Kind, Member, mode_fits
from tpca_cli.sources.read_plan import (
    GUESSED_PIXELS,
    Reading,
    ReadPlan,
    WrongGuess,
    after_resize,
    count_headers,
    misfit,
)
from tpca_cli.sources.scan import ImageRef
from tpca_cli.sources.transfer import Batch, ReadImage, Refusal

BATCH_IMAGES = 64
_BATCH_BYTES = 1 << 21
# A decoder needs the file, its own picture and ours at the same time.
_DECODER_FACTOR = 3
_IN_FLIGHT_BYTES = 1 << 28
_MANY, _SMALL_PIXELS = 256, 1 << 20


def read_batches(
    refs: Sequence[ImageRef], chosen: Sequence[tuple[int, Header]], recipe: ReadPlan, workers: int
) -> Iterator[Batch]:
    """Frames of the chosen files (position and header), batch after batch.

    A batch's frames may be gone once the next one is asked for: whoever keeps them makes a copy.
    """
    if _suits_processes(chosen, workers):
        return _read_forked(refs, chosen, recipe, workers)
    return ordered_map(
        lambda batch: _read_batch(refs, batch, recipe),
        _cut(chosen, recipe),
        workers,
        weight=lambda batch: _weight(batch, recipe),
        budget=_IN_FLIGHT_BYTES,
    )


def _suits_processes(chosen: Sequence[tuple[int, Header]], workers: int) -> bool:
    """Many small images: what threads do between two calls of the decoder keeps the others waiting."""
    return (
        workers > 1
        and len(chosen) >= _MANY
        and can_fork()
        and max(header.height * header.width for header in count_headers(chosen)) <= _SMALL_PIXELS
    )


def _read_forked(
    refs: Sequence[ImageRef], chosen: Sequence[tuple[int, Header]], recipe: ReadPlan, workers: int
) -> Iterator[Batch]:
    batches = list(_cut(chosen, recipe))
    most = max(map(_cost(recipe), count_headers(chosen)))
    room = min(BATCH_IMAGES * most, _BATCH_BYTES + most)
    shape = recipe.framing.frame_shape
    if recipe.size is not None:
        prepare_resizing()

    def read_into(number: int, slot: memoryview) -> tuple[int, Batch]:
        batch = _read_batch(refs, batches[number], recipe, slot)
        if len(batch.frames) and not np.may_share_memory(batch.frames, np.frombuffer(slot, np.uint8)):
            return -1, batch  # they did not fit: not what the headers said
        return len(batch.frames), replace(batch, frames=batch.frames[:0])

    for (rows, batch), slot in forked_map(read_into, range(len(batches)), workers, room):
        if rows < 0:
            yield batch
            continue
        count = rows * math.prod(shape)
        yield replace(batch, frames=np.frombuffer(slot, recipe.dtype, count).reshape(rows, *shape))


def _cut(chosen: Sequence[tuple[int, Header]], recipe: ReadPlan) -> Iterator[list[tuple[int, Header]]]:
    batch: list[tuple[int, Header]] = []
    room = _BATCH_BYTES
    cost = _cost(recipe)
    for item in chosen:
        batch.append(item)
        room -= cost(item[1])
        if room <= 0 or len(batch) == BATCH_IMAGES:
            yield batch
            batch, room = [], _BATCH_BYTES
    if batch:
        yield batch


def _weight(batch: list[tuple[int, Header]], recipe: ReadPlan) -> int:
    """Bytes that a batch needs at most: one image in the decoder, and the frames of all."""
    decoding = max(header.height * header.width * header.channels for _, header in batch)
    cost = _cost(recipe)
    frames = sum(cost(header) for _, header in batch)
    return _DECODER_FACTOR * decoding + frames


def _cost(recipe: ReadPlan) -> Callable[[Header], int]:
    """How many bytes the frames of an image have; there are many images, and few kinds of them."""
    frame = math.prod(recipe.framing.frame_shape) * int(recipe.dtype[1])

    @functools.cache
    def cost(header: Header) -> int:
        return recipe.frames_of(header) * frame

    return cost


def _is_large(ref: ImageRef, max_pixels: int) -> bool:
    try:
        header = probe(ref.path, max_pixels)
    except (ImageRefused, StorageError):
        return False
    return header.height * header.width > GUESSED_PIXELS


def _same_size(one: Header, other: Header) -> bool:
    return (one.height, one.width) == (other.height, other.width)


def _header(picture: Picture) -> Header:
    h, w, c = picture.pixels.shape
    return Header(h, w, c, "u2" if picture.pixels.dtype == np.uint16 else "u1", picture.mode)


class _Gathered:
    """Frames of one batch, in `room` if they fit; whole images go straight to their place."""

    def __init__(self, recipe: ReadPlan, images: int, room: memoryview | None) -> None:
        self._framing = recipe.framing
        self._whole = recipe.framing.kind == WHOLE
        self._dtype = np.dtype(recipe.dtype)
        self._room = room
        self._array = self._space(images if self._whole else 0)
        self._have = 0
        self._parts: list[Block] = []

    def _space(self, frames: int) -> Block:
        shape = (frames, *self._framing.frame_shape)
        size = math.prod(shape)
        if self._room is None or size * self._dtype.itemsize > len(self._room):
            return np.empty(shape, self._dtype)
        return np.frombuffer(self._room, self._dtype, size).reshape(shape)

    def add(self, pixels: Block) -> None:
        if self._whole and pixels.shape == self._array.shape[1:]:
            self._array[self._have] = pixels
            self._have += 1
        else:
            self._parts.append(self._framing.split(pixels))  # (count, T, T, c)

    def result(self) -> Block:
        if self._whole:
            return self._array[: self._have]
        if not self._parts:
            return self._array
        if len(self._parts) == 1 and self._room is None:
            return self._parts[0]
        return np.concatenate(self._parts, out=self._space(sum(map(len, self._parts))))


def _read_batch(
    refs: Sequence[ImageRef],
    batch: list[tuple[int, Header]],
    recipe: ReadPlan,
    room: memoryview | None = None,
) -> Batch:
    frames = _Gathered(recipe, len(batch), room)
    taken: list[ReadImage] = []
    refused: list[Refusal] = []
    same: dict[Header, Header] = {}
    limit = min(recipe.max_pixels, GUESSED_PIXELS) if recipe.guessed else recipe.max_pixels
    previous: Header | None = None
    for index, announced in batch:
        if announced is not previous:  # most share one object
            previous, expected = announced, after_resize(announced, recipe.size)
        ref, header = refs[index], expected
        try:
            stamp = Stamp(ref.size, ref.mtime_ns)
            picture = read(ref.path, max_pixels=limit, size=recipe.size, stamp=stamp, digest_bytes=8)
            if picture.pixels.shape != (header.height, header.width, header.channels) or (
                picture.mode != header.mode
            ):
                header = _header(picture)
                problem = misfit(header, recipe.framing, recipe.dtype)
                if recipe.guessed and (problem is not None or not _same_size(header, expected)):
                    raise WrongGuess("an image is not like the others")
                if problem is not None:
                    raise problem
            frames.add(widen(picture.pixels, recipe.framing.channels))
        except (ImageRefused, StorageError) as error:
            refused.append(Refusal(index, error))
            if recipe.guessed and _is_large(ref, recipe.max_pixels):
                raise WrongGuess("larger than expected") from error
            continue
        header = same.setdefault(header, header)
        taken.append(ReadImage(index, header, picture.digest, picture.warnings))
    whole = frames.result()
    return Batch(whole, tuple(map(checksum, pieces(whole))), tuple(taken), tuple(refused))


_PIECE_BYTES = 1 << 22


def pieces(frames: Block) -> Iterator[Block]:
    """Frames in parts of a few megabytes, which are checked and read one by one."""
    rows = max(1, _PIECE_BYTES // max(1, frames[:1].nbytes))
    for start in range(0, len(frames), rows):
        yield frames[start : start + rows]


def checksum(block: Block) -> int:
    """32 bits over the bytes of a block, quick enough for all pixels of a folder; HDF5 adds its own."""
    return zlib.crc32(block.data) if block.size else 0


def read_member(member: Member, channels: int, reading: Reading, *, content: bool = False) -> images.Picture:
    """Decode one image into the channels of its group; its header must still be what the survey saw."""
    picture = images.read(
        member.ref.path,
        max_pixels=reading.max_pixels,
        size=reading.size,
        channels=channels,
        digest_bytes=reading.digest_bytes,
        content=content,
    )
    if (picture.pixels.shape[:2], picture.mode) != ((member.height, member.width), member.mode):
        raise ImageRefused("changed while it was read")
    return picture


def read_unseen(member: Member, kind: Kind, reading: Reading) -> images.Picture:
    """Decode an image whose header nobody looked at; WrongGuess unless it is what a few others are."""
    try:
        picture = images.read(
            member.ref.path,
            max_pixels=min(reading.max_pixels, member.height * member.width),
            size=reading.size,
            channels=kind.channels,
            digest_bytes=reading.digest_bytes,
        )
    except (ImageRefused, StorageError) as error:
        raise WrongGuess(str(error)) from error
    if picture.pixels.shape[:2] != (member.height, member.width) or not mode_fits(picture.mode, kind):
        raise WrongGuess("an image is not like the others")
    return picture
