"""What must be known before a decoder sees a file: its size, and a depth that Pillow would cut silently."""

from __future__ import annotations

import re

from tpca_cli.errors import ImageRefused

_MAX_CHUNK = 1 << 24
TOO_DEEP = "16 bits per channel are supported for gray only, and in color by --exact"
_PPM_HEADER = re.compile(
    rb"P[1-6](?:(?:\s|#[^\r\n]*[\r\n])+(\d+))(?:(?:\s|#[^\r\n]*[\r\n])+(\d+))(?:(?:\s|#[^\r\n]*[\r\n])+(\d+))?"
)


def announced_size(kind: str, head: bytes) -> tuple[int, int] | None:
    """Height and width where they are easy to find and a decoder would allocate before we can ask it."""
    if kind == "PNG":
        return _big(head, 20), _big(head, 16)
    if kind == "WEBP" and head[12:16] == b"VP8X":
        return _little(head, 27, 3) + 1, _little(head, 24, 3) + 1
    if kind == "WEBP" and head[12:16] == b"VP8L":
        bits = _little(head, 21, 4)
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if kind == "WEBP" and head[12:16] == b"VP8 ":
        return _little(head, 28, 2) & 0x3FFF, _little(head, 26, 2) & 0x3FFF
    return None


def check_depth(kind: str, head: bytes, *, deep: bool = False) -> None:
    """Refuse color with more than 8 bits per channel, which Pillow would cut to 8, unless `deep` asks."""
    if kind == "PNG":
        if head[12:16] != b"IHDR" or len(head) < 33:
            raise ImageRefused("PNG does not begin with its header")
        if head[24] == 16 and head[25] != 0 and not deep:
            raise ImageRefused(TOO_DEEP)
    if kind == "PPM" and head[:2] in (b"P3", b"P6"):
        found = ppm_numbers(head)
        if found is None:
            raise ImageRefused("PPM header is incomplete")
        if found[2] > 255 and not deep:
            raise ImageRefused(TOO_DEEP)
        if found[2] > 255 and head[:2] == b"P3":
            raise ImageRefused("16 bits per channel that are written as text are not supported")


def ppm_numbers(head: bytes) -> tuple[int, int, int, int] | None:
    """Width, height and largest sample of a PPM file, and where its header ends; None if it has none."""
    found = _PPM_HEADER.match(head)
    if found is None or found[3] is None:
        return None
    return int(found[1]), int(found[2]), int(found[3]), found.end()


def check_chunks(data: bytes) -> None:
    """Refuse a PNG that carries a huge chunk besides its pixels."""
    position = 8
    while position + 8 <= len(data):
        length, name = _big(data, position), data[position + 4 : position + 8]
        if name in (b"IDAT", b"IEND"):
            return
        if length > _MAX_CHUNK:
            raise ImageRefused(f"PNG chunk of {length} bytes before the pixels, the limit is {_MAX_CHUNK}")
        position += 12 + length


def transparent_gray_factor(head: bytes) -> int:
    """Gray PNG of 2 or 4 bits are spread to 8 bits, their transparent value is not: the factor it needs."""
    depth = head[24]
    return 255 // ((1 << depth) - 1) if head[25] == 0 and depth in (2, 4) else 1


def _big(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def _little(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "little")
