"""The facts of a file, before anyone decides how to show them, and numbers as words.

`describe` fills `Facts` from a file; `terminal`, `page` and `album` show them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

ALGORITHMS = {
    "operator": "operator (Algorithm 1)",
    "rank1": "rank1 (Algorithm 2)",
    "subspace": "subspace (Algorithm 3)",
}
LANDMARKS = (10, 50, 100, 500)  # the component counts at which the energy is quoted


@dataclass(frozen=True)
class Section:
    """A titled list of (label, value) rows."""

    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Facts:
    """One tpca file, described: `data` for programs, the rest for people."""

    kind: str
    name: str
    headline: str
    sections: tuple[Section, ...]
    parts: tuple[tuple[str, int], ...] = ()  # bytes on disk by part
    values: npt.NDArray[np.float64] | None = None  # the spectrum, falling
    values_name: str = "eigenvalues"
    total: float = 0.0  # what the values sum to when none is left out
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Spectrum:
    """What each component of a basis holds, falling, and what all of them would hold together."""

    name: str
    values: npt.NDArray[np.float64]
    total: float


def percent(part: float, whole: float) -> str:
    """A share with as many digits as it deserves: 3.2 %, 99.98 %, never a false 100 %."""
    share = 100.0 * part / whole if whole > 0 else 0.0
    for digits in (1, 2, 3, 4):
        if share >= 100 or round(share, digits) < 100:
            return f"{share:.{digits}f} %"
    return "> 99.9999 %"


def energies(values: npt.NDArray[np.float64], total: float) -> list[tuple[int, float]]:
    """(M, energy kept by the first M components, as a fraction) at the landmarks and at the end."""
    if total <= 0 or not len(values):
        return []
    kept = np.cumsum(values) / total
    counts = [count for count in LANDMARKS if count < len(values)] + [len(values)]
    return [(count, float(min(kept[count - 1], 1.0))) for count in counts]


def shape_text(sizes: Sequence[int]) -> str:
    """`64 x 64 x 3`."""
    return " x ".join(f"{size:,}" for size in sizes)


def energy_text(values: npt.NDArray[np.float64], total: float) -> str:
    """The energy at the landmarks, in words."""
    return ", ".join(f"{percent(share, 1.0)} in {count:,}" for count, share in energies(values, total))


def samples_text(dtype: str, channels: int) -> str:
    """What the samples of a group of images are."""
    depth = "16-bit" if dtype == "u2" else "8-bit"
    return f"{depth} {('gray', 'gray and alpha', 'color', 'color and alpha')[channels - 1]}"
