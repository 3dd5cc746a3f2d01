"""Pillow's pictures to arrays, and both to another size.

Small 8-bit pictures are resized by compiled code, `kernel/bicubic.wasm`: a third of the time of Pillow's,
whose answer it gives to within one level, and the same on every machine and with every version of Pillow.
Larger pictures and other kinds are resized by Pillow.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from tpca_cli.errors import ImageRefused
from tpca_cli.images.modes import Pixels

if TYPE_CHECKING:
    from tpca_cli.wasm import Kernel, Layout

_STRIP_PIXELS = 1 << 20
_BICUBIC = Image.Resampling.BICUBIC
_GAP = 3.0
_SLACK = 64
"""Elements behind an array of the kernel that may be read or overwritten."""
_MOST_PIXELS = 1 << 20


def to_array(image: Image.Image) -> Pixels:
    """(h, w, c) in the machine's byte order."""
    pixels = None
    for top, strip in strips(image):
        if len(strip) == image.height:
            return strip
        if pixels is None:
            pixels = np.empty((image.height, *strip.shape[1:]), strip.dtype)  # (h, w, c)
        pixels[top : top + len(strip)] = strip
    assert pixels is not None
    return pixels


def strips(image: Image.Image) -> Iterator[tuple[int, Pixels]]:
    """The picture in strips (rows, w, c) of about a million pixels, each with its first row.

    Pillow hands out all pixels at once only through two more copies of them.
    """
    width, height = image.size
    rows = max(1, _STRIP_PIXELS // width)
    if height <= rows:
        yield 0, _strip(image)
        return
    for top in range(0, height, rows):
        yield top, _strip(image.crop((0, top, width, min(top + rows, height))))


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
    return 8 if ratio >= 8 else 4 if ratio >= 4 else 2 if ratio >= 2 else 1


def to_size(image: Image.Image, size: tuple[int, int]) -> Pixels:
    """Bicubic and antialiased, after a box reduction of what is more than three times too large."""
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
    """Compile the kernel now: processes that are forked later inherit it."""
    bicubic_kernel().instance()


def resized(pixels: Pixels, size: tuple[int, int] | None) -> Pixels:
    """The same for an array; 16 bits go through floating point."""
    if size is None or pixels.shape[:2] == size:
        return pixels
    if pixels.dtype == np.uint16:
        planes = [
            to_size(Image.fromarray(plane.astype(np.float32)), size) for plane in np.moveaxis(pixels, 2, 0)
        ]
        bounded: Pixels = np.clip(np.rint(np.concatenate(planes, axis=2)), 0, 65535).astype(np.uint16)
        return bounded
    height, width, channels = pixels.shape
    reduced = _reduction(height, size[0]) > 1 or _reduction(width, size[1]) > 1
    if channels in (1, 3) and not reduced and suits((height, width), size):
        return bicubic(pixels, size, (height, width))
    return to_size(Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels), size)


def suits(have: tuple[int, int], want: tuple[int, int]) -> bool:
    """Whether picture, result and what is between them, all (height, width), are small enough for here."""
    return max(have[0] * have[1], want[0] * have[1], want[0] * want[1]) <= _MOST_PIXELS


def bicubic(pixels: Pixels, size: tuple[int, int], extent: tuple[float, float]) -> Pixels:
    """The uint8 picture (h, w, 1 or 3) at another size (height, width).

    `extent` is how much of the picture counts, from its corner: less than all if the last pixel was cut.
    """
    from tpca_cli.wasm import Job

    channels = pixels.shape[2]
    job = Job(bicubic_kernel(), _layout(pixels.shape, size, extent))
    job.arrays["pixels"][: pixels.size] = pixels.reshape(-1)
    job.run()
    result: Pixels = job.arrays["resized"][: size[0] * size[1] * channels].reshape(*size, channels).copy()
    return result  # (height, width, channels)


@functools.lru_cache(maxsize=256)
def _layout(shape: tuple[int, ...], size: tuple[int, int], extent: tuple[float, float]) -> Layout:
    """The job for pictures of this shape; folders hold many of one size."""
    from tpca_cli.wasm import Room

    (height, width, channels), (new_height, new_width) = shape, size
    return bicubic_kernel().lay_out({
        "tall": extent[0],
        "wide": extent[1],
        "height": height,
        "width": width,
        "channels": channels,
        "new_height": new_height,
        "new_width": new_width,
        "pixels": Room((height + 1) * width * channels + _SLACK, scratch=True),
        "resized": Room(new_height * new_width * channels + _SLACK, scratch=True),
        "between": Room(new_height * width * channels + _SLACK, scratch=True),
        "scratch": Room(64 * (height + width + new_height + new_width) + _SLACK, scratch=True),
    })  # fmt: skip


@functools.cache
def bicubic_kernel() -> Kernel:
    """The compiled code and the fields of its job, from which `make kernel` writes `kernel/job.h`."""
    from tpca_cli.wasm import Field, Kernel  # it takes time to import, and few need it

    return Kernel("images/kernel/bicubic.wasm", (
        Field("double", "tall", "how much of the picture there is, in its pixels"),
        Field("double", "wide", "a little less than all where the last was cut"),
        Field("i32", "height"),
        Field("i32", "width"),
        Field("i32", "channels"),
        Field("i32", "new_height"),
        Field("i32", "new_width"),
        Field("const u8 *", "pixels", "(height, width, channels), then a line"),
        Field("u8 *", "resized", "(new height, new width, channels)"),
        Field("i16 *", "between", "(new height, width, channels)"),
        Field("u8 *", "scratch", "the taps of every new row and column"),
    ))  # fmt: skip
