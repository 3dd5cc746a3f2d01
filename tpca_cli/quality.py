"""Decibels: the one place where an error becomes a PSNR."""

from __future__ import annotations

import math


def decibel(value: float) -> float:
    """10 log10 of a positive quantity."""
    return 10 * math.log10(max(value, 1e-300))


def psnr(error: float, samples: float, peak: float = 1.0) -> float:
    """Peak signal-to-noise ratio of a summed squared error; infinite when nothing is lost."""
    return math.inf if error <= 0 else 10 * math.log10(peak * peak * samples / error)
