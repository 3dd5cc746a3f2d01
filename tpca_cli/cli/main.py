"""The `tpca` command: finds the subcommand, runs it, and turns every ending into an exit code.

Subcommands are imported when they are called, so that `tpca inspect` does not pay for what `tpca encode`
needs. Errors become one line on stderr, or one JSON object on stdout with `--json`; signals become
exceptions, so that every temporary file is removed on the way out.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import click

from tpca_cli.cli import help
from tpca_cli.cli.console import RED, YELLOW, paint, plain, safe
from tpca_cli.errors import Interrupted, TpcaError, UsageError, printable

COMMANDS = {
    "fit-basis": "learn a basis from images",
    "encode": "compress images into one archive",
    "decode": "restore the images of an archive",
    "ls": "list the images of an archive",
    "cat": "write one image of an archive to stdout",
    "export": "write an archive as WebDataset shards or Parquet tables",
    "mount": "show the images of an archive as files in a folder",
    "diff": "show what differs between archives, or an archive and a folder",
    "inspect": "show what a tpca file holds",
    "merge": "add the operators of disjoint shards and solve",
    "verify": "check an archive, also against its sources",
    "repack": "rewrite an archive without waste, pixels identical",
}

# what people type for a command by the habit of other tools
ALIASES = {
    **dict.fromkeys(("compress", "pack", "create", "append", "add"), "encode"),
    **dict.fromkeys(("decompress", "extract", "unpack", "restore"), "decode"),
    **dict.fromkeys(("info", "show"), "inspect"),
    **dict.fromkeys(("check", "test"), "verify"),
    **dict.fromkeys(("list", "dir", "names"), "ls"),
    **dict.fromkeys(("print", "get"), "cat"),
    "compare": "diff",
    **dict.fromkeys(("fit", "learn", "train"), "fit-basis"),
}

_NO_MEMORY = "out of memory: try a smaller --memory, fewer --workers or smaller tiles"
_received: list[int] = []

EPILOG = """\b
Examples:
  tpca encode photos/ -o photos.h5 --psnr 36
  tpca decode photos.h5 -o restored/
  tpca inspect photos.h5

Every option can be set by a variable (TPCA_MEMORY=4G, or TPCA_ENCODE_PSNR=36
for one command) and, below that, in tpca.toml ([encode] psnr = 36).

