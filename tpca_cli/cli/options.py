"""Options that several commands share, and the types they parse."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tpca_cli.cli.console import Console
from tpca_cli.cli.help import complete_files
from tpca_cli.errors import StorageError, UsageError, printable
from tpca_cli.memory import DEFAULT_MEMORY, LEAST_MEMORY

if TYPE_CHECKING:
    from tpca_cli.sources.read_plan import OnError

F = TypeVar("F", bound=Callable[..., Any])

EXIT_SKIPPED = 3
UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]{1,2})?)(?:([kKMGT])(i?B)?)?")
PICTURES = (".png", ".jpg", ".jpeg")


class ByteSize(click.ParamType):  # type: ignore[type-arg]
    """`20M` and `20MiB` are 20 x 1024 x 1024 bytes, `20MB` is 20,000,000; `4096` and `1e6` are bytes."""

    name = "size"

    def __init__(self, least: int = 1) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes, or a usage error."""
        if isinstance(value, int):
            return value
        match = UNIT.fullmatch(str(value))
        base = 1000 if match and match[3] == "B" else 1024
        power = " KMGT".index(match[2].upper()) if match and match[2] else 0
        size = int(float(match[1]) * base**power) if match else 0
        if not 1 <= size < 2**63:
            self.fail(f"{value!r} is not a size such as 500K, 20M, 20MB or 1.5G", param, ctx)
        if size < self.least:
            self.fail(f"{value!r} is too little: give {self.least >> 20}M or more", param, ctx)
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
        match = re.fullmatch(r"([0-9]{1,5})[xX]([0-9]{1,5})", str(value))
        if not match or not (int(match[1]) and int(match[2])):
            self.fail(f"{value!r} is not a size such as 64x64 (height x width)", param, ctx)
        return int(match[1]), int(match[2])


class Number(click.FloatRange):
    """A number within bounds; what is wrong with another is said in words."""

    name = "x"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return float(_within(self, number, value, param, ctx))


class Count(click.IntRange):
    """A whole number within bounds; what is wrong with another is said in words."""

    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or a usage error."""
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", str(value)):
            self.fail(f"{value!r} is not a whole number", param, ctx)
        return int(_within(self, int(value), value, param, ctx))


def _within(
    kind: Number | Count, number: float, given: Any, param: click.Parameter | None, ctx: click.Context | None
) -> float:
    low, high = kind.min, kind.max
    too_low = low is not None and (number <= low if kind.min_open else number < low)
    too_high = high is not None and (number >= high if kind.max_open else number > high)
    if too_low or too_high:
        bounds = []
        if low is not None:
            bounds.append(f"above {low:g}" if kind.min_open else f"at least {low:g}")
        if high is not None:
            bounds.append(f"below {high:g}" if kind.max_open else f"at most {high:g}")
        kind.fail(f"{given} is out of range: it must be {' and '.join(bounds)}", param, ctx)
    return number


class InputFile(click.Path):
    """A file that must be there; a `remote` one may be an address, which is asked for when it is opened."""

    def __init__(self, *, remote: bool = False, allow_dash: bool = False) -> None:
        super().__init__(path_type=Path, allow_dash=allow_dash)
        self.remote = remote

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path or the address, or a usage error."""
        if "://" in str(value):
            from tpca_cli.store import is_remote, location

            if self.remote and is_remote(value):
                return location(value)
        if not os.path.lexists(value) and not (self.allow_dash and str(value) == "-"):
            self.fail(f"no such file: {printable(value)}", param, ctx)
        return super().convert(value, param, ctx)


class Output(click.Path):
    """A file or folder to write: only reading takes addresses."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or a usage error; the path of nothing would be the current folder."""
        if not str(value):
            self.fail(
                "an empty name, as of a variable that is not set ('.' is the current folder)", param, ctx
            )
        if "://" in str(value):
            from tpca_cli.store import is_remote

            if is_remote(value):
                self.fail(
                    f"{printable(value)} is an address, and those are only read from: "
                    "write to a file or folder here, and upload that",
                    param,
                    ctx,
                )
        return super().convert(value, param, ctx)


