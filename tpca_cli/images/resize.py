"""Pillow's pictures to arrays, and both to another size."""

from __future__ import annotations

import numpy as np
from PIL import Image

from tpca_cli.errors import ImageRefused
from tpca_cli.images.modes import Pixels

_STRIP_PIXELS = 1 << 20
_BICUBIC = Image.Resampling.BICUBIC
_GAP = 3.0


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


def to_size(image: Image.Image, size: tuple[int, int]) -> Pixels:
    """Bicubic and antialiased, after a box reduction of what is more than three times too large."""
    from tpca_cli.images.bicubic import bicubic, suits  # it takes time to import, and few need it

    height, width = size
    if image.size == (width, height):
        return to_array(image)
    if image.mode in ("L", "RGB"):
        across, down = _reduction(image.width, width), _reduction(image.height, height)
        extent = (image.height / down, image.width / across)
        if across > 1 or down > 1:
            image = image.reduce((across, down))
        if suits((image.height, image.width), size):
            return bicubic(to_array(image), size, extent)
        return to_array(image.resize((width, height), _BICUBIC, (0, 0, extent[1], extent[0])))
    return to_array(image.resize((width, height), _BICUBIC, reducing_gap=_GAP))


def _reduction(have: int, want: int) -> int:
    return max(1, int(have / want / _GAP))


def prepare_resizing() -> None:
    """Before forking processes that will resize."""
    from tpca_cli.images.bicubic import prepare

    prepare()


def resized(pixels: Pixels, size: tuple[int, int] | None) -> Pixels:
    """The same for an array; 16 bits go through floating point."""
    if size is None or pixels.shape[:2] == size:
        return pixels
    if pixels.dtype == np.uint16:
        small = to_size(Image.fromarray(pixels[:, :, 0].astype(np.float32)), size)
        bounded: Pixels = np.clip(np.rint(small), 0, 65535).astype(np.uint16)
        return bounded
    height, width, channels = pixels.shape
    if channels in (1, 3) and _reduction(height, size[0]) == _reduction(width, size[1]) == 1:
        from tpca_cli.images.bicubic import bicubic, suits

        if suits((height, width), size):  # without a detour
            return bicubic(pixels, size, (height, width))
    return to_size(Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels), size)
