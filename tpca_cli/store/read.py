"""Opens a file after checking it against its table, and reads from it. Read-only, always.

The file that was checked is the file that is read: everything goes through one descriptor. What is behind an
address is read by ranges (`remote`), through the same checks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from tpca_cli.errors import FileRefused, OtherFormat, OutputExists, StorageError, UsageError, printable
from tpca_cli.store.files import Address, AnyPath, is_remote
from tpca_cli.store.guard import CheckedDataset, check_file, check_root
from tpca_cli.store.hdf5 import BadFile, Hdf5File, InputFile, LocalBytes
from tpca_cli.store.schema import Attribute, Schema, dataset_digest, root_digest

if TYPE_CHECKING:
    from tpca_cli.store.remote import RemoteBytes

RESERVED = ("format", "format_version", "digest", "meta")
ARRAY_BYTES = 1 << 30
SKIMMED_BYTES = 1 << 22
T = TypeVar("T")


@dataclass(frozen=True)
class Identity:
    """Which file, and with which content: equal as long as nobody replaced it."""

    device: int
    inode: int
    digest: str

    @classmethod
    def of(cls, source: LocalBytes | RemoteBytes, digest: str) -> Identity:
        """The file that is open, not whatever has its name by now."""
        return cls(*source.device_inode, digest)


@contextmanager
def open_checked(
    path: AnyPath, *schemas: Schema, skim: bool = False, cut: bool = False, keep: str | None = None
) -> Iterator[Reader]:
    """Open a file of one of these formats; FileRefused unless everything about it is as expected.

    `skim` is for a page about the file: where there is much to read, the digest is not checked, only the
    table and the checksum of whatever is read. A `cut` file may end early, if only bulk data are missing. To
    `keep` a group of datasets is for who will ask for these as arrays: they are read once then, not twice.
    """
    source = open_bytes(path)
    try:
        reader = Reader(source, path, schemas, skim=skim, cut=cut, keep=keep)
    except OtherFormat:
        _leave(source, path)
        raise
    except BaseException:
        source.close()
        raise
    try:
        yield reader
    finally:
        reader.close()


def _leave(source: LocalBytes | RemoteBytes, path: AnyPath) -> None:
    """To whoever reads the file as what it is: what was opened behind an address."""
    if isinstance(path, Address):
        path.looked_at = source
    else:
        source.close()


def identity(path: AnyPath) -> Identity:
    """Device, inode and root digest of a file of any format, without reading more of it."""
    return _glance(path)[0]


def format_of(path: AnyPath) -> str:
    """The `format` that a file claims; `open_checked` then decides whether to believe it."""
    return _glance(path)[1]


def open_as_it_is(path: AnyPath, openers: Mapping[str, Callable[[Any], T]]) -> T:
    """What one of these makes of a file, chosen by the `format` that it claims."""
    kind = format_of(path)
    if kind not in openers:
        raise FileRefused(f"{printable(path)} was refused: format {kind[:40]!r} is none that tpca writes")
    return openers[kind](path)


def _glance(path: AnyPath) -> tuple[Identity, str]:
    """Which file, and the format that it claims."""
    source = open_bytes(path)
    file = Hdf5File(InputFile(source), path)
    try:
        with file.calls("read"):
            try:
                found = check_root(file)
            finally:
                file.close()
    except BaseException:
        source.close()
        raise
    _leave(source, path)
    return Identity.of(source, str(found["digest"])), str(found["format"])


class Reader:
    """A file that is open and has passed every check. Use `open_checked`."""

    def __init__(
        self,
        source: LocalBytes | RemoteBytes,
        path: AnyPath,
        schemas: tuple[Schema, ...],
        *,
        skim: bool = False,
        cut: bool = False,
        keep: str | None = None,
    ) -> None:
        self.path = path
        self._source = source
        self._open = True
        self._file = Hdf5File(InputFile(source), path)
        self._entries: dict[str, CheckedDataset] = {}
        self._kept: dict[str, np.ndarray[Any, np.dtype[Any]]] = {}  # arrays until they are asked for
        self.leaves: dict[str, bytes] = {}  # the digests of those
        self._places: dict[str, list[tuple[int, int]]] = {}  # of the chunks of bulk data, once asked for
        try:
            with self._file.calls("read"):
                found = check_file(self._file, schemas, cut=cut)
                self._entries = found.datasets
                # bytes that each dataset takes in the file, without HDF5's own bookkeeping
                self.stored = {path: found.datasets[path].stored for path in sorted(found.datasets)}
                self.shapes = {path: entry.shape for path, entry in found.datasets.items()}
                self.size, self.cut_off = found.size, found.cut_off
                self.schema, self.version = found.schema, found.schema.version
                self.digest, self.meta = str(found.attributes["digest"]), found.meta
                self.attrs = {k: v for k, v in found.attributes.items() if k not in RESERVED}
                if not isinstance(source, LocalBytes):
                    source.expect(self._front())
                self._verify(found.attributes, skim, keep)
                if not isinstance(source, LocalBytes):
                    source.settle()
        except BaseException:
            self._close_file()
            raise

    def _verify(self, attributes: Mapping[str, Attribute], skim: bool, keep: str | None) -> None:
        small = sum(entry.nbytes for entry in self._entries.values() if not entry.field.bulk) <= SKIMMED_BYTES
        if skim and not small:
            return
        leaves = {}
        for path, entry in self._entries.items():
            leaf = dataset_digest()
            if entry.field.bulk:
                pass  # its pieces have digests of their own
            elif entry.plain_rows and keep is not None and path.startswith(f"{keep}/"):
                # no larger in memory than in the file
                self._kept[path] = entry.read(0, entry.shape[0])
                leaf.update(self._kept[path].data)
                self.leaves[path] = leaf.digest()
            else:
                for piece in entry.pieces():
                    leaf.update(piece.data if piece.size else b"")
            leaves[path] = (entry.field, entry.shape, leaf.digest())
        if root_digest({k: v for k, v in attributes.items() if k != "digest"}, leaves) != self.digest:
            raise BadFile("its content does not match its digest")

    def _front(self) -> list[tuple[int, int]]:
        """Where everything is that is read at once when a file is opened."""
        length = self._file.stream.length
        entries = [entry for entry in self._entries.values() if not entry.field.bulk]
        return [place for entry in entries for place in entry.chunks(length)]

    @property
    def identity(self) -> Identity:
        """Which file this is, whatever has its name by now."""
        return Identity.of(self._source, self.digest)

    def dtype(self, path: str) -> np.dtype[Any]:
        """The type of the numbers of a dataset."""
        return self._entry(path).field.kind

    def array(self, path: str, *, limit: int = ARRAY_BYTES) -> np.ndarray[Any, np.dtype[Any]]:
        """A whole dataset; refused above `limit` bytes, since its size is a number from the file."""
        entry = self._entry(path)
        if entry.nbytes > limit:
            raise FileRefused(
                f"{printable(self.path)} was refused: {path!r} has {entry.nbytes} bytes (at most {limit})"
            )
        if path in self._kept:
            return self._kept.pop(path)
        with self._file.calls("read"):
            return entry.read(0, entry.shape[0] if entry.shape else 0)

    def rows(self, path: str, start: int, stop: int) -> np.ndarray[Any, np.dtype[Any]]:
        """Rows `start` to `stop` of a dataset; a damaged chunk among them refuses the file."""
        entry = self._stretch(path, start, stop)
        with self._file.calls("read"):
            return entry.read(start, stop)

    def raw_rows(self, path: str, start: int, stop: int) -> np.ndarray[Any, np.dtype[Any]]:
        """Rows of bulk data as their bytes are in the file, no more of them than asked for.

        HDF5 would read a whole chunk and refuse it for one wrong bit: callers hold every piece to a digest of
        their own. Compressed data are read as `rows` does.
        """
        entry = self._stretch(path, start, stop)
        rows = entry.plain_rows
        if not rows:
            return self.rows(path, start, stop)
        if path not in self._places:
            with self._file.calls("read"):
                self._places[path] = entry.chunks(self._file.stream.length)
                if len(self._places[path]) != -(-entry.shape[0] // rows):
                    raise BadFile(f"{path!r} does not hold what it declares")
        width = entry.nbytes // max(1, entry.shape[0])
        parts = []
        for chunk in range(start // rows, -(-stop // rows)):
            first, last = max(start, chunk * rows), min(stop, (chunk + 1) * rows)
            at = self._places[path][chunk][0] + (first - chunk * rows) * width
            parts.append((at, at + (last - first) * width))
        try:
            data = self._file.stream.stretches(parts)
        except OSError as error:
            raise StorageError.of(error, self.path, "read") from error
        return np.frombuffer(data, entry.kind).reshape(stop - start, *entry.shape[1:])

    def _stretch(self, path: str, start: int, stop: int) -> CheckedDataset:
        """The dataset of rows that are there; of a file that was cut off, no more than can be there."""
        entry = self._entry(path)
        if not 0 <= start <= stop <= entry.shape[0]:
            raise IndexError(f"rows {start}:{stop} of {entry.shape[0]} in {path!r}")
        if self.cut_off and (stop - start) * (entry.nbytes // max(1, entry.shape[0])) > self.size:
            raise FileRefused(f"{printable(self.path)} was cut off before the end of what is asked for")
        return entry

    def close(self) -> None:
        """Close the file; harmless twice."""
        if self._open:
            self._open = False
            self._close_file(and_source=True)
            self._entries = {}

    def _close_file(self, and_source: bool = False) -> None:
        try:
            # whatever goes wrong in closing a file that is only read has been told before, or does not matter
            with suppress(FileRefused, StorageError), self._file.calls("close"):
                self._file.close(*(entry.dataset for entry in self._entries.values()))
        finally:
            if and_source:
                self._source.close()

    def _entry(self, path: str) -> CheckedDataset:
        if not self._open:
            raise UsageError(f"{printable(self.path)} is closed: open it again to read from it")
        if path not in self._entries:
            raise KeyError(f"no dataset {path!r} in {printable(self.path)}")
        return self._entries[path]


def open_bytes(path: AnyPath) -> LocalBytes | RemoteBytes:
    """A regular file that nobody is writing, or what is behind an address."""
    if not is_remote(path):
        return LocalBytes(open_regular(path))
    if isinstance(path, Address) and path.looked_at is not None:
        source, path.looked_at = path.looked_at, None
        return cast("RemoteBytes", source)
    from tpca_cli.store.remote import RemoteBytes  # late: few files are behind one

    return RemoteBytes(str(path))


def open_regular(path: AnyPath) -> int:
    """A descriptor of a regular file that nobody is writing."""
    try:
        # opening a device can have effects of its own: look first, and again once it is open
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FileRefused(f"{printable(path)} was refused: not a regular file")
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError.of(error, path, "open") from error
    try:
        # other programs that write HDF5 lock the file exclusively; file systems without locks are fine
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            os.close(fd)
            raise OutputExists(f"{printable(path)} is in use: another program is writing it") from error
    return fd
