"""Plain files that appear whole or not at all, and the temporaries that make it so.

A target is a name in an open folder, so the folder that was checked is the folder that is written to. New
content goes to `.<name>.<random>.tmp` beside the target and takes its name in one step.

One writer at a time: a lock on `<target>.lock` that the kernel frees when its holder dies. The holder removes
the file before it lets go. Whoever has waited for it then holds a file without a name, sees that, and starts
over with the file that has the name now: only a lock on that one counts.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from tpca_cli.errors import OutputExists, StorageError, printable
from tpca_cli.store.signals import DeferredSignals

AnyPath = str | bytes | os.PathLike[str]
DAY = 86400.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_live: set[TemporaryFile] = set()
_LOCK_PAUSE = 0.05  # seconds between two attempts
_BUSY = (errno.EAGAIN, errno.EACCES)
_opened: set[int] = set()  # descriptors of lock files


class Place:
    """Where a file will be: an open folder and a name in it. Close it after use."""

    def __init__(self, folder: int, name: bytes, path: AnyPath) -> None:
        self.folder = folder
        self.name = name
        self.path = path

    @classmethod
    def at(cls, target: AnyPath) -> Place:
        """The place that an ordinary path names."""
        parent, name = os.path.split(os.fsencode(target))
        if name in (b"", b".", b".."):
            raise StorageError(
                f"cannot write {printable(target)}: it names a folder, not a file", errno.EISDIR
            )
        try:
            return cls(os.open(parent or b".", _FOLDER), name, target)
        except OSError as error:
            raise StorageError.of(error, parent or b".", "open the output folder") from error

    @classmethod
    def below(cls, root: AnyPath, relative: bytes) -> Place:
        """The place of `a/b/c` below a folder: missing folders are made, links are never followed."""
        *folders, name = relative.split(b"/")
        if not all(part not in (b"", b".", b"..") for part in [*folders, name]):
            raise StorageError(f"cannot write {printable(relative)}: not a path below a folder", errno.EINVAL)
        path = os.path.join(os.fsencode(root), relative)
        here = -1
        try:
            here = os.open(os.fsencode(root), _FOLDER | os.O_NOFOLLOW)
            for part in folders:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=here)
                below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
                os.close(here)
                here = below
        except OSError as error:
            if here >= 0:
                os.close(here)
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise OutputExists(
                    f"cannot write {printable(path)}: a link or a file stands where a folder is needed; "
                    "remove it or choose another output folder"
                ) from error
            raise StorageError.of(error, path, "make the folder of") from error
        return cls(here, name, path)

    def check(self, force: bool) -> int | None:
        """Refuse a target that must not be replaced; the mode bits of one that may, or None."""
        try:
            found = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError.of(error, self.path, "look at") from error
        if not force:
            raise OutputExists(f"{printable(self.path)} already exists: give --force to replace it")
        if stat.S_ISLNK(found.st_mode):
            return None
        if not stat.S_ISREG(found.st_mode):
            raise StorageError(
                f"cannot replace {printable(self.path)}: it is not a regular file", errno.EISDIR
            )
        return stat.S_IMODE(found.st_mode) & 0o777

    def close(self) -> None:
        """Close the folder."""
        os.close(self.folder)


class TemporaryFile:
    """A private file beside its place, locked while its writer lives. Owns the place; close it in the end."""

    def __init__(self, place: Place, force: bool) -> None:
        self.place = place
        self.force = force
        self.name = _prefix(place.name) + secrets.token_hex(4).encode() + b".tmp"
        self.fd = -1
        self._owner = os.getpid()
        self._mode: int | None = None
        _live.add(self)
        try:
            with DeferredSignals():
                self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        kept = self.place.check(self.force)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self.fd = os.open(self.name, flags, 0o666, dir_fd=self.place.folder)
        except OSError as error:
            raise StorageError.of(error, self.place.path, "create") from error
        # the umask has just been applied for us: remember the result, and stay private until the commit
        mode = stat.S_IMODE(os.fstat(self.fd).st_mode) if kept is None else kept
        with suppress(OSError):  # a file system without modes
            os.fchmod(self.fd, 0o600)
            self._mode = mode
        with suppress(OSError):  # or without locks
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def commit(self, durable: bool = True) -> None:
        """Give the file its name, in one step; durable: content first, then the name, down to the disk."""
        try:
            if self._mode is not None:
                os.fchmod(self.fd, self._mode)
            if durable:
                os.fsync(self.fd)
            with suppress(OSError):
                fcntl.flock(self.fd, fcntl.LOCK_UN)
            self._rename()
            if durable:
                os.fsync(self.place.folder)
        except OSError as error:
            raise StorageError.of(error, self.place.path, "write") from error

    def _rename(self) -> None:
        here, name = self.place.folder, self.place.name
        if self.force:
            self.place.check(True)
            os.replace(self.name, name, src_dir_fd=here, dst_dir_fd=here)
            return
        try:
            os.link(self.name, name, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
            os.unlink(self.name, dir_fd=here)
        except FileExistsError as error:
            raise self._lost() from error
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # no hard links on this file system: reserve the name, then replace our own reservation
            try:
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=here))
            except FileExistsError as lost:
                raise self._lost() from lost
            os.replace(self.name, name, src_dir_fd=here, dst_dir_fd=here)

    def _lost(self) -> OutputExists:
        return OutputExists(f"{printable(self.place.path)} was made by another run meanwhile: it was kept")

    def close(self) -> None:
        """Remove whatever still has the temporary name. Harmless after a commit, and twice."""
        with DeferredSignals():
            if self not in _live:
                return
            if self.fd >= 0:
                if self._owner == os.getpid():
                    with suppress(OSError):
                        os.unlink(self.name, dir_fd=self.place.folder)
                os.close(self.fd)
            self.place.close()
            _live.discard(self)


@atexit.register
def _remove_live() -> None:
    # a signal between two cleanups can leave something here
    for temporary in list(_live):
        with suppress(OSError):
            temporary.close()


def write_file(
    path: AnyPath,
    data: bytes,
    *,
    force: bool = False,
    mtime_ns: int | None = None,
    durable: bool = False,
    root: AnyPath | None = None,
) -> None:
    """Write one plain file whole or not at all. With `root`, path is below it and no link is followed."""
    place = Place.at(path) if root is None else Place.below(root, os.fsencode(path))
    temporary = TemporaryFile(place, force)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(temporary.fd, view) :]
            if mtime_ns is not None:
                os.utime(temporary.fd, ns=(mtime_ns, mtime_ns))
        except OSError as error:
            raise StorageError.of(error, place.path, "write") from error
        temporary.commit(durable)
    finally:
        temporary.close()


def check_output(path: AnyPath, force: bool = False) -> None:
    """Fail before any heavy work if the output could not be written: tries it with an empty temporary."""
    TemporaryFile(Place.at(path), force).close()


def stale_temporaries(target: AnyPath, *, older_than: float = 0.0) -> list[Path]:
    """Temporaries of this target whose writer is gone, at least `older_than` seconds old."""
    parent, name = os.path.split(os.fsencode(target))
    pattern = re.compile(re.escape(_prefix(name)) + rb"[A-Za-z0-9_]+\.tmp")
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


@contextmanager
def lock(target: AnyPath, wait: float = 0) -> Iterator[None]:
    """Hold the lock of a target; wait at most `wait` seconds for another run to finish."""
    path = os.fsencode(target) + b".lock"
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


def _prefix(name: bytes) -> bytes:
    # a name may be as long as the file system allows; its temporary must still fit
    if len(name) > 200:
        name = name[:180] + b"~" + blake2b(name, digest_size=8).hexdigest().encode()
    return b"." + name + b"."


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
