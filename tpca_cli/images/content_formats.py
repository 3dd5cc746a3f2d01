"""What JPEG, PNG, BMP, PPM, GIF and WebP files hold besides their picture; TIFF by `content_tiff`."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable

import numpy as np

from tpca_cli import formats
from tpca_cli.formats import CHANNELS
from tpca_cli.images.content import (
    FRAMES,
    MANY,
    MAX_PARTS,
    MAX_TEXT_BYTES,
    Content,
    Parts,
    decoded_text,
    photoshop_resources,
)
from tpca_cli.images.content_avif import avif_content
from tpca_cli.images.content_tiff import tiff_content

# JPEG
_SOS, _EOI, _COM, _APP0 = 0xDA, 0xD9, 0xFE, 0xE0
# Tables, frame headers, restart intervals: how the picture is coded.
_CODING = frozenset(range(0xC0, 0xD0)) - {0xC8} | {0xDB, 0xDC, 0xDD}
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # the end of a scan: neither a stuffed byte nor a restart
_JPEG_XMP, _XMP_MORE = b"http://ns.adobe.com/xap/1.0/\0", b"http://ns.adobe.com/xmp/extension/\0"
_PHOTOSHOP = b"Photoshop 3.0\0"
_UNITS = {0: None, 1: "inch", 2: "cm"}
_NAME = re.compile(rb"[A-Za-z0-9 ._:/-]{2,40}")

# PNG
_PICTURE = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS"})
_ANIMATION = frozenset({b"acTL", b"fcTL", b"fdAT"})
# About colors and time, whatever the depth and the kind of samples: put back as they are.
_VERBATIM = frozenset({b"gAMA", b"cHRM", b"sRGB", b"cICP", b"mDCV", b"mDCv", b"cLLI", b"cLLi", b"tIME"})
_PNG_XMP = "XML:com.adobe.xmp"

# the others
_PPM_NUMBERS = re.compile(rb"(?:\s|#[^\r\n]*[\r\n])+(\d+)")
_COMMENT = re.compile(rb"#([^\r\n]*)[\r\n]")
_PPM_CHANNELS = {3: 3, 6: 3}
_PIECE = 1 << 20
_GIF_XMP_TRAILER = 258  # bytes that lead any reader of blocks to the end of the packet
_CALIBRATED, _EMBEDDED, _LINKED = 0, 0x4D424544, 0x4C494E4B


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


def _jpeg(data: bytes, mode: str, parts: Parts) -> None:
    """The segments of a JPEG file, from SOI to EOI and beyond."""
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
            _jpeg_segment(marker, body, parts)
        if 0xC0 <= marker <= 0xC2 and body[5] == 4:
            parts.note("colors of CMYK, which became RGB")
    parts.note(MANY)


def _jpeg_segment(marker: int, body: bytes, parts: Parts) -> None:
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
    elif marker == 0xE1 and body.startswith(_JPEG_XMP):
        parts.keep("xmp", body[len(_JPEG_XMP) :])
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


def _png(data: bytes, mode: str, parts: Parts) -> None:
    """The chunks of a PNG file."""
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
            fitted = body if name == b"sBIT" else _png_background(body, depth, color, palette)
            if len(fitted) == (CHANNELS[mode] if name == b"sBIT" else _png_background_bytes(mode)):
                chunks.append(_png_packed(name, fitted))
            else:
                parts.note(f"the PNG chunk {name.decode()}")
        elif name in _VERBATIM:
            chunks.append(_png_packed(name, body))
        else:
            _png_chunk(name, body, parts)
    else:
        parts.note(MANY)
    parts.keep("png", b"".join(dict.fromkeys(chunks)))


def _png_packed(name: bytes, body: bytes) -> bytes:
    return name + struct.pack(">I", len(body)) + body


def _png_background_bytes(mode: str) -> int:
    return 6 if mode.startswith("RGB") else 2


def _png_background(body: bytes, depth: int, color: int, palette: bytes) -> bytes:
    """The background color in the samples of the decoded picture, or nothing where it has none."""
    if color == 3:
        entry = palette[3 * body[0] : 3 * body[0] + 3] if body else b""
        return bytes(byte for value in entry for byte in (0, value))
    return body if depth >= 8 else b""


def _png_chunk(name: bytes, body: bytes, parts: Parts) -> None:
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
        _png_international(body, parts)
    elif name in _ANIMATION:
        parts.note(FRAMES)
    else:
        shown = name.decode("ascii") if name.isalpha() and name.isascii() else name.hex()
        parts.note(f"the PNG chunk {shown}")


def _png_international(body: bytes, parts: Parts) -> None:
    keyword, _, rest = body.partition(b"\0")
    packed, rest = rest[0], rest[2:]
    language, _, rest = rest.partition(b"\0")
    translated, _, text = rest.partition(b"\0")
    if packed:
        text = _inflated(text)
    if keyword.decode("latin-1") == _PNG_XMP:
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


def _bmp(data: bytes, mode: str, parts: Parts) -> None:
    """The headers and pixels of a BMP file."""
    offset, header = struct.unpack_from("<I", data, 10)[0], struct.unpack_from("<I", data, 14)[0]
    if header < 40:
        width, height, _, bits = struct.unpack_from("<HHHH" if header == 12 else "<IIHH", data, 18)
        compression = size = 0
    else:
        width, height, _, bits, compression, size = struct.unpack_from("<iiHHII", data, 18)
        x, y = struct.unpack_from("<ii", data, 38)
        parts.density(x, y, "meter")
    colors = struct.unpack_from("<I", data, 14 + 56)[0] if header >= 108 else None
    if colors in (_EMBEDDED, _LINKED):
        parts.note("a color profile that could not be kept")
    elif colors == _CALIBRATED and any(data[14 + 60 : 14 + 108]):
        parts.note("a description of its colors")
    stride = (width * bits + 31) // 32 * 4
    if compression in (0, 3, 6):
        size = stride * abs(height)
    end = offset + size if size else len(data)
    if end > len(data):
        raise ValueError("cut short")
    if bits in (16, 32) and mode in ("L", "RGB"):
        pixels = np.frombuffer(data, f"<u{bits // 8}", size // (bits // 8), offset)
        unused = _bmp_unused(data, bits, compression)
        spare = pixels & unused
        if spare.any() and (spare != unused).any():  # all ones mean opaque, all zeros nothing
            parts.note("bits of its pixels besides the colors")
    parts.after_end(data[end:])


def _bmp_unused(data: bytes, bits: int, compression: int) -> int:
    """The bits of a pixel that hold no color."""
    if compression in (3, 6):
        red, green, blue = struct.unpack_from("<III", data, 54)
        used = red | green | blue
    else:
        used = 0x7FFF if bits == 16 else 0xFFFFFF
    return int((1 << bits) - 1 & ~used)


def _ppm(data: bytes, mode: str, parts: Parts) -> None:
    """The header and samples of a PPM file."""
    kind, position, numbers = data[1] - ord("0"), 2, []
    for _ in range(2 if kind in (1, 4) else 3):
        found = _PPM_NUMBERS.match(data, position)
        if found is None:
            raise ValueError("no header")
        for comment in _COMMENT.findall(found[0]):
            parts.text("Comment", decoded_text(comment.strip()))
        numbers.append(int(found[1]))
        position = found.end()
    width, height, top = (*numbers, 1)[:3]
    if kind not in (1, 4) and top not in (255, 65535):
        parts.note("the largest value of its samples, which were spread over the whole range")
    count = width * height * _PPM_CHANNELS.get(kind, 1)
    if kind == 1:
        if data.count(b"0", position) + data.count(b"1", position) > count:
            parts.note("data after the end of the picture")
        return
    if kind in (2, 3):
        if b"#" in data[position:] or _ppm_words(data, position) > count:
            parts.note("data after the end of the picture")
        return
    size = (width + 7) // 8 * height if kind == 4 else count * (2 if top > 255 else 1)
    rest = data[position + 1 + size :]
    if rest.lstrip()[:1] == b"P":
        parts.note("further pictures")
    else:
        parts.after_end(rest.strip())


def _ppm_words(data: bytes, position: int) -> int:
    """How many numbers there are, without making any."""
    total = 0
    for start in range(position, len(data), _PIECE):
        blank = np.frombuffer(data[start - 1 : start + _PIECE], np.uint8) <= 32  # one more, before
        total += int(np.count_nonzero(blank[:-1] & ~blank[1:]))
    return total


def _gif(data: bytes, mode: str, parts: Parts) -> None:
    """The blocks of a GIF file."""
    position = 13 + (3 << (data[10] & 7) + 1 if data[10] & 0x80 else 0)
    frames = 0
    for _ in range(MAX_PARTS):
        mark = data[position]
        if mark == 0x3B:
            parts.after_end(data[position + 1 :])
            return
        if mark == 0x2C:
            frames += 1
            if frames > 1:
                parts.note(FRAMES)
            flags = data[position + 9]
            position += 11 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
            position, _ = _gif_blocks(data, position)
        elif mark == 0x21:
            label, start = data[position + 1], position + 2
            position, blocks = _gif_blocks(data, start)
            _gif_extension(label, blocks, data[start + 12 : position], parts)
        else:
            raise ValueError("an unknown block")
    parts.note(MANY)


def _gif_blocks(data: bytes, position: int) -> tuple[int, list[bytes]]:
    """The data of consecutive blocks, and where they end."""
    blocks = []
    while size := data[position]:
        blocks.append(data[position + 1 : position + 1 + size])
        position += 1 + size
    return position + 1, blocks


def _gif_extension(label: int, blocks: list[bytes], raw: bytes, parts: Parts) -> None:
    name = blocks[0] if blocks else b""
    if label == 0xFE:
        parts.text("Comment", decoded_text(b"".join(blocks).rstrip(b"\0")))
    elif label == 0xFF and name == b"XMP DataXMP":
        parts.keep("xmp", raw[:-_GIF_XMP_TRAILER])
    elif label != 0xF9 and not (label == 0xFF and name in (b"NETSCAPE2.0", b"ANIMEXTS1.0")):
        parts.note("an extension of GIF")


def _webp(data: bytes, mode: str, parts: Parts) -> None:
    """The chunks of a WebP file."""
    end = 8 + struct.unpack_from("<I", data, 4)[0]
    if end > len(data):
        raise ValueError("cut short")
    position = 12
    for _ in range(MAX_PARTS):
        if position + 8 > end:
            parts.after_end(data[end + end % 2 :])
            return
        name, size = struct.unpack_from("<4sI", data, position)
        body = data[position + 8 : position + 8 + size]
        if position + 8 + size > end:
            raise ValueError("a chunk that is cut short")
        position += 8 + size + size % 2
        if name == b"XMP ":
            parts.keep("xmp", body)
        elif name in (b"EXIF", b"ICCP"):
            parts.carries.add({b"EXIF": "exif", b"ICCP": "icc"}[name])
        elif name in (b"ANIM", b"ANMF"):
            parts.note(FRAMES)
        elif name not in (b"VP8 ", b"VP8L", b"VP8X", b"ALPH"):
            shown = name.decode("ascii").strip() if name.isascii() and name.isalnum() else name.hex()
            parts.note(f"the WebP chunk {shown}")
    parts.note(MANY)


_PARSERS: dict[str, Callable[[bytes, str, Parts], None]] = {
    "JPEG": _jpeg,
    "PNG": _png,
    "TIFF": tiff_content,
    "BMP": _bmp,
    "PPM": _ppm,
    "GIF": _gif,
    "WEBP": _webp,
    "AVIF": avif_content,
}
