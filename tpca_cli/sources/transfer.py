"""Long lists of small things as a few large ones, for the way to another process and back.

Thousands of objects take longer to pickle than some images to decode. Each `pack_..` gives plain data that
its `unpack_..` turns into the list again. Headers of one kind come back as one object.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.images import Header
from tpca_cli.interfaces import Block
from tpca_cli.sources.scan import ImageRef

Packed = tuple[Any, ...]


def pack_refs(refs: Sequence[ImageRef]) -> Packed:
    """Paths and names hold any byte but NUL."""
    return (
        b"\0".join([ref.path for ref in refs]),
        b"\0".join([ref.name for ref in refs]),
        array("q", [ref.size for ref in refs]).tobytes(),
        array("q", [ref.mtime_ns for ref in refs]).tobytes(),
        bytes([ref.linked for ref in refs]),
    )


def unpack_refs(paths: bytes, names: bytes, sizes: bytes, times: bytes, linked: bytes) -> list[ImageRef]:
    """The references that `pack_refs` packed."""
    if not linked:
        return []
    columns = (
        paths.split(b"\0"),
        names.split(b"\0"),
        array("q", sizes),
        array("q", times),
        map(bool, linked),
    )
    return [ImageRef(*row) for row in zip(*columns, strict=True)]


def pack_headers(headers: Sequence[Header]) -> Packed:
    """Headers as the few different ones and a column of numbers."""
    numbers: dict[int, int] = {}  # of objects, which are few; equal ones may be there twice
    kinds: list[Header] = []
    column = array("I")
    for header in headers:
        number = numbers.get(id(header))
        if number is None:
            number = numbers[id(header)] = len(kinds)
            kinds.append(header)
        column.append(number)
    return tuple(kinds), column.tobytes()


def unpack_headers(kinds: tuple[Header, ...], column: bytes) -> list[Header]:
    """The headers that `pack_headers` packed."""
    same: dict[Header, Header] = {}
    once = [same.setdefault(kind, kind) for kind in kinds]
    return [once[number] for number in array("I", column)]


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """Integers as 8 bytes each."""
    return array("q", numbers).tobytes()


def unpack_numbers(packed: bytes) -> list[int]:
    """The integers that `pack_numbers` packed."""
    return array("q", packed).tolist()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file of the list that gives no frames, by its position, and the error that says why."""

    index: int
    error: ImageRefused | StorageError


class ReadImage(NamedTuple):
    """One image that was read: its number in the list, what it is, its digest and what is worth knowing."""

    number: int
    header: Header
    digest: bytes
    warnings: tuple[str, ...]


def pack_images(taken: Sequence[ReadImage]) -> Packed:
    """For the way to another process, as in `parcel`."""
    return (
        pack_numbers([each.number for each in taken]),
        pack_headers([each.header for each in taken]),
        b"".join([each.digest for each in taken]),
        {number: each.warnings for number, each in enumerate(taken) if each.warnings},
    )


def unpack_images(
    numbers: bytes, headers: Packed, digests: bytes, warnings: dict[int, tuple[str, ...]]
) -> tuple[ReadImage, ...]:
    """The images that `pack_images` packed."""
    columns = zip(unpack_numbers(numbers), unpack_headers(*headers), strict=True)
    return tuple(
        ReadImage(index, header, digests[8 * at : 8 * at + 8], warnings.get(at, ()))
        for at, (index, header) in enumerate(columns)
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """Frames of consecutive images, and the checksum of each of their `pieces`."""

    frames: Block
    sums: tuple[int, ...]
    taken: tuple[ReadImage, ...]
    refused: tuple[Refusal, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _batch, (self.frames, self.sums, pack_images(self.taken), self.refused)


def _batch(frames: Block, sums: tuple[int, ...], taken: Packed, refused: tuple[Refusal, ...]) -> Batch:
    return Batch(frames, sums, unpack_images(*taken), refused)
