"""Numbers, names and records as text: for people, and plain values for JSON."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, TextIO

from tpca_cli.errors import human as human  # for the commands, which take all texts from here
from tpca_cli.errors import printable

BOLD, RED, YELLOW = "1", "31", "33"


def paint(text: str, stream: TextIO, style: str) -> str:
    """A text in bold or in a color where `stream` is a terminal and nobody asked for NO_COLOR."""
    plain_terminal = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if not text or plain_terminal or not stream.isatty() else f"\x1b[{style}m{text}\x1b[0m"


def duration(seconds: float) -> str:
    """Seconds for people: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def times(ratio: float) -> str:
    """A ratio of sizes as words that go before a noun: `1/12.5 of`, or `1.3 times` where the data grew."""
    return f"1/{ratio:.1f} of" if ratio >= 1 else f"{1 / max(ratio, 1e-9):.1f} times"


def quality(facts: Mapping[str, Any]) -> str:
    """The pooled PSNR and that of the worst image, and what people see where it was measured."""
    if facts["psnr"] == float("inf"):
        whole = [group["method"] in ("jpeg", "files") for group in facts["groups"]]
        some = "identical pixels, JPEG files bit for bit" if any(whole) else "identical pixels"
        return "every file bit for bit" if all(whole) else some
    decibels = f"{facts['psnr']:.2f} dB (worst image {facts['psnr_min']:.2f} dB)"
    if facts["quality"] is None:
        return decibels
    return f"quality {facts['quality']:.1f} (worst image {facts['quality_min']:.1f}), {decibels}"


def shape(sides: tuple[int, ...] | list[int]) -> str:
    """`8x8x3`."""
    return "x".join(str(side) for side in sides)


def table(facts: Mapping[str, Any]) -> str:
    """One line per fact that is known: the key, and the value in a column of its own."""
    width = max(map(len, facts))
    rows = ((key, _cell(key, value)) for key, value in facts.items() if value is not None)
    return "\n".join(f"{key:{width}} {value}" for key, value in rows)


def _cell(key: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_cell('', item)}" for name, item in value.items())
    if isinstance(value, int) and "bytes" in key:
        return human(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def safe(text: str) -> str:
    """Text that no terminal will obey: whatever is neither printable nor a new line is escaped."""
    return "".join(ch if ch.isprintable() or ch == "\n" else _escaped(ch) for ch in text)


def _escaped(ch: str) -> str:
    byte = ord(ch) - 0xDC00  # a byte that was not UTF-8
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else ch.encode("unicode_escape").decode()


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numpy scalars and arrays, bytes, paths and non-finite numbers included.

    Names are text where they are UTF-8. Where they are not, escapes stand for the odd bytes, and `KEY_bytes`
    beside `KEY` has all bytes in hexadecimal; in a list of names it has None for those that are text.
    """
    if isinstance(value, Mapping):
        shown = {str(key): plain(item) for key, item in value.items()}
        exact = {f"{key}_bytes": _odd_bytes(item) for key, item in value.items()}
        return shown | {key: item for key, item in exact.items() if item is not None}
    if isinstance(value, (bytes, os.PathLike)):
        name = os.fsencode(value)
        return name.decode() if _odd_bytes(name) is None else printable(name)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _odd_bytes(value: Any) -> Any:
    """The names in `value` that are not UTF-8, in hexadecimal; None if there are none."""
    if isinstance(value, (list, tuple)):
        odd = [_odd_bytes(item) for item in value]
        return odd if any(item is not None for item in odd) else None
    if not isinstance(value, (bytes, os.PathLike)):
        return None
    name = os.fsencode(value)
    try:
        name.decode()
    except UnicodeDecodeError:
        return name.hex()
    return None
