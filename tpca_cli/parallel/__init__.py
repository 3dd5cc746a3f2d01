"""Many items at once, with results in order and memory bounded: by threads or by forked processes."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from threadpoolctl import threadpool_limits

from tpca_cli.parallel.forks import can_fork, forked_map
from tpca_cli.parallel.threads import ordered_map

Item = TypeVar("Item")
Result = TypeVar("Result")

__all__ = ["busy_map", "can_fork", "forked_map", "ordered_map"]


def busy_map(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """Results in order of work that keeps the interpreter busy: in processes where they can be had.

    Each worker uses one thread of BLAS, so that as many workers as cores do not fight for them.
    """
    with threadpool_limits(1 if workers > 1 else None):
        if workers > 1 and len(items) > 1 and can_fork():
            # Forks inherit the items: numbers are all that is sent to them, and never fill a pipe.
            numbers = range(len(items))
            for result, _ in forked_map(lambda k, _: function(items[k]), numbers, workers, mmap.PAGESIZE):
                yield result
        else:
            yield from ordered_map(function, items, workers)
