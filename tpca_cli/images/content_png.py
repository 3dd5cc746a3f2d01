"""The chunks of a PNG file."""

from __future__ import annotations

import struct
import zlib

from tpca_cli.images.content_parts import FRAMES, MANY, MAX_PARTS, MAX_TEXT_BYTES, Parts, decoded_text
from tpca_cli.images.modes import CHANNELS

_PICTURE = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS"})
_ANIMATION = frozenset({b"acTL", b"fcTL", b"fdAT"})
# About colors and time, whatever the depth and the kind of samples: put back as they are.
_VERBATIM = frozenset({b"gAMA", b"cHRM", b"sRGB", b"cICP", b"mDCV", b"mDCv", b"cLLI", b"cLLi", b"tIME"})
_XMP = "XML:com.adobe.xmp"


def png_content(data: bytes, mode: str, parts: Parts) -> None:
    """Everything but the picture."""
    depth, color = data[24], data[25]
    position, palette = 8, b""
    chunks: list[bytes] = []
    for _ in range(MAX_PARTS):
        length, name = struct.unpack_from(">I4s", data, position)
        body = data[position + 8 : position + 8 + length]
        end = position + 12 + length
        if end > len(data):
            raise ValueError("a chunk that is cut short")
        position = end
        if name == b"IEND":
            parts.after_end(data[position:])
            break
        if name == b"PLTE":
            palette = body
        if name in _PICTURE:
            continue
        if zlib.crc32(body, zlib.crc32(name)) != struct.unpack_from(">I", data, end - 4)[0]:
            parts.note("a damaged chunk")
            continue
        if name in (b"sBIT", b"bKGD"):
            fitted = body if name == b"sBIT" else _background(body, depth, color, palette)
            if len(fitted) == (CHANNELS[mode] if name == b"sBIT" else _background_bytes(mode)):
                chunks.append(_packed(name, fitted))
            else:
                parts.note(f"the PNG chunk {name.decode()}")
        elif name in _VERBATIM:
            chunks.append(_packed(name, body))
        else:
            _chunk(name, body, parts)
    else:
        parts.note(MANY)
    parts.keep("png", b"".join(dict.fromkeys(chunks)))


def _packed(name: bytes, body: bytes) -> bytes:
    return name + struct.pack(">I", len(body)) + body


def _background_bytes(mode: str) -> int:
    return 6 if mode in ("RGB", "RGBA") else 2


def _background(body: bytes, depth: int, color: int, palette: bytes) -> bytes:
    """The background color in the samples of the decoded picture, or nothing where it has none."""
    if color == 3:
        entry = palette[3 * body[0] : 3 * body[0] + 3] if body else b""
        return bytes(byte for value in entry for byte in (0, value))
    return body if depth >= 8 else b""


def _chunk(name: bytes, body: bytes, parts: Parts) -> None:
    """Metadata."""
    if name == b"iCCP":
        parts.carries.add("icc")
    elif name == b"eXIf":
        parts.carries.add("exif")
        parts.exif = body.removeprefix(b"Exif\0\0")
    elif name == b"pHYs" and len(body) == 9:
        x, y, unit = struct.unpack(">IIB", body)
        parts.density(x, y, "meter" if unit == 1 else None)
    elif name == b"tEXt":
        keyword, _, text = body.partition(b"\0")
        parts.text(keyword.decode("latin-1"), text.decode("latin-1"))
    elif name == b"zTXt":
        keyword, _, text = body.partition(b"\0")
        parts.text(keyword.decode("latin-1"), _inflated(text[1:]).decode("latin-1"))
    elif name == b"iTXt":
        _international(body, parts)
    elif name in _ANIMATION:
        parts.note(FRAMES)
    else:
        shown = name.decode("ascii") if name.isalpha() and name.isascii() else name.hex()
        parts.note(f"the PNG chunk {shown}")


def _international(body: bytes, parts: Parts) -> None:
    keyword, _, rest = body.partition(b"\0")
    packed, rest = rest[0], rest[2:]
    language, _, rest = rest.partition(b"\0")
    translated, _, text = rest.partition(b"\0")
    if packed:
        text = _inflated(text)
    if keyword.decode("latin-1") == _XMP:
        parts.keep("xmp", text)
    else:
        parts.text(
            keyword.decode("latin-1"),
            decoded_text(text),
            language.decode("latin-1"),
            decoded_text(translated),
        )


def _inflated(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    text = stream.decompress(data, MAX_TEXT_BYTES)
    if not stream.eof:
        raise ValueError("a text that does not end, or is too long")
    return text
