"""The one place where an error becomes a PSNR; the range of samples; what counts as a lost picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Pixels: TypeAlias = NDArray[Any]

DETAIL_SHARE = 0.25
"""An error above this share of an image's variance costs what can be seen in it, dark or flat as it is."""
NEGLIGIBLE = 1.0
"""A mean squared error of one pixel value is no loss, even in an image that is nearly constant."""
PLAIN_DB = 30.0
"""With less, an image that is nearly constant comes back as another color."""
_CHUNK = 1 << 14  # pixels that are squared together


def decibel(value: float) -> float:
    """10 log10 of a positive quantity."""
    return 10 * math.log10(max(value, 1e-300))


def psnr(error: float, samples: float, peak: float = 1.0) -> float:
    """Peak signal-to-noise ratio of a summed squared error; infinite when nothing is lost."""
    return math.inf if error <= 0 else 10 * math.log10(peak * peak * samples / error)


def peak_of(largest: int, dtype: str) -> int:
    """The peak of samples up to `largest`: 255 for 8 bits, else the smallest 2^k - 1 that holds them."""
    return 255 if dtype == "u1" else max(1, (1 << int(largest).bit_length()) - 1)


def loses_detail(
    error: float,
    samples: float,
    deviation: float,
    peak: int = 255,
    *,
    share: float = DETAIL_SHARE,
    level: float = NEGLIGIBLE,
) -> bool:
    """Whether a summed squared error is too much for an image with this squared deviation from its mean.

    One that is constant within a squared level has its color to lose, and nothing else.
    """
    allowed = share * deviation if deviation > level * samples else plain_error(peak) * samples
    return error > max(allowed, level * samples)


def plain_error(peak: int) -> float:
    """The mean squared error from which a plain image is of another color."""
    return float(peak * peak * 10 ** (-PLAIN_DB / 10))


class Part(NamedTuple):
    """What is judged by itself: the squared error, how many samples, their squared distances from their
    channel's mean. Samples of color count by their alpha, up to 255 times, and not at all where it is 0."""

    error: int
    samples: int
    deviation: int


def parts_of(pixels: Pixels, errors: Sequence[int]) -> list[Part]:
    """The colors of a picture (h, w, c), and its alpha if it has one, with the error of each: the edge of a
    cut-out varies so much that beside it a loss of all colors would seem small. Exact for 8 and 16 bits."""
    flat, colors = pixels.reshape(-1, pixels.shape[2]), _colors(pixels)
    count, seen = len(flat), 0
    sums, squares = [0] * flat.shape[1], [0] * flat.shape[1]
    for start in range(0, count, _CHUNK):
        part = flat[start : start + _CHUNK].astype(np.int64).T  # (c, pixels)
        weights = part[-1] if colors < len(part) else np.ones_like(part[0])
        seen += int(weights.sum())
        for c, values in enumerate(part):
            weighted = weights * values if c < colors else values
            sums[c] += int(weighted.sum())
            squares[c] += int(weighted @ values)
    totals = [seen] * colors + [count] * (len(sums) - colors)
    each = [(n * q - s * s) // n if n else 0 for n, q, s in zip(totals, squares, sums, strict=True)]
    found = [(colors * seen, sum(each[:colors])), (count, each[-1])][: 1 + len(each) - colors]
    return [Part(error, *part) for error, part in zip(errors, found, strict=True)]


def errors_of(source: Pixels, back: Pixels) -> list[int]:
    """The squared error of each part of a picture (h, w, c), as what comes back differs from it."""
    colors, channels = _colors(source), source.shape[2]
    wanted, given = source.reshape(-1, channels), back.reshape(-1, channels)
    seen = alpha = 0
    for start in range(0, len(wanted), _CHUNK):
        rows = slice(start, start + _CHUNK)
        squares = np.subtract(wanted[rows], given[rows], dtype=np.int64) ** 2  # (pixels, c)
        weights = wanted[rows, -1].astype(np.int64) if colors < channels else np.ones_like(squares[:, 0])
        seen += int(squares[:, :colors].sum(axis=1) @ weights)
        alpha += int(squares[:, colors:].sum())
    return [seen] if colors == channels else [seen, alpha]


def _colors(pixels: Pixels) -> int:
    """Channels that are no alpha."""
    channels: int = pixels.shape[2]
    return channels - (channels in (2, 4))
