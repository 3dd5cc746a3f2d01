"""Add the operators of disjoint shards and solve: the same basis as one fit over all their images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tpca_cli import basisfile, store
from tpca_cli.basisfile import StoredBasis
from tpca_cli.errors import UsageError, printable
from tpca_cli.fit.plan import FitOptions, Plan, ProblemSize, plan
from tpca_cli.fit.run import sorted_digests
from tpca_cli.interfaces import Progress
from tpca_cli.tensor_pca.solve import fixed_threads, new_operator, solve_given


@dataclass(frozen=True)
class MergeRequest:
    """Everything that `tpca merge` was asked to do."""

    parts: Sequence[Path]
    output: Path
    wish: FitOptions
    memory: int = 2 << 30
    force: bool = False


@dataclass(frozen=True)
class Merged:
    """What came out."""

    facts: Mapping[str, Any]  # of the file
    plan: Plan


def merge(request: MergeRequest, progress: Progress | None = None) -> Merged:
    """Add up, solve, write."""
    store.check_output(request.output, request.force)
    parts = [basisfile.read(path) for path in request.parts]
    _check_alike(request.parts, parts)
    _check_disjoint(request.parts, parts)
    first = parts[0].origin
    wish = _inherited_options(request.wish, parts)
    shape = first.framing.frame_shape
    frames = sum(part.origin.frames for part in parts)
    counts = ProblemSize(frames, shape, int(first.dtype[1:]), request.memory, given=True)
    decided = plan(wish, counts)
    origin = replace(
        first,
        frames=frames,
        digests=sorted_digests(*(part.origin.digests for part in parts)),
        center=wish.center,
        solver=decided.solver,
        choice=wish.choice,
    )
    operator = new_operator(decided.method, shape, np.dtype(first.dtype))
    for done, path in enumerate(request.parts, 1):
        basisfile.add_operator(path, operator)
        if progress is not None:
            progress("adding operators", done, len(parts))
    basis = None
    if not wish.operator_only:
        with fixed_threads():
            basis = solve_given(
                operator,
                decided.components,
                energy=decided.energy,
                center=wish.center,
                tolerance=wish.tolerance,
                consume=not decided.keep_operator,
            )
    kept = operator if decided.keep_operator else None
    facts = basisfile.write(request.output, origin, basis, kept, force=request.force)
    return Merged(facts, decided)


def _check_alike(paths: Sequence[Path], parts: Sequence[StoredBasis]) -> None:
    for path, part in zip(paths, parts, strict=True):
        name, origin = printable(path), part.origin
        if origin.method == "subspace":
            raise UsageError(
                f"{name} is a subspace basis: an entry of its N x N operator needs the pixels of two images, "
                "so shards do not add up; fit them with --method operator or rank1"
            )
        if part.operator_kind is None:
            raise UsageError(
                f"{name} holds no operator: fit it with --keep-operator, --operator-only or rank1"
            )
        for field in ("method", "framing", "dtype", "size"):
            mine, theirs = getattr(origin, field), getattr(parts[0].origin, field)
            if mine != theirs:
                raise UsageError(
                    f"{name} has {field} {mine}, {printable(paths[0])} has {theirs}: they do not add"
                )


def _check_disjoint(paths: Sequence[Path], parts: Sequence[StoredBasis]) -> None:
    owner: dict[bytes, int] = {}
    for number, part in enumerate(parts):
        for digest in {row.tobytes() for row in part.origin.digests}:
            other = owner.setdefault(digest, number)
            if other != number:
                both = f"{printable(paths[other])} and {printable(paths[number])}"
                raise UsageError(
                    f"{both} have counted the same image (digest {digest.hex()}), and a sum cannot be taken "
                    "apart: fit shards without common images"
                )


def _inherited_options(wish: FitOptions, parts: Sequence[StoredBasis]) -> FitOptions:
    """What the parts were fitted for where the command line is silent; they must then agree."""
    origins = [part.origin for part in parts]
    if wish.choice is None:
        choices = [origin.choice or {} for origin in origins]
        if any(choice != choices[0] for choice in choices):
            raise UsageError("the parts were fitted for different numbers of components: give --components")
        choice = choices[0]
        wish = replace(
            wish,
            components=choice.get("components"),
            energy=choice.get("energy"),
            all_pairs=bool(choice.get("all")),
        )
    centers = {origin.center for origin in origins}
    if len(centers) > 1 and not wish.center:
        raise UsageError("some parts were centered and some were not: give --center, or fit them alike")
    return replace(wish, method=origins[0].method, center=wish.center or centers == {True}, solver="exact")