class OutputFile(Output):
    """A file to write: its folder must be there, and a picture must have an ending that says its format."""

    def __init__(self, endings: Sequence[str] = ()) -> None:
        super().__init__()
        self.endings = tuple(endings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; an error that names the folder, or the endings that are known."""
        path = super().convert(value, param, ctx)
        folder = os.path.dirname(value) or os.curdir
        if not os.path.isdir(folder):
            raise StorageError(f"there is no folder {printable(folder)}: make it first")
        if self.endings and not str(value).lower().endswith(self.endings):
            self.fail(f"{printable(value)} must end in {' or '.join(self.endings)}", param, ctx)
        return path


class FormatChoice(click.Choice[str]):
    """A format by its name or its usual ending, in any case."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The format that is meant."""
        name = str(value).lower()
        return super().convert({"jpg": "jpeg", "tif": "tiff"}.get(name, name), param, ctx)


WRITTEN = ("png", "webp", "tiff", "bmp", "jpeg")
SORTS = ("name", "psnr", "quality", "bytes", "pixels")
INPUT = InputFile(remote=True)


GIVEN = (  # where a value can come from, the strongest last
    click.core.ParameterSource.DEFAULT_MAP,
    click.core.ParameterSource.ENVIRONMENT,
    click.core.ParameterSource.COMMANDLINE,
)


def strength(name: str) -> int:
    """How a parameter was given: 3 on the command line, 2 by a variable, 1 in a configuration file, or 0."""
    source = click.get_current_context().get_parameter_source(name)
    return GIVEN.index(source) + 1 if source in GIVEN else 0


def in_force(**values: Any) -> dict[str, Any]:
    """Options of which only one may be given, by parameter name.

    The command line overrides variables, and these the configuration file, also where options differ.
    """
    given = [name for name, value in values.items() if value not in (None, False)]
    strongest = max(map(strength, given), default=0)
    kept = [name for name in given if strength(name) == strongest]
    if len(kept) > 1:
        names = " and ".join(map(_spelled, kept))
        raise UsageError(f"{names} exclude one another: give one of them")
    unset = {name: False if isinstance(value, bool) else None for name, value in values.items()}
    return unset | {name: values[name] for name in kept}


def refuse_typed(names: Sequence[str], reason: str) -> None:
    """An error for options that are of no use here and stand on the command line.

    What variables or a configuration file say may be meant for other runs of the command.
    """
    wrong = ", ".join(_spelled(name) for name in names if strength(name) == len(GIVEN))
    if wrong:
        raise UsageError(reason.format(wrong))


def _spelled(name: str) -> str:
    """An option as it was given: `--psnr`, or the variable."""
    context = click.get_current_context()
    (option,) = (each for each in context.command.params if each.name == name)
    variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar or ()
    shown = (each for each in variables if strength(name) == 2 and each in os.environ)
    return next(shown, option.opts[0])


def common_options(function: F) -> F:
    """`--json`, `--quiet`, `--verbose`, handed to the command as one `console`."""

    import functools

    @functools.wraps(function)
    def with_console(*args: Any, as_json: bool, quiet: bool, verbose: bool, **kwargs: Any) -> Any:
        console = Console(as_json, quiet, verbose)
        console.begin(click.get_current_context().info_name or "")
        try:
            return function(*args, console=console, **kwargs)
        finally:
            console.close()

    more = click.option("-v", "--verbose", is_flag=True, help="Say more; show tracebacks of internal errors.")
    decorated = more(with_console)
    decorated = click.option("-q", "--quiet", is_flag=True, help="Say only warnings and errors.")(decorated)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object, also on errors.")(  # type: ignore[return-value]
        decorated
    )


def write_bytes(data: bytes) -> None:
    """Bytes to stdout, also where it is a text stream of a program that embeds this one."""
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(os.fsdecode(data))
    else:
        sys.stdout.flush()
        binary.write(data)


def listed_names(path: Path) -> list[bytes]:
    """The names in a file, or on stdin for `-`: one on each line, or ended by NUL."""
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise StorageError.of(error, path, "read the list") from error
    return [line for line in (data.split(b"\0") if b"\0" in data else data.splitlines()) if line]


def pattern_options(function: F) -> F:
    """`--include` and `--exclude`, handed to the command with its `sources`."""
    import functools

    @functools.wraps(function)
    def with_patterns(*args: Any, include: tuple[str, ...], exclude: tuple[str, ...], **kwargs: Any) -> Any:
        return function(*args, **kwargs | {"sources": chosen(kwargs["sources"], include, exclude)})

    return include_option(exclude_option(with_patterns))  # type: ignore[return-value]


