"""What the pictures of golden archives show, made by integer arithmetic: the same on every machine."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


def picture(h: int, w: int, c: int, seed: int, peak: int = 255) -> Any:
    """Shading, a disk, stripes and grain, from integers alone."""
    y, x = np.mgrid[0:h, 0:w].astype(np.int64)
    planes = []
    for k in range(c):
        shade = (3 + seed % 5) * x + (2 + seed % 3) * y + 40 * k
        disk = 70 * ((y - h // 2) ** 2 + (x - (seed * 7) % w) ** 2 < (5 + seed % 7) ** 2)
        stripes = 25 * (((x * (1 + seed % 2) + y * (seed % 3)) // 3) % 2)
        grain = ((x * 73856093) ^ (y * 19349663) ^ (seed * 83492791 + k)) % 23
        planes.append((30 + shade // 2 + disk + stripes + grain) % 256 if k != 3 else 255 - shade % 64)
    stack = np.stack(planes, axis=-1)  # (h, w, c)
    return (
        stack.astype(np.uint8) if peak == 255 else (stack * 257 + (x * y)[..., None] % 257).astype(np.uint16)
    )


def tinted(h: int, w: int, seed: int) -> Any:
    """Colors that go with brightness, differently to the left and to the right."""
    gray = picture(h, w, 1, seed).astype(np.int64)[..., 0]
    left = np.arange(w) < w // 2
    planes = [
        gray,
        np.where(left, gray // 2 + 40, 255 - gray // 3),
        np.where(left, 200 - gray // 2, gray // 4 + 90),
    ]
    return (np.stack(planes, axis=-1) + picture(h, w, 3, seed + 1) % 8).clip(0, 255).astype(np.uint8)


def noise(h: int, w: int, c: int, seed: int) -> Any:
    """Values that no table expects."""
    raw = hashlib.shake_256(str(seed).encode()).digest(h * w * c)
    return (np.frombuffer(raw, np.uint8) // 128 * 255).astype(np.uint8).reshape(h, w, c)
