"""From an operator, or frames, to a basis: the part that fitting, updating and merging share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, TypeAlias

import numpy as np

from tpca_cli.errors import UsageError
from tpca_cli.interfaces import Frames, Progress
from tpca_cli.parallel import blas_threads
from tpca_cli.tensor_pca.algorithm1 import SINE, TOLERANCE, TensorOperator, solve_operator
from tpca_cli.tensor_pca.algorithm1_streamed import solve_stream
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, solve_modes
from tpca_cli.tensor_pca.algorithm3 import GramOperator, content_order, solve_subspace
from tpca_cli.tensor_pca.basis import OperatorBasis, SubspaceBasis, TensorBasis
from tpca_cli.tensor_pca.fold import add

Operator: TypeAlias = ModeOperators | TensorOperator


@contextmanager
def fixed_threads() -> Iterator[None]:
    """The same number of BLAS threads whatever the environment says: rounding depends on it."""
    import scipy.linalg  # noqa: F401  its BLAS must be loaded to be limited

    with blas_threads(os.cpu_count() or 1):
        yield


def solve_given(
    operator: Operator,
    components: int | None = None,
    *,
    energy: float | None = None,
    center: bool = False,
    tolerance: float | None = None,
    consume: bool = False,
) -> TensorBasis:
    """The basis of an operator that has been accumulated, with no pixels at hand."""
    if isinstance(operator, ModeOperators):
        if energy is not None:
            raise UsageError(
                "a share of energy is measured on pixels, and a rank-1 operator no longer has them: "
                "use --components, or leave it to `tpca encode`"
            )
        return solve_modes(operator, components, center=center)
    return solve_operator(
        operator,
        components,
        energy=energy,
        center=center,
        tolerance=tolerance,
        consume=consume,
    )


def solve_frames(
    frames: Frames,
    method: str,
    components: int | None = None,
    *,
    energy: float | None = None,
    center: bool = False,
    tolerance: float | None = None,
    exact: bool = True,
    progress: Progress | None = None,
) -> SubspaceBasis | OperatorBasis:
    """The basis of frames for which no operator is kept: of the space that they span, or streamed.

    The L x L and the N x N operator have the same eigenvalues, and eigentensors that follow from one another
    (eq 4C11): where passes over the frames would cost more, `operator` is solved by way of the second.
    """
    size = prod(frames.frame_shape)
    if method == "subspace" or by_gram(frames.count, size, components):
        rows = max(1, GRAM_BYTES // (2 * size * np.dtype(frames.dtype).itemsize))
        spanned = solve_subspace(
            frames,
            GramOperator.of(frames, rows),
            components,
            energy=energy,
            center=center,
            tolerance=tolerance,
            order=content_order(frames),
        )
        return spanned if method == "subspace" else OperatorBasis.of(spanned)
    if exact and tolerance is None:
        return solve_stream(
            frames,
            components,
            energy=energy,
            center=center,
            tolerance=TOLERANCE,
            sine=SINE,
            progress=progress,
        )
    return solve_stream(
        frames, components, energy=energy, center=center, tolerance=tolerance, progress=progress
    )


GRAM_BYTES = 1 << 29  # frames held at a time while they are multiplied: two blocks
GRAM_FRAMES = 4096  # frames up to which their N x N operator is solved in seconds


def by_gram(frames: int, size: int, components: int | None) -> bool:
    """Whether inner products of the frames give the components at less cost than passes over them."""
    return frames < size and frames <= GRAM_FRAMES and (components is None or 4 * components >= frames)


def new_operator(method: str, frame_shape: tuple[int, ...], dtype: Any) -> Operator:
    """An empty operator of the kind that a method adds up."""
    return ModeOperators(frame_shape) if method == "rank1" else TensorOperator(frame_shape, dtype)


NARROW = 2**31 // 255**2  # frames of bytes whose products add up to less than 2^31: half the bytes to move


def state_of(operator: Operator) -> tuple[Any, ...]:
    """What adds up, entry by entry."""
    if isinstance(operator, ModeOperators):
        return operator.n, operator.sums, *operator.matrices
    dtype = np.int32 if operator.dtype.itemsize == 1 and operator.n < NARROW else np.int64
    return operator.n, operator.sums, operator.packed(dtype=dtype)


def add_states(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """Two states as one; what might no longer fit into 32 bits gets 64."""
    if one and one[0] + other[0] >= NARROW:
        one = tuple(value.astype(np.int64) if isinstance(value, np.ndarray) else value for value in one)
    return add(one, other)


def add_state(operator: Operator, state: tuple[Any, ...]) -> None:
    """Add what `state_of` gave to an operator of the same kind."""
    n, sums, *rest = state
    if isinstance(operator, TensorOperator):
        operator.count(n, sums)
        operator.add_packed(rest[0])
        return
    arrays = {f"modes/{k}": matrix for k, matrix in enumerate(rest)}
    operator.merge(ModeOperators.from_arrays({"n": np.array([n]), "sums": sums, **arrays}))
