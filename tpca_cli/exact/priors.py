"""What the models of exact coding begin with: counters and weights as they were after other folders.

`tools/fit_exact_priors.py` makes the files. A counter is two bytes, its logit and how often it moved, a
weight is one. Most counters never moved, so the files are small.
"""

from __future__ import annotations

import functools
import lzma
from importlib import resources

import numpy as np
from numpy.typing import NDArray

INPUTS, MIXERS = 6, 1 << 12
"""Opinions that are mixed for one bit, and sets of weights to mix them with."""
MODEL = 1
"""The number of the models. A decoder needs those that a block was coded with: newer ones get another."""
UNDECIDED, EQUAL_SHARE = 128, 16
"""The logit of a counter that knows nothing, and a weight that trusts all inputs alike."""

Bytes = NDArray[np.uint8]


def untrained(counters: int) -> Bytes:
    """A model that knows nothing."""
    state = np.zeros(2 * counters + MIXERS * INPUTS, np.uint8)
    state[: 2 * counters : 2] = UNDECIDED
    state[2 * counters :] = EQUAL_SHARE
    return state


@functools.lru_cache(maxsize=4)
def load(name: str, counters: int) -> Bytes:
    """The shipped model of this name."""
    packed = resources.files(__package__).joinpath(f"trained/{name}-{MODEL}.xz").read_bytes()
    state = np.frombuffer(lzma.decompress(packed), np.uint8)
    if state.size != 2 * counters + MIXERS * INPUTS:
        raise RuntimeError(f"the model {name} has {state.size} bytes: run tools/fit_exact_priors.py")
    return state


def packed(state: Bytes, counters: int, patience: int = 30) -> bytes:
    """A model as it is shipped; its counters stay ready to learn a folder's own statistics."""
    kept = state.copy()
    kept[1 : 2 * counters : 2] = np.minimum(kept[1 : 2 * counters : 2], patience)
    unseen = kept[1 : 2 * counters : 2] == 0
    kept[: 2 * counters : 2][unseen] = UNDECIDED
    return lzma.compress(kept.tobytes(), preset=9)
