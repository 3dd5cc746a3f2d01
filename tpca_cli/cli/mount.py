"""`tpca mount`: an archive as a folder."""

from __future__ import annotations

from pathlib import Path

import click

from tpca_cli.cli import options
from tpca_cli.cli.console import Console
from tpca_cli.cli.help import Command
from tpca_cli.errors import counted, printable

EPILOG = """\b
Examples:
  tpca mount photos.h5 folder/
  tpca mount photos.h5 folder/ --select 'holiday/*' --format jpeg
\b
To end: Ctrl-C, or in another terminal: fusermount3 -u folder/"""


@click.command("mount", cls=Command, epilog=EPILOG)
@click.argument("archive", type=options.INPUT)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@options.select_option
@options.format_option
@options.fewer_components_option
@options.linked_basis_option
@options.claimed_pixels_option
@options.common_options
def command(
    console: Console,
    archive: Path,
    folder: Path,
    select: tuple[str, ...],
    format: str | None,
    components: int | None,
    basis: Path | None,
    max_pixels: int,
) -> int:
    """Show the images of ARCHIVE as files in an empty FOLDER, until it is unmounted.

    Nothing is written: a file is made when a program reads it or asks for its size (ls -l does), the same
    bytes as decode writes. A file that a damaged block costs gives an input/output error. Needs FUSE.
    """
    from tpca_cli.archive.reader import Archive
    from tpca_cli.decode.mount import ImageTree, check_folder, mount

    check_folder(folder)
    with Archive(archive, basis=basis, ready=False, max_pixels=max_pixels) as opened:
        tree = ImageTree(opened, select=select, format=format, components=components)
        place = printable(folder)
        note = f"{counted(tree.images, 'image')} in {place}; to end: fusermount3 -u {place}"
        mount(tree, folder, lambda: console.say(note))
    console.result({"images": tree.images, "folder": folder}, f"{printable(folder)} is unmounted")
    return 0
