"""`tpca repack`: an archive without the waste of many appends."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tpca_cli.cli import options
from tpca_cli.cli.console import Console, human
from tpca_cli.cli.help import Command
from tpca_cli.errors import UsageError, counted, printable

EPILOG = """\b
Examples:
  tpca repack photos.h5 -o smaller.h5
  tpca repack photos.h5 -o photos.h5 --force
  tpca repack damaged.h5 -o rescued.h5 --salvage"""


@click.command("repack", cls=Command, epilog=EPILOG)
@click.argument("archive", type=options.INPUT)
@options.output_option
@click.option("--salvage", is_flag=True, help="Leave out what is damaged or cut off instead of stopping.")
@options.linked_basis_option
@options.claimed_pixels_option
@options.workers_option
@options.lock_wait_option
@options.force_option
@options.common_options
def command(
    console: Console,
    archive: Path,
    output: Path,
    salvage: bool,
    basis: Path | None,
    max_pixels: int,
    workers: int,
    lock_wait: float,
    force: bool,
) -> int:
    """Write ARCHIVE anew without replaced images and in full blocks; every pixel stays as it is.

    Nothing is compressed a second time: the coded integers move to new blocks. The output may be the archive
    itself, with --force; it is then replaced in one step, and only if nobody else has changed it meanwhile.
    """
    from tpca_cli import store
    from tpca_cli.archive.reader import Archive
    from tpca_cli.decode.repack import repack

    if output.is_symlink() and os.path.realpath(output) == os.path.realpath(archive):
        output = Path(os.path.realpath(output))
    with store.lock(output, lock_wait):
        with Archive(archive, basis=basis, ready=False, cut=salvage, max_pixels=max_pixels) as opened:
            before = opened.file_bytes
            itself = output.exists() and os.path.exists(archive) and os.path.samefile(archive, output)
            if itself and opened.cut_off:
                raise UsageError(f"{printable(archive)} was cut off: write what is left to another file")
            result = repack(
                opened,
                output,
                console.progress,
                workers=workers,
                salvage=salvage,
                force=force,
                expect=opened.identity if itself else None,
            )
        with Archive(output, ready=False, max_pixels=max_pixels) as written:
            facts = written.info()
    for name in result.lost:
        console.warn(f"lost {printable(name)}: damaged or cut off")
    data = {
        **facts,
        "before_bytes": before,
        "before_blocks": result.old_blocks,
        "dropped": result.dropped,
        "lost": list(result.lost),
    }
    console.result(
        data,
        f"{counted(result.images, 'image')}, {counted(result.dropped, 'replaced image')} dropped, "
        f"{counted(result.old_blocks, 'block')} became {result.new_blocks}\n"
        f"{printable(output)}: {human(before)} became {human(facts['archive_bytes'])}",
    )
    return options.EXIT_SKIPPED if result.lost else 0
