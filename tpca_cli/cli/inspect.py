"""`tpca inspect`: what a tpca file holds, as text, as JSON, as pictures, as a page."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpca_cli.cli import options
from tpca_cli.cli.console import Console
from tpca_cli.cli.help import Command
from tpca_cli.errors import UsageError

if TYPE_CHECKING:
    from tpca_cli.report.album import Album
    from tpca_cli.report.facts import Facts

EPILOG = """\b
Examples:
  tpca inspect photos.h5
  tpca inspect photos.h5 --list
  tpca inspect photos.h5 --json
  tpca inspect photos.h5 --basis-grid basis.png --count 48
  tpca inspect photos.h5 --gallery photos/ gallery.png
  tpca inspect photos.h5 --rd photos/ curve.png
  tpca inspect photos.h5 --report photos.html --source photos/
  tpca inspect scores.h5 --scatter scores.png

\b
Pictures are PNG files, or JPEG to OUT.jpg."""

PICTURE = options.OutputFile(options.PICTURES)


@click.command("inspect", cls=Command, epilog=EPILOG)
@click.argument("file", type=options.INPUT)
@click.option("--list", "listed", is_flag=True, help="List the images of an archive, with PSNR and bytes.")
@options.sort_option
@click.option(
    "--spectrum", type=PICTURE, metavar="OUT.png", help="Plot the spectrum and the cumulative energy."
)
@click.option(
    "--scatter", type=PICTURE, metavar="OUT.png", help="Draw scores over the first two components, by folder."
)
@click.option("--basis-grid", type=PICTURE, metavar="OUT.png", help="Draw the strongest basis elements.")
@click.option("--count", type=options.Count(1, 1024), default=40, show_default=True, help="How many of them.")
@click.option(
    "--gallery",
    type=(str, PICTURE),
    metavar="SOURCE OUT.png",
    help="Originals over reconstructions at several M, with the PSNR of each.",
)
@click.option(
    "--rd",
    type=(str, PICTURE),
    metavar="SOURCE OUT.png",
    help="Rate-distortion curve of this basis on a sample, beside JPEG and WebP.",
)
@click.option(
    "--report",
    type=options.OutputFile((".html", ".htm")),
    metavar="OUT.html",
    help="One self-contained page with all of this.",
)
@click.option(
    "--basis", type=options.INPUT, help="The basis file of an archive made with --link-basis, for pictures."
)
@click.option("--source", metavar="SOURCE", help="Originals that --report compares with.")
@click.option(
    "--images",
    "pictures",
    type=options.Count(1, 64),
    default=8,
    show_default=True,
    help="How many images --gallery and --report show.",
)
@options.include_option
@options.exclude_option
@options.force_option
@options.common_options
def command(
    console: Console,
    file: Path,
    listed: bool,
    sort: str | None,
    spectrum: Path | None,
    scatter: Path | None,
    basis_grid: Path | None,
    count: int,
    gallery: tuple[str, Path] | None,
    rd: tuple[str, Path] | None,
    report: Path | None,
    basis: Path | None,
    source: str | None,
    pictures: int,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    force: bool,
) -> int:
    """Show what FILE is: a tensor cache, an operator, a basis, scores or an archive.

    Prints a page of text, or one JSON object; the options that name an OUT file write pictures as well.
    """
    from tpca_cli.report.describe import describe

    if sort and not listed:
        raise UsageError("--sort needs --list")
    if (include or exclude) and not (gallery or rd or source):
        raise UsageError("--include and --exclude choose among the images of a SOURCE: name one")
    progress = console.progress

    def among(originals: str) -> Sequence[str]:
        return options.chosen([originals], include, exclude)

    drawings: list[tuple[Path, Callable[[Album], bytes]]] = []
    if spectrum:
        drawings.append((spectrum, lambda album: album.spectrum(_format(spectrum))))
    if scatter:
        drawings.append((scatter, lambda album: album.scatter(_format(scatter))))
    if basis_grid:
        drawings.append((basis_grid, lambda album: album.basis_grid(count, _format(basis_grid))))
    if report:
        sources = among(source) if source else []
        drawings.append((report, lambda album: album.page(sources, pictures, count, progress)))
    if gallery:
        shown, picture = gallery
        drawings.append((picture, lambda album: album.gallery(among(shown), pictures, _format(picture))))
    if rd:
        measured, chart = rd
        drawings.append(
            (chart, lambda album: album.rate_distortion(among(measured), progress, _format(chart)))
        )
    if not drawings and not listed:
        facts = describe(file)
        console.result(facts.data, _page(facts))
        return 0
    return _show(console, file, basis, (sort or "") if listed else None, drawings, force)


def _show(
    console: Console,
    file: Path,
    basis: Path | None,
    listed: str | None,
    drawings: Sequence[tuple[Path, Callable[[Album], bytes]]],
    force: bool,
) -> int:
    """Write the drawings of a file, and print its page, or its images in the order `listed` if not None."""
    from tpca_cli.errors import printable
    from tpca_cli.report.album import open_album
    from tpca_cli.store import check_output, write_file

    for target, _ in drawings:
        check_output(target, force)
    with open_album(file, basis) as album:
        data = dict(album.facts.data)
        text = _page(album.facts)
        if listed is not None:
            from tpca_cli.report.describe import ordered
            from tpca_cli.report.terminal import listing

            data["list"] = ordered(album.listing(), listed)
            text = listing(data["list"])
        for target, draw in drawings:
            write_file(target, draw(album), force=force)
    if drawings:
        data["written"] = [printable(target) for target, _ in drawings]
        for path in data["written"]:
            console.say(f"wrote {path}")
    console.result(data, text)
    return 0


def _format(target: Path) -> str:
    """JPEG for those who name it so; PNG shows the pixels as they are."""
    return "jpeg" if target.suffix.lower() in (".jpg", ".jpeg") else "png"


def _page(facts: Facts) -> str:
    from tpca_cli.report.terminal import render

    return render(facts, shutil.get_terminal_size((80, 24)).columns, _draws_blocks())


def _draws_blocks() -> bool:
    """Whether stdout can show block characters."""
    try:
        "▁█".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
