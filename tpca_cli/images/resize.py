"""Pillow's pictures to arrays, and both to another size."""

from __future__ import annotations

import numpy as np
from PIL import Image

from tpca_cli.errors import ImageRefused
from tpca_cli.images.modes import Pixels

_STRIP_PIXELS = 1 << 20


def to_array(image: Image.Image) -> Pixels:
    """(h, w, c) in the machine's byte order."""
    width, height = image.size
    rows = max(1, _STRIP_PIXELS // width)
    if height <= rows:
        return _strip(image)
    # Pillow hands out all pixels through two more copies of them: a large image is fetched strip by strip.
    first = _strip(image.crop((0, 0, width, rows)))
    pixels = np.empty((height, *first.shape[1:]), first.dtype)
    for top in range(0, height, rows):
        pixels[top : top + rows] = _strip(image.crop((0, top, width, min(top + rows, height))))
    return pixels


def _strip(image: Image.Image) -> Pixels:
    pixels = np.asarray(image)
    if image.mode.startswith("I"):
        if pixels.min() < 0 or pixels.max() > 65535:
            raise ImageRefused("samples outside of 16 bits")
        pixels = pixels.astype(np.uint16)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def draft_scale(have: tuple[int, int], want: tuple[int, int]) -> int:
    """By how much a JPEG may be decoded smaller and still not be smaller than what is wanted."""
    ratio = min(have[0] // want[0], have[1] // want[1])
    return next(scale for scale in (8, 4, 2, 1) if scale <= max(ratio, 1))


def resize(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Antialiased, after a box reduction of what is more than three times too large.

    Where both sides shrink the filter is Hamming's, at two thirds of the time of bicubic: photographs at
    64x64 are then 30.8 dB instead of 32.5 dB from Lanczos on the undrafted image, and look the same. Where
    one side grows it is bicubic, as Hamming's would show the old pixels.
    """
    height, width = size
    if image.size == (width, height):
        return image
    shrinks = width <= image.width and height <= image.height
    resampling = Image.Resampling.HAMMING if shrinks else Image.Resampling.BICUBIC
    return image.resize((width, height), resampling, reducing_gap=3.0)


def resized(pixels: Pixels, size: tuple[int, int] | None) -> Pixels:
    """The same for an array; 16 bits go through floating point."""
    if size is None or pixels.shape[:2] == size:
        return pixels
    if pixels.dtype == np.uint16:
        small = np.asarray(resize(Image.fromarray(pixels[:, :, 0].astype(np.float32)), size))
        bounded: Pixels = np.clip(np.rint(small), 0, 65535).astype(np.uint16)
        return bounded[:, :, None]
    return to_array(resize(Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels), size))
