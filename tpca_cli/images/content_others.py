"""The parts of BMP, PPM, GIF and WebP files."""

from __future__ import annotations

import re
import struct

import numpy as np

from tpca_cli.images.content_parts import FRAMES, MANY, MAX_PARTS, Parts, decoded_text

_PPM_NUMBERS = re.compile(rb"(?:\s|#[^\r\n]*[\r\n])+(\d+)")
_COMMENT = re.compile(rb"#([^\r\n]*)[\r\n]")
_PPM_CHANNELS = {3: 3, 6: 3}
_PIECE = 1 << 20
_GIF_XMP_TRAILER = 258  # bytes that lead any reader of blocks to the end of the packet
_CALIBRATED, _EMBEDDED, _LINKED = 0, 0x4D424544, 0x4C494E4B


def bmp_content(data: bytes, mode: str, parts: Parts) -> None:
    """Everything but the picture."""
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
        unused = _unused(data, bits, compression)
        spare = pixels & unused
        if spare.any() and (spare != unused).any():  # all ones mean opaque, all zeros nothing
            parts.note("bits of its pixels besides the colors")
    parts.after_end(data[end:])


def _unused(data: bytes, bits: int, compression: int) -> int:
    """The bits of a pixel that hold no color."""
    if compression in (3, 6):
        red, green, blue = struct.unpack_from("<III", data, 54)
        used = red | green | blue
    else:
        used = 0x7FFF if bits == 16 else 0xFFFFFF
    return int((1 << bits) - 1 & ~used)


def ppm_content(data: bytes, mode: str, parts: Parts) -> None:
    """Everything but the picture."""
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
        if b"#" in data[position:] or _words(data, position) > count:
            parts.note("data after the end of the picture")
        return
    size = (width + 7) // 8 * height if kind == 4 else count * (2 if top > 255 else 1)
    rest = data[position + 1 + size :]
    if rest.lstrip()[:1] == b"P":
        parts.note("further pictures")
    else:
        parts.after_end(rest.strip())


def _words(data: bytes, position: int) -> int:
    """How many numbers there are, without making any."""
    total = 0
    for start in range(position, len(data), _PIECE):
        blank = np.frombuffer(data[start - 1 : start + _PIECE], np.uint8) <= 32  # one more, before
        total += int(np.count_nonzero(blank[:-1] & ~blank[1:]))
    return total


def gif_content(data: bytes, mode: str, parts: Parts) -> None:
    """Everything but the picture."""
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


def webp_content(data: bytes, mode: str, parts: Parts) -> None:
    """Everything but the picture."""
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
