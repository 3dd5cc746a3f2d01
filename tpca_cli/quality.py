"""The one place where an error becomes a PSNR; the range of samples; what counts as a lost picture."""

from __future__ import annotations

import math

DETAIL_SHARE = 0.25
"""An error above this share of an image's variance costs what can be seen in it, dark or flat as it is."""
NEGLIGIBLE = 1.0
"""A mean squared error of one pixel value is no loss, even in an image that is nearly constant."""


def decibel(value: float) -> float:
    """10 log10 of a positive quantity."""
    return 10 * math.log10(max(value, 1e-300))


def psnr(error: float, samples: float, peak: float = 1.0) -> float:
    """Peak signal-to-noise ratio of a summed squared error; infinite when nothing is lost."""
    return math.inf if error <= 0 else 10 * math.log10(peak * peak * samples / error)


def peak_of(largest: int, dtype: str) -> int:
    """The peak of samples up to `largest`: 255 for 8 bits, else the smallest 2^k - 1 that holds them."""
    return 255 if dtype == "u1" else max(1, (1 << int(largest).bit_length()) - 1)


def loses_detail(error: float, samples: float, deviation: float) -> bool:
    """Whether a summed squared error is too much for an image with this squared deviation from its mean."""
    if deviation <= NEGLIGIBLE * samples:  # constant within a level: there is nothing to lose
        return False
    return error > max(DETAIL_SHARE * deviation, NEGLIGIBLE * samples)
