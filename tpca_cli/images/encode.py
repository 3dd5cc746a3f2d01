"""Pixels to the bytes of an image file, the mirror of `decode`; the caller writes them.

Every file is decoded again before it is handed out: a reader gets these pixels, or (JPEG) an error that was
measured. What a format cannot hold is known from `obstacle` and `left_out` before anything is encoded.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from tpca_cli.errors import TpcaError, UsageError
from tpca_cli.images import decode, metadata, tiff
from tpca_cli.images.modes import CHANNELS, Pixels, common_channels, widen
from tpca_cli.images.resize import to_array

_MODES: dict[str, frozenset[str]] = {
    "png": frozenset(CHANNELS),
    "tiff": frozenset(CHANNELS),
    "webp": frozenset({"L", "LA", "RGB", "RGBA"}),
    "jpeg": frozenset({"L", "RGB"}),
    "bmp": frozenset({"L", "RGB"}),
    "ppm": frozenset({"L", "RGB", "I;16"}),
}
OUTPUT_FORMATS: tuple[str, ...] = tuple(_MODES)
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


def obstacle(
    format: str, mode: str, height: int, width: int, *, exif: bytes = b"", icc: bytes = b""
) -> str | None:
    """Why a format cannot hold an image as it is, or None."""
    if mode not in _MODES[format]:
        return f"{format} holds no {'16-bit samples' if mode == 'I;16' else 'alpha channel'}"
    side = _MAX_SIDE.get(format, decode.MAX_SIDE)
    if max(height, width) > side:
        return f"{format} holds at most {side} pixels in a row, not {max(height, width)}"
    if format == "jpeg" and len(exif) > _MAX_SEGMENT:
        return f"jpeg holds at most {_MAX_SEGMENT} bytes of EXIF, not {len(exif)}"
    if format == "tiff" and not tiff.fits(height, width, CHANNELS[mode], len(exif) + len(icc)):
        return "tiff holds at most 4 GB"
    return None


def left_out(format: str, *, exif: bytes = b"", icc: bytes = b"") -> tuple[str, ...]:
    """Which metadata of an image have no place in a format."""
    if format in _WITH_METADATA:
        return ("EXIF that is damaged",) if format == "tiff" and exif and not tiff.is_exif(exif) else ()
    return tuple(name for name, blob in (("EXIF", exif), ("ICC profile", icc)) if blob)


def encode_file(
    pixels: Pixels, mode: str, *, format: str = "png", exif: bytes = b"", icc: bytes = b"", quality: int = 95
) -> bytes:
    """The file for pixels (h, w, c) of a mode; every format but `jpeg` gives exactly these pixels back."""
    if format not in _MODES:
        raise UsageError(f"cannot write format {format}; choose one of {', '.join(OUTPUT_FORMATS)}")
    reason = obstacle(format, mode, *pixels.shape[:2], exif=exif, icc=icc)
    if reason is not None:
        raise UsageError(f"{reason}; choose png or tiff")
    dtype = np.uint16 if mode == "I;16" else np.uint8
    if pixels.dtype != dtype or pixels.ndim != 3 or pixels.shape[2] != CHANNELS[mode]:
        raise ValueError(f"{pixels.dtype} pixels of shape {pixels.shape} are not mode {mode}")
    if format == "tiff":
        data = tiff.tiff_file(pixels, exif=exif, blobs={34675: icc})
    else:
        data = _saved(pixels, format, exif, icc, quality)
    if format != "jpeg":
        found = _decoded(data, format, pixels)
        # WebP has color only, and no alpha that is opaque everywhere: the same picture is what counts
        channels = common_channels([found.shape[2], pixels.shape[2]])
        if not np.array_equal(widen(found, channels), widen(pixels, channels)):
            raise TpcaError(f"what was written as {format} does not read back as the same pixels")
    return data


def encode_jpeg(
    pixels: Pixels, mode: str, allowed: float, *, exif: bytes = b"", icc: bytes = b""
) -> bytes | None:
    """A JPEG whose mean squared error against the pixels is below `allowed`, or None where there is none."""
    for quality in _QUALITIES:
        data = encode_file(pixels, mode, format="jpeg", exif=exif, icc=icc, quality=quality)
        difference = _decoded(data, "jpeg", pixels).astype(np.int32) - pixels
        if float(np.vdot(difference, difference)) < allowed * pixels.size:
            return data
    return None


def _saved(pixels: Pixels, format: str, exif: bytes, icc: bytes, quality: int) -> bytes:
    """The file as Pillow writes it."""
    image = Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    options = dict(_OPTIONS[format])
    if format == "jpeg":
        options["quality"] = quality
    if format in _WITH_METADATA:
        if exif:
            options["exif"] = b"Exif\0\0" + exif
        if icc:
            options["icc_profile"] = icc
    file = io.BytesIO()
    image.save(file, format.upper(), **options)
    return file.getvalue()


def _decoded(data: bytes, format: str, pixels: Pixels) -> Pixels:
    """What a reader makes of the file of these pixels, (h, w, c), as stored and not turned upright."""
    try:
        image = decode._open(io.BytesIO(data), format.upper(), data, pixels.shape[0] * pixels.shape[1])
        orientation = metadata.tiff_orientation(image)
        image.load()
        found = to_array(image)
    except (OSError, ValueError, SyntaxError) as error:
        raise TpcaError(f"what was written as {format} does not read back: {error}") from error
    if orientation is not None:
        found = metadata.undo_orientation(found, orientation)
    return found


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
