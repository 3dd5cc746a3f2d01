"""What became of the files of a list: images that were read, and files that were refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.images import Header
from tpca_cli.tensors.frames import Block
from tpca_cli.tensors.parcel import Packed, pack_headers, pack_numbers, unpack_headers, unpack_numbers


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file of the list that gives no frames, by its position, and the error that says why."""

    index: int
    error: ImageRefused | StorageError


class Taken(NamedTuple):
    """One image that was read: its number in the list, what it is, its digest and what is worth knowing."""

    number: int
    header: Header
    digest: bytes
    warnings: tuple[str, ...]


def pack_taken(taken: Sequence[Taken]) -> Packed:
    """For the way to another process, as in `parcel`."""
    return (
        pack_numbers([each.number for each in taken]),
        pack_headers([each.header for each in taken]),
        b"".join([each.digest for each in taken]),
        {number: each.warnings for number, each in enumerate(taken) if each.warnings},
    )


def unpack_taken(
    numbers: bytes, headers: Packed, digests: bytes, warnings: dict[int, tuple[str, ...]]
) -> tuple[Taken, ...]:
    columns = zip(unpack_numbers(numbers), unpack_headers(*headers), strict=True)
    return tuple(
        Taken(index, header, digests[8 * at : 8 * at + 8], warnings.get(at, ()))
        for at, (index, header) in enumerate(columns)
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """Frames of consecutive images, and the checksum of each of their `pieces`."""

    frames: Block
    sums: tuple[int, ...]
    taken: tuple[Taken, ...]
    refused: tuple[Refusal, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _batch, (self.frames, self.sums, pack_taken(self.taken), self.refused)


def _batch(frames: Block, sums: tuple[int, ...], taken: Packed, refused: tuple[Refusal, ...]) -> Batch:
    return Batch(frames, sums, unpack_taken(*taken), refused)
