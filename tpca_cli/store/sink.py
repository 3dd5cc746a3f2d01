"""The file objects that HDF5 sees: they never raise.

HDF5 crashes when its file driver fails at the wrong moment, so both objects remember the first failure (the
latch), go on saying yes, and our code asks them after every step. What HDF5 wrote after the failure is kept
in memory, so that it can read it back while it closes.
"""

from __future__ import annotations

import io
import os
from typing import Any


class Latched:
    """A position and a remembered failure over one file descriptor; reading."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = 0
        self._end = os.fstat(fd).st_size
        self.failure: BaseException | None = None
        self._swallowed: list[tuple[int, bytes]] = []

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; the end is where HDF5 believes it is, even after a failure."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._end}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """The position."""
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
            self._latch(error)
        view[done:] = bytes(len(view) - done)
        for offset, data in self._swallowed:
            start, stop = max(offset, self._at), min(offset + len(data), self._at + len(view))
            if start < stop:
                view[start - self._at : stop - self._at] = data[start - offset : stop - offset]
        self._at += len(view)
        return len(view)

    def flush(self) -> None:
        """Nothing is buffered here; durability is one fsync at the end."""

    def check(self) -> None:
        """Raise the remembered failure."""
        if self.failure is not None:
            raise self.failure

    def _latch(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error


class Sink(Latched):
    """A latched file for writing."""

    def write(self, data: Any) -> int:
        """Write at the position, or swallow if anything failed before."""
        view = memoryview(data).cast("B")
        if self.failure is None:
            try:
                done = 0
                while done < len(view):
                    done += os.pwrite(self._fd, view[done:], self._at + done)
            except BaseException as error:
                self._latch(error)
        if self.failure is not None:
            self._swallowed.append((self._at, bytes(view)))
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
                self._latch(error)
        return self._end

    def abandon(self) -> None:
        """Swallow everything from here on: the file will not be kept."""
        self._latch(OSError("abandoned"))
