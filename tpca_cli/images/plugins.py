"""AVIF, HEIC and JPEG XL: formats that Pillow reads with a library or a package that may be missing.

These files may hold far more than a picture: further pictures, gain maps, depth, video, metadata of any kind.
Nobody looks into that for HEIC and JPEG XL, so what is read from them counts as kept in part.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import suppress

from PIL import Image

from tpca_cli.errors import ImageRefused

KINDS = ("AVIF", "HEIF", "JXL")
DEPTH = "more than 8 bits per channel are supported for gray only"


def beside(kind: str) -> str:
    """Why an image of such a file is kept in part, or nothing where `content_avif` tells."""
    return "" if kind == "AVIF" else f"what the {kind} file holds beside its first picture"


@functools.lru_cache
def unavailable(kind: str) -> str:
    """Make Pillow read this kind of file; why it cannot, or nothing. Packages are loaded when needed."""
    try:
        if kind == "HEIF":
            import pillow_heif

            pillow_heif.options.DECODE_THREADS = 1  # files are read side by side
            pillow_heif.register_heif_opener()
        elif kind == "JXL":
            from pillow_jxl import JpegXLImagePlugin

            JpegXLImagePlugin.DECODE_THREADS = 0
        elif kind == "AVIF":
            from PIL import AvifImagePlugin

            if not AvifImagePlugin.SUPPORTED:
                return "AVIF needs a Pillow that was built with it"
    except ImportError:
        return f"{kind} needs another package: pip install 'tpca-cli[{kind.lower()}]'"
    return ""


def check_announced(kind: str, head: bytes) -> tuple[int, int] | None:
    """Refuse what cannot be read or kept, from the first bytes; height and width of a JPEG XL file."""
    problem = unavailable(kind)
    if problem:
        raise ImageRefused(problem)
    if kind == "AVIF" and any(flags & 0x40 for flags in _av1_flags(head)):
        raise ImageRefused(DEPTH)
    return jxl_header(head)[:2] if kind == "JXL" else None


def check_depth(kind: str, head: bytes, image: Image.Image) -> None:
    """Refuse samples that were cut to 8 bits when the file was opened."""
    bits = jxl_header(head)[2] if kind == "JXL" else image.info.get("bit_depth", 8)
    if bits > 8 and not (kind == "JXL" and bits == 16 and image.mode == "I;16"):
        raise ImageRefused(DEPTH)


def _av1_flags(head: bytes) -> Iterator[int]:
    """The byte of each AV1 configuration that says how deep its samples are."""
    at = head.find(b"av1C")
    while 0 <= at < len(head) - 6:
        yield head[at + 6]
        at = head.find(b"av1C", at + 4)


def jxl_header(head: bytes) -> tuple[int, int, int]:
    """Height, width and bits per sample of a JPEG XL file: its decoder would allocate before we can ask.

    The header is a string of bits, lowest first (ISO/IEC 18181-1, annex D).
    """
    with suppress(IndexError):
        return _parsed(_Bits(_codestream(head)))
    raise ImageRefused("JPEG XL header is incomplete")


def _parsed(bits: _Bits) -> tuple[int, int, int]:
    height, width = bits.size()
    if bits.take(1):  # everything else is as usual
        return height, width, 8
    if bits.take(1):
        bits.take(3)  # orientation
        if bits.take(1):
            bits.size()  # intrinsic
        if bits.take(1):
            raise ImageRefused("JPEG XL with a preview is not supported")
        if bits.take(1):  # animation: ticks, loops, time codes
            bits.choice((100, 0), (1000, 0), (1, 10), (1, 30))
            bits.choice((1, 0), (1001, 0), (1, 8), (1, 10))
            bits.choice((0, 0), (0, 3), (0, 16), (0, 32))
            bits.take(1)
    if bits.take(1):
        raise ImageRefused("floating-point samples are not supported")
    return height, width, bits.choice((8, 0), (10, 0), (12, 0), (1, 6))


def _codestream(head: bytes) -> bytes:
    """The coded image after its mark, out of the box that holds its beginning."""
    if head[:2] == b"\xff\x0a":
        return head[2:]
    at = 0
    while at + 8 <= len(head):
        size, kind = int.from_bytes(head[at : at + 4], "big"), head[at + 4 : at + 8]
        start = at + 8
        if size == 1:
            size, start = int.from_bytes(head[start : start + 8], "big"), start + 8
        if kind in (b"jxlc", b"jxlp"):
            return head[start + (6 if kind == b"jxlp" else 2) :]
        if size < 8:
            break
        at += size
    raise ImageRefused("JPEG XL header is not where it is expected")


class _Bits:
    """Bits of bytes, lowest first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> int:
        value = 0
        for place in range(count):
            byte, bit = divmod(self._at, 8)
            value |= (self._data[byte] >> bit & 1) << place
            self._at += 1
        return value

    def choice(self, *forms: tuple[int, int]) -> int:
        """One of four forms: a number to start from and how many bits are added to it."""
        start, count = forms[self.take(2)]
        return start + self.take(count)

    def size(self) -> tuple[int, int]:
        """Height and width; the width may be given as a ratio."""
        small = self.take(1)
        height = self._side(small)
        ratio = self.take(3)
        if ratio:
            over, under = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))[ratio - 1]
            return height, height * over // under
        return height, self._side(small)

    def _side(self, small: int) -> int:
        return 8 * (1 + self.take(5)) if small else self.choice((1, 9), (1, 13), (1, 18), (1, 30))
