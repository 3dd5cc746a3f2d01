"""The segments of a JPEG file, from SOI to EOI and beyond."""

from __future__ import annotations

import re

from tpca_cli.images.content_parts import MANY, MAX_PARTS, Parts, decoded_text, photoshop_resources

_SOS, _EOI, _COM, _APP0 = 0xDA, 0xD9, 0xFE, 0xE0
# Tables, frame headers, restart intervals: how the picture is coded.
_CODING = frozenset(range(0xC0, 0xD0)) - {0xC8} | {0xDB, 0xDC, 0xDD}
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # the end of a scan: neither a stuffed byte nor a restart
_XMP, _XMP_MORE = b"http://ns.adobe.com/xap/1.0/\0", b"http://ns.adobe.com/xmp/extension/\0"
_PHOTOSHOP = b"Photoshop 3.0\0"
_UNITS = {0: None, 1: "inch", 2: "cm"}
_NAME = re.compile(rb"[A-Za-z0-9 ._:/-]{2,40}")


def jpeg_content(data: bytes, mode: str, parts: Parts) -> None:
    """Everything but the picture."""
    position, scans = 2, 0
    photoshop = b""
    for _ in range(MAX_PARTS):
        if data[position] != 0xFF:
            raise ValueError("no marker")
        while data[position + 1] == 0xFF:  # padding
            position += 1
        marker = data[position + 1]
        if marker == _EOI:
            if photoshop:
                photoshop_resources(photoshop, parts)
            parts.after_end(data[position + 2 :])
            return
        length = data[position + 2] << 8 | data[position + 3]
        body = data[position + 4 : position + 2 + length]
        if length < 2 or len(body) != length - 2:
            raise ValueError("a segment that is cut short")
        position += 2 + length
        if marker == _SOS:
            scans += 1
            found = _MARKER.search(data, position)
            if found is None:
                raise ValueError("no end")
            position = found.start()
        elif marker == 0xED and body.startswith(_PHOTOSHOP):
            photoshop += body[len(_PHOTOSHOP) :]  # long ones are cut into several segments
        elif marker not in _CODING:
            if scans:
                parts.note("metadata between the scans of the picture")
            _segment(marker, body, parts)
        if 0xC0 <= marker <= 0xC2 and body[5] == 4:
            parts.note("colors of CMYK, which became RGB")
    parts.note(MANY)


def _segment(marker: int, body: bytes, parts: Parts) -> None:
    """Metadata."""
    if marker == _COM:
        parts.text("Comment", decoded_text(body.rstrip(b"\0")))
    elif marker == _APP0 and body[:5] == b"JFIF\0":
        unit, x, y = body[7], body[8] << 8 | body[9], body[10] << 8 | body[11]
        parts.density(x, y, _UNITS.get(unit))
        if body[12] and body[13]:
            parts.note("a JFIF thumbnail")
    elif marker == 0xE1 and body[:6] == b"Exif\0\0":
        if "exif" in parts.carries:
            parts.note("a second block of EXIF")
        parts.carries.add("exif")
    elif marker == 0xE1 and body.startswith(_XMP):
        parts.keep("xmp", body[len(_XMP) :])
    elif marker == 0xE1 and body.startswith(_XMP_MORE):
        parts.note("extended XMP")
    elif marker == 0xE2 and body.startswith(b"ICC_PROFILE\0"):
        parts.carries.add("icc")
    elif marker == 0xE2 and body[:4] == b"MPF\0":
        parts.note("further pictures (MPF)")
    elif not (marker == 0xEE and body[:5] == b"Adobe" and len(body) == 12):  # the color transform
        found = _NAME.match(body)
        known = f"an APP{marker - _APP0} segment" if 0xE0 <= marker <= 0xEF else "an unknown segment"
        parts.note(known + (f" of {found[0].decode().strip()}" if found else ""))
