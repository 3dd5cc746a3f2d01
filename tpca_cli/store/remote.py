"""The only module that imports fsspec: files that are read over a network, by ranges.

    https://host/photos.h5      s3://bucket/photos.h5      any other address that fsspec knows

An archive has everything but its images in front. So opening one reads the first piece, sees there how far
the rest of the index reaches, and reads that; each block is then one more range. Whatever is read goes
through the same guard and is held to the same digests as a file of a disk.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterable
from typing import Any

from tpca_cli.errors import StorageError, TpcaError, printable

FIRST_BYTES = 1 << 16  # of the first read: all that is in front of the images, for a few thousand of them
PAGE_BYTES = 1 << 12  # a header is read with what follows it
GAP_BYTES = 1 << 19  # of what was skipped and is read along, while the file is being opened
KEPT_PAGES = 1 << 10
PAUSES = (0.1, 1.0)  # seconds before another try
NO_LENGTH = "the server does not tell its length: download the file"
NO_RANGES = "the server does not serve ranges: download the file"
FINAL = (errno.ENOENT, errno.EACCES, errno.EINVAL)  # what another try does not mend


class RemoteBytes:
    """The bytes behind an address. Reading is safe in threads, and in processes that were forked."""

    regular = True
    device_inode = 0, 0  # what is read is told by its digest alone

    def __init__(self, address: str) -> None:
        self.address = address
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._opening = True
        self._pieces: list[tuple[int, bytes]] = []  # of the opening: offset and bytes, apart from one another
        self._pages: dict[int, bytes] = {}
        self._file: Any = None
        self._system, self._name = self._connected()
        try:
            self._file = self._system.open(self._name, "rb", cache_type="none")
            size = getattr(self._file, "size", None)
            if size is None:  # a stream: it has no length, or none of its ranges can be had, or it is empty
                told = self._system.size(self._name)
                if told != 0:
                    raise OSError(errno.EINVAL, NO_LENGTH if told is None else NO_RANGES)
            self.size = int(size or 0)
            self._pieces.append((0, self._fetch(0, min(FIRST_BYTES, self.size)) if size else b""))
        except Exception as error:
            self._close_file()
            raise StorageError.of(_as_system_error(error), self.address, "open") from error

    def _connected(self) -> tuple[Any, str]:
        """The file system, and the name of the file in it."""
        try:
            import fsspec
        except ImportError as error:
            raise TpcaError("reading an address needs fsspec: pip install 'tpca-cli[remote]'") from error
        try:
            system, name = fsspec.core.url_to_fs(self.address)
        except (ImportError, ValueError) as error:  # it does not know the protocol, or lacks its package
            raise TpcaError(
                f"cannot read {printable(self.address)}: {_reason(error)}; what http, https and s3 need "
                "comes with pip install 'tpca-cli[remote]'"
            ) from error
        return system, name

    def fill(self, view: memoryview, offset: int) -> int:
        """Bytes from anywhere for HDF5, of which little is read and often twice; how many there were."""
        stop = min(offset + len(view), self.size)
        if stop <= offset:
            return 0
        with self._unforked():
            data = self._held(offset, stop)
            if data is None:
                data = self._miss(offset, stop)
        view[: stop - offset] = data
        return stop - offset

    def fill_once(self, view: memoryview, offset: int) -> int:
        """The same for what nobody will ask for again; threads do not wait for one another."""
        stop = min(offset + len(view), self.size)
        if stop <= offset:
            return 0
        with self._unforked():
            data = self._held(offset, stop)
        view[: stop - offset] = self._fetch(offset, stop) if data is None else data
        return stop - offset

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Read these (offset, bytes), which will be asked for, in as few pieces as possible."""
        merged: list[list[int]] = []
        for start, size in sorted(ranges):
            if merged and start - merged[-1][1] <= GAP_BYTES:
                merged[-1][1] = max(merged[-1][1], start + size)
            else:
                merged.append([start, start + size])
        with self._unforked():
            for start, stop in merged:
                start, stop = max(0, start), min(stop, self.size)
                if start < stop and self._held(start, stop) is None:
                    self._miss(start, stop, ahead=0)

    def settle(self) -> None:
        """The file is open: what is read from now on is not kept, but for a few pages."""
        self._opening = False
        self._close_file()

    def close(self) -> None:
        """Forget what was read; connections belong to fsspec."""
        self._pieces, self._pages = [], {}
        self._close_file()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _unforked(self) -> threading.RLock:
        """The lock of this process: connections and locks of another do not survive a fork."""
        if self._process != os.getpid():
            self._lock, self._process = threading.RLock(), os.getpid()
            self._system = self._file = None
        return self._lock

    def _held(self, start: int, stop: int) -> bytes | None:
        for offset, data in self._pieces:
            if offset <= start and stop <= offset + len(data):
                return data[start - offset : stop - offset]
        page = self._pages.get(start // PAGE_BYTES)
        if page is not None and stop <= start // PAGE_BYTES * PAGE_BYTES + len(page):
            return page[start % PAGE_BYTES :][: stop - start]
        return None

    def _miss(self, start: int, stop: int, ahead: int = PAGE_BYTES) -> bytes:
        """Read what is not held. While opening, together with what lies between it and the piece before."""
        if not self._opening:
            first = start // PAGE_BYTES
            if stop > (first + 1) * PAGE_BYTES:
                return self._fetch(start, stop)
            if len(self._pages) >= KEPT_PAGES:
                self._pages.clear()
            page = self._fetch(first * PAGE_BYTES, min((first + 1) * PAGE_BYTES, self.size))
            self._pages[first] = page
            return page[start % PAGE_BYTES :][: stop - start]
        before = [n for n, (at, data) in enumerate(self._pieces) if 0 <= start - at <= len(data) + GAP_BYTES]
        offset, held = self._pieces.pop(before[-1]) if before else (start, b"")
        end = min(max(stop, start + ahead), self.size)
        try:
            held += self._fetch(offset + len(held), end)
        finally:
            self._pieces.append((offset, held))
            self._pieces.sort()
        return held[start - offset : stop - offset]

    def _fetch(self, start: int, stop: int) -> bytes:
        """A range from the server: all of it, or an OSError after a few tries."""
        for pause in (*PAUSES, None):
            try:
                data = self._asked(start, stop)
                if len(data) > stop - start:
                    raise OSError(errno.EINVAL, NO_RANGES)
                if len(data) < stop - start:
                    raise OSError(
                        errno.EIO, f"the server sent {len(data)} bytes of a range of {stop - start}"
                    )
                return data
            except Exception as error:
                found = _as_system_error(error)
                if pause is None or found.errno in FINAL:
                    raise found from error
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _asked(self, start: int, stop: int) -> bytes:
        if self._file is not None:
            self._file.seek(start)
            return bytes(self._file.read(stop - start))
        if self._system is None:  # in a process that was forked
            self._system = self._connected()[0]
        if not self.address.startswith("http"):
            return bytes(self._system.cat_file(self._name, start=start, end=stop))
        # a file object hangs up on a server that ignores ranges and would send everything, the system waits
        with self._system.open(self._name, "rb", cache_type="none", size=self.size) as file:
            file.seek(start)
            return bytes(file.read(stop - start))


def _as_system_error(error: Exception) -> OSError:
    """Whatever a server or a package says, as an error with a number and one line."""
    cause = error.__cause__  # of a file that is not found: what the server said
    status = getattr(cause or error, "status", None)
    if status in (404, 410) or (isinstance(error, FileNotFoundError) and cause is None):
        return OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    if isinstance(error, PermissionError) or status in (401, 403):
        return OSError(errno.EACCES, os.strerror(errno.EACCES))
    if isinstance(error, ValueError):
        return OSError(errno.EINVAL, NO_RANGES)
    if isinstance(error, FileNotFoundError) and cause is not None:
        return OSError(errno.EIO, _reason(cause))
    strerror = error.strerror if isinstance(error, OSError) else None
    return OSError(getattr(error, "errno", None) or errno.EIO, strerror or _reason(error))


def _reason(error: BaseException) -> str:
    kind, said = type(error).__name__, str(error)
    if kind == "TooManyRedirects":
        said = "the server redirects without end"
    elif "Redirect" in kind:
        said = f"the server redirects to {said}"
    elif getattr(error, "status", 0):
        said = f"the server answers {error.status} {getattr(error, 'message', '')}"  # type: ignore[attr-defined]
    return printable((" ".join(said.split()) or kind)[:200])
