"""The only module that imports h5py: without plugins, with signals deferred, over file objects of our own.

HDF5 crashes when its file driver fails at the wrong moment. So the file objects that it gets never raise:
they remember the first failure, report success, and our code asks for the failure after every call. What HDF5
writes after a failure is kept in memory, so that it can read it back while it closes the file.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tpca_cli.errors import FileRefused, StorageError, TpcaError, printable
from tpca_cli.store.files import AnyPath
from tpca_cli.store.signals import DeferredSignals

# HDF5 would load any library from a plugin folder to read a foreign filter; it reads this once, at start
os.environ["HDF5_PLUGIN_PRELOAD"] = "::"

with DeferredSignals():  # an import that a signal breaks in the middle does not say so
    from h5py import h5a, h5d, h5f, h5fd, h5g, h5l, h5o, h5p, h5s, h5t, h5z

__all__ = [
    "BadFile",
    "InputFile",
    "OutputFile",
    "close_identifiers",
    "h5a",
    "h5d",
    "h5f",
    "h5g",
    "h5l",
    "h5o",
    "h5p",
    "h5s",
    "h5t",
    "h5z",
    "hdf5_calls",
    "open_file",
]


class BadFile(Exception):
    """Why a file is refused, without its name; `hdf5_calls` makes a `FileRefused` of it."""


class InputFile:
    """A file descriptor as HDF5 reads it: never raises, keeps the first failure in `failure`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = 0
        self._end = os.fstat(fd).st_size
        self.failure: BaseException | None = None
        self._unwritten: list[tuple[int, bytes]] = []

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position; the end is where HDF5 believes it is, even after a failure."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._end}[whence]
        self._at = base + offset
        return self._at

    @property
    def length(self) -> int:
        """Bytes that HDF5 believes the file has."""
        return self._end

    def pretend_length(self, length: int) -> None:
        """Let HDF5 believe that the file has this many bytes: those that are missing read as zeros."""
        self._end = length

    def tell(self) -> int:
        """The position of the next read or write."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Bytes from the position; h5py asks for this method but reads through `readinto`."""
        buffer = bytearray(max(0, self._end - self._at) if size < 0 else size)
        self.readinto(buffer)
        return bytes(buffer)

    def readinto(self, buffer: Any) -> int:
        """Fill the whole buffer: what cannot be read is zeros, and then a checksum of HDF5 complains."""
        view = memoryview(buffer).cast("B")
        done = 0
        try:
            while done < len(view):
                count = os.preadv(self._fd, [view[done:]], self._at + done)
                if count == 0:
                    break
                done += count
        except BaseException as error:
            self._remember(error)
        view[done:] = bytes(len(view) - done)
        for offset, data in self._unwritten:
            start, stop = max(offset, self._at), min(offset + len(data), self._at + len(view))
            if start < stop:
                view[start - self._at : stop - self._at] = data[start - offset : stop - offset]
        self._at += len(view)
        return len(view)

    def flush(self) -> None:
        """Nothing is buffered here; durability is one fsync at the end."""

    def _remember(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error


class OutputFile(InputFile):
    """The same for writing: after a failure, writes go to memory instead of the file."""

    def write(self, data: Any) -> int:
        """Write at the position; all of it, or the failure is remembered."""
        view = memoryview(data).cast("B")
        if self.failure is None:
            try:
                done = 0
                while done < len(view):
                    done += os.pwrite(self._fd, view[done:], self._at + done)
            except BaseException as error:
                self._remember(error)
        if self.failure is not None:
            self._unwritten.append((self._at, bytes(view)))
        self._at += len(view)
        self._end = max(self._end, self._at)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the length."""
        self._end = self._at if size is None else size
        if self.failure is None:
            try:
                os.ftruncate(self._fd, self._end)
            except BaseException as error:
                self._remember(error)
        return self._end

    def abandon(self) -> None:
        """Write nothing more to the file: it will not be kept."""
        self._remember(OSError("abandoned"))


def open_file(stream: InputFile, *, write: bool) -> Any:
    """The HDF5 identifier of an open or a new file."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
    access.set_fileobj_driver(h5fd.fileobj_driver, stream)
    if not write:
        return h5f.open(b"tpca", h5f.ACC_RDONLY, access)
    creation = h5p.create(h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    creation.set_attr_phase_change(32, 0)  # attributes stay in the header: no heap for a few more than eight
    return h5f.create(b"tpca", h5f.ACC_TRUNC, creation, access)


@contextmanager
def hdf5_calls(stream: InputFile, path: AnyPath, doing: str) -> Iterator[None]:
    """Every call into HDF5 runs in here: signals wait, and failures become errors that name the file.

    A failure of the system is a StorageError; anything else that HDF5 finds is a damaged file.
    """
    with DeferredSignals():
        try:
            try:
                yield
            finally:
                failure = stream.failure
                if isinstance(failure, OSError):
                    raise StorageError.of(failure, path, doing) from failure
                if failure is not None:
                    raise failure
        except (TpcaError, MemoryError):
            raise
        except BadFile as error:
            raise FileRefused(f"{printable(path)} was refused: {error}") from error
        except Exception as error:
            if "memory allocation" in str(error):
                raise MemoryError(f"not enough memory to {doing} {printable(path)}") from error
            reason = " ".join(str(error).split()) or type(error).__name__
            if doing == "write":
                raise StorageError(f"cannot write {printable(path)}: {printable(reason[:200])}") from error
            raise FileRefused(f"{printable(path)} is damaged: {printable(reason[:200])}") from error


def close_identifiers(file: Any, *things: Any) -> None:
    """Close identifiers now: the garbage collector would do it where signals are not deferred."""
    for thing in things:
        if thing.valid:
            thing.close()
    if file is not None and file.valid:
        file.close()
