"""Fit a basis: scan, stage, plan, accumulate, solve, write."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli import basisfile, store
from tpca_cli.basisfile import Origin, StoredBasis
from tpca_cli.errors import TpcaError, UsageError, printable
from tpca_cli.fit.plan import (
    FitOptions,
    FitRequest,
    Plan,
    ProblemSize,
    _named,
    held_bytes,
    inherited,
    plan,
    staged_most,
)
from tpca_cli.fit.remote import RemoteReader
from tpca_cli.frames.stage import Staged, stage
from tpca_cli.interfaces import Frames, Progress, Say
from tpca_cli.sources.probe import Kind, mode_fits
from tpca_cli.sources.read_plan import ReadPlan, scan_or_fail
from tpca_cli.sources.scan import Ignored, Scan, Skipped
from tpca_cli.tensor_pca.algorithm1 import TensorOperator, solve_operator
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, measured_rank1, singular_rank1, solve_modes
from tpca_cli.tensor_pca.basis import OperatorBasis, SubspaceBasis, TensorBasis
from tpca_cli.tensor_pca.solve import Operator, fixed_threads, new_operator, solve_frames, solve_given


@dataclass(frozen=True)
class Fitted:
    """What came out."""

    facts: Mapping[str, Any]  # of the file
    plan: Plan
    basis: TensorBasis | None
    images: int  # counted by this run
    duplicates: int
    skipped: tuple[Skipped, ...]
    ignored: Ignored
    seconds: dict[str, float] = field(default_factory=dict)


def fit(request: FitRequest, say: Say, progress: Progress | None = None) -> Fitted:
    """Learn a basis from images and write it; with `update`, from these and those counted before."""
    in_place = request.update is not None and _same(request.update, request.output)
    if not in_place:
        store.check_output(request.output, request.force)
    if request.scores is not None:
        store.check_output(request.scores, request.force)
    base = None if request.update is None else _base(request)
    wish = request.wish if base is None else inherited(request.wish, base)
    clock = _Clock()
    found = scan_or_fail(request.sources, request.on_error, distinct=True)
    clock.lap("list")
    with _staged(found, request, wish, base, progress) as staged:
        clock.lap("read")
        keep = new_images(staged, base, request.on_duplicate)
        frames: Frames = staged.frames if keep.all() else staged.only(keep)
        memory = request.memory - held_bytes(frame_bytes(staged.frames), request)
        dtype = np.dtype(staged.frames.dtype)
        counts = ProblemSize(
            frames.count + (base.origin.frames if base else 0),
            staged.framing.frame_shape,
            dtype.itemsize,
            memory,
            given=base is not None,
        )
        decided = plan(wish, counts)
        say(describe(decided, counts, staged.place))
        if staged.framing.channels in (2, 4):
            _tell_of_alpha(staged, say)
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
        basis, facts = _solve_and_write(request, wish, decided, origin, frames, base, clock, progress)
        if request.scores is not None and basis is not None:
            from tpca_cli.fit.scores import write_fitted_scores
            from tpca_cli.scores.writer import ScoresBasis

            of = ScoresBasis(basis, staged.framing, origin.dtype, facts["digest"])
            write_fitted_scores(
                request.scores, staged, keep, of, request.scores_dtype, force=request.force, progress=progress
            )
            clock.lap("scores")
        skipped = (*found.skipped, *staged.skipped)
        duplicates = int(np.count_nonzero(~keep)) + found.repeated
    return Fitted(facts, decided, basis, int(keep.sum()), duplicates, skipped, found.left_out, clock.seconds)


def _tell_of_alpha(staged: Staged, say: Say) -> None:
    """An archive takes images with alpha on a basis of their own: of a mixed folder it would take a part."""
    kind = Kind(np.dtype(staged.frames.dtype).str[1:], staged.framing.channels)
    lost = sum(not mode_fits(header.mode, kind) for header in staged.headers)
    if lost:
        say(
            f"{lost} of {len(staged.headers)} images cannot be archived with a basis of {kind} images, only "
            "projected (`tpca encode --plain`): leave images with alpha out by --exclude, or fit them apart"
        )


def _solve_and_write(
    request: FitRequest,
    wish: FitOptions,
    decided: Plan,
    origin: Origin,
    frames: Frames,
    base: StoredBasis | None,
    clock: _Clock,
    progress: Progress | None,
) -> tuple[TensorBasis | None, dict[str, Any]]:
    basis, operator = _solve(request, wish, decided, frames, clock, progress)
    clock.lap("solve")
    expect = base.identity if base is not None and _same(request.update, request.output) else None
    facts = basisfile.write(
        request.output, origin, basis, operator, force=request.force or expect is not None, expect=expect
    )
    clock.lap("write")
    return basis, facts


def _solve(
    request: FitRequest,
    wish: FitOptions,
    decided: Plan,
    frames: Frames,
    clock: _Clock,
    progress: Progress | None,
) -> tuple[TensorBasis | None, Operator | None]:
    """The basis that was wished for, and the operator if it is to be kept."""
    with fixed_threads():
        if decided.streamed or decided.method == "subspace":
            return _principal(wish, decided, frames, progress), None
        operator = new_operator(decided.method, frames.frame_shape, frames.dtype)
        if request.update is not None:
            basisfile.add_operator(request.update, operator)
        frames.add_to(operator, progress)
        clock.lap("operator")
        consume = not decided.keep_operator
        basis: TensorBasis | None
        if wish.operator_only:
            basis = None
        elif decided.principal is not None:
            assert isinstance(operator, ModeOperators)
            principal = _principal(wish, decided.principal, frames, progress)
            basis = singular_rank1(solve_modes(operator, center=wish.center), principal)
        elif decided.truncation == "indices":
            assert isinstance(operator, ModeOperators)
            complete = solve_modes(operator, center=wish.center)
            basis = measured_rank1(complete, frames, decided.components, energy=decided.energy)
        else:
            basis = solve_given(
                operator,
                decided.components,
                energy=decided.energy,
                center=wish.center,
                tolerance=wish.tolerance,
                consume=consume,
            )
        return basis, None if consume else operator


def _principal(
    wish: FitOptions, decided: Plan, frames: Frames, progress: Progress | None
) -> OperatorBasis | SubspaceBasis:
    """The principal components of the frames, by Algorithm 1 or 3."""
    if decided.streamed or decided.method == "subspace":
        return solve_frames(
            frames,
            decided.method,
            decided.components,
            energy=decided.energy,
            center=wish.center,
            tolerance=wish.tolerance,
            exact=decided.solver != "fast",
            progress=progress,
        )
    operator = TensorOperator(frames.frame_shape, frames.dtype)
    frames.add_to(operator, progress)
    return solve_operator(
        operator,
        decided.components,
        energy=decided.energy,
        center=wish.center,
        tolerance=wish.tolerance,
        consume=True,
    )


@contextmanager
def _staged(
    found: Scan, request: FitRequest, wish: FitOptions, base: StoredBasis | None, progress: Progress | None
) -> Iterator[Staged]:
    """The frames of the files, as long as they are needed."""

    def foreseen(frames: int, recipe: ReadPlan) -> str | None:
        """The method whose operator will be wanted, if all files can be read."""
        shape, itemsize = recipe.framing.frame_shape, np.dtype(recipe.dtype).itemsize
        memory = request.memory - held_bytes(frames * prod(shape) * itemsize, request)
        counted = base.origin.frames if base else 0
        try:
            decided = plan(
                wish, ProblemSize(frames + counted, shape, itemsize, memory, given=base is not None)
            )
        except UsageError:
            return None  # it is an error once the files are known, and with their true number
        return None if decided.streamed or decided.method == "subspace" else decided.method

    elsewhere = None if request.cluster is None else RemoteReader(request.cluster, foreseen)
    try:
        staged = stage(
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
    except TpcaError as error:
        if error.skipped:  # nothing is left: say it of the files that never came so far, too
            error.skipped = (*_named(found.skipped), *error.skipped)
        raise
    with staged:
        yield staged


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


def describe(decided: Plan, counts: ProblemSize, place: str) -> str:
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


def new_images(staged: Staged, base: StoredBasis | None, on_duplicate: str) -> npt.NDArray[np.bool_]:
    """Which images to count: with a base, none that it has counted before, and each only once."""
    keep = np.ones(len(staged.refs), bool)
    if base is None:
        return keep
    seen = {row.tobytes() for row in base.origin.digests}
    for i, row in enumerate(staged.digests):
        keep[i] = row.tobytes() not in seen
        seen.add(row.tobytes())
    if on_duplicate == "refuse" and not keep.all():
        first = staged.refs[int(np.argmin(keep))]
        raise UsageError(
            f"{int((~keep).sum())} of {len(keep)} images are counted already, the first is "
            f"{printable(first.path)}; --on-duplicate skip leaves them out"
        )
    return keep


def sorted_digests(*parts: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """All digests in one order, whatever order the images came in."""
    rows = np.ascontiguousarray(np.concatenate(parts)).view(">u8").reshape(-1)
    return np.sort(rows).view(np.uint8).reshape(-1, 8)
