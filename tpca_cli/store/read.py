"""Opens a file after checking it against its table, and reads from it. Read-only, always.

The file that was checked is the file that is read: everything goes through one descriptor.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca_cli.errors import FileRefused, OutputExists, StorageError, printable
from tpca_cli.store.digest import Attribute, DatasetDigest, root_digest
from tpca_cli.store.files import AnyPath
from tpca_cli.store.guard import CheckedDataset, check_datasets, check_header, read_attributes
from tpca_cli.store.hdf5 import BadFile, InputFile, close_identifiers, h5g, h5s, hdf5_calls, open_file
from tpca_cli.store.schema import Schema
from tpca_cli.store.signals import DeferredSignals

RESERVED = ("format", "format_version", "digest", "meta")
ARRAY_BYTES = 1 << 30
SKIMMED_BYTES = 1 << 22
_PIECE = 1 << 22


@dataclass(frozen=True)
class Identity:
    """Which file, and with which content: equal as long as nobody replaced it."""

    device: int
    inode: int
    digest: str


@contextmanager
def open_checked(path: AnyPath, *schemas: Schema, skim: bool = False, cut: bool = False) -> Iterator[Reader]:
    """Open a file of one of these formats; FileRefused unless everything about it is as expected.

    `skim` is for a page about the file: where there is much to read, the digest is not checked, only the
    table and the checksum of whatever is read. A `cut` file may end early, if only bulk data are missing.
    """
    reader = None
    fd = open_regular(path)
    try:
        reader = Reader(fd, path, schemas, skim=skim, cut=cut)
        yield reader
    finally:
        if reader is not None:
            reader.close()
        else:
            os.close(fd)


def identity(path: AnyPath) -> Identity:
    """Device, inode and root digest of a file of any format, without reading more of it."""
    fd = open_regular(path)
    try:
        digest = text_attribute(_attributes(fd, path), "digest")
        found = os.fstat(fd)
        return Identity(found.st_dev, found.st_ino, digest)
    finally:
        os.close(fd)


def format_of(path: AnyPath) -> str:
    """The `format` that a file claims; `open_checked` then decides whether to believe it."""
    fd = open_regular(path)
    try:
        return text_attribute(_attributes(fd, path), "format")
    finally:
        os.close(fd)


def _attributes(fd: int, path: AnyPath) -> dict[str, Attribute]:
    stream = InputFile(fd)
    with hdf5_calls(stream, path, "read"):
        check_header(fd, stream)
        found = _root(stream)
        for name in ("format", "digest"):
            text_attribute(found, name)
        return found


def _root(stream: InputFile) -> dict[str, Attribute]:
    file = open_file(stream, write=False)
    try:
        return read_attributes(h5g.open(file, b"/"))
    finally:
        close_identifiers(file)


class Reader:
    """A file that is open and has passed every check. Use `open_checked`."""

    def __init__(
        self, fd: int, path: AnyPath, schemas: tuple[Schema, ...], *, skim: bool = False, cut: bool = False
    ) -> None:
        self.path = path
        self._fd = fd
        self._skim = skim
        self._stream = InputFile(fd)
        self._file: Any = None
        self._entries: dict[str, CheckedDataset] = {}
        self._cut = cut
        try:
            with hdf5_calls(self._stream, path, "read"):
                self._size = size = check_header(fd, self._stream, cut=cut)
                self.cut_off = self._stream.length > size
                with _told_if(self.cut_off):
                    self._file = open_file(self._stream, write=False)
                    self._load(schemas, size)
        except BaseException:
            self._close_file()
            raise

    def _load(self, schemas: tuple[Schema, ...], size: int) -> None:
        root = h5g.open(self._file, b"/")
        found = read_attributes(root)
        self.schema = matching_schema(found, schemas)
        self.version = self.schema.version
        self.digest = text_attribute(found, "digest")
        self.meta: dict[str, Any] = parse_meta(text_attribute(found, "meta")) if "meta" in found else {}
        self.attrs: dict[str, Attribute] = {k: v for k, v in found.items() if k not in RESERVED}
        self._entries = check_datasets(root, self.schema, size, cut=self._cut)
        self._verify({name: value for name, value in found.items() if name != "digest"})

    def _verify(self, attributes: Mapping[str, Attribute]) -> None:
        small = sum(entry.nbytes for entry in self._entries.values() if not entry.field.bulk) <= SKIMMED_BYTES
        if self._skim and not small:
            return
        leaves = {}
        for path, entry in self._entries.items():
            leaf = DatasetDigest()
            if not entry.field.bulk:
                for piece in _pieces(entry):
                    leaf.add(piece)
            leaves[path] = (entry.field, entry.shape, leaf.value())
        if root_digest(attributes, leaves) != self.digest:
            raise BadFile("its content does not match its digest")

    @property
    def identity(self) -> Identity:
        """The file behind the descriptor, not whatever has its name by now."""
        found = os.fstat(self._fd)
        return Identity(found.st_dev, found.st_ino, self.digest)

    def names(self) -> tuple[str, ...]:
        """Paths of all datasets, sorted."""
        return tuple(sorted(self._entries))

    def has(self, path: str) -> bool:
        """Whether an optional dataset is there."""
        return path in self._entries

    def shape(self, path: str) -> tuple[int, ...]:
        """The shape of a dataset."""
        return self._entry(path).shape

    def stored_bytes(self, path: str) -> int:
        """Bytes that a dataset takes in the file, without HDF5's own bookkeeping."""
        return self._entry(path).stored

    def array(self, path: str, *, limit: int = ARRAY_BYTES) -> np.ndarray[Any, np.dtype[Any]]:
        """A whole dataset; refused above `limit` bytes, since its size is a number from the file."""
        entry = self._entry(path)
        if entry.nbytes > limit:
            raise FileRefused(
                f"{printable(self.path)} was refused: {path!r} has {entry.nbytes} bytes (at most {limit})"
            )
        with hdf5_calls(self._stream, self.path, "read"):
            return _read(entry, 0, entry.shape[0] if entry.shape else 0)

    def rows(self, path: str, start: int, stop: int) -> np.ndarray[Any, np.dtype[Any]]:
        """Rows `start` to `stop` of a dataset; a damaged chunk among them refuses the file."""
        entry = self._stretch(path, start, stop)
        with hdf5_calls(self._stream, self.path, "read"):
            return _read(entry, start, stop)

    def raw_rows(self, path: str, start: int, stop: int) -> np.ndarray[Any, np.dtype[Any]]:
        """Rows of bulk data without HDF5's checksum, which would refuse a whole chunk for one wrong bit.

        For callers that hold every piece to a digest of their own. Compressed data are read as `rows` does.
        """
        entry = self._stretch(path, start, stop)
        with hdf5_calls(self._stream, self.path, "read"):
            return _read_raw(entry, start, stop) if entry.plain_rows else _read(entry, start, stop)

    def _stretch(self, path: str, start: int, stop: int) -> CheckedDataset:
        """The dataset of rows that are there; of a file that was cut off, no more than can be there."""
        entry = self._entry(path)
        if not 0 <= start <= stop <= entry.shape[0]:
            raise IndexError(f"rows {start}:{stop} of {entry.shape[0]} in {path!r}")
        if self.cut_off and (stop - start) * (entry.nbytes // max(1, entry.shape[0])) > self._size:
            raise FileRefused(f"{printable(self.path)} was cut off before the end of what is asked for")
        return entry

    def close(self) -> None:
        """Close the file; harmless twice."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                self._close_file()
            finally:
                os.close(fd)

    def _close_file(self) -> None:
        # whatever goes wrong in closing a file that is only read has been told before, or does not matter
        with DeferredSignals():
            with suppress(FileRefused, StorageError), hdf5_calls(self._stream, self.path, "close"):
                close_identifiers(self._file, *(entry.dataset for entry in self._entries.values()))
            self._entries.clear()
            self._file = None

    def _entry(self, path: str) -> CheckedDataset:
        if path not in self._entries:
            raise KeyError(f"no dataset {path!r} in {printable(self.path)}")
        return self._entries[path]


@contextmanager
def _told_if(cut_off: bool) -> Iterator[None]:
    """Whatever is wrong with a file that was cut off in its index, that is why."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if not cut_off:
            raise
        raise BadFile("it was cut off, and what says where its images are is not in the rest") from error


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


def matching_schema(found: Mapping[str, Attribute], schemas: tuple[Schema, ...]) -> Schema:
    """The one of these tables that the file claims to follow."""
    name, version = text_attribute(found, "format"), found.get("format_version")
    wanted = " or ".join(sorted({schema.format for schema in schemas}))
    versions = [schema.version for schema in schemas if schema.format == name]
    if not versions:
        raise BadFile(f"format {name[:40]!r}, not {wanted}")
    if not isinstance(version, int):
        raise BadFile("no format_version")
    if version > max(versions):
        raise BadFile(
            f"{name} version {version} is newer than this program reads ({max(versions)}): upgrade tpca"
        )
    for schema in schemas:
        if (schema.format, schema.version) == (name, version):
            return schema
    raise BadFile(f"{name} version {version} is not one that this program reads")


def text_attribute(found: Mapping[str, Attribute], name: str) -> str:
    """A text attribute that every file has."""
    value = found.get(name)
    if not isinstance(value, str):
        raise BadFile(f"not a tpca file (no attribute {name!r})")
    return value


def parse_meta(text: str) -> dict[str, Any]:
    """Structured metadata: a JSON object without surprises."""

    def constant(name: str) -> None:
        raise BadFile(f"attribute 'meta' holds {name}")

    try:
        value = json.loads(text, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise BadFile("attribute 'meta' is not JSON") from error
    if not isinstance(value, dict):
        raise BadFile("attribute 'meta' is not a JSON object")
    return value


def _pieces(entry: CheckedDataset) -> Iterator[np.ndarray[Any, np.dtype[Any]]]:
    """The whole dataset in C order, in pieces of a few megabytes."""
    rows = entry.shape[0] if entry.shape else 0
    row_bytes = max(1, entry.nbytes // max(1, rows))
    step = max(1, _PIECE // row_bytes)
    for start in range(0, max(1, rows), step):
        yield _read(entry, start, min(rows, start + step))


def _read(entry: CheckedDataset, start: int, stop: int) -> np.ndarray[Any, np.dtype[Any]]:
    count = (stop - start, *entry.shape[1:]) if entry.shape else ()
    out = np.zeros(count, entry.dtype)
    if math.prod(count) == 0:
        return out
    if not entry.shape:
        entry.dataset.read(h5s.ALL, h5s.ALL, out)
        return out
    space = entry.dataset.get_space()
    space.select_hyperslab((start, *(0 for _ in entry.shape[1:])), count)
    entry.dataset.read(h5s.create_simple(count), space, out)
    return out


def _read_raw(entry: CheckedDataset, start: int, stop: int) -> np.ndarray[Any, np.dtype[Any]]:
    rows = entry.plain_rows
    size = rows * (entry.nbytes // max(1, entry.shape[0]))
    pieces = []
    for first in range(start // rows * rows, stop, rows):
        _, data = entry.dataset.read_direct_chunk((first, *(0 for _ in entry.shape[1:])))
        if len(data) < size:
            raise BadFile("a chunk is shorter than declared")
        chunk = np.frombuffer(data[:size], entry.dtype).reshape(rows, *entry.shape[1:])
        pieces.append(chunk[max(0, start - first) : stop - first])
    return np.concatenate([*pieces, np.zeros((0, *entry.shape[1:]), entry.dtype)])
