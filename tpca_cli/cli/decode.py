"""`tpca decode`: an archive becomes a folder of images again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpca_cli.cli import options
from tpca_cli.cli.options import Console
from tpca_cli.cli.text import human
from tpca_cli.errors import printable

if TYPE_CHECKING:
    from tpca_cli.decode.run import Decoded

EPILOG = """\b
Examples:
  tpca decode photos.h5 -o restored/
  tpca decode photos.h5 -o preview/ --select 'holiday/*' --components 20
  tpca decode photos.h5 -o again/ --format same
  tpca decode damaged.h5 -o rescued/ --salvage"""


class FormatChoice(click.Choice[str]):
    """A format by its name or its usual ending, in any case."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The format that is meant."""
        name = str(value).lower()
        return super().convert({"jpg": "jpeg", "tif": "tiff"}.get(name, name), param, ctx)


@click.command("decode", epilog=EPILOG)
@click.argument("archive", type=options.INPUT)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The folder to write into."
)
@click.option(
    "--select", multiple=True, metavar="GLOB", help="Only images whose name matches; may be repeated."
)
@click.option(
    "--components", type=options.Count(1), metavar="M", help="Use only the first M components: blurrier."
)
@click.option(
    "--format",
    type=FormatChoice(["png", "webp", "tiff", "bmp", "jpeg", "same"]),
    default="png",
    show_default=True,
    help="File format; all but jpeg keep exactly the decoded pixels. bmp holds no metadata. same: each image "
    "under its own name and in its own format, JPEG with less added error than the archive has.",
)
@click.option("--basis", type=options.INPUT, help="The basis file of an archive made with --link-basis.")
@click.option("--salvage", is_flag=True, help="Leave out what is damaged or cut off instead of stopping.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option(
    "--resume", is_flag=True, help="Go on where a run was stopped: files that are right already are kept."
)
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
    resume: bool,
    max_pixels: int,
    workers: int,
) -> int:
    """Restore the images of ARCHIVE: folders, names, modes, times, EXIF and ICC profiles.

    Files keep their stem and get the ending of --format. Each is synced and read back before it gets its
    name. Nothing is written outside the output folder.
    """
    from tpca_cli.archive.reader import Archive
    from tpca_cli.archive.writer import linked_basis
    from tpca_cli.decode.run import DecodeRequest, decode

    linked = linked_basis(basis) if basis else None
    with Archive(archive, basis=linked, ready=False, cut=salvage, max_pixels=max_pixels) as opened:
        request = DecodeRequest(archive, output, select, components, format, force, salvage, workers, resume)
        result = decode(request, opened, console.progress)
    for name, reason in result.lost:
        console.warn(f"lost {printable(name)}: {reason}")
    _tell(console, result.converted)
    _tell(console, result.left_out)
    data = {
        "images": result.images,
        "written_bytes": result.written_bytes,
        "source_bytes": result.source_bytes,
        "found": result.found,
        "output": output,
        "lost": _items(result.lost),
        "converted": _items(result.converted),
        "left_out": _items(result.left_out),
    }
    console.result(data, _summary(result, format, output))
    return options.EXIT_SKIPPED if result.lost else 0


def _summary(result: Decoded, format: str, output: Path) -> str:
    """What was written, and at what price."""
    found = f", {result.found} of them found there" if result.found else ""
    text = f"{result.images} images{found}, {human(result.written_bytes)} in {printable(output)}"
    if format == "png" and result.written_bytes > result.source_bytes:
        text += (
            f"\nPNG holds exactly the decoded pixels; the sources took {human(result.source_bytes)}: "
            "--format same gives each image its own format"
        )
    return text


def _items(pairs: Sequence[tuple[bytes, str]]) -> list[dict[str, Any]]:
    return [{"path": name, "reason": reason} for name, reason in pairs]


def _tell(console: Console, pairs: Sequence[tuple[bytes, str]]) -> None:
    """One line for each way in which images came back otherwise than asked for."""
    names: dict[str, list[bytes]] = {}
    for name, reason in pairs:
        names.setdefault(reason, []).append(name)
    for reason, these in names.items():
        others = f" and {len(these) - 1} more" if len(these) > 1 else ""
        console.warn(f"{printable(these[0])}{others}: {reason}")
