"""Puts XMP, IPTC, text and density back into encoded files, where their formats have a place for them.

The kinds and their blobs are those of the archive: `xmp` and `iptc` as they are, `text` a JSON list of
[keyword, text] or [keyword, text, language, translated keyword], `density` a JSON list [x, y, unit] with
inch, cm, meter or null, `png` chunks that belong to the colors. `place` splits them into what a format
holds and what it does not; `insert` adds the former to the bytes of a file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from tpca_cli.images.deep import chunk

_NAMES = {"xmp": "XMP", "iptc": "IPTC", "text": "texts", "density": "density", "png": "PNG color chunks"}
_HELD: dict[str, frozenset[str]] = {
    "png": frozenset(_NAMES),
    "jpeg": frozenset({"xmp", "iptc", "text", "density"}),
    "tiff": frozenset({"xmp", "iptc", "density"}),
    "webp": frozenset({"xmp"}),
    "bmp": frozenset({"density"}),
    "ppm": frozenset({"text"}),
}
_COLOR_CHUNKS = frozenset(
    {b"gAMA", b"cHRM", b"sRGB", b"cICP", b"mDCV", b"mDCv", b"cLLI", b"cLLi", b"tIME", b"sBIT", b"bKGD"}
)
_SEGMENT = 65533
_XMP, _PHOTOSHOP = b"http://ns.adobe.com/xap/1.0/\0", b"Photoshop 3.0\0"
_PNG_XMP = b"XML:com.adobe.xmp"
_PNG_START = 33  # after the signature and IHDR
_PER_METER = {"inch": 1 / 0.0254, "cm": 100.0, "meter": 1.0}


def place(format: str, metadata: Mapping[str, bytes]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """What of the metadata a format holds, and the names of the rest."""
    held = {
        kind: blob for kind, blob in metadata.items() if kind in _HELD[format] and _fits(format, kind, blob)
    }
    return held, tuple(_NAMES.get(kind, kind) for kind in metadata if kind not in held)


def insert(data: bytes, format: str, held: Mapping[str, bytes]) -> bytes:
    """The file with these metadata; TIFF and WebP get theirs while they are written."""
    if format == "png":
        return data[:_PNG_START] + b"".join(_png_chunks(held)) + data[_PNG_START:]
    if format == "jpeg":
        return _jpeg_header(data, held) + b"".join(_jpeg_segments(held)) + data[20:]
    if format == "bmp" and "density" in held:
        return data[:38] + struct.pack("<ii", *per_meter(held["density"])) + data[46:]
    if format == "ppm" and "text" in held:
        lines = b"".join(b"# " + item[1].encode() + b"\n" for item in _texts(held["text"]))
        return data[:3] + lines + data[3:]
    return data


def per_meter(blob: bytes) -> tuple[int, int]:
    """A density in whole pixels per meter."""
    x, y, unit = _density(blob)
    return round(x * _PER_METER[unit or "meter"]), round(y * _PER_METER[unit or "meter"])


def in_rationals(blob: bytes) -> tuple[int, int, int, int]:
    """A density as TIFF has it: x and y over a denominator, and the unit (1 none, 2 inch, 3 cm)."""
    x, y, unit = _density(blob)
    below = 100 if unit == "meter" else 1
    return x, y, below, {None: 1, "inch": 2}.get(unit, 3)


def _density(blob: bytes) -> tuple[int, int, str | None]:
    x, y, unit = json.loads(blob)
    if type(x) is not int or type(y) is not int or unit not in (None, *_PER_METER):
        raise ValueError("not a density")
    if not (0 < x < 2**31 and 0 < y < 2**31):
        raise ValueError("not a density")
    return x, y, unit


def _texts(blob: bytes) -> list[list[str]]:
    items: Any = json.loads(blob)
    if not all(isinstance(part, str) for item in items for part in item):
        raise ValueError("not a list of texts")
    if any(len(item) not in (2, 4) or any(b"\0" in part.encode() for part in item) for item in items):
        raise ValueError("not a list of texts")
    return [list(item) for item in items]


def _fits(format: str, kind: str, blob: bytes) -> bool:
    """Whether a format that has a place for a kind can hold this one."""
    try:
        if kind == "density":
            unit = _density(blob)[2]
            if format == "jpeg":
                return max(_jfif(blob)[1:]) < 2**16
            return max(per_meter(blob)) < 2**31 and (unit is not None or format != "bmp")
        if kind == "text":
            items = _texts(blob)
            if format == "png":
                return all(0 < len(item[0].encode("latin-1")) < 80 for item in items)
            comments = all(len(item) == 2 and item[0] == "Comment" for item in items)
            if format == "ppm":
                return comments and not any(set(item[1]) & set("\r\n") for item in items)
            return comments and all(len(item[1].encode()) <= _SEGMENT for item in items)
        if kind == "xmp" and format == "jpeg":
            return len(blob) <= _SEGMENT - len(_XMP)
        if kind == "png":
            return all(name in _COLOR_CHUNKS for name, _ in _color_chunks(blob))
    except (ValueError, TypeError, struct.error):
        return False
    return True


def _color_chunks(blob: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(blob):
        name, length = struct.unpack_from(">4sI", blob, at)
        if at + 8 + length > len(blob):
            raise ValueError("cut short")
        yield name, blob[at + 8 : at + 8 + length]
        at += 8 + length


def _png_chunks(held: Mapping[str, bytes]) -> Iterator[bytes]:
    for name, body in _color_chunks(held.get("png", b"")):
        yield chunk(name, body)
    if "density" in held:
        unit = _density(held["density"])[2]
        yield chunk(b"pHYs", struct.pack(">IIB", *per_meter(held["density"]), unit is not None))
    if "xmp" in held:
        yield chunk(b"iTXt", _PNG_XMP + b"\0\0\0\0\0" + held["xmp"])
    if "iptc" in held:
        yield chunk(b"zTXt", b"Raw profile type iptc\0\0" + zlib.compress(_raw_profile(held["iptc"])))
    for keyword, text, *more in _texts(held["text"]) if "text" in held else ():
        if not more and _is_latin(text):
            yield chunk(b"tEXt", keyword.encode("latin-1") + b"\0" + text.encode("latin-1"))
            continue
        language, translated = more or ("", "")
        head = keyword.encode("latin-1") + b"\0\0\0" + language.encode("latin-1", "replace")
        yield chunk(b"iTXt", head + b"\0" + translated.encode() + b"\0" + text.encode())


def _is_latin(text: str) -> bool:
    return all(ord(letter) < 256 for letter in text)


def _raw_profile(blob: bytes) -> bytes:
    """Bytes as the hexadecimal text by which programs keep profiles in PNG files."""
    digits = blob.hex()
    lines = [digits[at : at + 72] for at in range(0, len(digits), 72)]
    return f"\niptc\n{len(blob):8d}\n{chr(10).join(lines)}\n".encode()


def _jfif(blob: bytes) -> tuple[int, int, int]:
    """Unit (0 none, 1 inch, 2 cm) and whole pixels in it."""
    x, y, unit = _density(blob)
    if unit == "meter":
        return 1, max(1, round(x * 0.0254)), max(1, round(y * 0.0254))
    return {None: 0, "inch": 1}.get(unit, 2), x, y


def _jpeg_header(data: bytes, held: Mapping[str, bytes]) -> bytes:
    """SOI and the JFIF segment, which has the density."""
    if data[2:4] != b"\xff\xe0" or data[6:11] != b"JFIF\0":
        raise ValueError("not a JFIF file")
    if "density" not in held:
        return data[:20]
    return data[:13] + struct.pack(">BHH", *_jfif(held["density"])) + data[18:20]


def _jpeg_segments(held: Mapping[str, bytes]) -> Iterator[bytes]:
    def segment(marker: int, body: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    if "xmp" in held:
        yield segment(0xE1, _XMP + held["xmp"])
    if "iptc" in held:
        blob = held["iptc"]
        resource = b"8BIM\x04\x04\0\0" + struct.pack(">I", len(blob)) + blob + bytes(len(blob) % 2)
        step = _SEGMENT - len(_PHOTOSHOP)
        for at in range(0, len(resource), step):
            yield segment(0xED, _PHOTOSHOP + resource[at : at + step])
    for item in _texts(held["text"]) if "text" in held else ():
        yield segment(0xFE, item[1].encode())
