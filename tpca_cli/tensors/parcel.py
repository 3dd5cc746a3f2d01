"""Long lists of small things as a few large ones, for the way to another process and back.

Thousands of objects take longer to pickle than some images to decode. Each `pack_..` gives plain data that
its `unpack_..` turns into the list again. Headers of one kind come back as one object.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from tpca_cli.images import Header
from tpca_cli.scan import ImageRef

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
    same: dict[Header, Header] = {}
    once = [same.setdefault(kind, kind) for kind in kinds]
    return [once[number] for number in array("I", column)]


def pack_numbers(numbers: Sequence[int]) -> bytes:
    return array("q", numbers).tobytes()


def unpack_numbers(packed: bytes) -> list[int]:
    return array("q", packed).tolist()
