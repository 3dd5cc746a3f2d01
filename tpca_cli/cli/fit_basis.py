"""`tpca fit-basis`: images become a basis file."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpca_cli.cli import items, options
from tpca_cli.cli.console import Console, human, shape, table
from tpca_cli.cli.help import Command
from tpca_cli.errors import UsageError, counted

if TYPE_CHECKING:
    from tpca_cli.fit.plan import FitRequest

EPILOG = """\b
Examples:
  tpca fit-basis photos/ -o basis.h5 --tile 8
  tpca fit-basis faces/ -o faces.h5 --size 64x64 --components 100 --center
  tpca fit-basis monday/ -o basis.h5 --tile 8
  tpca fit-basis tuesday/ --update basis.h5
  tpca fit-basis shard1/ -o part1.h5 --tile 8 --operator-only
  tpca fit-basis volumes/ -o volume.h5 --method subspace --components 3
  tpca fit-basis faces/ -o faces.h5 --method subspace --scores scores.h5

Methods: rank1 (small matrices, one per mode), operator (the eigentensors of the whole operator: the best
basis for its size), subspace (the same for fewer images than pixels), auto.

Solvers: exact forms the operator (its space is the true one within 1e-6, or residuals are at most
--tolerance; needed for --all, --keep-operator, --update and merge), fast reads the frames a few times.

