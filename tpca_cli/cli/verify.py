"""`tpca verify`: is a file intact, and may the originals be deleted?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpca_cli.cli import options
from tpca_cli.cli.console import Console, human
from tpca_cli.cli.help import Command
from tpca_cli.errors import FileRefused, UsageError, printable

if TYPE_CHECKING:
    from tpca_cli.decode.compare import Requirements, SourceComparison
    from tpca_cli.decode.verify import Checked

EPILOG = """\b
Examples:
  tpca verify photos.h5
  tpca verify photos.h5 --against photos/ --decode
  tpca verify photos.h5 --against photos/ --decode --min-psnr 34 \\
    --print0-verified | xargs -0 -r rm --
  tpca verify photos.h5 --against photos/ --min-quality 60
  tpca verify exact.h5 --against photos/ --decode

Exit codes: 0 everything is in order; 3 the file is intact, but not every source file is safe in it;
4 the file is damaged or not a tpca file."""

SHOWN = 20


@click.command("verify", cls=Command, epilog=EPILOG)
@click.argument("file", type=options.INPUT)
@click.option(
    "--against",
    "sources",
    multiple=True,
    metavar="SOURCE",
    help="Hold every image file of SOURCE to the archive; name the sources as for encode; may be repeated.",
)
@click.option(
    "--min-psnr",
    type=options.Number(0, 200),
    metavar="DB",
    help="With --against: the least PSNR of each image. Without this and --min-quality, 6 dB or 30 points of "
    "quality less than the archive was asked for (30 dB if that was a size), and an error of at most a tenth "
    "of the image's own variance.",
)
@click.option(
    "--min-quality",
    type=options.Number(-100, 100),
    metavar="Q",
    help="With --against: the least SSIMULACRA 2 of each image, as measured while encoding; measured anew "
    "where it was not, and with --decode. Alone, it leaves the tenth of the variance in force.",
)
@click.option(
    "--print0-verified",
    is_flag=True,
    help="With --against: print the source files that are safe to delete, each ended by NUL.",
)
@click.option(
    "--allow-partial",
    is_flag=True,
    help="With --against: accept what is kept in part: resized, or without further frames or metadata.",
)
@click.option(
    "--decode", is_flag=True, help="Decode every image as well; with --against, measure its error again."
)
@click.option(
    "--identical", is_flag=True, help="With --against: only files that come back bit for bit are safe."
)
@options.linked_basis_option
@options.claimed_pixels_option
@options.workers_option
@options.pattern_options
@options.common_options
def command(
    console: Console,
    file: Path,
    sources: tuple[str, ...],
    min_psnr: float | None,
    min_quality: float | None,
    print0_verified: bool,
    allow_partial: bool,
    decode: bool,
    identical: bool,
    basis: Path | None,
    max_pixels: int,
    workers: int,
) -> int:
    """Check every digest and the structure of FILE: an archive, a basis or a tensor file.

    A damaged block is reported with the images that it costs. With --against, each source file must be in the
    archive, unchanged since, whole with all its metadata, and of the wanted quality; only such files are
    listed as safe to delete. An archive made with --link-basis needs --basis for that.
    """
    least = min_psnr is not None or min_quality is not None
    if not sources and (print0_verified or least or allow_partial or identical):
        raise UsageError(
            "--min-psnr, --min-quality, --print0-verified, --allow-partial and --identical need --against"
        )
    if print0_verified and console.as_json:
        raise UsageError("--print0-verified and --json both write to stdout: give one of them")
    from tpca_cli.decode.compare import Requirements, SourceComparison
    from tpca_cli.sources.scan import NOTHING_IGNORED

    bar = Requirements(min_psnr, min_quality, allow_partial, decode, identical)
    checked, compared = _check(console, file, sources, bar, basis, max_pixels, workers)
    compared = compared or SourceComparison(0, (), (), NOTHING_IGNORED, ())
    if console.verbose:
        for path, verdict in compared.verdicts:
            console.say(f"{verdict}: {printable(path)}")
    for item in checked.damage:
        names = ", ".join(printable(name) for name in item.images) or "no image in use"
        console.warn(f"{printable(file)}: block {item.block} is damaged and costs: {names}")
    _warn(console, compared)
    if print0_verified:
        if not checked.damage:  # a file that rots is no place for the only copy
            options.write_bytes(b"".join(path + b"\0" for path in compared.safe))
        console.say(_text(file, checked, compared, bool(sources)))
    else:
        data = _data(file, checked, bar, compared) if sources else _data(file, checked, bar)
        console.result(data, _text(file, checked, compared, bool(sources)))
    if checked.damage:
        return FileRefused.exit_code
    return options.EXIT_SKIPPED if compared.failed else 0


def _check(
    console: Console,
    file: Path,
    sources: tuple[str, ...],
    bar: Requirements,
    basis: Path | None,
    max_pixels: int,
    workers: int,
) -> tuple[Checked, SourceComparison | None]:
    """Hold the file to its digests, and its images to the sources if there are any."""
    from tpca_cli.decode.verify import verify, verify_archive

    if not sources and not bar.decode:
        return verify(file, console.progress, workers=workers, max_pixels=max_pixels), None

    from tpca_cli.archive.reader import Archive
    from tpca_cli.decode.compare import compare_sources

    with Archive(file, basis=basis, ready=False, max_pixels=max_pixels) as archive:
        checked = verify_archive(archive, console.progress, workers=workers, decode=bar.decode)
        if not sources:
            return checked, None
        lost = {name for item in checked.damage for name in item.images}
        return checked, compare_sources(
            archive, sources, bar, lost, workers=workers, progress=console.progress
        )


def _warn(console: Console, compared: SourceComparison) -> None:
    shown = compared.failed if console.verbose else compared.failed[:SHOWN]
    for item in shown:
        console.warn(f"not safe: {printable(item.path)}: {item.reason}")
    if len(compared.failed) > len(shown):
        console.warn(f"and {len(compared.failed) - len(shown)} more (all with --verbose or --json)")


def _data(
    file: Path, checked: Checked, bar: Requirements, compared: SourceComparison | None = None
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "file": file,
        "format": checked.format,
        "digest": checked.digest,
        "bytes": checked.size,
        "images": checked.images,
        "blocks": checked.blocks,
        "intact": not checked.damage,
        "damaged": [
            {"block": item.block, "reason": item.reason, "images": item.images} for item in checked.damage
        ],
    }
    if compared is not None:
        data["against"] = {
            "sources": compared.sources,
            "min_psnr": bar.min_psnr,
            "min_quality": bar.min_quality,
            "floor": compared.floor,
            "safe": len(compared.safe),
            "identical_files": compared.identical_files,
            "identical_pixels": compared.identical_pixels,
            "verdicts": [{"path": path, "verdict": verdict} for path, verdict in compared.verdicts],
            "failed": [{"path": item.path, "reason": item.reason} for item in compared.failed],
            **compared.ignored.facts,
            "worst": [{"path": path, "psnr": psnr, "quality": seen} for path, psnr, seen in compared.worst],
        }
    return data


def _text(file: Path, checked: Checked, compared: SourceComparison, sources: bool) -> str:
    state = f"{len(checked.damage)} of {checked.blocks} blocks are damaged" if checked.damage else "intact"
    kind = checked.format.removeprefix("tpca-")
    held = f", {checked.images} images" if checked.images else ""
    lines = [f"{printable(file)}: {kind}, {human(checked.size)}{held}: {state}"]
    if sources:
        ignored = ", ".join(["", *filter(None, [compared.ignored.text])])
        lines.append(f"{len(compared.safe)} of {compared.sources} source files are safe in it{ignored}")
        if compared.identical_files or compared.identical_pixels:
            lines.append(
                f"of these {compared.identical_files} come back bit for bit, "
                f"{compared.identical_pixels} with identical pixels"
            )
        lines.append(f"safe means: unchanged, kept whole, {compared.floor}")
        for path, psnr, seen in compared.worst:
            quality = "" if seen is None else f"quality {seen:.2f}  "
            lines.append(f"  {psnr:8.2f} dB  {quality}{printable(path)}")
    return "\n".join(lines)
