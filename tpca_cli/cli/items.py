"""Tensors of any order in `fit-basis` and `encode`: what these commands do where sources are no images."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpca_cli.cli import options
from tpca_cli.cli.console import Console, human, times
from tpca_cli.errors import TpcaError, UsageError, printable

if TYPE_CHECKING:
    from tpca_cli.encode.items import EncodedItems
    from tpca_cli.fit.items import FittedItems
    from tpca_cli.frames.items import Checked
    from tpca_cli.tensor_pca.basis import TensorBasis

ARRAYS = (".npy", ".npz")

stack_option = click.option(
    "--stack",
    is_flag=True,
    help="One tensor per item: a .npy or .npz file, all pages of a TIFF file, a folder of numbered slices. "
    "Sources that begin with .npy or .npz files need no --stack.",
)


def are_tensors(sources: Sequence[str], stack: bool) -> bool:
    """Whether the sources are tensors: said so, or `.npy` and `.npz` files by name."""
    if stack or any(source.lower().endswith(ARRAYS) for source in sources):
        return True
    return _first(sources).lower().endswith(ARRAYS)


def _first(sources: Sequence[str]) -> str:
    """The first file in the first of the folders among the sources that has any; else the first source."""
    for source in filter(os.path.isdir, sources):
        for folder, folders, names in os.walk(source):
            folders.sort()
            shown = sorted(name for name in names if not name.startswith("."))
            if shown:
                return os.path.join(folder, shown[0])
    return next(iter(sources), "")


def tell_of_pages(console: Console, sources: Sequence[str]) -> None:
    """Where images are projected as they are read, pages after the first are not: say so of a first file."""
    first = _first(sources)
    if first.lower().endswith((".tif", ".tiff")):
        from tpca_cli.images.arrays import probe_tiff

        with suppress(TpcaError):  # what is not readable is told elsewhere
            if probe_tiff(os.fsencode(first)).shape[0] > 1:
                console.warn(
                    f"{printable(first)} has several pages, and of such files only the first is read: "
                    "--stack takes all of them as one tensor"
                )


def _refuse(*names: str) -> None:
    """An error where options that belong to images are given with tensors."""
    options.refuse_typed(names, "{} is of no use here: leave it out for tensors")


def fit_tensors(function: options.F) -> options.F:
    """`--stack` and `--operator` of `fit-basis`: with them, the basis is fitted here."""

    @functools.wraps(function)
    def either(*args: Any, stack: bool, operator: Path | None, **asked: Any) -> Any:
        if operator is not None or are_tensors(asked["sources"], stack):
            return _fit(operator, **asked)
        if not asked["sources"]:
            raise UsageError("missing argument 'SOURCE...': a folder, files, or --operator A.npy")
        tell_of_pages(asked["console"], asked["sources"])
        return function(*args, **asked)

    given = click.option(
        "--operator",
        type=options.InputFile(),
        metavar="A.npy",
        help="Take this self-adjoint operator (I1, .., Id, I1, .., Id) instead of sources: Algorithm 1 as "
        "the paper states it.",
    )
    return stack_option(given(either))  # type: ignore[return-value]


def _fit(operator: Path | None, *, console: Console, work: options.Work, **asked: Any) -> int:
    """`fit-basis` of tensors, or of a given operator."""
    from tpca_cli import store
    from tpca_cli.fit.items import fit_items, fit_operator
    from tpca_cli.fit.plan import FitOptions

    if bool(asked["sources"]) == (operator is not None):
        raise UsageError("give either SOURCE or --operator")
    _refuse("size", "tile", "update", "cache", "cluster", "scores", "dry_run")
    output = asked["output"]
    if output is None:
        raise UsageError("missing option '-o' / '--output'")
    names = ("method", "solver", "components", "energy", "all_pairs", "center", "tolerance")
    kept = ("keep_operator", "operator_only", "truncation")
    wish = FitOptions(**{name: asked[name] for name in (*names, *kept)})
    limits: dict[str, Any] = {"memory": work.memory, "max_values": work.max_pixels, "force": work.force}
    with store.lock(output, work.lock_wait):
        if operator is not None:
            result = fit_operator(operator, output, wish, say=console.say, **limits)
        else:
            result = fit_items(
                asked["sources"],
                output,
                wish,
                on_error=work.on_error,
                say=console.say,
                progress=console.progress,
                **limits,
            )
    return _tell_fit(console, output, result)


def _tell_fit(console: Console, output: Path, result: FittedItems) -> int:
    console.skipped(result.skipped)
    facts = {
        **result.facts,
        "sums": "float64" if result.item.floating else "exact",
        "skipped": [{"path": item.path, "reason": item.reason} for item in result.skipped],
    }
    energy = "" if facts["energy"] is None else f", {100 * facts['energy']:.3f} % of the energy"
    text = (
        f"{facts['frames']} tensors {result.item}, sums {facts['sums']}\n"
        f"{facts['components']} components ({facts['method']}){energy}\n"
        f"{printable(output)}: {human(facts['file_bytes'])}"
    )
    console.result(facts, text)
    return options.EXIT_SKIPPED if result.skipped else 0


IMAGES_ONLY = (
    "psnr", "energy", "max_bytes", "ratio", "exact", "max_error", "tune", "coding", "tile", "size", "append",
    "link_basis", "cluster", "dry_run",
)  # fmt: skip


def encode_tensors(*, console: Console, work: options.Work, **asked: Any) -> int:
    """`encode` of tensors: the paper's truncation."""
    from tpca_cli import store
    from tpca_cli.encode.items import encode_items
    from tpca_cli.fit.items import solve_items
    from tpca_cli.fit.plan import FitOptions
    from tpca_cli.tensor_pca.solve import fixed_threads

    _refuse(*IMAGES_ONLY)
    components, output, basis = asked["components"], asked["output"], asked["basis"]
    if components is None:
        raise UsageError("tensors are encoded by the paper's truncation: say how many --components to keep")
    if basis is not None:
        _refuse("method")
    wish = FitOptions(asked["method"], components=components)

    def solved(found: Checked) -> TensorBasis:
        with fixed_threads():
            return solve_items(found, wish, work.memory, work.max_pixels, console.say)

    with store.lock(output, work.lock_wait):
        result = encode_items(
            asked["sources"],
            output,
            components,
            basis=basis,
            fit=solved,
            step=asked["step"],
            max_values=work.max_pixels,
            on_error=work.on_error,
            force=work.force,
            progress=console.progress,
        )
    return _tell_encode(console, output, result)


def _tell_encode(console: Console, output: Path, result: EncodedItems) -> int:
    console.skipped(result.skipped)
    facts: dict[str, Any] = {
        "images": result.items,
        "item": result.item.to_dict(),
        **{
            name: getattr(result, name)
            for name in (
                "raw_bytes", "archive_bytes", "basis_bytes", "coefficient_bytes", "components", "step",
                "method", "psnr", "rms_error", "max_error", "grid_step",
            )
        },
        "output": output,
        "skipped": [{"path": item.path, "reason": item.reason} for item in result.skipped],
    }  # fmt: skip
    ratio = times(result.raw_bytes / result.archive_bytes)
    console.result(
        facts,
        f"{result.items} tensors {result.item}, {result.components} components ({result.method})\n"
        f"{printable(output)}: {human(result.archive_bytes)}, {ratio} the "
        f"samples, {result.psnr:.2f} dB, error {result.rms_error:.3g} rms, at most {result.max_error:.3g}",
    )
    return options.EXIT_SKIPPED if result.skipped else 0
