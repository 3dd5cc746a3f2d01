"""What runs on a worker: every task goes through here."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of settings in malloc.h
DECIDING = ("tpca-cli", "numpy", "pillow", "simplejpeg")  # what the bits depend on


def task(function: Callable[..., Any], blas: int, *arguments: Any) -> Any:
    """Run a function on a worker with a fixed number of BLAS threads."""
    _settle()
    _limit_blas(blas)
    return function(*arguments)


def add(combine: Callable[[Any, Any], Any], *parts: Any) -> Any:
    """Combine partial results from left to right."""
    return functools.reduce(combine, parts)


def same(value: Any) -> Any:
    """The value itself: a task that only moves data to a worker."""
    return value


@functools.lru_cache(maxsize=1)
def _settle() -> None:
    """Once in a worker process. What it has loaded by now stays, and need not be looked through for garbage.

    Arrays of a few megabytes may reuse memory: Dask has its workers give all of it back, and getting it again
    takes as long as the work on it.
    """
    gc.freeze()
    with suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 1 << 25)
        mallopt(_TRIM_THRESHOLD, 1 << 28)


_limited: list[int] = []


def _limit_blas(threads: int) -> None:
    """For good, in a worker process: rounding depends on it, and tasks beside this one ask for the same."""
    if _limited != [threads]:
        import numpy  # noqa: F401
        import scipy.linalg  # noqa: F401  a library must be loaded to be limited
        from threadpoolctl import threadpool_limits

        threadpool_limits(limits=threads, user_api="blas")
        _limited[:] = [threads]


def versions() -> dict[str, str]:
    """The versions of the packages that decide about bits."""
    return {package: version(package) for package in DECIDING}


def memory(dask_worker: Any) -> int:
    """The memory limit of a worker in bytes; 4 GiB where it has none."""
    return int(dask_worker.memory_manager.memory_limit or 4 << 30)


def size(path: bytes) -> int:
    """The size of a file as this worker sees it; -1 if it cannot."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
