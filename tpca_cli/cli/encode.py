"""`tpca encode`: a folder of images becomes one file."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpca_cli.cli import options
from tpca_cli.cli.options import Console, human
from tpca_cli.errors import UsageError, printable

if TYPE_CHECKING:
    from tpca_cli.encode.run import EncodeRequest
    from tpca_cli.rate import Target

EPILOG = """\b
Examples:
  tpca encode photos/ -o photos.h5 --psnr 36
  tpca encode scans/ -o scans.h5 --max-bytes 20M
  tpca encode faces/ -o faces.h5 --basis faces-basis.h5 --components 100
  tpca encode photos/ -o photos.h5 --append

\b
Targets (give one; --components combines with any): --psnr, --energy, --max-bytes, --ratio, --step.
Without a target, the result has 36 dB: hard to tell from the original at normal size."""

SHOWN_REASONS = 5
TARGETS = ("psnr", "energy", "max_bytes", "ratio", "step")


@click.command("encode", epilog=EPILOG)
@options.sources_argument
@options.output_option
@click.option(
    "--psnr", type=click.FloatRange(5, 120), metavar="DB", help="Reach this quality, pooled over all samples."
)
@click.option(
    "--energy",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Keep this share of the energy (0..1).",
)
@click.option("--max-bytes", type=options.ByteSize(), help="Stay within this file size.")
@click.option(
    "--ratio", type=click.FloatRange(1, min_open=True), help="Be this many times smaller than raw pixels."
)
@click.option("--step", type=click.FloatRange(1 / 64, 2000), help="Quantiser step, in pixel values.")
@click.option(
    "--components", type=click.IntRange(1), metavar="M", help="Keep at most M components per frame."
)
@click.option(
    "--basis", type=click.Path(path_type=Path), help="Use the basis of this file instead of fitting one."
)
@click.option("--link-basis", is_flag=True, help="Store only the digest of --basis, not the basis.")
@click.option(
    "--method",
    type=click.Choice(["auto", "operator", "rank1"]),
    default="auto",
    show_default=True,
    help="The kind of basis to fit.",
)
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
@options.workers_option
@options.cluster_option
@options.max_pixels_option
@options.on_error_option
@options.lock_wait_option
@options.force_option
@options.dry_run_option
@options.common_options
def command(console: Console, sources: tuple[str, ...], output: Path, **given: Any) -> int:
    """Compress images into one self-contained archive.

    SOURCE is a folder (searched recursively), a file, a glob, or @list.txt. The basis is learned from the
    images themselves and stored with them, unless --basis names one.
    """
    from tpca_cli import store
    from tpca_cli.cluster.connect import connect
    from tpca_cli.encode.remote import ClusterWorkers, encode_cluster_costs
    from tpca_cli.encode.run import EncodeRequest, plan_encoding
    from tpca_cli.rate import Target
    from tpca_cli.sources.read_plan import Reading

    target = Target.choose(
        components=given["components"],
        **{kind: given[kind] for kind in TARGETS},
    )
    if not given["append"] and (given["refit"] or given["on_change"] != "replace"):
        raise UsageError("--refit and --on-change belong to --append")
    if given["append"] and output.is_symlink():
        output = Path(os.path.realpath(output))  # a link to an archive stays a link
    if given["basis"] is not None and (given["tile"] or given["method"] != "auto"):
        raise UsageError("--basis brings its own method and framing: leave out --method and --tile")
    request = EncodeRequest(
        sources=sources,
        output=output,
        target=target,
        reading=Reading(
            given["size"],
            given["max_pixels"],
            given["on_error"],
            given["workers"],
            strip_metadata=given["strip_metadata"],
        ),
        basis=given["basis"],
        link_basis=given["link_basis"],
        method=given["method"],
        tile=given["tile"],
        force=given["force"],
    )
    appending = given["append"] and output.exists()
    if given["dry_run"] and appending:
        return _append(console, request, given, target)
    if given["dry_run"]:
        facts = plan_encoding(request, console.progress)
        if given["cluster"] is not None:
            facts |= encode_cluster_costs(facts, given["cluster"])
        width = max(map(len, facts))
        console.result(facts, "\n".join(f"{key:{width}} {value}" for key, value in facts.items()))
        return 0
    if target.kind == "psnr" and given["psnr"] is None and not appending:
        console.say(
            f"no target given: aiming at {target.value:g} dB (--psnr, --max-bytes, .. choose another)"
        )
    with ExitStack() as stack:
        stack.enter_context(store.lock(output, given["lock_wait"]))
        removed, kept = store.remove_stale(output)
        for path in [*removed, *kept]:
            console.say(
                f"{'removed' if path in removed else 'found'} {printable(path)}, left by a killed run"
            )
        if given["cluster"] is not None:
            cluster = stack.enter_context(connect(given["cluster"]))
            request = replace(request, workers=ClusterWorkers(cluster))
        # looked at again under the lock: the run that we waited for may have made it
        if given["append"] and output.exists():
            return _append(console, request, given, target)
        return _encode(console, request)


def _encode(console: Console, request: EncodeRequest) -> int:
    from tpca_cli.archive.reader import Archive
    from tpca_cli.encode.run import encode

    result = encode(request, console.say, console.progress)
    console.skipped(result.skipped)
    with Archive(request.output, ready=False) as archive:
        facts = archive.info()
    _tell_partial(console, facts)
    console.result(facts, _summary(request.output, facts))
    return options.EXIT_SKIPPED if result.skipped else 0


def _append(console: Console, request: EncodeRequest, given: dict[str, Any], target: Target) -> int:
    from tpca_cli.archive.reader import Archive
    from tpca_cli.encode.append import AppendRequest, append, plan_append

    asked = any(given[kind] is not None for kind in ("components", *TARGETS))
    wanted = AppendRequest(request, given["on_change"], given["refit"], target if asked else None)
    if given["dry_run"]:
        counts = plan_append(wanted)
        console.result(counts, "\n".join(f"{key:14} {value}" for key, value in counts.items()))
        return 0
    result = append(wanted, console.say, console.progress)
    console.skipped(result.skipped)
    done = "replaced by" if given["on_change"] == "replace" else "kept, in spite of"
    for path in result.changed:
        console.say(f"archived version {done} {printable(path)}")
    new = result.extended
    if new and new.warning:
        console.warn(new.warning)
    with Archive(request.output, ready=False) as archive:
        facts = archive.info()
    _tell_partial(console, facts)
    counts = {
        "added": new.added if new else 0,
        "replaced": new.replaced if new else 0,
        "changed": len(result.changed),
        "unchanged": result.unchanged,
    }
    skipped = [{"path": item.path, "reason": item.reason} for item in result.skipped]
    data = {**facts, "skipped": skipped, "appended": counts, "warning": new.warning if new else ""}
    did = f"{counts['added']} images added, {counts['replaced']} replaced, {result.unchanged} unchanged"
    text = (
        f"{did}\n{_summary(request.output, facts)}" if new else f"nothing new ({result.unchanged} unchanged)"
    )
    console.result(data, text)
    return options.EXIT_SKIPPED if result.skipped else 0


def _tell_partial(console: Console, facts: dict[str, Any]) -> None:
    if facts["partial"]:
        console.say(
            f"{facts['partial']} images are archived in part: `tpca verify --against` does not call their "
            "files safe to delete. They are without:"
        )
        for reason, count in list(facts["partial_reasons"].items())[:SHOWN_REASONS]:
            console.say(f"  {count:6}  {reason}")


def _summary(output: Path, facts: dict[str, Any]) -> str:
    return (
        f"{facts['images']} images, {human(facts['source_bytes'])} of files, "
        f"{human(facts['raw_bytes'])} of pixels\n"
        f"{output}: {human(facts['archive_bytes'])}, {_times(facts['ratio_source'])} the files, "
        f"{_times(facts['ratio_raw'])} the pixels, {_quality(facts)}"
    )


def _times(ratio: float) -> str:
    return f"1/{ratio:.1f} of" if ratio >= 1 else f"{1 / max(ratio, 1e-9):.1f} times"


def _quality(facts: dict[str, Any]) -> str:
    if facts["psnr"] == float("inf"):
        return "identical pixels"
    return f"{facts['psnr']:.2f} dB (worst image {facts['psnr_min']:.2f} dB)"
