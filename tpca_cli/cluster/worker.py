"""What runs on a worker: every task goes through here."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tpca_cli.errors import TpcaError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of settings in malloc.h
DECIDING = ("tpca-cli", "numpy", "pillow", "simplejpeg")  # what the bits depend on
OPTIONAL = ("pillow-heif", "pillow-jxl-plugin")  # and what decides whether some files can be read


Versions = tuple[tuple[str, str], ...]


def task(asked: Versions, function: Callable[..., Any], blas: int, *arguments: Any) -> Any:
    """`function(*arguments)` with so many threads of BLAS."""
    check_versions(asked)
    _settle()
    _limit_blas(blas)
    return function(*arguments)


def add(asked: Versions, combine: Callable[[Any, Any], Any], *parts: Any) -> Any:
    """Neighbors of a sum joined into one."""
    check_versions(asked)
    return functools.reduce(combine, parts)


def same(value: Any) -> Any:
    """What many tasks share."""
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


def versions() -> Versions:
    """The packages that the bits depend on, as they are installed here."""
    return tuple((package, version(package)) for package in DECIDING) + tuple(map(_optional, OPTIONAL))


def _optional(package: str) -> tuple[str, str]:
    try:
        return package, version(package)
    except PackageNotFoundError:
        return package, "missing"


def difference(found: Versions, asked: Versions, where: str) -> TpcaError | None:
    """What to say if a process has other versions than the one that started the run."""
    for (package, here), (_, there) in zip(asked, found, strict=True):
        if here != there:
            return TpcaError(
                f"{package} is {there} at {where} and {here} here: the same versions everywhere give the "
                "same bits"
            )
    return None


@functools.lru_cache(maxsize=1)
def check_versions(asked: Versions) -> None:
    """Once in a worker process and before any work: a worker may have come after the run has begun."""
    problem = difference(versions(), asked, f"a worker on {socket.gethostname()}")
    if problem is not None:
        raise problem


def memory(dask_worker: Any) -> int:
    """Bytes that a worker may use."""
    return int(dask_worker.memory_manager.memory_limit or 4 << 30)


def size(path: bytes) -> int:
    """Bytes of a file as a worker sees it, or -1."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
