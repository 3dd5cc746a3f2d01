"""What a file holds besides its picture, by an allow-list: what is not kept is named.

The parsers (`content_formats`, `content_tiff`, `content_avif`) walk the parts of a container and never decode
pixels. Whatever they meet is one of three: a part of the picture, metadata to keep (`Content.metadata`), or
something that an archive does not hold, which is a reason to keep the original. A structure that they cannot
follow to its end is such a reason, too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass

MAX_PARTS = 100_000  # segments, chunks or blocks of one file
MAX_TEXT_BYTES = 1 << 24
MAX_METADATA_BYTES = 1 << 26
FRAMES = "frames after the first"
MANY = "more parts than are looked at"
_REASONS = 16

# Photoshop's resources: IPTC, and a checksum of it
_IPTC, _IPTC_DIGEST = 0x0404, 0x0425
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


class Parts:
    """Collects what a parser finds."""

    def __init__(self) -> None:
        self.metadata: dict[str, bytes] = {}
        self.reasons: list[str] = []
        self.carries: set[str] = set()
        self.exif = b""
        self._texts: list[list[str]] = []

    def note(self, reason: str) -> None:
        """Something that is not kept, in words that are the same for all files of a kind: stored once."""
        if reason not in self.reasons and len(self.reasons) < _REASONS:
            self.reasons.append(reason)

    def keep(self, kind: str, blob: bytes) -> None:
        """Metadata of a kind; there is room for one of each."""
        if kind in self.metadata and self.metadata[kind] != blob:
            self.note(f"a second block of {kind.upper()}")
        elif len(blob) > MAX_METADATA_BYTES:
            self.note(f"{kind.upper()} of more than {MAX_METADATA_BYTES >> 20} MB")
        elif blob:
            self.metadata[kind] = blob
            if kind == "xmp" and b"hdrgm:" in blob:
                self.note("the gain map of an HDR picture")

    def text(self, keyword: str, text: str, language: str = "", translated: str = "") -> None:
        """A comment, or text under a keyword; no format can give one back that has a NUL in it."""
        if "\0" in keyword + text + language + translated:
            self.note("a text with bytes that are no text")
        self._texts.append(
            [keyword, text, language, translated] if language or translated else [keyword, text]
        )

    def finish(self) -> None:
        """Once at the end: all texts become one block."""
        if self._texts:
            joined = json.dumps(self._texts, ensure_ascii=False)
            self.keep("text", joined.encode("utf-8", "backslashreplace"))

    def density(self, x: int, y: int, unit: str | None) -> None:
        """Pixels per unit of length; without a unit only the ratio counts, and 1:1 says nothing."""
        if x > 0 and y > 0 and (unit is not None or x != y):
            self.keep("density", json.dumps([x, y, unit]).encode())

    def after_end(self, rest: bytes) -> None:
        """What follows the end of a picture: nothing, padding, or something else."""
        if not rest.strip(b"\0"):
            return
        if b"ftyp" in rest[:64] or rest[:16] == b"MotionPhoto_Data":
            self.note("a video after the picture")
        elif rest.lstrip(b"\0")[:3] == b"\xff\xd8\xff":
            self.note("another picture after the first")
        else:
            self.note("data after the end of the picture")


def decoded_text(raw: bytes) -> str:
    """Bytes that somebody wrote as a comment: UTF-8, otherwise Latin-1, which all bytes are."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def photoshop_resources(data: bytes, parts: Parts) -> None:
    """The image resources of Photoshop: IPTC is kept, and every other one is not."""
    position = 0
    for _ in range(MAX_PARTS):
        if position + 12 > len(data):
            if data[position:].strip(b"\0"):
                parts.note("Photoshop resources that are cut short")
            return
        if data[position : position + 4] != b"8BIM":
            parts.note("resources of another program than Photoshop")
            return
        number = struct.unpack_from(">H", data, position + 4)[0]
        start = position + 6 + (data[position + 6] + 2) // 2 * 2  # a name, padded to an even length
        size = struct.unpack_from(">I", data, start)[0]
        if start + 4 + size > len(data):
            parts.note("Photoshop resources that are cut short")
            return
        if number == _IPTC and size == 0:
            parts.note("an empty block of IPTC")
        elif number == _IPTC:
            parts.keep("iptc", data[start + 4 : start + 4 + size])
        elif number != _IPTC_DIGEST:
            parts.note("Photoshop resources besides IPTC")
        position = start + 4 + (size + 1) // 2 * 2
    parts.note(MANY)
