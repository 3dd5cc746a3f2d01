"""Many items at once, with results in order and memory bounded: by threads or by forked processes."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController, threadpool_limits

from tpca_cli.parallel.forks import can_fork, forked_map
from tpca_cli.parallel.threads import ordered_map

Item = TypeVar("Item")
Result = TypeVar("Result")

__all__ = ["busy_map", "can_fork", "forked_map", "ordered_map", "side_by_side"]


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


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results in order of numeric work in as many threads as BLAS may use, each with one of them.

    For products with work on arrays between them, which BLAS's own threads would wait for. What is computed
    does not depend on the number of threads.
    """
    blas = _blas()
    allowed = [int(library.num_threads) for library in blas.lib_controllers]
    with blas.limit(limits=1):
        yield from ordered_map(function, items, max(allowed, default=1))


@functools.lru_cache(maxsize=1)
def _blas() -> Any:
    """The BLAS of numpy; looking for it takes as long as a product."""
    return ThreadpoolController().select(user_api="blas")
