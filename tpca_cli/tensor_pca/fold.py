"""A pass over frames as a sum over runs of them: one schedule for one machine and for many.

Every run has the same number of frames, which depends on their shape alone, and neighboring sums are added
in groups. So a sum of floats has the same bits whatever the memory, the workers, or who computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt

from tpca_cli.interfaces import Frames, Progress
from tpca_cli.parallel import side_by_side

State = TypeVar("State")
Part = Callable[..., State]
"""(number of the first frame, frames (b, I_1, .., I_d), what else is given) -> a part of the sum; pure."""

_RUN = 1 << 23  # values of a run: as many in floating point are held while it is added
THREADS = 4  # runs that are added side by side: each has its floats, and its sum
FAN = 16  # runs, or sums, that are added one after the other


def run_length(frame_shape: tuple[int, ...]) -> int:
    """Frames of a run."""
    return max(64, _RUN // max(1, prod(frame_shape)))


def fold_runs(
    frames: Frames,
    part: Part[State],
    combine: Callable[[State, State], State],
    *given: Any,
    stage: str = "",
    progress: Progress | None = None,
) -> State:
    """The sum of `part(at, run, *given)` over all runs, here; `Frames.fold` is this or the same elsewhere."""
    rows = run_length(frames.frame_shape)

    def runs() -> Iterator[tuple[int, Any]]:
        at = 0
        for run in frames.blocks(rows):
            yield at, run
            at += len(run)

    def parts() -> Iterator[State]:
        # Each run in a thread of its own: a product by one thread of BLAS rounds alike on every machine.
        found = side_by_side(lambda run: part(*run, *given), runs(), held=THREADS)
        for number, state in enumerate(found, 1):
            yield state
            if progress is not None:
                progress(stage, min(number * rows, frames.count), frames.count)

    local: Callable[[State, State], State] = cast(Any, add_into) if combine is add else combine
    return tree(parts(), local)


def tree(parts: Iterable[State], combine: Callable[[State, State], State], fan: int = FAN) -> State:
    """Sums of `fan` neighbors, then of as many such sums, and so on, holding one sum of each size at most.

    A narrower tree would hold more of them, and one product with 500 frames of 128 x 128 x 3 is 200 MB.
    """
    groups: list[_Group[State]] = []  # unfinished ones, the largest parts first
    for part in parts:
        size, total = 1, part
        while groups and groups[-1].size == size:
            group = groups[-1]
            group.count, group.total = group.count + 1, combine(group.total, total)
            if group.count < fan:
                break
            size, total = size * fan, groups.pop().total
        else:
            groups.append(_Group(size, 1, total))
    if not groups:
        raise ValueError("a sum of nothing")
    total = groups.pop().total
    while groups:
        total = combine(groups.pop().total, total)
    return total


@dataclass
class _Group(Generic[State]):
    """The sum of `count` parts, each of `size` runs."""

    size: int
    count: int
    total: State


def add(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """Two states, entry by entry; sums of float32 are float64."""
    return tuple(_wide(a) + b for a, b in zip(one, other, strict=True))


def add_into(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same in place: the arrays of `one` are overwritten."""
    sums = [_wide(a) for a in one]
    for i, more in enumerate(other):
        sums[i] += more
    return tuple(sums)


def _wide(value: Any) -> Any:
    narrow = isinstance(value, np.ndarray) and value.dtype == np.float32
    return value.astype(np.float64) if narrow else value


def join(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Two arrays of rows, one after the other."""
    return np.concatenate([one, other])
