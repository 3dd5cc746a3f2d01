"""`tpca encode --plain`: the coefficients of images as numbers, in a scores file."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpca_cli.cli import options
from tpca_cli.cli.console import Console, duration, human, table
from tpca_cli.cli.items import are_tensors, tell_of_pages
from tpca_cli.errors import counted, printable

if TYPE_CHECKING:
    from tpca_cli.encode.plain import Plain, PlainRequest


NOT_PLAIN = (
    "psnr", "quality", "energy", "max_bytes", "ratio", "step", "exact", "max_error", "tune", "coding",
    "refit", "strip_metadata",
)  # fmt: skip


def plain_options(function: options.F) -> options.F:
    """`--plain` and what belongs to it."""
    for option in (
        click.option("--compress", is_flag=True, help="With --plain: deflate the numbers; takes longer."),
        click.option(
            "--dtype",
            type=click.Choice(["float32", "float64"]),
            help="With --plain: the type of the numbers. [default: float32]",
        ),
        click.option("--plain", is_flag=True, help="Write coefficients as numbers: scores, no archive."),
    ):
        function = option(function)
    return function


def encode_scores(dtype: str, compress: bool, *, console: Console, work: options.Work, **asked: Any) -> int:
    """Read the options of `encode` as far as they mean something here, and project the sources."""
    from tpca_cli.encode.plain import PlainRequest
    from tpca_cli.sources.read_plan import Reading

    options.refuse_typed(NOT_PLAIN, "--plain keeps coefficients as they are: leave out {}")
    options.refuse_typed(("method", "tile"), "--basis brings its own method and framing: leave out {}")
    if not asked["append"]:
        options.refuse_typed(("on_change",), "{} belongs to --append")
    tensors = are_tensors(asked["sources"], asked["stack"])
    if tensors:
        options.refuse_typed(("size", "dry_run"), "{} is of no use here: leave it out for tensors")
    else:
        tell_of_pages(console, asked["sources"])
    output = asked["output"]
    if asked["append"] and output.is_symlink():
        output = Path(os.path.realpath(output))  # a link to a file stays a link
    request = PlainRequest(
        asked["sources"],
        output,
        Reading(asked["size"], work.max_pixels, work.on_error, work.workers, memory=work.memory),
        asked["basis"],
        asked["link_basis"],
        asked["components"],
        dtype,
        compress,
        work.force,
        asked["append"],
        asked["on_change"],
    )
    if work.dry_run:
        return _plan(console, request)
    return _locked(console, request, work.cluster, work.lock_wait, tensors)


def _plan(console: Console, request: PlainRequest) -> int:
    """What the run would do, from headers alone."""
    from tpca_cli.encode.plain import plan_plain

    facts = plan_plain(request, console.progress)
    console.result(facts, table(facts))
    return 0


def _locked(
    console: Console, request: PlainRequest, cluster: str | None, lock_wait: float, tensors: bool
) -> int:
    """Project the sources under the lock of the output, and say what the file holds."""
    from tpca_cli import store
    from tpca_cli.encode.plain import encode_plain

    with ExitStack() as stack:
        stack.enter_context(store.lock(request.output, lock_wait))
        for path in store.remove_stale(request.output)[0]:
            console.say(f"removed {printable(path)}, left by a killed run")
        products = None
        if cluster is not None:
            from tpca_cli.cluster.connect import connect
            from tpca_cli.encode.plain_remote import project_items_on, project_on
            from tpca_cli.encode.remote import cluster_workers

            connected = stack.enter_context(connect(cluster))
            probe = cluster_workers(connected).probe
            request = replace(request, probe=probe, project=partial(project_on, connected))
            products = partial(project_items_on, connected)
        if tensors:
            from tpca_cli.encode.plain_items import encode_plain_items

            result = encode_plain_items(request, console.progress, products)
        else:
            result = encode_plain(request, console.say, console.progress)
    console.skipped(result.skipped)
    return _tell(console, request, result)


def _tell(console: Console, request: PlainRequest, result: Plain) -> int:
    facts = result.facts
    counts = {"added": result.added, "replaced": result.replaced, "unchanged": result.unchanged}
    data = {
        **facts,
        "skipped": [{"path": item.path, "reason": item.reason} for item in result.skipped],
        **result.ignored.facts,
        "appended": counts if request.append else None,
        "output": request.output,
        "seconds": console.seconds,
    }
    basis = "its basis" if facts["basis"] == "embedded" else "the digest of its basis"
    frames = "" if facts["frames"] == facts["images"] else f" ({facts['frames']} frames)"
    lines = [
        f"{counted(facts['images'], 'image')}{frames} x {facts['components']} components, {facts['dtype']}, "
        f"with {basis}, in {duration(console.seconds)}",
        f"{printable(request.output)}: {human(facts['file_bytes'])}",
    ]
    if request.append:
        lines.insert(0, f"{result.added} added, {result.replaced} replaced, {result.unchanged} unchanged")
    console.result(data, "\n".join(filter(None, [*lines, result.ignored.text])))
    return options.EXIT_SKIPPED if result.skipped else 0
