"""Fit a basis: scan, stage, plan, accumulate, solve, write."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

import numpy as np

from tpca_cli import basisfile, store
from tpca_cli.bases import Basis, Rank1Basis
from tpca_cli.basisfile import Origin, StoredBasis
from tpca_cli.cluster import Cluster
from tpca_cli.errors import TpcaError, UsageError, printable
from tpca_cli.operators import Frames
from tpca_cli.pipeline import solving
from tpca_cli.pipeline.counted import chosen, new_images, sorted_digests
from tpca_cli.pipeline.plan import Counts, Plan, Wish, plan
from tpca_cli.pipeline.remote import RemoteReader
from tpca_cli.scan import Scan, Skipped, scan
from tpca_cli.tensors import Staged, stage
from tpca_cli.tensors.choice import Recipe

Say = Callable[[str], None]
Progress = Callable[[str, int, int], None]

STAGED_SHARE = 4  # frames may take this part of the memory before they go to disk,
STAGED_MOST = 1 << 24  # and never more than this: passes over a file are as fast


@dataclass(frozen=True)
class FitRequest:
    """Everything that `tpca fit-basis` was asked to do."""

    sources: Sequence[str]
    output: Path
    wish: Wish
    size: tuple[int, int] | None = None
    tile: int | None = None
    memory: int = 2 << 30
    workers: int = 1
    max_pixels: int = 100_000_000
    on_error: str = "skip"
    on_duplicate: str = "refuse"
    cache: Path | None = None
    update: Path | None = None
    force: bool = False
    cluster: Cluster | None = None


@dataclass(frozen=True)
class Fitted:
    """What came out."""

    origin: Origin
    plan: Plan
    basis: Basis | None
    images: int  # counted by this run
    duplicates: int
    skipped: tuple[Skipped, ...]
    ignored: int
    seconds: dict[str, float] = field(default_factory=dict)


def fit(request: FitRequest, say: Say, progress: Progress | None = None) -> Fitted:
    """Learn a basis from images and write it; with `update`, from these and those counted before."""
    in_place = request.update is not None and _same(request.update, request.output)
    if not in_place:
        store.check_output(request.output, request.force)
    base = None if request.update is None else _base(request)
    wish = request.wish if base is None else inherited(request.wish, base)
    clock = _Clock()
    found = scan(request.sources)
    clock.lap("list")
    check_scan(found, request)
    with ExitStack() as stack:
        try:
            staged = stack.enter_context(_stage(found, request, wish, base, progress))
        except TpcaError as error:
            if error.skipped:  # nothing is left: say it of the files that never came so far, too
                error.skipped = (*_named(found.skipped), *error.skipped)
            raise
        clock.lap("read")
        keep = new_images(staged, base, request.on_duplicate)
        frames: Frames = staged.frames if keep.all() else chosen(staged, keep)
        memory = request.memory - held_bytes(frame_bytes(staged.frames), request)
        dtype = np.dtype(staged.frames.dtype)
        counts = Counts(
            frames.count + (base.origin.frames if base else 0),
            staged.framing.frame_shape,
            dtype.itemsize,
            memory,
            given=base is not None,
        )
        decided = plan(wish, counts)
        say(describe(decided, counts, staged.place))
        origin = Origin(
            method=decided.method,
            framing=staged.framing,
            dtype=f"u{dtype.itemsize}",
            frames=counts.frames,
            digests=sorted_digests(staged.digests[keep], *([base.origin.digests] if base else [])),
            size=base.origin.size if base else request.size,
            center=wish.center,
            solver=decided.solver,
            choice=wish.choice,
        )
        with solving.fixed_threads():
            basis = _solve_and_write(request, wish, decided, origin, frames, base, clock, progress)
        skipped = (*found.skipped, *staged.skipped)
        duplicates = int(np.count_nonzero(~keep))
    return Fitted(
        origin, decided, basis, int(keep.sum()), duplicates, skipped, len(found.ignored), clock.seconds
    )


def _solve_and_write(
    request: FitRequest,
    wish: Wish,
    decided: Plan,
    origin: Origin,
    frames: Frames,
    base: StoredBasis | None,
    clock: _Clock,
    progress: Progress | None,
) -> Basis | None:
    operator = None
    basis: Basis | None
    if decided.streamed or decided.method == "subspace":
        basis = solving.solve_frames(frames, decided, wish, progress)
    else:
        operator = solving.new_operator(decided.method, frames.frame_shape, frames.dtype)
        if request.update is not None:
            basisfile.add_operator(request.update, operator)
        solving.accumulate(operator, frames, progress)
        clock.lap("operator")
        consume = not decided.keep_operator
        if wish.operator_only:
            basis = None
        elif decided.method == "rank1" and decided.energy is not None and base is None:
            complete = Rank1Basis.from_operators(operator, center=wish.center)  # type: ignore[arg-type]
            basis = solving.measured_rank1(complete, frames, decided.energy)
        else:
            basis = solving.solve_given(operator, decided, wish, consume=consume)
        operator = None if consume else operator
    clock.lap("solve")
    expect = base.identity if base is not None and _same(request.update, request.output) else None
    basisfile.write(
        request.output, origin, basis, operator, force=request.force or expect is not None, expect=expect
    )
    clock.lap("write")
    return basis


def _stage(
    found: Scan, request: FitRequest, wish: Wish, base: StoredBasis | None, progress: Progress | None
) -> Staged:
    def foreseen(frames: int, recipe: Recipe) -> str | None:
        """The method whose operator will be wanted, if all files can be read."""
        shape, itemsize = recipe.framing.frame_shape, np.dtype(recipe.dtype).itemsize
        memory = request.memory - held_bytes(frames * prod(shape) * itemsize, request)
        counted = base.origin.frames if base else 0
        try:
            decided = plan(wish, Counts(frames + counted, shape, itemsize, memory, given=base is not None))
        except UsageError:
            return None  # it is an error once the files are known, and with their true number
        return None if decided.streamed or decided.method == "subspace" else decided.method

    elsewhere = None if request.cluster is None else RemoteReader(request.cluster, foreseen)
    return stage(
        found.refs,
        None if base is None else base.framing,
        memory=staged_most(request.memory),
        size=base.origin.size if base else request.size,
        tile=None if base else request.tile,
        dtype=None if base is None else base.dtype,
        cache=request.cache,
        beside=request.output,
        workers=request.workers,
        max_pixels=request.max_pixels,
        on_error=request.on_error,
        progress=progress,
        elsewhere=elsewhere,
    )


def _base(request: FitRequest) -> StoredBasis:
    assert request.update is not None
    if request.size is not None or request.tile is not None:
        raise UsageError("--update takes the framing of the basis: leave out --size and --tile")
    base = basisfile.read(request.update)
    if base.origin.method == "subspace":
        raise UsageError(
            f"{printable(request.update)} is a subspace basis: its N x N operator needs the pixels of all "
            "its images and cannot be added to; fit again, or use --method operator or rank1"
        )
    if base.operator_kind is None:
        raise UsageError(
            f"{printable(request.update)} holds no operator to add to: fit it with --keep-operator"
        )
    return base


def inherited(wish: Wish, base: StoredBasis) -> Wish:
    """The wish with what the file says where the command line is silent."""
    origin = base.origin
    if wish.method not in ("auto", origin.method):
        raise UsageError(f"the basis to update has method {origin.method}, not {wish.method}")
    wish = replace(wish, method=origin.method, center=origin.center or wish.center)
    choice = origin.choice or {}
    if wish.choice is None:
        wish = replace(
            wish,
            components=choice.get("components"),
            energy=choice.get("energy"),
            all_pairs=bool(choice.get("all")),
        )
    return wish if origin.method == "rank1" else replace(wish, keep_operator=True)


def check_scan(found: Scan, request: FitRequest) -> None:
    if found.skipped and request.on_error == "fail":
        first = found.skipped[0]
        raise TpcaError(f"{printable(first.path)}: {first.reason} (--on-error skip would leave it out)")
    if not found.refs:
        where = ", ".join(printable(source) for source in request.sources)
        error = TpcaError(f"no image in {where} ({len(found.skipped)} skipped, {len(found.ignored)} ignored)")
        error.skipped = _named(found.skipped)
        raise error


def _named(skipped: Sequence[Skipped]) -> tuple[tuple[str, str], ...]:
    return tuple((printable(item.path), item.reason) for item in skipped)


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        now = time.monotonic()
        self.seconds[stage] = round(now - self._last, 3)
        self._last = now


def frame_bytes(frames: Frames) -> int:
    """Bytes of the pixels."""
    return frames.count * prod(frames.frame_shape) * np.dtype(frames.dtype).itemsize


def held_bytes(pixels: int, request: FitRequest) -> int:
    """What frames take of the memory; on a cluster as much, so that the plan is that of one machine."""
    return pixels if request.cache is None and pixels <= staged_most(request.memory) else 0


def staged_most(memory: int) -> int:
    """Bytes of frames that are held in memory rather than in a file."""
    return min(memory // STAGED_SHARE, STAGED_MOST)


def describe(decided: Plan, counts: Counts, place: str) -> str:
    """One line on what is going to happen and why."""
    shape = "x".join(str(side) for side in counts.frame_shape)
    where = {
        "memory": "in memory",
        "file": "on disk",
        "cache": "in the cache",
        "cluster": "on the workers",
    }.get(place, "decoded each time")
    how = " by streamed products" if decided.streamed else ""
    return (
        f"{decided.method}, {decided.solver}{how}: {counts.frames} frames {shape} {where}; {decided.reason}"
    )


def _same(one: Path | None, other: Path) -> bool:
    return one is not None and (one == other or (one.exists() and other.exists() and one.samefile(other)))
