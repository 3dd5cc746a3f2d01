"""`tpca encode`: a folder of images becomes one file."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpca_cli.cli import items, options
from tpca_cli.cli.console import Console, duration, human, table, times
from tpca_cli.cli.console import quality as shown_quality
from tpca_cli.cli.encode_plain import encode_scores, plain_options
from tpca_cli.cli.help import Command
from tpca_cli.errors import UsageError, counted, printable

if TYPE_CHECKING:
    from tpca_cli.encode.append import AppendRequest
    from tpca_cli.encode.assemble import LowQuality
    from tpca_cli.encode.run import EncodeRequest
    from tpca_cli.rate import Target
    from tpca_cli.sources.scan import Skipped

EPILOG = """\b
Examples:
  tpca encode photos/ -o photos.h5 --psnr 36
  tpca encode photos/ -o photos.h5 --quality 75
  tpca encode scans/ -o scans.h5 --max-bytes 20M
  tpca encode faces/ -o faces.h5 --basis faces-basis.h5 --components 100
  tpca encode photos/ -o photos.h5 --append
  tpca encode volumes/ -o volumes.h5 --method subspace --components 3
  tpca encode photos/ -o exact.h5 --exact
  tpca encode photos/ -o training.h5 --coding fast
  tpca encode faces/ -o scores.h5 --basis faces-basis.h5 --plain

Targets (give one): --psnr, --quality, --energy, --max-bytes, --ratio, --step, --exact, --max-error.
--components combines with all but --quality.

