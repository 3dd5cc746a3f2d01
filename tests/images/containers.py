"""Image files put together from bytes: containers with parts that no ordinary writer would give them."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from pictures import natural
from PIL import Image

Tags = dict[int, tuple[int, Any]]  # tag -> type and value(s)


def rgb(seed: int = 0) -> np.ndarray[Any, Any]:
    return natural(24, 32, 3, seed)


def saved(format: str, pixels: np.ndarray[Any, Any] | None = None, **options: Any) -> bytes:
    """The file that Pillow writes."""
    file = io.BytesIO()
    pixels = rgb() if pixels is None else pixels
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, format, **options)
    return file.getvalue()


def jpeg(*segments: tuple[int, bytes], after: bytes = b"", **options: Any) -> bytes:
    """A JPEG with more segments right after its start, and bytes after its end."""
    data = saved("JPEG", quality=97, subsampling=0, **options)
    more = b"".join(struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body for marker, body in segments)
    return data[:2] + more + data[2:] + after


def png(*chunks: tuple[bytes, bytes], after: bytes = b"", late: bool = False, **options: Any) -> bytes:
    """A PNG with more chunks after its header (`late`: after its pixels), and bytes after its end."""
    data = saved("PNG", **options)
    more = b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
    at = len(data) - 12 if late else 33
    return data[:at] + more + data[at:] + after


def webp(*chunks: tuple[bytes, bytes], after: bytes = b"") -> bytes:
    """A lossless WebP with more chunks."""
    data = saved("WEBP", lossless=True, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0")  # in the extended form
    more = b"".join(
        name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2) for name, body in chunks
    )
    body = data[8:] + more
    return b"RIFF" + struct.pack("<I", len(body)) + body + after


_FORMATS = {1: "B", 2: "B", 3: "H", 4: "I", 5: "II", 7: "B", 12: "d", 13: "I"}


def _directory(tags: Tags, at: int, following: int = 0) -> bytes:
    """A little-endian directory for offset `at`, with the values that do not fit behind it."""
    entries, values = b"", b""
    behind = at + 2 + 12 * len(tags) + 4
    for tag in sorted(tags):
        kind, value = tags[tag]
        if isinstance(value, bytes):
            raw, count = value, len(value)
        else:
            items = value if isinstance(value, list) else [value]
            flat = [x for item in items for x in (item if isinstance(item, tuple) else (item,))]
            raw, count = struct.pack("<" + _FORMATS[kind] * len(items), *flat), len(items)
        field = raw.ljust(4, b"\0")
        if len(raw) > 4:
            field = struct.pack("<I", behind + len(values))
            values += raw + b"\0" * (len(raw) % 2)
        entries += struct.pack("<HHI", tag, kind, count) + field
    return struct.pack("<H", len(tags)) + entries + struct.pack("<I", following) + values


def tiff(
    tags: Tags | None = None,
    *,
    samples: np.ndarray[Any, Any] | None = None,
    inner: dict[int, Tags] | None = None,
    page: bool = False,
    after: bytes = b"",
) -> bytes:
    """An uncompressed TIFF; `inner` are directories that a tag points to, `page` adds a second one."""
    samples = rgb() if samples is None else samples
    h, w, c = samples.shape
    strip = samples.astype(samples.dtype.newbyteorder("<")).tobytes()
    strip += b"\0" * (len(strip) % 2)
    blobs, at, pointers = strip, 8 + len(strip), {}
    for tag, content in (inner or {}).items():
        pointers[tag] = (4, at)
        part = _directory(content, at)
        blobs += part
        at += len(part)
    if page:
        second = at
        part = _directory({256: (4, 1), 257: (4, 1), 258: (3, 8), 259: (3, 1), 262: (3, 1), 273: (4, 8),
                           277: (3, 1), 278: (4, 1), 279: (4, 1)}, at)  # fmt: skip
        blobs += part
        at += len(part)
    base: Tags = {
        256: (4, w),
        257: (4, h),
        258: (3, [8 * samples.itemsize] * c),
        259: (3, 1),
        262: (3, 2 if c >= 3 else 1),
        273: (4, 8),
        277: (3, c),
        278: (4, h),
        279: (4, h * w * c * samples.itemsize),
        284: (3, 1),
    }
    if c > 3:
        base[338] = (3, [0] * (c - 3))
    main = _directory({**base, **pointers, **(tags or {})}, at, second if page else 0)
    return b"II*\0" + struct.pack("<I", at) + blobs + main + after


def bmp32(fourth: np.ndarray[Any, Any], after: bytes = b"", density: int = 0) -> bytes:
    """A 32-bit BMP with something in the byte that belongs to no color."""
    pixels = rgb()[::-1, :, ::-1]
    h, w, _ = pixels.shape
    body = np.dstack([pixels, fourth]).astype(np.uint8).tobytes()
    header = struct.pack("<IiiHHIIiiII", 40, w, h, 1, 32, 0, len(body), density, density, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) + header + body + after


def gif(*extensions: bytes, frames: int = 1, after: bytes = b"") -> bytes:
    """A GIF with more blocks before its picture."""
    small = [Image.fromarray(rgb(seed)).convert("P") for seed in range(frames)]
    file = io.BytesIO()
    small[0].save(file, "GIF", save_all=frames > 1, append_images=small[1:])
    data = file.getvalue()
    at = 13 + (3 << ((data[10] & 7) + 1) if data[10] & 0x80 else 0)
    return data[:at] + b"".join(extensions) + data[at:] + after


def resource(number: int, body: bytes) -> bytes:
    """One of Photoshop's image resources."""
    return b"8BIM" + struct.pack(">HHI", number, 0, len(body)) + body + b"\0" * (len(body) % 2)


def avif(*boxes: tuple[bytes, bytes], mode: str = "RGB", frames: int = 1, **options: Any) -> bytes:
    """An AVIF with more boxes at its end."""
    pictures = [Image.fromarray(rgb(seed)).convert(mode) for seed in range(frames)]
    if mode == "RGBA":
        pictures[0].putalpha(Image.fromarray(rgb(9)[:, :, 0]))
    file = io.BytesIO()
    pictures[0].save(file, "AVIF", save_all=frames > 1, append_images=pictures[1:], **options)
    more = b"".join(struct.pack(">I", 8 + len(body)) + name + body for name, body in boxes)
    return file.getvalue() + more
