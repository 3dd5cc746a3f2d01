"""Color with 16 bits per channel, which Pillow would cut to 8 without a word.

It is read by halves: Pillow decodes the file twice, once with the high byte of each sample and once, told
that the bytes are in the other order, with the low one. PNG files of such pictures are written here.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image, ImageFile

from tpca_cli.errors import ImageRefused
from tpca_cli.images import headers
from tpca_cli.images.modes import Pixels

OTHER_ORDER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
GRAY_ALPHA, COLOR, COLOR_ALPHA = 4, 2, 6
"""How PNG counts kinds of pictures."""
_PNG_KINDS = {2: GRAY_ALPHA, 3: COLOR, 4: COLOR_ALPHA}
_MODES = {"LA;16B": "LA;16", "RGB": "RGB;16", "RGBA": "RGBA;16"}
_LEVEL = 6


def mode_of(image: Image.Image) -> str | None:
    """`RGB;16` and so on for a lazy picture with so many bits, None for one with fewer."""
    found = {_raw_mode(tile) for tile in getattr(image, "tile", ())}
    if image.mode == "I" or not any(";16" in raw for raw in found) or image.mode.startswith("I;16"):
        return None
    if image.has_transparency_data and "transparency" in image.info:
        raise ImageRefused("16-bit color with a transparent value is not supported")
    if found == {"LA;16B"}:
        return "LA;16"
    separate = image.mode in ("RGB", "RGBA") and {raw.partition(";")[0] for raw in found} == set(image.mode)
    together = found <= {f"{image.mode};16{order}" for order in OTHER_ORDER}
    planes = getattr(image, "tag_v2", {}).get(284, 1)
    if image.mode not in _MODES or not (together or separate) or (planes == 2 and not separate):
        raise ImageRefused(f"16 bits per channel, stored as {', '.join(sorted(found))}, are not supported")
    return _MODES[image.mode]


def _raw_mode(tile: ImageFile._Tile) -> str:
    args = tile[3]
    return str(args[0] if isinstance(args, tuple) else args)


def pixels_of(data: bytes, mode: str, opened: Callable[[], Image.Image]) -> Pixels:
    """The samples (h, w, c) of the picture in a file; `opened` gives a new lazy view of it."""
    if mode == "LA;16":
        # gray and alpha of 16 bits are the bytes of a color picture with alpha
        wide = np.asarray(Image.open(io.BytesIO(_as_bytes(data)), formats=["PNG"]))  # (h, w, 4)
        return np.ascontiguousarray(wide).view(">u2").astype(np.uint16)
    high, low = opened(), opened()
    low.tile = [_swapped(tile) for tile in low.tile]  # type: ignore[attr-defined]
    high.load()
    low.load()
    pixels: Pixels = np.asarray(high).astype(np.uint16) << 8
    pixels |= np.asarray(low)
    return pixels


def _swapped(tile: ImageFile._Tile) -> ImageFile._Tile:
    raw = _raw_mode(tile)
    raw = raw[:-1] + OTHER_ORDER[raw[-1]]
    args = (raw, *tile[3][1:]) if isinstance(tile[3], tuple) else raw
    return ImageFile._Tile(tile[0], tile[1], tile[2], args)


def _as_bytes(data: bytes) -> bytes:
    """A PNG of gray and alpha as one of color and alpha, with half the bits."""
    header = data[16:24] + bytes([8, COLOR_ALPHA]) + data[26:29]
    chunks = [chunk(b"IDAT", body) for name, body in _chunks(data) if name == b"IDAT"]
    return b"".join([data[:8], chunk(b"IHDR", header), *chunks, chunk(b"IEND", b"")])


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        yield name, data[at + 8 : at + 8 + length]
        at += 12 + length


def ppm_pixels(data: bytes) -> Pixels | None:
    """The samples of a binary PPM of 16 bits per channel; None for another file."""
    found = headers.ppm_numbers(data)
    if data[:2] != b"P6" or found is None or found[2] < 256:
        return None
    width, height, top, start = found
    if top != 65535:
        raise ImageRefused(f"16 bits per channel up to {top} are not supported, up to 65535 are")
    body = data[start + 1 : start + 1 + 6 * width * height]
    if len(body) < 6 * width * height:
        raise ImageRefused("PPM that ends early")
    return np.frombuffer(body, ">u2").astype(np.uint16).reshape(height, width, 3)


def ppm_file(pixels: Pixels) -> bytes:
    """A binary PPM of samples (h, w, 3)."""
    height, width, _ = pixels.shape
    return b"P6\n%d %d\n65535\n" % (width, height) + pixels.astype(">u2").tobytes()


def png_file(pixels: Pixels, *, exif: bytes = b"", icc: bytes = b"") -> bytes:
    """A PNG of samples (h, w, 2 to 4) with 16 bits."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 16, _PNG_KINDS[channels], 0, 0, 0)
    parts = [b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header)]
    if icc:
        parts.append(chunk(b"iCCP", b"ICC Profile\0\0" + zlib.compress(icc)))
    if exif:
        parts.append(chunk(b"eXIf", exif))
    packer = zlib.compressobj(_LEVEL)
    body = b"".join(packer.compress(line) for line in _filtered(pixels)) + packer.flush()
    return b"".join([*parts, chunk(b"IDAT", body), chunk(b"IEND", b"")])


def _filtered(pixels: Pixels) -> Iterator[bytes]:
    """The lines of a PNG, each less its left neighbors or less the line above, whatever is closer to zero."""
    lines = np.ascontiguousarray(pixels.astype(">u2")).view(np.uint8).reshape(len(pixels), -1)
    step, above = 2 * pixels.shape[2], np.zeros(lines.shape[1], np.uint8)
    for line in lines:
        sideways = line.copy()
        sideways[step:] -= line[:-step]
        upright = line - above
        near = [int(np.abs(rest.view(np.int8).astype(np.int64)).sum()) for rest in (sideways, upright)]
        kind, rest = (1, sideways) if near[0] <= near[1] else (2, upright)
        yield bytes([kind]) + rest.tobytes()
        above = line


def chunk(name: bytes, body: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
