"""The way between the channel counts of pictures, without loss upwards and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpca_cli.errors import ImageRefused
from tpca_cli.formats import CHANNELS

Pixels: TypeAlias = NDArray[Any]

_NAMES = {1: "gray", 2: "gray with alpha", 3: "RGB", 4: "RGBA"}


def common_channels(channels: Iterable[int]) -> int:
    """The smallest channel count that holds all of these without loss: gray joins RGB, alpha joins both."""
    found = set(channels)
    return 4 if found >= {2, 3} else max(found)


def widens(have: int, want: int) -> bool:
    """Whether `have` channels fit into `want` without loss."""
    return have <= want and (have, want) != (2, 3)


def widen(pixels: Pixels, channels: int) -> Pixels:
    """The same picture with more channels: gray repeated, alpha opaque.  (h, w, c) -> (h, w, channels)"""
    have = pixels.shape[-1]
    if have == channels:
        return pixels
    if not widens(have, channels):
        raise ImageRefused(f"{_NAMES[have]} does not fit into {_NAMES[channels]} without loss")
    wide = np.empty((*pixels.shape[:-1], channels), pixels.dtype)
    colors = 1 if channels == 2 else 3
    wide[..., :colors] = pixels[..., :3] if have == 3 else pixels[..., :1]
    if channels > colors:
        wide[..., -1] = pixels[..., -1] if have == 2 else np.iinfo(pixels.dtype).max
    return wide


def narrow(pixels: Pixels, mode: str) -> Pixels:
    """Back to the channels of a mode: gray is the mean of its copies, which lossy coding may have parted."""
    have, want = pixels.shape[-1], CHANNELS[mode]
    if have == want:
        return pixels
    if not widens(want, have):
        raise ValueError(f"{have} channels do not hold mode {mode}")
    if want == 3:
        return pixels[..., :3]
    if have == 2:
        return pixels[..., :1]
    total = pixels[..., :3].sum(axis=-1, dtype=np.uint32, keepdims=True)
    gray = ((total + 1) // 3).astype(pixels.dtype)
    return gray if want == 1 else np.concatenate([gray, pixels[..., 3:]], axis=-1)


def converted(pixels: Pixels, mode: str) -> Pixels:
    """8-bit pixels in another mode: gray is repeated or weighted from colors (ITU-R 601), alpha added or cut.

    (h, w, c) -> (h, w, channels of the mode)
    """
    have, want = pixels.shape[-1], CHANNELS[mode]
    if have == want:
        return pixels
    alpha = pixels[..., -1:] if have in (2, 4) else np.full((*pixels.shape[:-1], 1), 255, pixels.dtype)
    colors = pixels[..., :3] if have >= 3 else pixels[..., :1]
    if want >= 3 and have < 3:
        colors = np.repeat(colors, 3, axis=-1)
    elif want < 3 and have >= 3:
        weighted = colors.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32)  # sum: 2^16
        colors = ((weighted + 0x8000) >> 16).astype(pixels.dtype)[..., None]
    return np.concatenate([colors, alpha], axis=-1) if want in (2, 4) else colors
