"""`tpca decode`: an archive becomes a folder of images again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpca_cli.cli import options
from tpca_cli.cli.console import Console, human
from tpca_cli.cli.help import Command
from tpca_cli.errors import OtherFormat, counted, printable

if TYPE_CHECKING:
    from tpca_cli.archive.reader import Archive
    from tpca_cli.decode.run import Decoded, DecodeRequest
    from tpca_cli.scores.reader import Scores

EPILOG = """\b
Examples:
  tpca decode photos.h5 -o restored/
  tpca decode photos.h5 -o preview/ --select 'holiday/*' --components 20
  tpca decode photos.h5 -o some/ --select-from names.txt
  tpca decode photos.h5 -o again/ --format same
  tpca decode damaged.h5 -o rescued/ --salvage"""


@click.command("decode", cls=Command, epilog=EPILOG)
@click.argument("archive", type=options.INPUT)
@click.option("-o", "--output", required=True, type=options.Output(), help="The folder to write into.")
@options.select_option
@click.option(
    "--select-from",
    type=options.InputFile(allow_dash=True),
    metavar="LIST",
    help="Only the images named in a file, one name on each line or ended by NUL (- for stdin).",
)
@options.fewer_components_option
@click.option(
    "--format",
    type=options.FormatChoice([*options.WRITTEN, "same"]),
    default=None,
    help="File format, by default png, or same for archives made with --exact or --max-error; all but jpeg "
    "keep exactly the decoded pixels. bmp holds no metadata. same: each image under its own name and in its "
    "own format, JPEG with less added error than the archive has.",
)
@options.linked_basis_option
@click.option("--salvage", is_flag=True, help="Leave out what is damaged or cut off instead of stopping.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option(
    "--resume", is_flag=True, help="Go on where a run was stopped: files that are right already are kept."
)
@options.claimed_pixels_option
@options.images_memory_option
@options.workers_option
@options.common_options
def command(
    console: Console,
    archive: Path,
    output: Path,
    select: tuple[str, ...],
    select_from: Path | None,
    components: int | None,
    format: str | None,
    basis: Path | None,
    salvage: bool,
    force: bool,
    resume: bool,
    max_pixels: int,
    memory: int,
    workers: int,
) -> int:
    """Restore the images of ARCHIVE: folders, names, modes, times, EXIF and ICC profiles.

    Files keep their stem and get the ending of --format. Each is synced and read back before it gets its
    name. Nothing is written outside the output folder.
    """
    from tpca_cli.decode.run import DecodeRequest

    named = options.listed_names(select_from) if select_from else None
    request = DecodeRequest(
        archive, output, select, components, format, force, salvage, workers, resume, named, memory
    )
    result, asked = _restored(request, basis, max_pixels, console)
    as_png = (format or "png") == "png" and "max_error" not in asked
    for name in result.unknown:
        console.warn(f"no image {printable(name)} in {printable(archive)}")
    for name, reason in result.lost:
        console.warn(f"lost {printable(name)}: {reason}")
    _tell(console, result.converted)
    _tell(console, result.left_out)
    data = {
        "images": result.images,
        "written_bytes": result.written_bytes,
        "source_bytes": result.source_bytes,
        "found": result.found,
        "identical": result.identical,
        "same_pixels": result.same_pixels,
        "output": output,
        "lost": _items(result.lost),
        "unknown": result.unknown,
        "converted": _items(result.converted),
        "left_out": _items(result.left_out),
    }
    console.result(data, _summary(result, as_png, output))
    return options.EXIT_SKIPPED if result.lost or result.unknown else 0


def _restored(
    request: DecodeRequest, basis: Path | None, max_pixels: int, console: Console
) -> tuple[Decoded, Mapping[str, Any]]:
    """Images or tensors, whatever the file holds, and the target that it was made for."""
    from tpca_cli.archive.reader import Archive
    from tpca_cli.decode.run import decode

    opened: Archive | Scores
    try:
        opened = Archive(
            request.archive, basis=basis, ready=False, cut=request.salvage, max_pixels=max_pixels
        )
    except OtherFormat as error:
        if request.salvage or error.format != "tpca-scores":
            raise
        from tpca_cli.scores.reader import Scores

        opened = Scores(request.archive, basis=basis, max_pixels=max_pixels)
    with opened:
        if getattr(opened, "holds_tensors", False):
            from tpca_cli.decode.items import decode_items

            return decode_items(request, opened, console.progress), opened.target  # type: ignore[arg-type]
        return decode(request, opened, console.progress), opened.target


def _summary(result: Decoded, as_png: bool, output: Path) -> str:
    """What was written, and at what price."""
    found = f", {result.found} of them found there" if result.found else ""
    text = f"{counted(result.images, 'image')}{found}, {human(result.written_bytes)} in {printable(output)}"
    if result.identical:
        text += f"\n{result.identical} of them are, bit for bit, the files that were archived"
    if result.same_pixels:
        text += f"\n{result.same_pixels} have every pixel that was archived, in a file of other bytes"
    if as_png and result.written_bytes > result.source_bytes:
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
