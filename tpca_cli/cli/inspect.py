"""`tpca inspect`: what a tpca file holds, as text, as JSON, as pictures, as a page."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpca_cli.cli import options
from tpca_cli.cli.options import Console

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

\b
Pictures are PNG files; --basis-grid and --gallery also write JPEG, to OUT.jpg."""

FILE = click.Path(path_type=Path)


@click.command("inspect", epilog=EPILOG)
@click.argument("file", type=FILE)
@click.option("--list", "listed", is_flag=True, help="List the images of an archive with their PSNR.")
@click.option("--spectrum", type=FILE, metavar="OUT.png", help="Plot the spectrum and the cumulative energy.")
@click.option("--basis-grid", type=FILE, metavar="OUT.png", help="Draw the strongest basis elements.")
@click.option(
    "--count", type=click.IntRange(1, 1024), default=40, show_default=True, help="How many of them."
)
@click.option(
    "--gallery",
    type=(str, FILE),
    metavar="SOURCE OUT.png",
    help="Originals over reconstructions at several M, with the PSNR of each.",
)
@click.option(
    "--rd",
    type=(str, FILE),
    metavar="SOURCE OUT.png",
    help="Rate-distortion curve of this basis on a sample, beside JPEG and WebP.",
)
@click.option("--report", type=FILE, metavar="OUT.html", help="One self-contained page with all of this.")
@click.option("--basis", type=FILE, help="The basis file of an archive made with --link-basis, for pictures.")
@click.option("--source", metavar="SOURCE", help="Originals that --report compares with.")
@click.option(
    "--images",
    "pictures",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="How many images --gallery and --report show.",
)
@options.force_option
@options.common_options
def command(console: Console, file: Path, listed: bool, count: int, force: bool, **given: Any) -> int:
    """Show what FILE is: a tensor cache, an operator, a basis or an archive.

    Prints a page of text, or one JSON object; the options that name an OUT file write pictures as well.
    """
    from tpca_cli.report.describe import describe

    outputs = _outputs(given)
    if not outputs and not listed:
        facts = describe(file)
        console.result(facts.data, _page(facts))
        return 0

    from tpca_cli.report.album import open_album
    from tpca_cli.store import check_output

    for target in outputs.values():
        check_output(target, force)
    linked = None
    if given["basis"]:
        from tpca_cli.pipeline.groups import linked_basis

        linked = linked_basis(given["basis"])
    with open_album(file, linked) as album:
        data = dict(album.facts.data)
        text = _page(album.facts)
        if listed:
            from tpca_cli.report.terminal import listing

            data["list"] = album.listing()
            text = listing(data["list"])
        written = _draw(album, outputs, given, count, force, console)
    if written:
        data["written"] = written
        for path in written:
            console.say(f"wrote {path}")
    console.result(data, text)
    return 0


def _outputs(given: dict[str, Any]) -> dict[str, Path]:
    """The files that were asked for, by option."""
    named = {name: given[name] for name in ("spectrum", "basis_grid", "report")}
    named |= {name: given[name][1] if given[name] else None for name in ("gallery", "rd")}
    return {name: path for name, path in named.items() if path is not None}


def _draw(
    album: Album, outputs: dict[str, Path], given: dict[str, Any], count: int, force: bool, console: Console
) -> list[str]:
    from tpca_cli.errors import printable
    from tpca_cli.store import write_file

    shown, sources = given["pictures"], [given["source"]] if given["source"] else []
    make = {
        "spectrum": lambda: album.spectrum(),
        "basis_grid": lambda: album.basis_grid(count, _format(outputs["basis_grid"])),
        "gallery": lambda: album.gallery([given["gallery"][0]], shown, _format(outputs["gallery"])),
        "rd": lambda: album.rate_distortion([given["rd"][0]], console.progress),
        "report": lambda: album.page(sources, shown, count, console.progress),
    }
    for name, target in outputs.items():
        write_file(target, make[name](), force=force)
    return [printable(target) for target in outputs.values()]


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
