"""Pixels to the bytes of an image file, the mirror of `decode`; the caller writes them.

Every file is decoded again before it is handed out: a reader gets these pixels, or (JPEG) an error that was
measured. What a format cannot hold is known from `obstacle` and `left_out` before anything is encoded.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from tpca_cli.errors import TpcaError, UsageError
from tpca_cli.formats import CHANNELS, DTYPES
from tpca_cli.images import decode, deep, embed, metadata, tiff
from tpca_cli.images.modes import Pixels, common_channels, widen
from tpca_cli.images.resize import strips, to_array

_MODES: dict[str, frozenset[str]] = {
    "png": frozenset(CHANNELS),
    "tiff": frozenset(CHANNELS) - {"LA;16"},
    "webp": frozenset({"L", "LA", "RGB", "RGBA"}),
    "jpeg": frozenset({"L", "RGB"}),
    "bmp": frozenset({"L", "RGB"}),
    "ppm": frozenset({"L", "RGB", "I;16", "RGB;16"}),
}
OUTPUT_FORMATS: tuple[str, ...] = tuple(_MODES)
NOT_HELD = {
    **{mode: "samples of 16 bits" for mode in CHANNELS if DTYPES[mode] == "u2"},
}
_MAX_SIDE = {"webp": 16383, "jpeg": 65500}
_MAX_SEGMENT = 65533 - len(b"Exif\0\0")  # what one segment of a JPEG holds

_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"compress_level": 4},
    "webp": {"lossless": True, "exact": True, "quality": 50, "method": 2},
    "jpeg": {"subsampling": 0},
    "bmp": {},
    "ppm": {},
}
LOSSY_CODECS: dict[str, dict[str, Any]] = {"JPEG": {"optimize": True}, "WebP": {"method": 4}}
_WITH_METADATA = frozenset({"png", "tiff", "webp", "jpeg"})
_QUALITIES = (95, 97, 98, 99, 100)  # of JPEG, tried in turn


@dataclass(frozen=True)
class Extras:
    """What goes into a file besides its pixels; `metadata` by kind, see `embed`."""

    exif: bytes = b""
    icc: bytes = b""
    metadata: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self.exif) + len(self.icc) + sum(map(len, self.metadata.values()))


NOTHING = Extras()


def obstacle(format: str, mode: str, height: int, width: int, extras: Extras = NOTHING) -> str | None:
    """Why a format cannot hold an image as it is, or None."""
    if mode not in _MODES[format]:
        return f"{format} holds no {NOT_HELD.get(mode, 'alpha channel')}"
    side = _MAX_SIDE.get(format, decode.MAX_SIDE)
    if max(height, width) > side:
        return f"{format} holds at most {side} pixels in a row, not {max(height, width)}"
    if format == "jpeg" and len(extras.exif) > _MAX_SEGMENT:
        return f"jpeg holds at most {_MAX_SEGMENT} bytes of EXIF, not {len(extras.exif)}"
    if format == "tiff" and not tiff.fits(height, width, CHANNELS[mode], extras.size):
        return "tiff holds at most 4 GB"
    return None


def left_out(format: str, extras: Extras) -> tuple[str, ...]:
    """Which metadata of an image have no place in a format."""
    rest = embed.place(format, extras.metadata)[1]
    if format not in _WITH_METADATA:
        named = (("EXIF", extras.exif), ("ICC profile", extras.icc))
        return (*(name for name, blob in named if blob), *rest)
    if format == "tiff" and extras.exif and not tiff.is_exif(extras.exif):
        return ("EXIF that is damaged", *rest)
    return rest


def encode_file(
    pixels: Pixels, mode: str, *, format: str = "png", extras: Extras = NOTHING, quality: int = 95
) -> bytes:
    """The file for pixels (h, w, c) of a mode; every format but `jpeg` gives exactly these pixels back."""
    if format not in _MODES:
        raise UsageError(f"cannot write format {format}; choose one of {', '.join(OUTPUT_FORMATS)}")
    reason = obstacle(format, mode, pixels.shape[0], pixels.shape[1], extras)
    if reason is not None:
        raise UsageError(f"{reason}; choose png or tiff")
    if pixels.dtype != np.dtype(DTYPES[mode]) or pixels.ndim != 3 or pixels.shape[2] != CHANNELS[mode]:
        raise ValueError(f"{pixels.dtype} pixels of shape {pixels.shape} are not mode {mode}")
    held, _ = embed.place(format, extras.metadata)
    if format == "tiff":
        blobs = {700: held.get("xmp", b""), 33723: held.get("iptc", b""), 34675: extras.icc}
        density = embed.in_rationals(held["density"]) if "density" in held else None
        data = tiff.tiff_file(pixels, exif=extras.exif, blobs=blobs, density=density)
    else:
        data = embed.insert(_saved(pixels, format, extras, held, quality), format, held)
    if format != "jpeg":
        for top, found in _decoded(data, format, pixels):
            wanted = pixels[top : top + len(found)]
            # WebP has color only, and no alpha that is opaque everywhere: the same picture is what counts
            channels = common_channels([found.shape[2], pixels.shape[2]])
            if not np.array_equal(widen(found, channels), widen(wanted, channels)):
                raise TpcaError(f"what was written as {format} does not read back as the same pixels")
    return data


def encode_jpeg(pixels: Pixels, mode: str, allowed: float, extras: Extras = NOTHING) -> bytes | None:
    """A JPEG whose mean squared error against the pixels is below `allowed`, or None where there is none."""
    for quality in _QUALITIES:
        data = encode_file(pixels, mode, format="jpeg", extras=extras, quality=quality)
        error = 0
        for top, found in _decoded(data, "jpeg", pixels):
            difference = found.astype(np.int64) - pixels[top : top + len(found)]
            error += int(np.vdot(difference, difference))
        if error < allowed * pixels.size:
            return data
    return None


def _saved(pixels: Pixels, format: str, extras: Extras, held: Mapping[str, bytes], quality: int) -> bytes:
    """The file as Pillow writes it, or `deep` what Pillow does not."""
    if pixels.dtype == np.uint16 and pixels.shape[2] > 1:
        if format == "ppm":
            return deep.ppm_file(pixels)
        return deep.png_file(pixels, exif=extras.exif, icc=extras.icc)
    image = Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    options = dict(_OPTIONS[format])
    if format == "jpeg":
        options["quality"] = quality
    if format == "webp" and "xmp" in held:
        options["xmp"] = held["xmp"]
    if format in _WITH_METADATA:
        if extras.exif:
            options["exif"] = b"Exif\0\0" + extras.exif
        if extras.icc:
            options["icc_profile"] = extras.icc
    file = io.BytesIO()
    image.save(file, format.upper(), **options)
    return file.getvalue()


def _decoded(data: bytes, format: str, pixels: Pixels) -> Iterator[tuple[int, Pixels]]:
    """What a reader makes of the file of these pixels, as stored and not turned upright.

    Strips (rows, w, c), each with its first row; the size is that of the pixels.
    """
    unreadable = f"what was written as {format} does not read back"
    try:
        most = pixels.shape[0] * pixels.shape[1]
        image = decode._open(io.BytesIO(data), format.upper(), data, most, deep=True)
        orientation = metadata.tiff_orientation(image)
        parts: Iterator[tuple[int, Pixels]]
        if pixels.dtype == np.uint16 and pixels.shape[2] > 1:
            mode = decode._target_mode(image, data)
            parts = iter([(0, decode._deep_pixels(data, format.upper(), mode, most))])
        else:
            image.load()
            whole = orientation is not None
            parts = iter([(0, to_array(image))]) if whole else strips(image)
        if orientation is not None:
            parts = iter([(0, metadata.undo_orientation(next(parts)[1], orientation))])
        row = 0
        for row, found in parts:
            if found.shape[1] != pixels.shape[1]:
                break
            yield row, found
            row += len(found)
    except (OSError, ValueError, SyntaxError, struct.error) as error:
        raise TpcaError(f"{unreadable}: {error}") from error
    if row != pixels.shape[0]:
        raise TpcaError(f"{unreadable} at its size")


def lossy_copy(pixels: Pixels, codec: str, quality: int) -> tuple[int, Pixels]:
    """An 8-bit gray or color picture through one of LOSSY_CODECS: the bytes of the file, and its pixels.

    The codec's own defaults otherwise, subsampled color included: this measures what people would store.
    """
    gray = pixels.shape[2] == 1
    file = io.BytesIO()
    image = Image.fromarray(pixels[:, :, 0] if gray else pixels)
    image.save(file, codec.upper(), quality=quality, **LOSSY_CODECS[codec])
    size = file.getbuffer().nbytes
    file.seek(0)
    with Image.open(file, formats=[codec.upper()]) as back:
        decoded = np.asarray(back.convert("L" if gray else "RGB"))
    return size, decoded[:, :, None] if gray else decoded  # (h, w, c)
