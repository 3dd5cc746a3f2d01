"""What is read from the blocks of a group that comes back exactly: files, or pictures."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tpca_cli import images
from tpca_cli.archive.index import Index
from tpca_cli.archive.writer import Group
from tpca_cli.errors import FileRefused, ImageRefused, printable
from tpca_cli.exact.coders import FileCoder, JpegCoder, PixelCoder, coder_of
from tpca_cli.formats import CHANNELS, DTYPES, FILE
from tpca_cli.interfaces import Pixels
from tpca_cli.store.columns import split_arrays

if TYPE_CHECKING:
    from tpca_cli.archive.reader import Archive

Shape = tuple[int, int]


@functools.lru_cache(maxsize=16)
def _coder(method: str, tables: bytes, meta: tuple[int, int, int, int]) -> JpegCoder | FileCoder | PixelCoder:
    channels, peak, tolerance, model = meta
    settings = {"tolerance": tolerance, "model": model}
    described = {"method": method, "channels": channels, "peak": peak, "coder": settings}
    return coder_of(described, split_arrays(np.frombuffer(tables, np.uint8)))


def coder(group: Group) -> JpegCoder | FileCoder | PixelCoder:
    """The coder of a group."""
    meta = group.meta
    numbers = (meta["channels"], meta["peak"], meta["coder"]["tolerance"], meta["coder"]["model"])
    return _coder(str(meta["method"]), group.tables.tobytes(), numbers)


def files(group: Group, data: bytes, shapes: Sequence[Shape], scale: float) -> list[bytes]:
    """The files of a block of a group that holds files, of up to `scale` times the usual bytes."""
    found = coder(group)
    if isinstance(found, PixelCoder):
        raise FileRefused("a block of pixels where files were expected")
    return found.decode_files(data, shapes, scale)


def checked_files(group: Group, index: Index, block: int, data: bytes, scale: float) -> list[bytes]:
    """The files of a block, each held to the digest of its source unless it was replaced."""
    found = files(group, data, index.block_shapes(block), scale)
    for image, file in enumerate(found, int(index.blocks["first"][block])):
        if index.mode(image):
            check_digest(file, index.images["digest"][image].tobytes(), index.names[image])
    return found


def block_pictures(
    archive: Archive, block: int, wanted: Sequence[int] | None, max_pixels: int
) -> list[Pixels]:
    """Pictures of a block, all or by their places in it; of files only those are decoded that are wanted."""
    index, first = archive.index, int(archive.index.blocks["first"][block])
    if not archive.holds_files(block):
        group = archive.groups[int(index.blocks["group"][block])]
        found = _decoded(group, archive.block_bytes(block), index.block_shapes(block))
        return found if wanted is None else [found[place] for place in wanted]
    kept, pictures = archive.block_files(block), []
    for place in range(len(kept)) if wanted is None else wanted:
        image = first + place
        try:
            pictures.append(_picture(kept[place], index.mode(image), index.shape(image), max_pixels))
        except FileRefused as error:
            raise FileRefused(f"{printable(archive.path)}: {printable(index.names[image])} {error}") from None
    return pictures


def _decoded(group: Group, data: bytes, shapes: Sequence[Shape]) -> list[Pixels]:
    found = coder(group)
    if not isinstance(found, PixelCoder):
        raise FileRefused("a block of files where pixels were expected")
    return found.decode(data, shapes)


def _picture(file: bytes, mode: str, shape: Shape, max_pixels: int) -> Pixels:
    """The picture in a file that is kept as it is."""
    if mode == FILE:
        raise FileRefused(
            "is kept as a file and is no picture that can be read: `Archive.file` has its bytes"
        )
    try:
        source = images.Source(file, 0)
        found = images.picture_of(source, max_pixels=max_pixels, channels=CHANNELS[mode], deep=True)
    except ImageRefused as error:
        raise FileRefused(f"is kept as the file that it was, which cannot be decoded: {error}") from None
    if found.pixels.shape[:2] != shape or found.pixels.dtype != np.dtype(DTYPES[mode]):
        raise FileRefused(f"is kept as a file with a picture of {found.pixels.shape}, not of {shape}")
    return found.pixels


def recoded(group: Group, data: bytes, shapes: Sequence[Shape], kept: Sequence[int]) -> bytes:
    """A block with some of its images only; files and pixels stay what they are."""
    found = coder(group)
    some = [shapes[position] for position in kept]
    if isinstance(found, PixelCoder):
        if found.tolerance:
            raise FileRefused("pixels within a tolerance cannot be coded anew without changing them")
        wanted = found.decode(data, shapes)
        return found.encode([wanted[position] for position in kept])[0]
    everything = found.decode_files(data, shapes)
    block, taken = found.encode_files([everything[position] for position in kept], some)
    if not all(taken):
        raise FileRefused("a file does not come back from a new block")
    return block


def check_digest(data: bytes, digest: bytes, name: bytes) -> None:
    """Refuse a file that is not, byte for byte, the one that was archived."""
    if images.source_digest(data, len(digest)) != digest:
        raise FileRefused(f"{printable(name)} does not come back as it was: its block is damaged")
