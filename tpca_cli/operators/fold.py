"""A pass over frames as a sum over runs of them: one schedule for one machine and for many.

Every run has the same number of frames, which depends on their shape alone, and neighboring sums are added
pairwise. So a sum of floats has the same bits whatever the memory, the workers, or who computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tpca_cli.operators.gram import Frames

State = TypeVar("State")
Part = Callable[..., State]
"""(number of the first frame, frames (b, I_1, .., I_d), what else is given) -> a part of the sum; pure."""
Progress = Callable[[str, int, int], None]

_BLOCK = 1 << 23  # values in floating point at a time
_BLOCKS = 4  # blocks to a run


def block_length(frame_shape: tuple[int, ...]) -> int:
    """Frames that a part may turn into floats at a time."""
    return max(64, _BLOCK // max(1, prod(frame_shape)))


def run_length(frame_shape: tuple[int, ...]) -> int:
    """Frames of a run."""
    return _BLOCKS * block_length(frame_shape)


def fold(
    frames: Frames,
    part: Part[State],
    combine: Callable[[State, State], State],
    *given: Any,
    stage: str = "",
    progress: Progress | None = None,
) -> State:
    """The sum of `part(at, run, *given)` over all runs; frames on other machines are summed there."""
    apart = getattr(frames, "fold", None)
    if apart is not None:
        elsewhere: State = apart(part, combine, *given, stage=stage, progress=progress)
        return elsewhere
    rows = run_length(frames.frame_shape)

    def parts() -> Iterable[State]:
        at = 0
        for run in frames.blocks(rows):
            yield part(at, run, *given)
            at += len(run)
            if progress is not None:
                progress(stage, at, frames.count)

    return tree(parts(), combine)


def tree(parts: Iterable[State], combine: Callable[[State, State], State]) -> State:
    """Add neighbors, then neighboring pairs, and so on, holding no more than one sum of each size."""
    stack: list[tuple[int, State]] = []
    for part in parts:
        leaves, total = 1, part
        while stack and stack[-1][0] == leaves:
            total = combine(stack.pop()[1], total)
            leaves *= 2
        stack.append((leaves, total))
    total = stack.pop()[1]
    while stack:
        total = combine(stack.pop()[1], total)
    return total


def add(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """Two states, entry by entry."""
    return tuple(a + b for a, b in zip(one, other, strict=True))


def join(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Two arrays of rows, one after the other."""
    return np.concatenate([one, other])
