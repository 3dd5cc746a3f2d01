"""Work by threads, with results in order and memory bounded.

Threads, because the work is in libraries that release the interpreter lock (decoders, BLAS, zlib, files), and
pixels need not be copied between processes. Small items are best handed over in batches by the caller.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    *,
    window: int | None = None,
    weight: Callable[[Item], float] | None = None,
    budget: float = 0.0,
) -> Iterator[Result]:
    """Results in the order of the items, at most `window` (default: two per worker) under way or waiting.

    With `weight`, those under way or waiting weigh at most `budget` together; a heavier item goes alone.
    An exception of the function, of the items or in the consumer stops the work: what has not begun is
    dropped, what runs is waited for, so that nothing touches a file after its owner has cleaned up.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    limit = max(1, window if window is not None else 2 * workers)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="tpca")
    waiting: deque[tuple[Future[Result], float]] = deque()
    load = 0.0
    try:
        for item in items:
            heavy = weight(item) if weight is not None else 0.0
            while waiting and (len(waiting) >= limit or load + heavy > budget > 0):
                load -= waiting[0][1]
                yield waiting.popleft()[0].result()  # no name: the consumer alone decides how long it lives
            waiting.append((pool.submit(function, item), heavy))
            load += heavy
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item], *, held: int | None = None
) -> Iterator[Result]:
    """Results in order of numeric work in as many threads as BLAS may use, each with one of them.

    For products with work on arrays between them, which BLAS's own threads would wait for. What is computed
    does not depend on the number of threads. Large results are `held` one per thread, or fewer.
    """
    blas = _blas()
    threads = max((int(library.num_threads) for library in blas.lib_controllers), default=1)
    threads = threads if held is None else min(threads, held)
    with blas.limit(limits=1):
        yield from ordered_map(function, items, threads, window=None if held is None else threads)


def alone() -> AbstractContextManager[Any]:
    """BLAS in one thread, for work whose threads would mostly wait: on a busy machine they do so for long."""
    context: AbstractContextManager[Any] = _blas().limit(limits=1)
    return context


@functools.lru_cache(maxsize=1)
def _blas() -> Any:
    """The BLAS of numpy; looking for it takes as long as a product."""
    return ThreadpoolController().select(user_api="blas")
