"""Image codecs at a wanted PSNR: quality searched over whole numbers, bytes interpolated between two."""

from __future__ import annotations

import functools
import io
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pillow_jxl  # noqa: F401  (registers the format)
from numpy.typing import NDArray
from PIL import Image

from tpca_cli.parallel import busy_map

Pixels = NDArray[Any]
Settings = Callable[[int], dict[str, Any]]


@dataclass(frozen=True)
class Codec:
    """A Pillow format with the options of a quality between `low` and `high`, worst first."""

    name: str
    format: str
    settings: Settings
    low: int
    high: int
    modes: tuple[str, ...]


EIGHT = ("L", "RGB")


def avif(subsampling: str, tune: str | None) -> Settings:
    """Settings of a quality. Without a tune it is `iq`, which takes 3 to 9 % more at equal PSNR."""
    more = {"advanced": {"tune": tune}} if tune else {}
    return lambda quality: {"quality": quality, "speed": 4, "subsampling": subsampling, **more}


CODECS = (
    Codec("jpeg", "JPEG", lambda q: {"quality": q, "optimize": True}, 1, 98, EIGHT),
    Codec("webp", "WEBP", lambda q: {"quality": q, "method": 6}, 0, 100, (*EIGHT, "RGBA")),
    Codec("avif420", "AVIF", avif("4:2:0", "ssim"), 0, 98, (*EIGHT, "RGBA")),
    Codec("avif444", "AVIF", avif("4:4:4", "ssim"), 0, 98, (*EIGHT, "RGBA")),
    Codec("jxl", "JXL", lambda q: {"quality": q, "effort": 7}, 1, 98, (*EIGHT, "RGBA", "I;16")),
)


def mode_of(pixels: Pixels) -> str:
    """Pillow's mode of an array (h, w, c)."""
    if pixels.dtype == np.uint16:
        return "I;16"
    return {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[pixels.shape[2]]


def to_image(pixels: Pixels) -> Image.Image:
    """A Pillow image of (h, w, c)."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def compress(codec: Codec, quality: int, pixels: Pixels) -> bytes:
    """One file in memory."""
    buffer = io.BytesIO()
    to_image(pixels).save(buffer, codec.format, **codec.settings(quality))
    return buffer.getvalue()


def expand(data: bytes, like: Pixels) -> Pixels:
    """The pixels of a file, in the mode that was put in."""
    with Image.open(io.BytesIO(data)) as image:
        mode = mode_of(like)
        decoded = np.asarray(image if image.mode == mode else image.convert(mode))
    return decoded.reshape(like.shape)


def squared_error(one: Pixels, other: Pixels) -> int:
    """The sum of squared differences, exactly; colors that nobody sees do not count."""
    difference = one.astype(np.int64) - other
    if mode_of(one) == "RGBA":
        difference[one[..., 3] == 0, :3] = 0
    return int(np.vdot(difference, difference))


def psnr(error: float, pictures: Sequence[Pixels]) -> float:
    """Pooled over all samples."""
    peak = np.iinfo(pictures[0].dtype).max
    samples = sum(picture.size for picture in pictures)
    return 10 * math.log10(peak**2 * samples / error) if error else math.inf


@dataclass(frozen=True)
class Point:
    """A codec at a PSNR between two qualities: bytes on the line, and the nearest quality."""

    bytes: float
    quality: int


class Curve:
    """Bytes and PSNR of a codec on some pictures, measured where asked and remembered."""

    def __init__(self, codec: Codec, pictures: Sequence[Pixels], workers: int) -> None:
        self.codec, self.pictures, self.workers = codec, pictures, workers
        self.measured = functools.cache(self._measure)

    def _measure(self, quality: int) -> tuple[int, float]:
        def one(pixels: Pixels) -> tuple[int, int]:
            data = compress(self.codec, quality, pixels)
            return len(data), squared_error(pixels, expand(data, pixels))

        found = list(busy_map(one, self.pictures, self.workers))
        return sum(size for size, _ in found), psnr(sum(error for _, error in found), self.pictures)

    def at(self, wanted: float) -> Point | None:
        """The codec at this PSNR, or nothing where it cannot reach it."""
        low, high = self.codec.low, self.codec.high
        if self.measured(high)[1] < wanted or self.measured(low)[1] > wanted:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self.measured(middle)[1] >= wanted:
                high = middle
            else:
                low = middle
        (small, worse), (large, better) = self.measured(low), self.measured(high)
        share = (wanted - worse) / (better - worse) if better > worse else 1.0
        size = math.exp(math.log(small) + share * (math.log(large) - math.log(small)))
        return Point(size, low if share < 0.5 else high)

    def header(self, quality: int) -> int:
        """Bytes of the same number of blank pictures: what a file costs before it says anything."""
        blanks = {p.shape: len(compress(self.codec, quality, np.full_like(p, 128))) for p in self.pictures}
        return sum(blanks[p.shape] for p in self.pictures)

    def speed(self, quality: int) -> tuple[float, float]:
        """Seconds to encode from arrays and to decode to arrays, with the workers of this run."""

        def encode(pixels: Pixels) -> bytes:
            return compress(self.codec, quality, pixels)

        files = list(busy_map(encode, self.pictures, self.workers))
        pairs = list(zip(files, self.pictures, strict=True))
        return best_time(encode, self.pictures, self.workers), best_time(
            lambda pair: expand(*pair), pairs, self.workers
        )


def best_time(work: Callable[[Any], Any], items: Sequence[Any], workers: int) -> float:
    """Seconds for all items: the best of three runs, or of those begun within ten seconds."""
    best, spent = math.inf, 0.0
    for _ in range(3):
        started = time.perf_counter()
        for _ in busy_map(lambda item: work(item) is None, items, workers):
            pass
        best = min(best, time.perf_counter() - started)
        spent += best
        if spent > 10:
            break
    return best


def montage(pictures: Sequence[Pixels]) -> Pixels | None:
    """All pictures of one size side by side in one, or nothing if sizes differ."""
    if len({picture.shape for picture in pictures}) != 1:
        return None
    h, w, c = pictures[0].shape
    columns = math.isqrt(len(pictures))
    rows = len(pictures) // columns
    stacked = np.stack(pictures[: rows * columns]).reshape(rows, columns, h, w, c)
    return stacked.swapaxes(1, 2).reshape(rows * h, columns * w, c)
