"""Numbers, names and records as text: for people, and plain values for JSON."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from tpca_cli.errors import printable


def human(count: float) -> str:
    """Bytes for people: 812 B, 3.4 kB, 1.2 MB (units of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def times(ratio: float) -> str:
    """A ratio of sizes as words that go before a noun: `1/12.5 of`, or `1.3 times` where the data grew."""
    return f"1/{ratio:.1f} of" if ratio >= 1 else f"{1 / max(ratio, 1e-9):.1f} times"


def quality(psnr: float, worst: float) -> str:
    """The pooled PSNR and that of the worst image."""
    if psnr == float("inf"):
        return "identical pixels"
    return f"{psnr:.2f} dB (worst image {worst:.2f} dB)"


def shape(sides: tuple[int, ...] | list[int]) -> str:
    """`8x8x3`."""
    return "x".join(str(side) for side in sides)


def table(facts: Mapping[str, Any]) -> str:
    """One line per fact that is known: the key, and the value in a column of its own."""
    width = max(map(len, facts))
    return "\n".join(f"{key:{width}} {value}" for key, value in facts.items() if value is not None)


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numpy scalars and arrays, bytes paths and non-finite numbers included."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return printable(value)
    if isinstance(value, os.PathLike):
        return printable(os.fspath(value))
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
