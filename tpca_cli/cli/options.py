"""Options that several commands share, the types they parse, and the console they report to."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from tpca_cli.cli.text import plain
from tpca_cli.errors import printable

F = TypeVar("F", bound=Callable[..., Any])

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
EXIT_SKIPPED = 3


class ByteSize(click.ParamType):  # type: ignore[type-arg]
    """`20M`, `1.5G`, `4096`: a positive number of bytes, units of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes, or a usage error."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)", str(value))
        size = int(float(match[1]) * UNITS[match[2]]) if match else 0
        if size < 1:
            self.fail(f"{value!r} is not a size such as 500K, 20M or 1.5G", param, ctx)
        return size


class FrameSize(click.ParamType):  # type: ignore[type-arg]
    """`64x64`: height and width in pixels."""

    name = "HxW"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Height and width, or a usage error."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", str(value))
        if not match or not (int(match[1]) and int(match[2])):
            self.fail(f"{value!r} is not a size such as 64x64 (height x width)", param, ctx)
        return int(match[1]), int(match[2])


@dataclass
class Console:
    """Where a command speaks: results on stdout, everything else on stderr, progress only on a terminal."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    _bars: dict[str, Any] = field(default_factory=dict)

    def progress(self, stage: str, done: int, total: int) -> None:
        """Advance the bar of a stage; does nothing unless a person is watching."""
        if self.quiet or self.as_json or not sys.stderr.isatty():
            return
        bar = self._bars.get(stage)
        if bar is None:
            from tqdm import tqdm

            self.close()
            bar = self._bars[stage] = tqdm(total=total, desc=stage, leave=False, dynamic_ncols=True)
        bar.update(done - bar.n)
        if done >= total:
            bar.close()
            del self._bars[stage]

    def close(self) -> None:
        """Take the progress bar off the screen."""
        for bar in self._bars.values():
            bar.close()
        self._bars.clear()

    def say(self, text: str) -> None:
        """A note on the way: the plan, a choice and its reason."""
        if not self.quiet and not self.as_json:
            self.close()
            click.echo(text, err=True)

    def detail(self, text: str) -> None:
        """A note for those who asked for more."""
        if self.verbose:
            self.say(text)

    def warn(self, text: str) -> None:
        """Something the user should know; shown even when quiet."""
        if not self.as_json:
            self.close()
            click.echo(f"tpca: warning: {text}", err=True)

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
            click.echo(text)


def common_options(function: F) -> F:
    """`--json`, `--quiet`, `--verbose`, handed to the command as one `console`."""

    import functools

    @functools.wraps(function)
    def with_console(*args: Any, as_json: bool, quiet: bool, verbose: bool, **kwargs: Any) -> Any:
        console = Console(as_json, quiet, verbose)
        try:
            return function(*args, console=console, **kwargs)
        finally:
            console.close()

    decorated = click.option("--verbose", is_flag=True, help="Say more; show tracebacks of internal errors.")(
        with_console
    )
    decorated = click.option("--quiet", is_flag=True, help="Say only warnings and errors.")(decorated)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object, also on errors.")(  # type: ignore[return-value]
        decorated
    )


sources_argument = click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
output_option = click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The file to write."
)
force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")
memory_option = click.option(
    "--memory", type=ByteSize(), default="2G", show_default=True, help="Working memory to stay within."
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="all cores",
    help="Threads that read and code images.",
)
size_option = click.option(
    "--size", type=FrameSize(), help="Resize every image to this height and width first."
)
tile_option = click.option(
    "--tile", type=click.IntRange(2, 256), help="Cut images into tiles of T x T pixels."
)
max_pixels_option = click.option(
    "--max-pixels",
    type=click.IntRange(1),
    default=250_000_000,
    show_default=True,
    help="Skip images with more pixels than this.",
)
claimed_pixels_option = click.option(
    "--max-pixels",
    type=click.IntRange(1),
    default=250_000_000,
    show_default=True,
    help="Refuse an archive with a larger image, or that takes as much memory as one.",
)
on_error_option = click.option(
    "--on-error",
    type=click.Choice(["skip", "fail"]),
    default="skip",
    show_default=True,
    help="What to do with an image that cannot be used.",
)
lock_wait_option = click.option(
    "--lock-wait",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait this long for another run that holds the output.",
)
cluster_option = click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Work on a Dask cluster: tcp://HOST:PORT, a scheduler file, or local:N for N processes here.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
