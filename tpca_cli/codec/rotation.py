"""Eigentensors turned among themselves, so that each looks like few of the images.

With V (n, M) the coefficients of n frames, each column divided by its length, frames are A V' with
A = U sqrt(lambda), and for an orthogonal R they are (A R)(V R)' as well: noise in A R costs the same.
Eigentensors mix all images, and with these their sharp and their flat parts. Where there are few images for
each component, turning them back takes fewer bits: variances that differ cost less than their mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BITS = 10
"""Fractional bits of a stored rotation: whatever it is exactly, the space that is spanned is the same."""
MOST = 1 << BITS + 1
ITERATIONS, ENOUGH = 50, 1e-5


def stored_rotation(coefficients: Floats) -> NDArray[np.int16]:
    """The rotation (M, M), in units of 2^-BITS, for frames with these coefficients (n, M)."""
    lengths = np.sqrt((coefficients**2).sum(axis=0))
    there = np.flatnonzero(lengths > 0)
    rotation = np.eye(len(lengths))
    rotation[np.ix_(there, there)] = varimax(coefficients[:, there] / lengths[there])
    return np.rint(rotation * 2.0**BITS).astype(np.int16)


def varimax(loadings: Floats) -> Floats:
    """The orthogonal R (M, M) for which the squares of loadings (n, M) @ R vary most within their columns."""
    rotation, reached = np.eye(loadings.shape[1]), 0.0
    for _ in range(ITERATIONS):
        turned = loadings @ rotation  # (n, M)
        slope = loadings.T @ (turned**3 - turned * (turned**2).mean(axis=0))
        left, sizes, right = np.linalg.svd(slope)
        rotation = left @ right
        if sizes.sum() <= reached * (1 + ENOUGH):
            break
        reached = float(sizes.sum())
    return np.asarray(rotation, np.float64)
