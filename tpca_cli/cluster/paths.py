"""What work on other machines has in common: paths there, messages and progress here.

Workers get absolute paths, since their working folder is another; messages name files as they were given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import TypeVar

from tpca_cli.errors import TpcaError, printable
from tpca_cli.interfaces import Progress
from tpca_cli.sources.items import ItemRef
from tpca_cli.sources.scan import ImageRef

Ref = TypeVar("Ref", ImageRef, ItemRef)

PROBES = 1024  # headers per task at most: tens of milliseconds of work
SHARD_BYTES = 1 << 25  # of pixels: a second of work or less
TURNS = 3  # shards per thread that what is left would make, if they were of one size
SHORTEST, SMALLEST = 24, 16  # the shortest shards: this part of a thread's work, but so many files at least


def shards_of(
    counts: Sequence[int], frame_shape: tuple[int, ...], dtype: str, threads: int, method: str | None
) -> list[slice]:
    """Which files make a shard: at most a second of work, and less towards the end, so that all workers are
    done at the same time; none that is mostly operator.

    `counts` are the frames of each file. Shards only add integers, so their sizes are free to choose.
    """
    files, size, frames = len(counts), prod(frame_shape), sum(counts)
    most = max(1, files * SHARD_BYTES // max(1, frames * size * int(dtype[1:])))
    least = max(SMALLEST, files // (SHORTEST * threads))
    if method == "operator":  # adding up L frames takes far longer than moving their L x L operator
        least = max(least, files // max(threads, frames // size))
    shards, start = [], 0
    while start < files:
        fair = -(-(files - start) // (TURNS * threads))
        stop = min(files, start + max(least, min(most, fair)))
        shards.append(slice(start, stop))
        start = stop
    return shards


def probes(files: int, threads: int) -> int:
    """How many headers make a task: tasks for all, but few, as their way takes longer than the work."""
    return max(1, min(PROBES, -(-files // (2 * threads))))


def anchored(ref: Ref) -> Ref:
    """The same file for a process with another working folder."""
    return ref if ref.path.startswith(b"/") else replace(ref, path=os.path.join(os.getcwdb(), ref.path))


def as_given(ref: ImageRef, text: str) -> str:
    """A message about a file, naming it as it was given."""
    return text.replace(printable(anchored(ref).path), printable(ref.path))


def meter(progress: Progress | None, stage: str, total: int) -> Callable[[float], None] | None:
    """Parts of the work, as they are done, on a progress callback."""
    if progress is None:
        return None
    done = 0.0

    def advance(weight: float) -> None:
        nonlocal done
        done += weight
        progress(stage, min(total, round(done)), total)

    return advance


@contextmanager
def errors_as_given(refs: Sequence[ImageRef] | Sequence[ItemRef]) -> Iterator[None]:
    """Errors that end the run, with relative paths where the user gave relative ones."""
    try:
        yield
    except TpcaError as error:
        if error.args and any(not ref.path.startswith(b"/") for ref in refs[:1]):
            text = str(error.args[0]).replace(printable(os.getcwdb()) + "/", "")
            error.args = (text, *error.args[1:])
        raise
