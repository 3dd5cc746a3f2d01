"""From an operator, or frames, to a basis: the part that fitting, updating and merging share."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from tpca_cli.bases import Basis, Rank1Basis, solve_operator, solve_stream, solve_subspace
from tpca_cli.bases.dense import enough
from tpca_cli.bases.operator import TOLERANCE
from tpca_cli.basisfile import Operator
from tpca_cli.errors import UsageError
from tpca_cli.fixed import SCALE, FixedBasis
from tpca_cli.operators import Frames, GramOperator, ModeOperators, TensorOperator, add, fold, join
from tpca_cli.pipeline.plan import Plan, Wish

Progress = Callable[[str, int, int], None]

BLOCK_VALUES = 1 << 24  # pixels handed to an operator at a time


@contextmanager
def fixed_threads() -> Iterator[None]:
    """The same number of BLAS threads whatever the environment says: rounding depends on it."""
    import scipy.linalg  # noqa: F401  its BLAS must be loaded to be limited

    with threadpool_limits(limits=os.cpu_count() or 1, user_api="blas"):
        yield


def accumulate(operator: Operator, frames: Frames, progress: Progress | None = None) -> None:
    """Add all frames to an operator."""
    apart = getattr(frames, "add_to", None)
    if apart is not None:  # frames on other machines are added up there
        apart(operator, progress)
        return
    rows = max(1, min(8192, BLOCK_VALUES // prod(frames.frame_shape)))
    done = 0
    for block in frames.blocks(rows):
        operator.add(block)
        done += len(block)
        if progress is not None:
            progress("operator", done, frames.count)


def solve_given(operator: Operator, plan: Plan, wish: Wish, *, consume: bool) -> Basis:
    """The basis of an operator that has been accumulated, with no pixels at hand."""
    if isinstance(operator, ModeOperators):
        if plan.energy is not None:
            raise UsageError(
                "a share of energy is measured on pixels, and a rank-1 operator no longer has them: "
                "use --components, or leave it to `tpca encode`"
            )
        return Rank1Basis.from_operators(operator, plan.components, center=wish.center)
    return solve_operator(
        operator,
        plan.components,
        energy=plan.energy,
        center=wish.center,
        tolerance=wish.tolerance or TOLERANCE,
        consume=consume,
    )


def solve_frames(frames: Frames, plan: Plan, wish: Wish, progress: Progress | None = None) -> Basis:
    """The basis of frames for which no operator is kept: streamed, or of the space they span."""
    if plan.method == "subspace":
        size = prod(frames.frame_shape) * np.dtype(frames.dtype).itemsize
        gram = GramOperator.of(frames, max(1, (1 << 28) // size))
        return solve_subspace(
            frames,
            gram,
            plan.components,
            energy=plan.energy,
            center=wish.center,
            order=content_order(frames),
        )
    tolerance = wish.tolerance if plan.solver == "fast" else wish.tolerance or TOLERANCE
    return solve_stream(
        frames,
        plan.components,
        energy=plan.energy,
        center=wish.center,
        tolerance=tolerance,
        progress=progress,
    )


def measured_rank1(basis: Rank1Basis, frames: Frames, energy: float) -> Rank1Basis:
    """The fewest rank-1 tensors that hold a share of the energy, measured on the frames (eq 4B16).

    Coefficients are integers here (fixed point), so the energies do not depend on blocks or order.
    """
    fixed = FixedBasis.from_modes(basis.modes, basis.indices, dtype=frames.dtype)
    sums, squares = fold(frames, energies, add, fixed)
    if basis.mean is not None:
        squares = squares - sums * sums / frames.count
    ordered = basis.measured_by(squares.astype(np.float64) / SCALE**2)
    return ordered.truncate(enough(ordered.energies, energy * basis.total))


def energies(at: int, run: npt.NDArray[Any], fixed: FixedBasis) -> tuple[npt.NDArray[Any], ...]:
    """Sums and squares of the coefficients of a run, as Python integers: there is no largest one."""
    sums: npt.NDArray[Any] = np.zeros(fixed.components, object)
    squares: npt.NDArray[Any] = np.zeros(fixed.components, object)
    rows = max(1, (1 << 20) // prod(run.shape[1:]))
    for start in range(0, len(run), rows):
        d = np.asarray(fixed.project(run[start : start + rows]), np.int64)  # (b, M)
        sums += d.sum(axis=0).astype(object)
        squares += (d * d).sum(axis=0).astype(object)
    return sums, squares


def content_order(frames: Frames) -> npt.NDArray[np.int64]:
    """The frames sorted by their pixels: an order that names and folders have no part in."""
    keys = [row.tobytes() for row in fold(frames, contents, join)]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def contents(at: int, run: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """A digest of the pixels of every frame of a run, (b, 16)."""
    keys = [hashlib.blake2b(frame.tobytes(), digest_size=16).digest() for frame in run]
    return np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 16)


def new_operator(method: str, frame_shape: tuple[int, ...], dtype: Any) -> Operator:
    """An empty operator of the kind that a method adds up."""
    return ModeOperators(frame_shape) if method == "rank1" else TensorOperator(frame_shape, dtype)
