"""What a file holds besides its picture, by an allow-list: what is not kept is named.

The parsers walk the parts of a container and never decode pixels. Whatever they meet is one of three: part of
the picture, metadata that is kept (`Content.metadata`), or something that an archive does not hold, which is
a reason to keep the original. A structure that they cannot follow to its end is such a reason, too.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tpca_cli import formats
from tpca_cli.images.content_jpeg import jpeg_content
from tpca_cli.images.content_others import bmp_content, gif_content, ppm_content, webp_content
from tpca_cli.images.content_parts import Parts
from tpca_cli.images.content_png import png_content
from tpca_cli.images.content_tiff import tiff_content

_PARSERS: dict[str, Callable[[bytes, str, Parts], None]] = {
    "JPEG": jpeg_content,
    "PNG": png_content,
    "TIFF": tiff_content,
    "BMP": bmp_content,
    "PPM": ppm_content,
    "GIF": gif_content,
    "WEBP": webp_content,
}
LOST = {"exif": "EXIF that could not be read", "icc": "a color profile that could not be kept"}


@dataclass(frozen=True)
class Content:
    """What there is besides the picture: metadata by kind, and what of the file is not kept, in words."""

    metadata: Mapping[str, bytes]
    reasons: tuple[str, ...]
    carries: frozenset[str]  # whether the file has `exif` and `icc`, which the image decoders read
    exif: bytes = b""  # where the decoders would overlook it

    def missing(self, exif: bytes, icc: bytes) -> tuple[str, ...]:
        """The reasons, and EXIF and ICC if they are in the file and not here."""
        have = {"exif": exif, "icc": icc}
        return (*self.reasons, *(LOST[kind] for kind in LOST if kind in self.carries and not have[kind]))


def content_of(data: bytes, mode: str) -> Content:
    """Look through a file whose picture has a mode (L, LA, RGB, RGBA, I;16) after decoding."""
    kind = formats.sniff(data) or ""
    parts = Parts()
    parse = _PARSERS.get(kind)
    if parse is None:
        parts.note(f"whatever {kind or 'this'} files hold besides pixels, EXIF and ICC")
    else:
        try:
            parse(data, mode, parts)
        except (IndexError, ValueError, KeyError, OverflowError, struct.error, zlib.error):
            parts.note("parts behind a place where its structure cannot be followed")
    parts.finish()
    return Content(parts.metadata, tuple(parts.reasons), frozenset(parts.carries), parts.exif)
