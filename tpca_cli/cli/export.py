"""`tpca export`: an archive as shards that other loaders read."""

from __future__ import annotations

from pathlib import Path

import click

from tpca_cli.cli import options
from tpca_cli.cli.console import Console, human
from tpca_cli.cli.help import Command
from tpca_cli.errors import counted, printable

EPILOG = """\b
Examples:
  tpca export photos.h5 -o shards/
  tpca export photos.h5 -o small/ --format jpeg --shard-bytes 20M
  tpca export photos.h5 -o table/ --to parquet --select 'image_000*'"""


@click.command("export", cls=Command, epilog=EPILOG)
@click.argument("archive", type=options.INPUT)
@click.option(
    "-o",
    "--output",
    required=True,
    type=options.Output(),
    help="The folder to write into: new or empty.",
)
@click.option(
    "--to",
    type=click.Choice(["webdataset", "parquet"]),
    default="webdataset",
    show_default=True,
    help="Tar files for WebDataset, or Parquet tables with an image column, as Hugging Face reads them "
    "(needs the extra tpca-cli[parquet]).",
)
@click.option(
    "--shard-bytes",
    type=options.ByteSize(),
    default="64M",
    show_default=True,
    help="Begin another shard before images take more than this; a shard is put together in memory.",
)
@options.select_option
@options.format_option
@options.fewer_components_option
@options.linked_basis_option
@options.claimed_pixels_option
@options.workers_option
@options.common_options
def command(
    console: Console,
    archive: Path,
    output: Path,
    to: str,
    shard_bytes: int,
    select: tuple[str, ...],
    format: str | None,
    components: int | None,
    basis: Path | None,
    max_pixels: int,
    workers: int,
) -> int:
    """Write the images of ARCHIVE as shards: shard-000000.tar, shard-000001.tar and so on.

    The folder of an image is its label, numbered in alphabetical order. In a tar file an image is three
    members of one name: the file, .cls with the number, .json with name, label and size; in a table a row.
    """
    from tpca_cli.archive.reader import Archive
    from tpca_cli.decode.export import ExportRequest, export

    with Archive(archive, basis=basis, ready=False, max_pixels=max_pixels) as opened:
        request = ExportRequest(output, to, shard_bytes, select, format, components, workers)
        result = export(request, opened, console.progress)
    for reason in sorted({reason for _, reason in result.notes}):
        names = [name for name, note in result.notes if note == reason]
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        console.warn(f"{printable(names[0])}{others}: {reason}")
    for name in result.skipped:
        console.warn(f"left out {printable(name)}: it is no picture")
    data = {
        "images": result.images,
        "shards": result.shards,
        "written_bytes": result.written_bytes,
        "classes": result.classes,
        "output": output,
        "skipped": result.skipped,
        "notes": [{"name": name, "reason": reason} for name, reason in result.notes],
    }
    console.result(
        data,
        f"{counted(result.images, 'image')}, {counted(len(result.classes), 'label')}, "
        f"{human(result.written_bytes)} in {counted(len(result.shards), 'shard')} in {printable(output)}",
    )
    return options.EXIT_SKIPPED if result.skipped else 0
