"""`tpca ls`: the images of an archive, one on each line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from tpca_cli.cli import options
from tpca_cli.cli.console import Console, plain, safe
from tpca_cli.cli.help import Command
from tpca_cli.errors import UsageError, printable

EPILOG = """\b
Examples:
  tpca ls photos.h5
  tpca ls photos.h5 'holiday/*' --names
  tpca ls photos.h5 --sort psnr
  tpca ls photos.h5 --json
  tpca ls photos.h5 'holiday/*' --print0 | \\
    tpca decode photos.h5 -o holiday/ --select-from -"""


@click.command("ls", cls=Command, epilog=EPILOG)
@click.argument("archive", type=options.INPUT)
@click.argument("globs", metavar="[GLOB]...", nargs=-1)
@click.option("--names", is_flag=True, help="Only the names.")
@click.option("--print0", is_flag=True, help="Only the names, each ended by NUL: exact whatever is in them.")
@options.sort_option
@options.common_options
def command(
    console: Console, archive: Path, globs: tuple[str, ...], names: bool, print0: bool, sort: str | None
) -> int:
    """List the images of ARCHIVE whose names match a GLOB, all of them without one.

    Shows height and width, mode, quality and bytes, and what an image was archived without. With --json, one
    object on each line. Exit code 1 if nothing matches.
    """
    if print0 and console.as_json:
        raise UsageError("--print0 and --json both write to stdout: give one of them")
    from tpca_cli.archive.reader import Archive
    from tpca_cli.report.describe import image_list, ordered
    from tpca_cli.report.terminal import listing

    with Archive(archive, skim=True) as opened:
        images = ordered(image_list(opened, globs), sort or "")
    console.close()
    if print0:
        options.write_bytes(b"".join(image["name"] + b"\0" for image in images))
    elif console.as_json:
        for image in images:
            click.echo(json.dumps(plain(image), allow_nan=False))
    elif names:
        for image in images:
            click.echo(printable(image["name"]))
    else:
        click.echo(safe(listing(images)))
    sys.stdout.flush()
    return 0
