"""The numbers that every coder starts from, fitted once to photographs of many kinds and sizes.

They make small archives small: nothing of this is stored in an archive. They are part of the format: changing
one number changes what every existing block means, so `priors.json` is frozen with format version 1, and
`docs/FORMAT.md` (section 4) says how an archive would have to name another set.
`tools/fit_priors.py` fits one to folders of images.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, fields
from importlib import resources

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EXPECTED_ZERO = 80
"""The place in `expected` of components whose mean size is one quantiser step."""

FAMILIES, ROWS, TOKENS = 3, 48, 16
"""The tables of tokens: first channel, colors and lowest components; rows of each; tokens of a row."""

SHAPES: dict[str, tuple[int, ...]] = {
    "WEIGHTS": (6, 2, 38),
    "EXPECTED": (256,),
    "TABLES": (FAMILIES, ROWS, TOKENS),
    "FLAG_TABLES": (112, 2),
    "FLAG_WEIGHTS": (16, 5),
    "OFFSETS": (112, 4),
    "POSITION": (8, 8, 2, 2),
    "ADJUST": (97,),
    "LOWEST_WEIGHTS": (2, 5),
}
"""The arrays of `priors.json`, by the names of docs/FORMAT.md."""


@dataclass(frozen=True, eq=False)
class Priors:
    """One set of numbers: integers, held as floats because they are multiplied with floats."""

    weights: Floats
    """(kind, phase, slot) how much a magnitude in a slot counts; the last slot is the prior; 1/1024."""
    expected: Floats
    """Prior magnitude (1/1024) by scale code minus step code, from -EXPECTED_ZERO, in eighth octaves."""
    tables: Floats
    """(family, class, token) frequencies of 2^16."""
    flag_tables: Floats
    """(class, flag) frequencies of 2^16."""
    flag_weights: Floats
    """(kind, feature) how much a feature counts for a zone flag; 1/1024."""
    offsets: Floats
    """(class, magnitude 0..3) by how much reconstruction moves toward zero; 1/256 of a step."""
    position: Floats
    """(smaller, larger of i and j, color, phase) factor of the expected magnitude; 1/64."""
    adjust: Floats
    """Correction of the expected magnitude by its distance from the prior; 1/64 octave."""
    lowest_weights: Floats
    """(color, feature) how much evidence counts for the lowest components; 1/1024."""

    @classmethod
    def from_json(cls, text: str) -> Priors:
        """The set that `to_json` wrote."""
        found = json.loads(text)
        arrays = {name.lower(): np.array(found[name], np.float64) for name in SHAPES}
        for name, shape in SHAPES.items():
            if arrays[name.lower()].shape != shape:
                raise ValueError(f"{name} has shape {arrays[name.lower()].shape}, not {shape}")
        return cls(**arrays)

    def to_json(self) -> str:
        """Named arrays, one row per line."""
        rows = (_rows(getattr(self, field.name)) for field in fields(self))
        parts = (f'  "{field.name.upper()}": {text}' for field, text in zip(fields(self), rows, strict=True))
        return "{\n" + ",\n".join(parts) + "\n}\n"


def _rows(array: Floats, indent: str = "  ") -> str:
    """An array as JSON; rows that are too long for a line are broken after 16 numbers."""
    if array.ndim > 1:
        parts = [_rows(part, indent + "  ") for part in array]
    else:
        width = array.size if array.size <= 40 else 16
        parts = [", ".join(str(int(x)) for x in array[at : at + width]) for at in range(0, array.size, width)]
    if len(parts) == 1:
        return f"[{parts[0]}]"
    separator = f",\n{indent}  "
    return f"[\n{indent}  {separator.join(parts)}\n{indent}]"


@functools.lru_cache(maxsize=1)
def shipped() -> Priors:
    """The set that belongs to the format, read from the package when it is first asked for."""
    return Priors.from_json(resources.files(__package__).joinpath("priors.json").read_text())