Exit codes: 0 ok, 1 error, 2 usage, 3 finished but inputs were skipped, 4 file refused,
5 disk or system error, 6 output exists or is in use, 128+n ended by signal n."""


class LazyGroup(click.Group):
    """A group that imports a command's module on first use and gives each option its variables."""

    context_class = help.Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, from its module; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"tpca_cli.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        if isinstance(command, help.Command) and "brief" not in (each.name for each in command.params):
            command.context_settings["help_option_names"] = ["--help"]
            command.params.append(_brief_option())
        for name, option in options_of(command).items():
            if option.envvar is None:
                option.envvar = [_variable(f"{cmd_name}-{name}"), _variable(name)]
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; of a reader that went away click itself would make exit 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            return _stdout_failed(error)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments begin with; a usage error that names the one that may be meant."""
        try:
            found = super().resolve_command(ctx, args)
            path = None if ctx.resilient_parsing or {"-h", "--help"} & set(args) else _configuration(ctx)
            if path is not None and found[0] is not None:
                self._configure(path, found[0], ctx)
            return found
        except click.UsageError as error:
            import difflib  # late: only a mistake needs it

            near = difflib.get_close_matches(args[0], COMMANDS, 1) or [ALIASES.get(args[0].lower(), "")]
            if not near[0] or "mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", error.ctx) from None

    def _configure(self, path: Path, name: str, ctx: click.Context) -> None:
        """Give the command `name` what the configuration file says about it, below variables."""
        from tpca_cli.cli import config  # late: most people have no such file

        commands = {each: self.get_command(ctx, each) for each in COMMANDS}
        options = {each: options_of(command) for each, command in commands.items() if command is not None}
        settings = config.settings(path, name, options, ctx)
        ctx.default_map = {name: settings}
        ctx.ensure_object(dict)["json"] = settings.get("as_json")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands on the help page, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _configuration(ctx: click.Context) -> Path | None:
    """The file with settings: a named one (none for an empty name), else one in its usual places."""
    named = ctx.params.get("config")
    named = os.environ.get("TPCA_CONFIG") if named is None else named
    if named is not None:
        return Path(named) if named else None
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    for path in (Path("tpca.toml"), Path(home, "tpca", "tpca.toml")):
        if path.is_file():
            if path.stat().st_uid in (os.geteuid(), 0):
                return path
            raise UsageError(
                f"{printable(path)} belongs to another user: name it with --config to use it, or set "
                "TPCA_CONFIG to nothing"
            )
    return None


def options_of(command: click.Command) -> dict[str, click.Option]:
    """The options of a command that have a long name, by this name without its dashes."""
    return {
        name[2:]: option
        for option in command.params
        if isinstance(option, click.Option)
        for name in option.opts
        if name.startswith("--")
    }


def _variable(name: str) -> str:
    """`encode-max-bytes` -> `TPCA_ENCODE_MAX_BYTES`."""
    return f"TPCA_{name.replace('-', '_').upper()}"


def _set(*names: str) -> bool:
    """Whether one of these variables says yes."""
    return any(os.environ.get(_variable(name), "").lower() not in ("", "0", "false", "no") for name in names)


def _brief_option() -> click.Option:
    """`-h` of a command: the short form of its help."""

    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing and isinstance(ctx.command, help.Command):
            click.echo(ctx.command.brief(ctx))
            ctx.exit()

    about = "Show the options on one screen and exit."
    return click.Option(
        ["-h", "brief"], is_flag=True, is_eager=True, expose_value=False, callback=show, help=about
    )


def _versions(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """`--version`: the program, then Python and the libraries that it works with here."""
    if not value or ctx.resilient_parsing:
        return
    from tpca_cli.cli.versions import versions

    click.echo(versions())
    ctx.exit()


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_versions,
    help="Show the version, and those of the libraries, and exit.",
)
@click.option(
    "--config",
    metavar="FILE",
    help="Read options from this file instead of tpca.toml here or in ~/.config/tpca.",
)
def tpca(config: str | None) -> None:
    """Compress folders of images with a basis learned from the folder itself (tensor PCA)."""


def main(argv: list[str] | None = None) -> None:
    """The entry point of the console script: never returns, never shows a traceback unasked."""
    arguments = sys.argv[1:] if argv is None else argv
    _open_closed_streams()
    _install_signal_handlers()
    code = _run(arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _stdout_failed(error)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Let streams that were closed before we began lead nowhere: no file that we open may take their place,
    since what is said or printed would go into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # the lowest number that is free is this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            stream = open(os.devnull, mode, errors="backslashreplace")  # noqa: SIM115  for as long as we run
            setattr(sys, name, stream)


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments or _set(
        "json", *(f"{name}-json" for name in arguments if name in COMMANDS)
    )
    found: dict[str, Any] = {}  # what commands tell about themselves while they are read
    try:
        result = tpca.main(args=arguments, prog_name="tpca", standalone_mode=False, obj=found)
        return result if isinstance(result, int) else 0
    except BaseException as error:
        # a signal that arrives during an import surfaces as ImportError: what ended us is the signal
        as_json = as_json or bool(found.get("json"))
        return _ending(Interrupted(_received[0]) if _received else error, arguments, as_json)


def _ending(failure: BaseException, arguments: list[str], as_json: bool) -> int:
    """Report a failure and give its exit code."""
    try:
        raise failure
    except click.ClickException as error:
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f" (see '{error.ctx.command_path} --help')"
        if not arguments or isinstance(error, click.exceptions.NoArgsIsHelpError):
            click.echo(error.format_message(), err=True)
            return 2
        return _report(error.format_message() + hint, 2, as_json)
    except TpcaError as error:
        return _report(str(error), error.exit_code, as_json, error.skipped)
    except Interrupted as stop:
        return _report(f"stopped by {signal.Signals(stop.signum).name}", stop.exit_code, as_json)
    except (click.Abort, KeyboardInterrupt):
        return _report("stopped by SIGINT", 130, as_json)
    except MemoryError:
        return _report(_NO_MEMORY, 1, as_json)
    except BrokenPipeError as error:
        return _stdout_failed(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _report(f"{where}{error.strerror or error}", 5, as_json)
    except Exception as error:
        if isinstance(error, ImportError) and "failed to map segment" in str(error):
            return _report(_NO_MEMORY, 1, as_json)  # of the loader of libraries
        if {"-v", "--verbose"} & set(arguments):
            traceback.print_exc()
        message = f"internal error: {type(error).__name__}: {error} (run with --verbose for the traceback)"
        return _report(message, 1, as_json)


def _report(message: str, code: int, as_json: bool, skipped: tuple[tuple[bytes, str], ...] = ()) -> int:
    """One line on stderr after those for skipped inputs, or one JSON object on stdout."""
    line = safe(" ".join(message.split("\n")))
    try:
        if as_json:
            import json

            data: dict[str, object] = {"error": line, "code": code}
            if skipped:
                data["skipped"] = [{"path": path, "reason": reason} for path, reason in skipped]
            print(json.dumps(plain(data)), flush=True)
        else:
            for path, reason in skipped:
                mark = paint("tpca: warning: ", sys.stderr, YELLOW)
                print(mark + safe(f"skipped {printable(path)}: {reason}"), file=sys.stderr)
            print(paint("tpca: ", sys.stderr, RED) + line, file=sys.stderr, flush=True)
    except OSError:
        pass
    return code


def _stdout_failed(error: OSError) -> int:
    """Nobody reads our output any more (a closed pipe), or it has no room: end without noise."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    if error.errno == errno.EPIPE:
        return 128 + signal.SIGPIPE
    return _report(f"cannot write to stdout: {error.strerror}", 5, as_json=False)


def _install_signal_handlers() -> None:
    def stop(signum: int, frame: FrameType | None) -> None:
        # a second signal must not break the cleanup that the first one started
        for each in handled:
            signal.signal(each, signal.SIG_IGN)
        _received.append(signum)
        raise Interrupted(signum)

    def forgotten(unraisable: Any) -> None:
        # Python prints and forgets what is raised while it removes an object: raise it again right after
        if isinstance(unraisable.exc_value, MemoryError):
            return  # the end of a thread, which who waits for it reports
        if not isinstance(unraisable.exc_value, Interrupted):
            sys.__unraisablehook__(unraisable)
            return
        for each in handled:
            signal.signal(each, stop)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), _received[-1]))
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    handled = [signal.SIGTERM, signal.SIGHUP]
    # a shell starts background jobs with SIGINT ignored: leave it so
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        handled.append(signal.SIGINT)
    for each in handled:
        signal.signal(each, stop)
    sys.unraisablehook = forgotten
    # a file-size limit then shows as EFBIG, which we report, instead of a silent death
    if hasattr(signal, "SIGXFSZ"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
