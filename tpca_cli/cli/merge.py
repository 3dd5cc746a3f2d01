"""`tpca merge`: operators of disjoint shards become one basis."""

from __future__ import annotations

from pathlib import Path

import click

from tpca_cli.cli import options
from tpca_cli.cli.console import Console
from tpca_cli.cli.fit_basis import basis_text, choice_options, solve_options
from tpca_cli.cli.help import Command

EPILOG = """\b
Examples:
  tpca fit-basis shard1/ -o part1.h5 --tile 8 --operator-only
  tpca fit-basis shard2/ -o part2.h5 --tile 8 --operator-only
  tpca merge part1.h5 part2.h5 -o basis.h5

Operators are sums of integers: the result has the same bytes as one fit over all images (for rank1 with
--components, one with --truncation products: energies are measured on pixels, and an operator has none).

Parts that have counted the same image are refused, since a sum cannot be taken apart."""


@click.command("merge", cls=Command, epilog=EPILOG)
@click.argument("parts", metavar="PART...", nargs=-1, required=True, type=options.INPUT)
@options.output_option
@choice_options
@solve_options
@options.memory_option
@options.lock_wait_option
@options.force_option
@options.common_options
def command(
    console: Console,
    parts: tuple[Path, ...],
    output: Path,
    components: int | None,
    energy: float | None,
    all_pairs: bool,
    center: bool,
    tolerance: float | None,
    keep_operator: bool,
    operator_only: bool,
    memory: int,
    lock_wait: float,
    force: bool,
) -> int:
    """Add the operators of disjoint shards and solve for the basis of all their images.

    PART is a file of `tpca fit-basis` that holds an operator: rank1 and small tiles always do, others with
    --operator-only or --keep-operator. Without --components, --energy or --all, what the parts were fitted
    for decides.
    """
    from tpca_cli import store
    from tpca_cli.fit.merge import MergeRequest, merge
    from tpca_cli.fit.plan import FitOptions

    choice = options.in_force(components=components, energy=energy, all_pairs=all_pairs)
    components, energy, all_pairs = choice.values()
    wish = FitOptions(
        "auto", "exact", components, energy, all_pairs, center, tolerance, keep_operator, operator_only
    )
    with store.lock(output, lock_wait):
        result = merge(MergeRequest(parts, output, wish, memory, force), console.progress)
    facts = {**result.facts, "parts": len(parts)}
    console.result(facts, basis_text(output, facts))
    return 0
