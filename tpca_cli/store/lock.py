"""One writer at a time: a lock on `<target>.lock` that the kernel frees when its holder dies.

The lock file stays: unlinking it would let two runs hold locks on two files of the same name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tpca_cli.errors import OutputExists, StorageError, printable

_PAUSE = 0.05
_BUSY = (errno.EAGAIN, errno.EACCES)
_held: set[int] = set()


@contextmanager
def lock(target: str | bytes | os.PathLike[str], wait: float = 0) -> Iterator[None]:
    """Hold the lock of a target; wait at most `wait` seconds for another run to finish."""
    path = os.fsencode(target) + b".lock"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise StorageError.of(error, path, "open the lock") from error
    _held.add(fd)
    try:
        deadline = time.monotonic() + wait
        while not _taken(fd, path):
            if time.monotonic() >= deadline:
                raise OutputExists(
                    f"{printable(target)} is in use by another run (lock {printable(path)}): "
                    "wait for it, or give a longer --lock-wait"
                )
            time.sleep(_PAUSE)
        yield
    finally:
        _held.discard(fd)
        os.close(fd)


def _let_go() -> None:
    # a worker process outlives a killed parent for a moment: the lock must not
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)


def _taken(fd: int, path: bytes) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise StorageError.of(error, path, "lock") from error
    return True
