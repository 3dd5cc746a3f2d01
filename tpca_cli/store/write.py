"""Writes a file by its table: bounded memory, never half a file, the same bytes every time.

Content goes to a temporary file. When all is in, the file is read back with every check of `read`, made
durable, and only then gets its name.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np

from tpca_cli.errors import FileRefused, OutputExists, StorageError, printable
from tpca_cli.store.dataset import Array, DatasetWriter, replace_text, set_attributes
from tpca_cli.store.digest import Attribute, DatasetDigest, root_digest
from tpca_cli.store.files import AnyPath, Place, TemporaryFile
from tpca_cli.store.guard import ATTRIBUTE_BYTES, dtype_of
from tpca_cli.store.hdf5 import OutputFile, close_identifiers, hdf5_calls, open_file
from tpca_cli.store.read import RESERVED, Identity, Reader, identity
from tpca_cli.store.schema import Field, Schema
from tpca_cli.store.signals import DeferredSignals

_PUT_CHUNK = 1 << 20
NO_DIGEST = "0" * 32
_THOROUGH, _QUICK, _FASTEST = 9, 4, 1


def create(
    target: AnyPath,
    schema: Schema,
    *,
    force: bool = False,
    expect: Identity | None = None,
    private: bool = False,
    most_open: int = 0o777,
) -> Writer:
    """A writer for `with`: leaving it normally commits the file, an exception leaves no trace.

    A `private` one is never committed: it lives beside the target, without a name, as long as its reader.
    `expect` (with `force`) is the file that this one was made from: if the target is any other by the time
    of the commit, somebody else's work would be lost, and the commit is refused; owner and group stay then
    those of that file, where the system lets us. No permission is given that `most_open` does not have.
    """
    return Writer(target, schema, force=force, expect=expect, private=private, most_open=most_open)


class Writer:
    """A file that is being written. Use `create`."""

    def __init__(
        self,
        target: AnyPath,
        schema: Schema,
        *,
        force: bool,
        expect: Identity | None,
        private: bool,
        most_open: int,
    ) -> None:
        self.target = target
        self.schema = schema
        self._force = force
        self._expect = expect
        self._attributes: dict[str, Attribute] = {"format": schema.format, "format_version": schema.version}
        self._leaves: dict[str, tuple[Field, tuple[int, ...], bytes]] = {}
        self._streams: dict[str, Stream] = {}
        self._private = private
        self._most_open = most_open
        self._described = False
        self._reader: Reader | None = None

    def __enter__(self) -> Writer:
        self._file: Any = None
        self._temporary = TemporaryFile(
            Place.at(self.target),
            self._force,
            most_open=self._most_open,
            keep_owner=self._expect is not None,
        )
        try:
            self._output = OutputFile(self._temporary.fd)
            with hdf5_calls(self._output, self.target, "write"):
                self._file = open_file(self._output, write=True)
        except BaseException:
            self._abandon()
            raise
        return self

    def attrs(self, values: Mapping[str, Attribute]) -> None:
        """Set attributes of the file. They are short: structured metadata go through `meta`."""
        for name, value in values.items():
            if name in RESERVED and name != "meta":
                raise ValueError(f"attribute {name!r} belongs to the store")
            if isinstance(value, bool) or not isinstance(value, str | int | float | bytes):
                raise TypeError(
                    f"attribute {name!r} is {type(value).__name__}: text, int, float or bytes only"
                )
            if isinstance(value, str) and "\0" in value:
                raise ValueError(f"attribute {name!r} holds a NUL")
            if (
                isinstance(value, str | bytes)
                and len(value.encode() if isinstance(value, str) else value) > ATTRIBUTE_BYTES
            ):
                raise ValueError(f"attribute {name!r} is over {ATTRIBUTE_BYTES} bytes: put it in a dataset")
            self._attributes[name] = value

    def meta(self, values: Mapping[str, Any]) -> None:
        """Set the structured metadata: one JSON object, spelled the same way every time."""
        text = json.dumps(dict(values), sort_keys=True, separators=(",", ":"), allow_nan=False)
        self.attrs({"meta": text})

    def describe(self) -> None:
        """Write the attributes now: what follows is bulk data, and a file cut off in it can still be read.

        The digest gets its place now and its value in the end.
        """
        with hdf5_calls(self._output, self.target, "write"):
            set_attributes(self._file, {**self._attributes, "digest": NO_DIGEST})
        self._described = True

    def put(self, path: str, array: Any, *, compress: bool = True) -> None:
        """Write a whole dataset at once."""
        values = np.asarray(array)
        field = self._field(path, values.dtype, values.shape)
        values = np.ascontiguousarray(values).reshape(values.shape)  # 0-d stays 0-d
        row = values.nbytes // max(1, len(values)) if values.ndim else 0
        rows = max(1, _PUT_CHUNK // max(1, row))
        level = (_THOROUGH if values.nbytes <= _PUT_CHUNK else _QUICK) if compress else 0
        dataset = self._new_dataset()
        dataset.create(path, field, values.shape, rows, level, grow=False)
        leaf = DatasetDigest()
        leaf.add(values.data if values.size else b"")
        step = max(1, rows)
        for start in range(0, len(values) if values.ndim else 1, step):
            dataset.write(values[start : start + step] if values.ndim else values, start)
        dataset.close()
        self._leaves[path] = (field, values.shape, leaf.value())

    def stream(
        self,
        path: str,
        dtype: Any,
        row_shape: tuple[int, ...],
        chunk_rows: int,
        compress: bool = False,
        rows: int | None = None,
    ) -> Stream:
        """A dataset that grows by rows; memory is bounded by one chunk of `chunk_rows`.

        Where the number of `rows` is known, HDF5 keeps its list of chunks in one piece, behind the first.

        Compress even what is already coded if the file should be small: it takes the padding of the last
        chunk away, at the lowest level, which costs little.
        """
        field = self._field(path, np.dtype(dtype), (0, *row_shape), growing=True)
        self._streams[path] = Stream(
            self, path, field, tuple(row_shape), max(1, chunk_rows), _FASTEST if compress else 0, rows
        )
        return self._streams[path]

    def _field(self, path: str, dtype: Any, shape: tuple[int, ...], growing: bool = False) -> Field:
        field = self.schema.field(path)
        if field is None:
            raise KeyError(f"{path!r} is not in the table of {self.schema.format}")
        if dtype_of(field) != dtype:
            raise TypeError(f"{path!r} is {field.dtype} in the table, not {dtype}")
        fits = field.admits(shape) or (
            growing and field.admits((field.shape[0] if field.shape and field.shape[0] else 0, *shape[1:]))
        )
        if not fits:
            raise ValueError(f"{path!r} has shape {field.shape} in the table, not {shape}")
        if path in self._leaves or path in self._streams:
            raise ValueError(f"{path!r} is written twice")
        return field

    def _new_dataset(self) -> DatasetWriter:
        return DatasetWriter(self._file, self._output, self.target)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and not self._private:
                if self._reader is None:
                    self._finish().close()
                self._temporary.commit()
            good = error is None
        except BaseException:
            good = False
            raise
        finally:
            if self._reader is not None and not good:
                self._reader.close()
            self._abandon()

    def finish(self) -> Reader:
        """Write no more; returns the reader that checked the file. Leaving `with` gives the file its name."""
        self._reader = self._finish()
        return self._reader

    def _finish(self) -> Reader:
        for path, stream in self._streams.items():
            self._leaves[path] = stream._finish()
        missing = self.schema.missing(frozenset(self._leaves))
        if missing is not None:
            raise ValueError(f"{missing!r} of {self.schema.format} was not written")
        digest = root_digest(self._attributes, self._leaves)
        with hdf5_calls(self._output, self.target, "write"):
            if self._described:
                replace_text(self._file, "digest", digest)
            else:
                set_attributes(self._file, {**self._attributes, "digest": digest})
            close_identifiers(self._file)
            self._file = None
        reader = self._read_back(digest)
        try:
            if self._expect is not None:
                self._check_expected(self._expect)
        except BaseException:
            reader.close()
            raise
        return reader

    def _check_expected(self, expected: Identity) -> None:
        try:
            unchanged = identity(self.target) == expected
        except (StorageError, FileRefused):
            unchanged = False
        if not unchanged:
            raise OutputExists(f"{printable(self.target)} was changed by another run meanwhile: run again")

    def _read_back(self, digest: str) -> Reader:
        fd = os.dup(self._temporary.fd)
        try:
            reader = Reader(fd, self.target, (self.schema,))
        except FileRefused as error:
            os.close(fd)
            raise StorageError(f"what was written did not read back: {error}", errno.EIO) from error
        except BaseException:
            os.close(fd)
            raise
        if reader.digest != digest:
            reader.close()
            raise StorageError(f"cannot write {printable(self.target)}: it read back differently", errno.EIO)
        return reader

    def _abandon(self) -> None:
        with DeferredSignals():
            if self._file is not None:
                self._output.abandon()
                with suppress(StorageError, FileRefused), hdf5_calls(self._output, self.target, "write"):
                    close_identifiers(self._file)
                self._file = None
            self._temporary.close()


class Stream:
    """A dataset that grows by rows. Use `Writer.stream`."""

    def __init__(
        self,
        writer: Writer,
        path: str,
        field: Field,
        row_shape: tuple[int, ...],
        rows: int,
        level: int,
        total: int | None,
    ) -> None:
        self._writer = writer
        self._path = path
        self._field = field
        self._row_shape = row_shape
        self._rows = rows
        self._level = level
        self._total = total
        self._held: list[Array] = []
        self._held_rows = 0
        self._dataset: DatasetWriter | None = None
        self._leaf = DatasetDigest()
        self.count = 0

    def append(self, rows: Any) -> None:
        """Add rows; what does not fill a chunk waits for the next call."""
        values = np.asarray(rows)
        if values.dtype != dtype_of(self._field) or values.shape[1:] != self._row_shape:
            raise TypeError(f"rows of {self._path!r} are {self._field.dtype} {self._row_shape}")
        values = np.ascontiguousarray(values)
        if not self._field.bulk and values.size:
            self._leaf.add(values.data)
        while len(values):
            room = self._rows - self._held_rows
            piece, values = values[:room], values[room:]
            # a whole chunk is written at once; a part must be copied, for the caller may reuse its array
            self._held.append(piece if len(piece) == self._rows else piece.copy())
            self._held_rows += len(piece)
            self.count += len(piece)
            if self._held_rows == self._rows:
                self._flush()

    def _flush(self) -> None:
        rows = self._held[0] if len(self._held) == 1 else np.concatenate(self._held)
        if self._dataset is None:
            self._dataset = self._writer._new_dataset()
            shape = (self._total or 0, *self._row_shape)
            grow = self._total is None
            self._dataset.create(self._path, self._field, shape, self._rows, self._level, grow=grow)
        self._dataset.write(rows, self.count - len(rows), grow=self._total is None)
        self._held, self._held_rows = [], 0

    def _finish(self) -> tuple[Field, tuple[int, ...], bytes]:
        shape = (self.count, *self._row_shape)
        if self._total not in (None, self.count):
            raise ValueError(f"{self.count} rows of {self._path!r} were written, not {self._total}")
        if self._dataset is None:
            # little enough for one chunk of just this size: no index, no padding
            rows = np.concatenate([*self._held, np.zeros((0, *self._row_shape), self._field.dtype)])
            self._dataset = self._writer._new_dataset()
            self._dataset.create(self._path, self._field, shape, max(1, self.count), self._level, grow=False)
            self._dataset.write(rows, 0)
        elif self._held_rows:
            self._flush()
        self._dataset.close()
        return self._field, shape, self._leaf.value()
