"""`tpca cat`: one image of an archive, to stdout."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tpca_cli.cli import options
from tpca_cli.cli.console import Console
from tpca_cli.cli.help import Command
from tpca_cli.errors import TpcaError, UsageError

EPILOG = """\b
Examples:
  tpca cat photos.h5 image_0003.png > one.png
  tpca cat photos.h5 image_0003.png --format jpeg > one.jpg
  tpca cat photos.h5 image_0003.png --json"""


def _complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For the shell: names of images in the archive that begin so."""
    from tpca_cli.archive.reader import Archive

    archive = ctx.params.get("archive")
    if archive is None:  # there is no such file
        return []
    try:
        with Archive(archive, skim=True) as opened:
            names = opened.names
    except (OSError, TpcaError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]


@click.command("cat", cls=Command, epilog=EPILOG)
@click.argument("archive", type=options.INPUT)
@click.argument("name", shell_complete=_complete_names)
@options.format_option
@options.fewer_components_option
@options.linked_basis_option
@options.claimed_pixels_option
@options.common_options
def command(
    console: Console,
    archive: Path,
    name: str,
    format: str | None,
    components: int | None,
    basis: Path | None,
    max_pixels: int,
) -> int:
    """Write the image NAME of ARCHIVE to stdout, with its metadata; `tpca ls` shows the names.

    Only the block that holds it is read. A tensor comes as the .npy or TIFF file that decode writes. With
    --json, an object with name and size, and the file in base64 as `data`. Exit code 1 if there is no such
    image.
    """
    if sys.stdout.isatty() and not console.as_json:
        raise UsageError("an image is no text for a terminal: redirect it, as in '> image.png'")
    from tpca_cli.archive.reader import Archive
    from tpca_cli.decode.run import one_file

    with Archive(archive, basis=basis, ready=False, max_pixels=max_pixels) as opened:
        made = one_file(opened, name, format, components)
    for reason in made.notes:
        console.warn(reason)
    if not console.as_json:
        options.write_bytes(made.data)
        return 0
    import base64

    data = {
        "name": made.name,
        "file": made.target,
        "height": made.height,
        "width": made.width,
        "mode": made.mode,
        "bytes": len(made.data),
        "notes": list(made.notes),
        "data": base64.b64encode(made.data).decode("ascii"),
    }
    console.result(data, "")
    return 0