Where an operator does not fit --memory its products are streamed, and auto may choose otherwise: the same
images then give the same components within their residuals, but a file with another digest."""


def choice_options(function: options.F) -> options.F:
    """How many components: options that `merge` has as well."""
    for option in (
        click.option("--all", "all_pairs", is_flag=True, help="Keep all components."),
        click.option(
            "--energy",
            type=options.Number(0, 1, min_open=True),
            metavar="SHARE",
            help="Keep the fewest components that hold this share of the energy (0..1).",
        ),
        click.option(
            "--components", type=options.Count(1), metavar="M", help="Keep the M strongest components."
        ),
    ):
        function = option(function)
    return function


def solve_options(function: options.F) -> options.F:
    """How to solve and what to keep: options that `merge` has as well."""
    for option in (
        click.option("--operator-only", is_flag=True, help="Write the operator alone, to be merged later."),
        click.option(
            "--keep-operator",
            is_flag=True,
            help="Keep a large operator in the file, for --update and merge; small ones always are.",
        ),
        click.option(
            "--tolerance",
            type=options.Number(1e-12, 0.1),
            metavar="R",
            help="The largest residual, as a share of the largest eigenvalue; not reached is an error. "
            "[default: exact finds the true space within 1e-6; fast reports what it reached]",
        ),
        click.option(
            "--center", is_flag=True, help="Subtract the mean frame first (the paper does not; PCA does)."
        ),
    ):
        function = option(function)
    return function


@click.command("fit-basis", cls=Command, epilog=EPILOG)
@options.any_sources_argument
@click.option(
    "-o",
    "--output",
    type=options.OutputFile(),
    help="The file to write; with --update it may be left out.",
)
@options.method_option
@options.size_option
@options.tile_option
@choice_options
@click.option(
    "--truncation",
    type=click.Choice(["indices", "svd", "products"]),
    help="Which components of rank1 to keep: indices, the rank-1 tensors with the most measured energy (one "
    "more pass); svd, the singular vectors of the coefficients (the best M; as large as a dense basis); "
    "products, by products of mode eigenvalues (no pixels needed). [default: indices with --components or "
    "--energy; products with --update, and in merge]",
)
@click.option(
    "--solver",
    type=click.Choice(["auto", "exact", "fast"]),
    default="auto",
    show_default=True,
    help="How to find the components of an operator.",
)
@solve_options
@click.option(
    "--update",
    type=options.InputFile(),
    metavar="BASIS.h5",
    help="Add the images to those that this basis was fitted to.",
)
@click.option(
    "--on-duplicate",
    type=click.Choice(["refuse", "skip"]),
    default="refuse",
    show_default=True,
    help="With --update: what to do with images that are counted already.",
)
@click.option(
    "--cache",
    type=options.OutputFile(),
    metavar="TENSORS.h5",
    help="Keep the decoded frames here and use them again next time.",
)
@click.option(
    "--scores",
    type=options.OutputFile(),
    metavar="SCORES.h5",
    help="Write the coefficients of these images as well, as `tpca encode --plain` does.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="With --scores: the type of the numbers.",
)
@options.memory_option
@options.work_options
@options.pattern_options
@options.common_options
@items.fit_tensors
def command(
    console: Console,
    sources: tuple[str, ...],
    output: Path | None,
    method: str,
    size: tuple[int, int] | None,
    tile: int | None,
    components: int | None,
    energy: float | None,
    all_pairs: bool,
    truncation: str | None,
    solver: str,
    center: bool,
    tolerance: float | None,
    keep_operator: bool,
    operator_only: bool,
    update: Path | None,
    on_duplicate: str,
    cache: Path | None,
    scores: Path | None,
    dtype: str,
    work: options.Work,
) -> int:
    """Learn a basis from images, for `tpca encode --basis`.

    SOURCE is a folder (searched recursively), a file, a glob, or @list.txt. Images of one size are one frame
    each; others are resized with --size, or cut into tiles with --tile (8 x 8 if neither is given).
    """
    from tpca_cli.fit.plan import FitOptions, FitRequest

    output = _output(output or update, work.cluster, cache, scores if operator_only else None)
    choice = options.in_force(components=components, energy=energy, all_pairs=all_pairs)
    components, energy, all_pairs = choice.values()
    solving = (center, tolerance, keep_operator, operator_only, truncation)
    wish = FitOptions(method, solver, components, energy, all_pairs, *solving)
    request = FitRequest(
        sources=sources,
        output=output,
        wish=wish,
        **options.in_force(size=size, tile=tile),
        memory=work.memory,
        workers=work.workers,
        max_pixels=work.max_pixels,
        on_error=work.on_error,
        on_duplicate=on_duplicate,
        cache=cache,
        update=update,
        force=work.force,
        scores=scores,
        scores_dtype=dtype,
    )
    if work.dry_run:
        return _plan(console, request, work.cluster)
    return _fit(console, request, work.cluster, work.lock_wait)


def _output(
    output: Path | None, cluster: str | None, cache: Path | None, scores_of_none: Path | None
) -> Path:
    """The file to write, unless the options contradict one another."""
    if output is None:
        raise UsageError("missing option '-o' / '--output'")
    if cluster is not None and cache is not None:
        raise UsageError("--cache is for one machine: the workers of --cluster keep frames in their memory")
    if scores_of_none is not None:
        raise UsageError("--scores needs a basis, which --operator-only does not make")
    return output


def _plan(console: Console, request: FitRequest, cluster: str | None) -> int:
    """What the run would do, from headers alone."""
    from tpca_cli.fit.preview import fit_cluster_costs, preview

    facts = preview(request, console.progress)
    if cluster is not None:
        facts |= fit_cluster_costs(facts, cluster)
    shown = dict(facts, frame_shape=shape(facts["frame_shape"]))
    for name in facts:
        if "bytes" in name or name == "cluster_memory_per_worker":
            shown[name] = human(facts[name])
    console.result(facts, table(shown))
    return 0


def _fit(console: Console, request: FitRequest, cluster: str | None, lock_wait: float) -> int:
    """Take the lock of the output and the workers, fit, and say what came out."""
    from tpca_cli import store
    from tpca_cli.cluster.connect import connect
    from tpca_cli.fit.run import fit

    with ExitStack() as stack:
        stack.enter_context(store.lock(request.output, lock_wait))
        if cluster is not None:
            request = replace(request, cluster=stack.enter_context(connect(cluster)))
        result = fit(request, console.say, console.progress)
    console.skipped(result.skipped)
    facts = {
        **result.facts,
        "streamed": result.plan.streamed,
        "reason": result.plan.reason,
        "added": result.images,
        "duplicates": result.duplicates,
        "skipped": [{"path": item.path, "reason": item.reason} for item in result.skipped],
        **result.ignored.facts,
        "seconds": result.seconds,
    }
    asked, basis = result.plan.components, result.basis
    if basis is not None and asked is not None and basis.components < asked and basis.total > 0:
        console.warn(f"{asked} components were asked for, but only {basis.components} carry energy")
    if result.duplicates:
        console.say(f"{result.duplicates} images were counted already and left out")
    text = "\n".join(filter(None, [basis_text(request.output, facts), result.ignored.text]))
    console.result(facts, text)
    return options.EXIT_SKIPPED if result.skipped else 0


def basis_text(path: Path, facts: dict[str, Any]) -> str:
    """What a basis file holds, for people."""
    images, frames = counted(facts["images"], "image"), counted(facts["frames"], "frame")
    lines = [f"{images}, {frames} of {shape(facts['frame_shape'])}"]
    if facts["components"] is None:
        return f"{lines[0]}\n{path}: {human(facts['file_bytes'])}, the operator alone"
    if facts["total"] <= 0:
        why = "all images are alike" if facts["centered"] else "all images are black"
        return "\n".join([*lines, f"no energy: {why}", f"{path}: {human(facts['file_bytes'])}"])
    energy = ", by products of mode eigenvalues (energy not measured)"
    if facts["energy"] is not None:
        energy = f", {100 * facts['energy']:.3f} % of the energy"
    center = " after centering" if facts["centered"] else ""
    lines.append(f"{facts['components']} components ({facts['method']}, {facts['solver']}){energy}{center}")
    lines.append(
        f"residual {facts['residual']:.1e} of the largest eigenvalue, "
        f"at most {facts['residual_relative']:.1e} of its own"
    )
    lines.append(f"{path}: {human(facts['file_bytes'])}")
    return "\n".join(lines)
