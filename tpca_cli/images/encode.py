"""Pixels to the bytes of an image file, the mirror of `decode`; the caller writes them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from tpca_cli.errors import UsageError
from tpca_cli.images.modes import CHANNELS, Pixels

_MODES: dict[str, frozenset[str]] = {
    "png": frozenset(CHANNELS),
    "tiff": frozenset(CHANNELS),
    "webp": frozenset({"L", "LA", "RGB", "RGBA"}),
    "jpeg": frozenset({"L", "RGB"}),
    "bmp": frozenset({"L", "RGB"}),
    "ppm": frozenset({"L", "RGB", "I;16"}),
}
OUTPUT_FORMATS: tuple[str, ...] = tuple(_MODES)

_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"compress_level": 4},
    "tiff": {"compression": "tiff_adobe_deflate"},
    "webp": {"lossless": True, "exact": True, "quality": 50, "method": 2},
    "jpeg": {"subsampling": 0},
    "bmp": {},
    "ppm": {},
}
LOSSY_CODECS: dict[str, dict[str, Any]] = {"JPEG": {"optimize": True}, "WebP": {"method": 4}}
_WITH_METADATA = frozenset({"png", "tiff", "webp", "jpeg"})


def encode_file(
    pixels: Pixels, mode: str, *, format: str = "png", exif: bytes = b"", icc: bytes = b"", quality: int = 95
) -> bytes:
    """The file for pixels (h, w, c) of a mode; every format but `jpeg` gives exactly these pixels back."""
    if format not in _MODES:
        raise UsageError(f"cannot write format {format}; choose one of {', '.join(OUTPUT_FORMATS)}")
    if mode not in _MODES[format]:
        raise UsageError(f"{format} cannot hold mode {mode} as it is; choose png or tiff")
    dtype = np.uint16 if mode == "I;16" else np.uint8
    if pixels.dtype != dtype or pixels.ndim != 3 or pixels.shape[2] != CHANNELS[mode]:
        raise ValueError(f"{pixels.dtype} pixels of shape {pixels.shape} are not mode {mode}")
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
