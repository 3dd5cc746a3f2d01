"""`tpca decode`: an archive becomes a folder of images again."""

from __future__ import annotations

from pathlib import Path

import click

from tpca_cli.cli import options
from tpca_cli.cli.options import Console
from tpca_cli.cli.text import human
from tpca_cli.errors import printable

EPILOG = """\b
Examples:
  tpca decode photos.h5 -o restored/
  tpca decode photos.h5 -o preview/ --select 'holiday/*' --components 20
  tpca decode damaged.h5 -o rescued/ --salvage"""


@click.command("decode", epilog=EPILOG)
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The folder to write into."
)
@click.option(
    "--select", multiple=True, metavar="GLOB", help="Only images whose name matches; may be repeated."
)
@click.option(
    "--components", type=click.IntRange(1), metavar="M", help="Use only the first M components: blurrier."
)
@click.option(
    "--format",
    type=click.Choice(["png", "webp", "tiff", "bmp", "jpeg"]),
    default="png",
    show_default=True,
    help="File format; all but jpeg keep exactly the decoded pixels.",
)
@click.option(
    "--basis", type=click.Path(path_type=Path), help="The basis file of an archive made with --link-basis."
)
@click.option("--salvage", is_flag=True, help="Leave out images in damaged blocks instead of stopping.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@options.claimed_pixels_option
@options.workers_option
@options.common_options
def command(
    console: Console,
    archive: Path,
    output: Path,
    select: tuple[str, ...],
    components: int | None,
    format: str,
    basis: Path | None,
    salvage: bool,
    force: bool,
    max_pixels: int,
    workers: int,
) -> int:
    """Restore the images of ARCHIVE: folders, names, modes, times, EXIF and ICC profiles.

    Files keep their stem and get the ending of --format. Nothing is written outside the output folder.
    """
    from tpca_cli.archive.reader import Archive, linked_basis
    from tpca_cli.decode.run import DecodeRequest, decode

    linked = linked_basis(basis) if basis else None
    with Archive(archive, basis=linked, ready=False, max_pixels=max_pixels) as opened:
        request = DecodeRequest(archive, output, select, components, format, force, salvage, workers)
        result = decode(request, opened, console.progress)
    for name, reason in result.lost:
        console.warn(f"lost {printable(name)}: {reason}")
    data = {
        "images": result.images,
        "written_bytes": result.written_bytes,
        "output": output,
        "lost": [{"path": name, "reason": reason} for name, reason in result.lost],
    }
    console.result(
        data, f"{result.images} images, {human(result.written_bytes)} written to {printable(output)}"
    )
    return options.EXIT_SKIPPED if result.lost else 0
