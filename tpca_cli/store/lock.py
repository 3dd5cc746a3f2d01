"""One writer at a time, by a lock on `<target>.lock` that the kernel frees when its holder dies; its remains.

The holder removes the file before it lets go. Whoever has waited for it then holds a file without a name,
sees that, and starts over with the file that has the name now: only a lock on that one counts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tpca_cli.errors import OutputExists, StorageError, printable
from tpca_cli.store.files import NAME_BYTES, AnyPath, DeferredSignals, temporary_prefix

_LOCK_PAUSE = 0.05  # seconds between two attempts
DAY = 86400.0
_TEMPORARY = re.compile(rb"(.*\.)[0-9a-f]{8}\.tmp", re.DOTALL)
_BUSY = (errno.EAGAIN, errno.EACCES)
_opened: set[int] = set()  # descriptors of lock files


@contextmanager
def lock(target: AnyPath, wait: float = 0) -> Iterator[None]:
    """Hold the lock of a target; wait at most `wait` seconds for another run to finish."""
    path = _lock_path(os.fsencode(target))
    deadline = time.monotonic() + wait
    while True:
        fd, free = _open_lock(path), False
        try:
            free = _try_lock(fd, path)
            if free and _has_name(fd, path):
                yield
                return
        finally:
            _let_go(fd, path, free)
        if free:
            continue
        if time.monotonic() >= deadline:
            raise OutputExists(
                f"{printable(target)} is in use by another run (lock {printable(path)}): "
                "wait for it, or give a longer --lock-wait"
            )
        time.sleep(_LOCK_PAUSE)


def _lock_path(target: bytes) -> bytes:
    """Where the lock of a target is: beside it, under a shorter name where that would be too long."""
    folder, name = os.path.split(target)
    if len(name) > NAME_BYTES - len(b".lock"):
        name = temporary_prefix(name)[:-1]
    return os.path.join(folder, name + b".lock")


def _open_lock(path: bytes) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise StorageError.of(error, path, "open the lock") from error
    _opened.add(fd)
    return fd


def _has_name(fd: int, path: bytes) -> bool:
    """Whether a locked file still has its name; one without it was removed by the run that held it."""
    try:
        named, ours = os.stat(path, follow_symlinks=False), os.fstat(fd)
    except OSError:
        return False
    return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


def _let_go(fd: int, path: bytes, held: bool) -> None:
    """Close a lock; the holder removes its file first. A file with content is no lock of ours and stays."""
    with DeferredSignals():
        if fd not in _opened:  # this process is a fork, and has closed it
            return
        _opened.discard(fd)
        with suppress(OSError):
            if held and _has_name(fd, path) and os.fstat(fd).st_size == 0:
                os.unlink(path)
        os.close(fd)


def _close_locks() -> None:
    # a worker process outlives a killed parent for a moment: the lock must not
    while _opened:
        os.close(_opened.pop())


os.register_at_fork(after_in_child=_close_locks)


def _try_lock(fd: int, path: bytes) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise StorageError.of(error, path, "lock") from error
    return True


def stale_temporaries(target: AnyPath, *, older_than: float = 0.0) -> list[Path]:
    """Temporaries of this target whose writer is gone, at least `older_than` seconds old."""
    parent, name = os.path.split(os.fsencode(target))
    pattern = re.compile(re.escape(temporary_prefix(name)) + rb"[A-Za-z0-9_]+\.tmp")
    try:
        names = sorted(entry for entry in os.listdir(parent or b".") if pattern.fullmatch(entry))
    except OSError:
        return []
    paths = [os.path.join(parent, entry) for entry in names]
    return [Path(os.fsdecode(path)) for path in paths if _stale(path, older_than)]


def remove_stale(target: AnyPath) -> tuple[list[Path], list[Path]]:
    """Delete stale temporaries older than a day; (removed, kept)."""
    removed = []
    for path in stale_temporaries(target, older_than=DAY):
        with suppress(OSError):
            path.unlink()
            removed.append(path)
    return removed, stale_temporaries(target)


def remove_abandoned(root: AnyPath, names: Collection[bytes]) -> None:
    """Delete the temporaries of these files below a root whose writer is gone; one look at each folder."""
    prefixes: dict[bytes, set[bytes]] = {}
    for name in names:
        folder, _, last = name.rpartition(b"/")
        prefixes.setdefault(os.path.join(os.fsencode(root), folder), set()).add(temporary_prefix(last))
    for folder, wanted in prefixes.items():
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in entries:
            match = _TEMPORARY.fullmatch(entry)
            path = os.path.join(folder, entry)
            if match and match[1] in wanted and _stale(path, 0.0):
                with suppress(OSError):
                    os.unlink(path)


def _stale(path: bytes, older_than: float) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = os.fstat(fd)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime >= older_than
