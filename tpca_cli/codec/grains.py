"""The steps that coefficients of the source had already: those of JPEG files, in tiles that are theirs.

A picture that was a JPEG file has coefficients near whole multiples of the steps in its table, its *grains*,
if tiles, cosines and colors are those of JPEG. A step below a grain then costs bits and gains nothing; the
grain itself, in its place, leaves hardly an error. Grains are found by how close values are to multiples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.contexts import MOST_HALVES
from tpca_cli.codec.scan_order import Ints
from tpca_cli.errors import FileRefused

Floats = NDArray[np.float64]

NEARER = 0.4
"""The squares of distances from multiples of a grain are at most this share of those of any values."""
LARGEST = 121
"""Of a table of steps, that is looked for."""
FEWEST = 12
"""Values beyond half a grain that show it."""
LOOKED_AT = 512
"""Tiles that grains are looked for in."""
MUCH = 0.5
"""Grains serve steps whose square times this is more than the mean square that they are off by."""
BIT_VALUES = 0.8, 0.5
"""With grains a bit is worth this much of its price, with steps of the least error, or made for people."""
WHOLE = 4
"""Halves of a grain below which steps of the least squared error become it: whole multiples leave little."""


@dataclass(frozen=True, eq=False)
class Grains:
    """The grain of each component, 0 where there is none, and the mean square by which values are off it."""

    sizes: Floats  # (M,)
    off: Floats  # (M,)

    def for_steps(self, steps: NDArray[Any]) -> Floats:
        """Those that are worth having at these steps (M,), in the same units, and 0."""
        return np.where(self.off <= MUCH * steps**2, self.sizes, 0.0)


def find_grains(values: NDArray[Any], units: Floats) -> Grains:
    """Grains of coefficients (M, tiles), each a whole number times the unit of its component (M,)."""
    some = values[:, :: max(values.shape[1] // LOOKED_AT, 1) | 1]
    sizes = np.abs(some / units[:, None]).astype(np.float32)  # (M, n)
    largest = sizes.max(axis=1, initial=0)
    best, found, off = np.full(len(sizes), NEARER / 12), np.zeros(len(sizes)), np.zeros(len(sizes))
    for grain in range(2, LARGEST + 1):
        rows = np.flatnonzero(largest > 0.45 * grain)
        share = sizes[rows] / np.float32(grain)
        squares = (share - np.rint(share)) ** 2
        clear = share > 0.45
        counts = clear.sum(axis=1)
        near = (squares * clear).sum(axis=1) / np.maximum(counts, 1)
        hits = (near < best[rows]) & (counts >= FEWEST)
        rows = rows[hits]
        best[rows], found[rows], off[rows] = near[hits], grain, squares[hits].mean(axis=1) * grain**2
    return Grains(found * units, off * units**2)


def read_grains(
    meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], kept: int
) -> tuple[Ints | None, int]:
    """The grains that a coder of so many components has, if any, and its setting `whole`."""
    whole = int(meta.get("whole", 0))
    grains = np.asarray(arrays["grains"]).astype(np.int64) if "grains" in arrays else None
    if not 0 <= whole <= (0 if grains is None else MOST_HALVES):
        raise FileRefused(f"coder has values of whole grains below {whole} halves of them")
    if grains is not None and grains.shape != (kept,):
        raise FileRefused(f"coder has grains {grains.shape} of {kept} components")
    return grains, whole
