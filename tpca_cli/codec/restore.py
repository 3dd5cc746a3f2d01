"""A filter after decoding that takes back part of the quantisation error.

Pixels are sorted by how much the brightness around them varies and in which direction; each class has a small
symmetric filter, fitted to the pictures of the archive. One correction, computed from brightness, is added
to all channels. Arithmetic is on integers small enough for float32 to be exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]
Ints = NDArray[np.int64]

PAIRS = ((0, 1), (1, 0), (1, 1), (1, -1), (0, 2), (2, 0))
LEVELS = 8
CLASSES = 3 * LEVELS
BITS = 8
SUBPIXEL = 8
"""Pixels are filtered in units of 1/8."""


@dataclass(frozen=True, eq=False)
class Restorer:
    """Class borders (LEVELS - 1,) for the activity in 1/SUBPIXEL, and weights (CLASSES, pairs) in 2^-BITS."""

    borders: Ints
    weights: Ints

    def apply(self, images: Singles) -> None:
        """Correct images (n, c, h, w) in units of 1/SUBPIXEL, in place."""
        differences = _differences(images)
        classes = _classes(differences, self.borders)
        change = np.zeros(differences[0].shape, np.float32)
        for difference, column in zip(differences, self.weights.T.astype(np.float32), strict=True):
            change += column.take(classes) * difference
        images += np.floor(change * np.float32(2.0**-BITS) + np.float32(0.5))[:, None]

    def to_array(self) -> NDArray[np.int16]:
        """Borders, then weights."""
        return np.concatenate([self.borders, self.weights.ravel()]).astype(np.int16)

    @classmethod
    def from_array(cls, array: NDArray[Any]) -> Restorer:
        """The mirror of `to_array`; ValueError when it cannot be one."""
        flat = np.asarray(array).astype(np.int64)
        size = CLASSES * len(PAIRS)
        if flat.shape != (LEVELS - 1 + size,) or np.abs(flat[LEVELS - 1 :]).max() > 127:
            raise ValueError(f"a filter of {flat.size} numbers")
        return cls(flat[: LEVELS - 1], flat[LEVELS - 1 :].reshape(CLASSES, len(PAIRS)))


def _differences(images: Singles) -> list[Singles]:
    """For each pair of opposite neighbours, their brightness minus twice the pixel's own."""
    _, c, h, w = images.shape
    light = images[:, 0]
    if c >= 3:
        light = np.floor((light + 2 * images[:, 1] + images[:, 2]) * np.float32(0.25))
    padded = np.pad(light, ((0, 0), (2, 2), (2, 2)), "edge")
    twice = 2 * light
    found = []
    for down, right in PAIRS:
        after = padded[:, 2 + down : 2 + down + h, 2 + right : 2 + right + w]
        before = padded[:, 2 - down : 2 - down + h, 2 - right : 2 - right + w]
        found.append(after + before - twice)
    return found


def _box(values: Singles) -> Singles:
    """Sums over 5 x 5 pixels."""
    _, h, w = values.shape
    padded = np.pad(values, ((0, 0), (2, 2), (2, 2)), "edge")
    tall = padded[:, :h].copy()
    for k in range(1, 5):
        tall += padded[:, k : k + h]
    wide: Singles = tall[..., :w].copy()
    for k in range(1, 5):
        wide += tall[..., k : k + w]
    return wide


def _activity(differences: list[Singles]) -> tuple[Singles, Singles]:
    return _box(np.abs(differences[0])), _box(np.abs(differences[1]))


def _classes(differences: list[Singles], borders: Ints) -> NDArray[np.intp]:
    across, down = _activity(differences)
    activity = across + down
    level = np.zeros(activity.shape, np.uint8)
    for border in borders:
        level += activity > border
    level *= 3
    level += 2 * across > 3 * down
    level += (2 * down > 3 * across).view(np.uint8) * np.uint8(2)
    return level.astype(np.intp)


def fit(decoded: list[Singles], originals: list[Singles]) -> Restorer:
    """The least-squares filter from decoded to original images, both (n, c, h, w) in 1/SUBPIXEL."""
    every = [_differences(images) for images in decoded]
    activities = np.concatenate([np.add(*_activity(d)).ravel()[::7] for d in every])
    ranks = np.linspace(0, 1, LEVELS + 1)[1:-1]
    borders = np.minimum(np.rint(np.quantile(activities, ranks)), 32767).astype(np.int64)
    size = len(PAIRS)
    gram, right = np.zeros((CLASSES, size, size)), np.zeros((CLASSES, size))
    for differences, before, after in zip(every, decoded, originals, strict=True):
        classes = _classes(differences, borders).ravel()
        error = (after - before).mean(axis=1).ravel().astype(np.float64)
        columns = [d.ravel().astype(np.float64) for d in differences]
        for a in range(size):
            right[:, a] += np.bincount(classes, columns[a] * error, minlength=CLASSES)
            for b in range(a, size):
                gram[:, a, b] += np.bincount(classes, columns[a] * columns[b], minlength=CLASSES)
                gram[:, b, a] = gram[:, a, b]
    ridge = 1e-3 * np.trace(gram, axis1=1, axis2=2)[:, None, None] / size + 1e4
    weights = np.linalg.solve(gram + ridge * np.eye(size), right[..., None])[..., 0]
    return Restorer(borders, np.clip(np.rint(weights * 2.0**BITS), -127, 127).astype(np.int64))