Without a target, photographs of 8 bits get a quality of 80: hard to tell from the originals at 1:1. Folders
that are mostly of images below 128 pixels or of little contrast, that have images of 16 bits, and all with
--tune psnr or a --basis other than of rank-1 tiles, get 36 dB, and more where that would cost what can be
seen in them."""

SHOWN = 20  # images that are named, unless all are asked for
SHOWN_REASONS = 5


def _images_only(function: options.F) -> options.F:
    """`--plain` and `--stack`: scores, and tensors, are made elsewhere; the command itself codes images."""

    @functools.wraps(function)
    def route(*args: Any, plain: bool, dtype: str | None, compress: bool, stack: bool, **asked: Any) -> Any:
        if asked["work"].force and not asked["append"] and asked["output"].is_file():
            _refuse_source(asked["output"], asked["sources"])
        if plain:
            return encode_scores(dtype or "float32", compress, stack=stack, **asked)
        if dtype is not None or compress:
            options.refuse_typed(("dtype", "compress"), "{} belongs to --plain")
        if items.are_tensors(asked["sources"], stack):
            return items.encode_tensors(**asked)
        return function(*args, **asked)

    return plain_options(items.stack_option(route))  # type: ignore[return-value]


def _refuse_source(output: Path, sources: Sequence[str]) -> None:
    """An archive must not take the place of a file that it is made of; --force is for archives."""
    from tpca_cli import formats
    from tpca_cli.sources.scan import scan

    file, name = output.stat(), os.fsencode(output)
    with output.open("rb") as content:
        head = content.read(formats.HEAD_BYTES)
    named = any(os.path.exists(source) and os.path.samefile(source, output) for source in sources)
    media = formats.sniff(head) or formats.foreign(head, name) or formats.promises_media(name)
    if named or (
        media and any(ref.file == file.st_dev << 64 | file.st_ino for ref in scan(sources, whole=True).refs)
    ):
        raise UsageError(f"{printable(output)} is one of the sources: choose another output")


@click.command("encode", cls=Command, epilog=EPILOG)
@options.sources_argument
@options.output_option
@click.option(
    "--psnr", type=options.Number(5, 120), metavar="DB", help="Reach this quality, pooled over all samples."
)
@click.option(
    "--quality",
    type=options.Number(0, 95),
    metavar="Q",
    help="Reach this SSIMULACRA 2, as a mean over images: 30 low, 50 medium, 70 high, 90 no visible loss.",
)
@click.option(
    "--energy",
    type=options.Number(0, 1, min_open=True, max_open=True),
    help="Keep this share of the energy (0..1).",
)
@click.option("--max-bytes", type=options.ByteSize(), help="Stay within this file size.")
@click.option(
    "--ratio", type=options.Number(1, min_open=True), help="Be this many times smaller than raw pixels."
)
@click.option(
    "--step",
    type=options.Number(1 / 64, 2000),
    help="Quantiser step, in pixel values (of 8 or 16 bits; of floats, in 1/65,535 of their range).",
)
@click.option(
    "--exact", is_flag=True, help="Keep JPEG files bit for bit, other images pixel for pixel, or as files."
)
@click.option(
    "--max-error",
    type=options.Count(1),
    metavar="T",
    help="Keep every sample within T, JPEG files bit for bit.",
)
@click.option(
    "--tune",
    type=click.Choice(["visual", "psnr"]),
    help="Spend bytes on what people see, or on the least squared error. Default: visual without a target "
    "and with --quality, --max-bytes and --ratio, else psnr.",
)
@click.option(
    "--coding",
    type=click.Choice(["small", "fast"]),
    help="Fewest bytes, or two to three times as fast to read, for training, with 3 to 9 % more bytes. "
    "Default: small, and with --append as the archive is.",
)
@click.option("--components", type=options.Count(1), metavar="M", help="Keep at most M components per frame.")
@click.option("--basis", type=options.INPUT, help="Use the basis of this file instead of fitting one.")
@click.option(
    "--link-basis", is_flag=True, help="Store only the digest of --basis; its modes stay as they are."
)
@options.method_option
@click.option(
    "--append",
    is_flag=True,
    help="Add what is new in the sources to an archive, with its own basis and target; make it if absent.",
)
@click.option(
    "--on-change",
    type=click.Choice(["replace", "keep", "fail"]),
    default="replace",
    show_default=True,
    help="With --append: what to do about files that differ from their archived version.",
)
@click.option("--refit", is_flag=True, help="With --append: learn a new basis for the new images.")
@click.option(
    "--strip-metadata",
    is_flag=True,
    help="Keep pixels, orientation and colors only: no EXIF, XMP, IPTC, texts or density.",
)
@options.tile_option
@options.size_option
@options.images_memory_option
@options.work_options
@options.pattern_options
@options.common_options
@_images_only
def command(
    console: Console,
    sources: tuple[str, ...],
    output: Path,
    psnr: float | None,
    quality: float | None,
    energy: float | None,
    max_bytes: int | None,
    ratio: float | None,
    step: float | None,
    exact: bool,
    max_error: int | None,
    tune: str | None,
    coding: str | None,
    components: int | None,
    basis: Path | None,
    link_basis: bool,
    method: str,
    append: bool,
    on_change: str,
    refit: bool,
    tile: int | None,
    size: tuple[int, int] | None,
    strip_metadata: bool,
    work: options.Work,
) -> int:
    """Compress images into one self-contained archive.

    SOURCE is a folder (searched recursively), a file, a glob, or @list.txt. The basis is learned from the
    images themselves and stored with them, unless --basis names one.

    Read are JPEG, PNG, TIFF, WebP, BMP, GIF, PPM and AVIF, HEIC with pillow-heif, JPEG XL with
    pillow-jxl-plugin. Other media are listed as skipped, other files are counted.
    """
    from tpca_cli.encode.append import AppendRequest
    from tpca_cli.encode.run import EncodeRequest
    from tpca_cli.sources.read_plan import Reading

    target, typed, typed_coding = _target(components, tune)
    if not append and (refit or on_change != "replace"):
        options.refuse_typed(("refit", "on_change"), "{} belongs to --append")
    if basis is not None and (tile or method != "auto"):
        basis, method, tile = _which_basis(basis, method, tile)
    if append and output.is_symlink():
        output = Path(os.path.realpath(output))  # a link to an archive stays a link
    reading = Reading(size, work.max_pixels, work.on_error, work.workers, memory=work.memory)
    reading = replace(reading, strip_metadata=strip_metadata, whole=target.kind == "max_error")
    request = EncodeRequest(sources, output, target, reading, basis, link_basis, method, tile, work.force)
    request = replace(request, coding=_coding(coding, typed if append and output.exists() else target))
    addition = AppendRequest(request, on_change, refit, typed, typed_coding) if append else None
    if work.dry_run:
        return _plan(console, request, addition, work.cluster)
    return _locked(console, request, addition, work)


def _coding(coding: str | None, target: Target | None) -> str | None:
    """How blocks are coded, where there is a choice."""
    if target is not None and target.kind == "max_error":
        options.refuse_typed(("coding",), "{} is for images that lose something: leave it out")
        return None
    return coding


def _which_basis(basis: Path | None, method: str, tile: int | None) -> tuple[Path | None, str, int | None]:
    """Either the basis of a file or how to fit one: what was given more strongly."""
    given, fitted = options.strength("basis"), max(map(options.strength, ("method", "tile")))
    if given == fitted:
        raise UsageError("--basis brings its own method and framing: leave out --method and --tile")
    return (basis, "auto", None) if given > fitted else (None, method, tile)


TARGETS = ("psnr", "quality", "energy", "max_bytes", "ratio", "step", "exact", "max_error")


def _target(components: int | None, tune: str | None) -> tuple[Target, Target | None, str | None]:
    """The target of a new archive; target and coding on the command line, for one that has its own."""
    from tpca_cli.rate import Target

    given = click.get_current_context().params
    asked = options.in_force(**{name: given[name] for name in TARGETS})
    known = {**asked, "components": components, "coding": given["coding"]}
    known = {name: value for name, value in known.items() if value not in (None, False)}
    typed = {name: value for name, value in known.items() if options.strength(name) == len(options.GIVEN)}
    coding, few = typed.pop("coding", None), typed.pop("components", None)
    for values in (asked, typed):
        if values.pop("exact", False):
            values["max_error"] = 0
    own = Target.choose(few, tune, **typed) if typed or few else None
    return Target.choose(components, tune, **asked), own, coding


def _plan(
    console: Console, request: EncodeRequest, addition: AppendRequest | None, cluster: str | None
) -> int:
    """What the run would do, from headers alone."""
    from tpca_cli.encode.append import plan_append
    from tpca_cli.encode.exact import check_request
    from tpca_cli.encode.remote import encode_cluster_costs
    from tpca_cli.encode.run import plan_encoding

    facts: dict[str, Any]
    if addition is not None and request.output.exists():
        facts = {**plan_append(addition)}
    else:
        if request.target.kind == "max_error":
            check_request(request)
        facts = plan_encoding(request, console.progress)
        if cluster is not None:
            facts |= encode_cluster_costs(facts, cluster)
    console.result(facts, table(facts))
    return 0


def _locked(
    console: Console,
    request: EncodeRequest,
    addition: AppendRequest | None,
    work: options.Work,
) -> int:
    """Take the lock of the output and the workers, then encode or append."""
    from tpca_cli import store
    from tpca_cli.cluster.connect import connect
    from tpca_cli.encode.remote import cluster_workers
    from tpca_cli.parallel import alone

    with ExitStack() as stack:
        stack.enter_context(alone())  # coders are trained by many small products
        stack.enter_context(store.lock(request.output, work.lock_wait))
        removed, kept = store.remove_stale(request.output)
        for path in [*removed, *kept]:
            console.say(
                f"{'removed' if path in removed else 'found'} {printable(path)}, left by a killed run"
            )
        if work.cluster is not None:
            request = replace(request, workers=cluster_workers(stack.enter_context(connect(work.cluster))))
        # looked at again under the lock: the run that we waited for may have made it
        if addition is not None and request.output.exists():
            return _append(console, replace(addition, encode=request))
        return _encode(console, request)


def _encode(console: Console, request: EncodeRequest) -> int:
    """A new archive, and what it holds."""
    from tpca_cli.encode.exact import encode_exactly
    from tpca_cli.encode.run import encode

    run = encode_exactly if request.target.kind == "max_error" else encode
    result = run(request, console.say, console.progress)
    console.skipped(result.skipped)
    facts = result.facts
    _tell_partial(console, facts)
    _tell_raw(console, result.raw)
    _tell_quality(console, result.low_quality, result.missed)
    data = {
        **facts,
        **result.ignored.facts,
        "output": request.output,
        "seconds": console.seconds,
        "steps": [asdict(tried) for tried in result.tried],
        "raw": _listed(result.raw),
        "low_quality": [asdict(item) for item in result.low_quality],
        "warning": result.missed,
    }
    text = "\n".join(filter(None, [_summary(console, request.output, facts), result.ignored.text]))
    console.result(data, text)
    return options.EXIT_SKIPPED if result.skipped or result.low_quality or result.missed else 0


def _append(console: Console, wanted: AppendRequest) -> int:
    """More images in an archive that exists, and what it holds then."""
    from tpca_cli.encode.append import append

    output = wanted.encode.output
    result = append(wanted, console.say, console.progress)
    console.skipped(result.skipped)
    done = "replaced by" if wanted.on_change == "replace" else "kept, in spite of"
    unread = {item.path for item in result.skipped}
    for path in result.changed:
        if path not in unread:
            console.say(f"archived version {done} {printable(path)}")
    new = result.extended
    warning = new.warning if new else ""
    _tell_quality(console, result.low_quality, warning)
    facts = new.facts if new else _facts_of(output, wanted.encode.reading.max_pixels)
    _tell_partial(console, facts)
    counts = {
        "added": new.added if new else 0,
        "replaced": new.replaced if new else 0,
        "changed": len(result.changed),
        "unchanged": result.unchanged,
    }
    _tell_raw(console, result.raw)
    data = {
        **facts,
        "skipped": _listed(result.skipped),
        "raw": _listed(result.raw),
        "appended": counts,
        "output": output,
        "seconds": console.seconds,
        "low_quality": [asdict(item) for item in result.low_quality],
        "warning": warning,
    }
    added = counted(counts["added"], "image")
    did = f"{added} added, {counts['replaced']} replaced, {result.unchanged} unchanged"
    text = (
        f"{did}\n{_summary(console, output, facts)}" if new else f"nothing new ({result.unchanged} unchanged)"
    )
    text = "\n".join(filter(None, [text, result.ignored.text]))
    console.result({**data, **result.ignored.facts}, text)
    return options.EXIT_SKIPPED if result.skipped or result.low_quality or warning else 0


def _facts_of(output: Path, max_pixels: int) -> dict[str, Any]:
    """What there is to know of an archive that nothing was added to."""
    from tpca_cli.archive.limits import usual_or_more
    from tpca_cli.archive.reader import Archive

    with Archive(output, ready=False, max_pixels=usual_or_more(max_pixels)) as archive:
        return archive.info()


def _tell_quality(console: Console, items: Sequence[LowQuality], warning: str) -> None:
    """Images whose error is a large share of what can be seen in them, and a result far from its target."""
    shown = len(items) if console.verbose else SHOWN
    for item in items[:shown]:
        lost = f"{100 * item.share:.0f} % of its variance" if item.share < 2 else "far more than varies in it"
        console.warn(
            f"low quality: {printable(item.name)}: the error is {lost} "
            f"({item.psnr:.2f} dB); a higher --psnr or a finer --step keeps more"
        )
    if len(items) > shown:
        console.warn(f"and {len(items) - shown} more of low quality (all with --verbose or --json)")
    if warning:
        console.warn(warning)


def _listed(items: Sequence[Skipped]) -> list[dict[str, Any]]:
    return [{"path": item.path, "reason": item.reason} for item in items]


def _tell_raw(console: Console, items: Sequence[Skipped]) -> None:
    """Files that are kept byte for byte because nothing better can be made of them."""
    shown = len(items) if console.verbose else SHOWN
    for item in items[:shown]:
        console.say(f"kept as it is: {printable(item.path)}: {item.reason}")
    if len(items) > shown:
        console.say(f"and {len(items) - shown} more that are kept as they are (all with --verbose or --json)")


def _tell_partial(console: Console, facts: Mapping[str, Any]) -> None:
    if facts["partial"]:
        some = "1 image is" if facts["partial"] == 1 else f"{facts['partial']} images are"
        console.say(
            f"{some} archived in part: `tpca verify --against` calls no such file safe to delete. Left out:"
        )
        for reason, count in list(facts["partial_reasons"].items())[:SHOWN_REASONS]:
            console.say(f"  {count:6}  {reason}")


def _summary(console: Console, output: Path, facts: Mapping[str, Any]) -> str:
    share = f"{times(facts['ratio_raw'])} the pixels, " if facts["raw_bytes"] else ""  # or files only
    return (
        f"{counted(facts['images'], 'image')}, {human(facts['source_bytes'])} of files, "
        f"{human(facts['raw_bytes'])} of pixels, in {duration(console.seconds)}\n"
        f"{printable(output)}: {human(facts['archive_bytes'])}, {times(facts['ratio_source'])} the files, "
        f"{share}{shown_quality(facts)}"
    )
