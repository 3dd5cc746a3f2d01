"""Real to integer and back: one step, decisions by error plus lambda times bits, means."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec import priors
from tpca_cli.codec.entropy import ESCAPE, ROWS, shifts_of

Floats = NDArray[np.float64]

LAMBDA = 0.12
"""Bits are worth this many squared steps."""
FINE = 256.0


def dequantize(q: Floats, steps: Floats | float, classes: NDArray[np.int64]) -> Floats:
    """Values of quantised integers, as integers: the mean of what a class quantises to them."""
    size = np.abs(q)
    offset = priors.OFFSETS.ravel().take(classes * 4 + np.minimum(size, 3).astype(np.int64))
    return np.asarray(np.floor(np.sign(q) * (size - offset / FINE) * steps + 0.5), np.float64)


def decide(ratio: Floats, costs: Floats, classes: NDArray[np.int64], trade: float = LAMBDA) -> Floats:
    """Magnitudes for |value| / step = `ratio`: nearest, one less or zero, whichever costs least."""
    nearest = np.floor(ratio + 0.5)
    flat, width = costs.ravel(), costs.shape[1]
    base = classes * width
    large = classes.max(initial=0) >= ROWS
    shifts = shifts_of(classes) if large else 0
    offsets, middle = priors.OFFSETS.ravel() / FINE, classes * 4

    def cost(q: Floats) -> Floats:
        whole = q.astype(np.int64)
        error = ratio - q + offsets.take(middle + np.minimum(whole, 3))
        tokens = whole >> shifts if large else whole
        return np.asarray(error * error + trade * flat.take(base + np.minimum(tokens, ESCAPE)))

    best, lowest = nearest, cost(nearest)
    for other in (np.maximum(nearest - 1, 0.0), np.zeros_like(nearest)):
        price = cost(other)
        best = np.where(price < lowest, other, best)
        lowest = np.minimum(price, lowest)
    return best
