"""`tpca diff`: what differs between two archives, or an archive and a folder."""

from __future__ import annotations

from pathlib import Path

import click

from tpca_cli.cli import options
from tpca_cli.cli.console import Console
from tpca_cli.cli.help import Command, complete_files
from tpca_cli.errors import UsageError, printable

EPILOG = """\b
Examples:
  tpca diff photos.h5 photos/
  tpca diff photos.h5 copy.h5
  tpca diff photos.h5 copy.h5 --decode --json
  tpca diff photos.h5 photos/ --exclude '*.gif'

Exit codes: 0 nothing differs; 3 something does, or a file could not be read; 4 an archive is damaged."""


@click.command("diff", cls=Command, epilog=EPILOG)
@click.argument("first", metavar="A", shell_complete=complete_files)
@click.argument("second", metavar="B", shell_complete=complete_files)
@click.option("--decode", is_flag=True, help="Of two archives, compare the decoded pixels as well.")
@click.option("--basis", type=options.INPUT, help="The basis file of archives made with --link-basis.")
@options.include_option
@options.exclude_option
@options.claimed_pixels_option
@options.workers_option
@options.common_options
def command(
    console: Console,
    first: str,
    second: str,
    decode: bool,
    basis: Path | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    max_pixels: int,
    workers: int,
) -> int:
    """Show what differs between A and B: two archives, or an archive and a SOURCE as encode takes it.

    Images are matched by name. They differ when they were made from different source files or, in two
    archives, have another size, mode, quality or metadata. Patterns choose among the names of both. '-'
    stands before what only A has, '+' before what only B has, '!' before what both have and differs.
    """
    from tpca_cli.decode.diff import diff, is_archive
    from tpca_cli.sources.scan import Sources

    sides = [Sources([side], include, exclude) for side in (first, second)]
    if decode and not (is_archive(first) and is_archive(second)):
        raise UsageError("--decode compares two archives; `tpca verify --against` measures sources")
    found = diff(
        sides[0],
        sides[1],
        basis=basis,
        decode=decode,
        max_pixels=max_pixels,
        workers=workers,
        progress=console.progress,
    )
    console.skipped(found.skipped)
    data = {
        "same": found.same,
        "only_a": found.only[0],
        "only_b": found.only[1],
        "changed": [{"name": name, "what": what} for name, what in found.changed],
        "skipped": [{"path": item.path, "reason": item.reason} for item in found.skipped],
        "equal": found.equal,
    }
    lines = [
        *(f"- {printable(name)}" for name in found.only[0]),
        *(f"+ {printable(name)}" for name in found.only[1]),
        *(f"! {printable(name)}: {', '.join(what)}" for name, what in found.changed),
        f"{found.same} the same, {len(found.changed)} changed, {len(found.only[0])} only in "
        f"{printable(first)}, {len(found.only[1])} only in {printable(second)}",
    ]
    console.result(data, "\n".join(lines))
    return 0 if found.equal else options.EXIT_SKIPPED