def chosen(sources: Sequence[str], include: Sequence[str], exclude: Sequence[str]) -> Sequence[str]:
    """Sources with patterns, where there are any."""
    if not include and not exclude:
        return sources
    if not sources:
        raise UsageError("--include and --exclude choose among the images of a SOURCE: name one")
    from tpca_cli.sources.scan import Sources  # late: most runs have none

    return Sources(sources, include, exclude)


include_option = click.option(
    "--include",
    multiple=True,
    metavar="GLOB",
    help="Of SOURCE, only images with a matching name, folder or part of the name; may be repeated.",
)
exclude_option = click.option(
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="Of SOURCE, leave out what matches, such as '*.gif', 'thumbs' or 'old/*'; may be repeated.",
)
sort_option = click.option(
    "--sort",
    type=click.Choice([*SORTS, *(f"-{name}" for name in SORTS)]),
    metavar="|".join(SORTS),
    help="The order of the list; -psnr and so on for the largest first. Images that share a block share its "
    "bytes by their pixels.",
)
sources_argument = click.argument(
    "sources", metavar="SOURCE...", nargs=-1, required=True, shell_complete=complete_files
)
any_sources_argument = click.argument("sources", metavar="SOURCE...", nargs=-1, shell_complete=complete_files)
output_option = click.option("-o", "--output", required=True, type=OutputFile(), help="The file to write.")
force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")
memory_option = click.option(
    "--memory", type=ByteSize(), default="2G", show_default=True, help="Working memory to stay within."
)
images_memory_option = click.option(
    "--memory",
    type=ByteSize(LEAST_MEMORY),
    default=DEFAULT_MEMORY,
    show_default="1G",
    help="Memory of all processes to stay within; an image that alone takes more is left out, or refused.",
)
workers_option = click.option(
    "--workers",
    type=Count(1, 1024),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="all cores",
    help="Threads that read and code images.",
)
size_option = click.option(
    "--size", type=FrameSize(), metavar="HxW", help="Resize every image to this height and width first."
)
tile_option = click.option("--tile", type=Count(2, 256), help="Cut images into tiles of T x T pixels.")


def _pixel_limit(says: str) -> Callable[[F], F]:
    return click.option("--max-pixels", type=Count(1), default=250_000_000, show_default=True, help=says)


max_pixels_option = _pixel_limit("Skip images with more pixels than this.")
claimed_pixels_option = _pixel_limit(
    "Refuse an archive with a larger image, or that takes as much memory as one."
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
    type=Number(0),
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
select_option = click.option(
    "--select", multiple=True, metavar="GLOB", help="Only images whose name matches; may be repeated."
)
format_option = click.option(
    "--format",
    type=FormatChoice([*WRITTEN, "same"]),
    default=None,
    help="File format, as for decode: by default png, or the source file where the archive holds it.",
)
fewer_components_option = click.option(
    "--components", type=Count(1), metavar="M", help="Use only the first M components: blurrier."
)
linked_basis_option = click.option(
    "--basis", type=INPUT, help="The basis file of an archive made with --link-basis."
)
method_option = click.option(
    "--method",
    type=click.Choice(["auto", "operator", "rank1", "subspace"]),
    default="auto",
    show_default=True,
    help="The kind of basis to fit.",
)


@dataclass(frozen=True)
class Work:
    """What every run over sources takes: who works, with what, what it refuses, the lock of its output."""

    memory: int
    workers: int
    cluster: str | None
    max_pixels: int
    on_error: OnError
    lock_wait: float
    force: bool
    dry_run: bool


def work_options(function: F) -> F:
    """The options of `Work`, handed to the command as one `work`; `--memory` is for each to define."""
    import functools

    @functools.wraps(function)
    def with_work(*args: Any, **kwargs: Any) -> Any:
        work = Work(**{field.name: kwargs.pop(field.name) for field in fields(Work)})
        return function(*args, work=work, **kwargs)

    decorated: Any = with_work
    for option in (
        dry_run_option,
        force_option,
        lock_wait_option,
        on_error_option,
        max_pixels_option,
        cluster_option,
        workers_option,
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
