"""Plain files that appear whole or not at all, and the temporaries that make it so.

A target is a name in an open folder, so the folder that was checked is the folder that is written to. New
content goes to `.<name>.<random>.tmp` beside the target and takes its name in one step; signals wait
while files are made or cleaned up.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import re
import secrets
import signal
import stat
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from tpca_cli.errors import OutputExists, StorageError, printable

AnyPath = str | bytes | os.PathLike[str]
NAME_BYTES = 255  # that a name may have on file systems of Linux
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_live: set[TemporaryFile] = set()
_PIECE = 1 << 20
_HELD = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM")
    if hasattr(signal, name)
)
_Handler = Callable[[int, FrameType | None], Any]
_depth = 0  # blocks of `DeferredSignals` that the main thread is in


def is_remote(path: AnyPath) -> bool:
    """Whether a path is an address such as `s3://bucket/photos.h5`."""
    return isinstance(path, str) and ADDRESS.match(path) is not None


class Address(str):
    """An address as it is written: a `Path` would take a slash from it.

    `looked_at` is what was opened there to see its format, until somebody reads the rest of it: to open an
    address takes requests.
    """

    looked_at: Any = None

    @property
    def name(self) -> str:
        """Its last part, as a `Path` gives it."""
        return self.rstrip("/").rpartition("/")[2]


def location(path: str | os.PathLike[str]) -> Path | Address:
    """A path of this machine, or an address."""
    if isinstance(path, Address):
        return path
    return Address(path) if is_remote(path) else Path(path)


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
                try:
                    below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
                except FileNotFoundError:
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

    def check(self, force: bool) -> os.stat_result | None:
        """Refuse a target that must not be replaced; what the system says of a file that may, or None."""
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
        return found

    def close(self) -> None:
        """Close the folder."""
        os.close(self.folder)


class TemporaryFile:
    """A private file beside its place, locked while its writer lives. Owns the place; close it in the end."""

    def __init__(
        self,
        place: Place,
        force: bool,
        mode: int | None = None,
        *,
        most_open: int = 0o777,
        keep_owner: bool = False,
    ) -> None:
        """`mode` are the permissions it will have, otherwise those of the file it replaces, or by the umask.

        They are cut down to `most_open`. With `keep_owner` it goes to the owner of the file that it
        replaces, where the system lets us.
        """
        self.place = place
        self.force = force
        self._wanted = mode
        self._most_open = most_open
        self._keep_owner = keep_owner
        self._settled = self._named = False
        self.name = temporary_prefix(place.name) + secrets.token_hex(4).encode() + b".tmp"
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
        mode = stat.S_IMODE((os.fstat(self.fd) if kept is None else kept).st_mode) & 0o777
        if self._wanted is not None:
            mode = self._wanted
        if kept is not None and self._keep_owner:
            mode = self._give_to(kept, mode)
        with suppress(OSError):  # a file system without modes
            os.fchmod(self.fd, 0o600)
            self._mode = mode & self._most_open
        with suppress(OSError):  # or without locks
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _give_to(self, kept: os.stat_result, mode: int) -> int:
        """Hand the file to the owner and group of another; what its group may do if only that failed."""
        with suppress(OSError):
            os.fchown(self.fd, kept.st_uid, -1)
        try:
            os.fchown(self.fd, -1, kept.st_gid)
        except OSError:
            return mode & (0o707 | (mode & 0o007) << 3)  # another group: no more than anybody
        return mode

    def commit(self, durable: bool = True, sync_folder: bool = True) -> None:
        """Give the file its name, in one step; durable: content first, then the name, down to the disk.

        Without `sync_folder` the caller sees to the names of many files at once, by `sync_folders`.
        """
        try:
            self._settle(durable)
            with suppress(OSError):
                fcntl.flock(self.fd, fcntl.LOCK_UN)
            self._rename()
            self._named = True
            if durable and sync_folder:
                os.fsync(self.place.folder)
        except OSError as error:
            raise StorageError.of(error, self.place.path, "write") from error

    def sync(self) -> None:
        """Bring the content down to the disk now; `commit` does it otherwise."""
        try:
            self._settle(True)
        except OSError as error:
            raise StorageError.of(error, self.place.path, "write") from error

    def _settle(self, durable: bool) -> None:
        if self._settled:
            return
        if self._mode is not None:
            os.fchmod(self.fd, self._mode)
        if durable:
            os.fsync(self.fd)
            self._settled = True

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
                if self._owner == os.getpid() and not self._named:
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
    mode: int | None = None,
    durable: bool = False,
    root: AnyPath | None = None,
) -> None:
    """Write one plain file whole or not at all. With `root`, path is below it and no link is followed.

    `mode` are its permissions, in place of those that the umask leaves. A durable one is on the disk and was
    read back from there when it gets its name; with `root`, its folder is left to `sync_folders`.
    """
    place = Place.at(path) if root is None else Place.below(root, os.fsencode(path))
    temporary = TemporaryFile(place, force, mode)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(temporary.fd, view) :]
            if mtime_ns is not None:
                os.utime(temporary.fd, ns=(mtime_ns, mtime_ns))
        except OSError as error:
            raise StorageError.of(error, place.path, "write") from error
        if durable:
            temporary.sync()
            _drop_from_memory(temporary.fd)
            if not _holds(temporary.fd, data, place.path):
                raise StorageError(
                    f"cannot write {printable(place.path)}: it read back differently", errno.EIO
                )
        temporary.commit(durable, sync_folder=root is None)
    finally:
        temporary.close()


def holds(root: AnyPath, relative: bytes, data: bytes) -> bool:
    """Whether a regular file below a folder, reached without any link, has exactly this content."""
    place = Place.below(root, relative)
    try:
        fd = os.open(
            place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place.folder
        )
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return False
        raise StorageError.of(error, place.path, "open") from error
    finally:
        place.close()
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and _holds(fd, data, place.path)
    finally:
        os.close(fd)


def _holds(fd: int, data: bytes, path: AnyPath) -> bool:
    view, at = memoryview(data), 0
    try:
        if os.fstat(fd).st_size != len(view):
            return False
        while at < len(view):
            piece = os.pread(fd, _PIECE, at)
            if not piece or piece != view[at : at + len(piece)]:
                return False
            at += len(piece)
    except OSError as error:
        raise StorageError.of(error, path, "read back") from error
    return True


def _drop_from_memory(fd: int) -> None:
    # what is read next comes from the disk, where the system can do that
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def sync_folders(root: AnyPath, folders: Iterable[bytes]) -> None:
    """Make the names in these folders below a root durable, and those of the folders themselves."""
    base = os.fsencode(root)
    above = os.path.dirname(os.path.abspath(base))
    for path in [*(os.path.join(base, folder) for folder in sorted(folders, reverse=True)), base, above]:
        try:
            fd = os.open(path, _FOLDER | (0 if path == above else os.O_NOFOLLOW))
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            if path == above and error.errno == errno.EACCES:
                continue  # a folder that we may pass but not read: it was not made by us
            raise StorageError.of(error, path, "sync the folder") from error


def check_output(path: AnyPath, force: bool = False) -> None:
    """Fail before any heavy work if the output could not be written: tries it with an empty temporary."""
    TemporaryFile(Place.at(path), force).close()


def temporary_prefix(name: bytes) -> bytes:
    """How the names of the temporaries of a file begin: they must fit where its own name barely does."""
    if len(name) > 200:
        name = name[:180] + b"~" + blake2b(name, digest_size=8).hexdigest().encode()
    return b"." + name + b"."


class DeferredSignals:
    """`with DeferredSignals(): ...`: signals that arrive in the block are handled at its end.

    HDF5 calls our file objects: a handler that raises in there would throw an exception through the C
    library, which then crashes. And what is being cleaned up must not be left halfway.

    Blocks may be nested; the outermost counts. In other threads it does nothing: Python runs signal handlers
    in the main thread only.
    """

    def __enter__(self) -> DeferredSignals:
        global _depth
        self._noted: list[tuple[int, FrameType | None]] = []
        self._saved: list[tuple[int, _Handler]] = []
        self._counted = threading.get_ident() == threading.main_thread().ident
        if self._counted and _depth == 0:
            try:
                for number in _HELD:
                    handler = signal.getsignal(number)
                    if callable(handler):
                        self._saved.append((number, handler))
                        signal.signal(number, self._note)
            except BaseException:
                self._restore(0)
                raise
        _depth += self._counted
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append((number, frame))

    def _restore(self, first: int) -> None:
        # a signal may arrive between two restorations and raise: the remaining ones must still happen
        if first < len(self._saved):
            number, handler = self._saved[first]
            try:
                current = signal.signal(number, handler)
                # a handler may have replaced itself, to be left alone by the next signal: it stays replaced
                if current != self._note:
                    signal.signal(number, current)
            finally:
                self._restore(first + 1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _depth
        _depth -= self._counted
        self._restore(0)
        handlers = dict(self._saved)
        for number, frame in self._noted:
            handlers[number](number, frame)
