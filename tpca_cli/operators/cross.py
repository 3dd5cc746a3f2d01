"""X X' between two sets of frames, exact: a block of the N x N operator that needs no other frames."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

SLAB = 1024  # pixels multiplied together: 1024 * 128^2 = 2^24, so that no sum leaves the exact integers


def cross(one: npt.NDArray[np.unsignedinteger], other: npt.NDArray[np.unsignedinteger]) -> Integers:
    """a_mn = X_im X_in  (eq 4C5) for frames m of one set and n of another, as int64.

    Bytes are shifted by 128 and multiplied in float32. T r = Y (Z'r) is checked for a random vector r of
    signs: a BLAS that computes in less precision than it claims is found, and float64 is used instead.
    """
    shift = 1 << (8 * one.dtype.itemsize - 1)
    y, z = (_shifted(frames, shift) for frames in (one, other))
    narrow = one.dtype.itemsize == 1
    total = _product(y.astype(np.float32), z.astype(np.float32)) if narrow else _product(y, z)
    signs = np.random.default_rng(len(z)).integers(0, 2, len(z)) * 2.0 - 1.0
    if narrow and not np.array_equal(total @ signs, y @ (signs @ z)):
        total = _product(y, z)
    # x = y + s, so x x' = y y' + s (y + y') + s^2, summed over the pixels
    sums, others = (rows.sum(axis=1).astype(np.int64) for rows in (y, z))
    total += shift * (sums[:, None] + others) + shift**2 * y.shape[1]
    return total


def _shifted(frames: npt.NDArray[np.unsignedinteger], shift: int) -> npt.NDArray[np.float64]:
    rows = frames.reshape(len(frames), prod(frames.shape[1:]))
    shifted: npt.NDArray[np.float64] = np.subtract(rows, shift, dtype=np.float64)
    return shifted


def _product(y: npt.NDArray[np.floating], z: npt.NDArray[np.floating]) -> Integers:
    """Y Z', slab by slab."""
    total = np.zeros((len(y), len(z)), np.int64)
    for start in range(0, y.shape[1], SLAB):
        slab = slice(start, start + SLAB)
        total += (y[:, slab] @ z[:, slab].T).astype(np.int64)
    return total
