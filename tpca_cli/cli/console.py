"""How a command speaks: the console and its bar; numbers, names and records as text and as JSON."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import click

from tpca_cli.errors import human as human  # for the commands, which take all texts from here
from tpca_cli.errors import printable

if TYPE_CHECKING:
    from tpca_cli.interfaces import Progress

BOLD, RED, YELLOW = "1", "31", "33"
# where the bar stands at the end of each stage, by command: rough, since folders differ
STAGES: dict[str, dict[str, float]] = {
    "encode": {
        "reading headers": 0.02,
        "fitting the basis": 0.15,
        "searching the step": 0.35,
        "encoding": 0.65,
        "projecting": 0.9,
    },
    "fit-basis": {
        "reading headers": 0.05,
        "read images": 0.6,
        "operator": 0.8,
        "coordinates": 0.85,
        "product": 0.9,
        "energies": 0.95,
    },
    "decode": {"decoding": 0.98},
    "inspect": {"measuring": 0.98},
    "merge": {"adding operators": 0.5},
    "verify": {"verifying": 0.5, "comparing": 0.98},
    "repack": {"repacking": 0.95},
}
WORDS = {
    "read images": "reading images",
    "operator": "summing the operator",
    "product": "multiplying",
    "energies": "measuring energies",
}
ANOTHER = 0.5  # of what is left goes to a stage that is not expected


@dataclass
class Console:
    """Where a command speaks: results on stdout, everything else on stderr, progress only on a terminal."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    progress: Progress | None = None  # where stages are reported to, if a person is watching
    _bar: Bar | None = None
    _drawn: Any = None  # the bar on the screen
    _began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long the command has been running."""
        return time.monotonic() - self._began

    @property
    def share(self) -> float:
        """How much of the job is done, as far as a person is watching."""
        return 0.0 if self._bar is None else self._bar.share

    def begin(self, command: str) -> None:
        """Show the bar of a command; does nothing unless a person is watching."""
        if self.quiet or self.as_json or not sys.stderr.isatty():
            return
        from tqdm import tqdm

        tqdm.monitor_interval = 0  # no thread of its own: worker processes are forked
        self._bar, self.progress = Bar(STAGES.get(command, {})), self._advance
        layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left"
        self._drawn = tqdm(
            total=1000, desc=self._bar.label, leave=False, dynamic_ncols=True, smoothing=0, bar_format=layout
        )

    def _advance(self, stage: str, done: int, total: int) -> None:
        """Advance the bar: `done` of `total` in a stage."""
        if self._bar is None:
            return
        before, reached = self._bar.label, 1000 * self._bar.advance(stage, done, total)
        if self._bar.label != before:
            self._drawn.set_description_str(self._bar.label, refresh=False)
            self._drawn.n = reached
            self._drawn.refresh()
        else:
            self._drawn.update(reached - self._drawn.n)

    def close(self) -> None:
        """Take the progress bar off the screen."""
        if self._drawn is not None:
            self._drawn.close()
        self._bar = self._drawn = self.progress = None

    def _echo(self, text: str, mark: str = "") -> None:
        """A line on stderr, above the bar; what stands before the text is shown in yellow."""
        if self._drawn is not None:
            self._drawn.clear()
        click.echo(paint(mark, sys.stderr, YELLOW) + safe(text), err=True)
        if self._drawn is not None:
            self._drawn.refresh()

    def say(self, text: str) -> None:
        """A note on the way: the plan, a choice and its reason."""
        if not self.quiet and not self.as_json:
            self._echo(text)

    def detail(self, text: str) -> None:
        """A note for those who asked for more."""
        if self.verbose:
            self.say(text)

    def warn(self, text: str) -> None:
        """Something the user should know; shown even when quiet."""
        if not self.as_json:
            self._echo(text, "tpca: warning: ")

    def skipped(self, items: Sequence[Any], *, shown: int = 20) -> None:
        """The inputs that were left out (things with `path` and `reason`), as warnings."""
        for item in items if self.verbose else items[:shown]:
            self.warn(f"skipped {printable(item.path)}: {item.reason}")
        if len(items) > shown and not self.verbose:
            self.warn(f"and {len(items) - shown} more skipped (all with --verbose or --json)")

    def result(self, data: Mapping[str, Any], text: str) -> None:
        """The outcome: one JSON object, or a text for people."""
        self.close()
        if self.as_json:
            click.echo(json.dumps(plain(data), allow_nan=False))
        elif not self.quiet:
            click.echo(safe(text))


class Bar:
    """The share of the job that is done, and the words for what is being done.

    Each stage of a command has a part of the bar, in the order of the work. A stage that comes again (another
    group of images, another step to try) says so and takes half of what is left: the bar never goes back.
    """

    def __init__(self, stages: Mapping[str, float]) -> None:
        self.stages = stages
        self.share = 0.0
        self.label = "starting"
        self._stage, self._done = "", 0
        self._start, self._end = 0.0, 0.0
        self._passes: dict[str, int] = {}

    def advance(self, stage: str, done: int, total: int) -> float:
        """Note what the library reports; the share of the whole job, which never falls and stays below 1."""
        stage = re.sub(r" [0-9]+$", "", stage)
        if stage != self._stage or done < self._done:
            self._enter(stage)
        self._done = done
        part = min(done / total, 1.0) if total > 0 else 1.0
        self.share = max(self.share, self._start + (self._end - self._start) * part)
        return self.share

    def _enter(self, stage: str) -> None:
        self._passes[stage] = number = self._passes.get(stage, 0) + 1
        self._stage, self._start = stage, self.share
        self._end = self.stages.get(stage, 0.0)
        if number > 1 or self._end <= self._start:
            self._end = self._start + ANOTHER * (1.0 - self._start) * 0.99
        words = WORDS.get(stage, stage)
        self.label = words if number == 1 else f"{words} (pass {number})"


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
