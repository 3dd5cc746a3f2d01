"""Writes a file by its table: bounded memory, never half a file, the same bytes every time.

Content goes to a temporary file. When all is in, the file is read back with every check of `read`, made
durable, and only then gets its name.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np

from tpca_cli.errors import FileRefused, OutputExists, StorageError, printable
from tpca_cli.store.columns import join_bundle
from tpca_cli.store.files import AnyPath, Place, TemporaryFile
from tpca_cli.store.guard import ATTRIBUTE_BYTES, type_of
from tpca_cli.store.hdf5 import (
    Hdf5File,
    LocalBytes,
    OutputFile,
    creation_properties,
    h5d,
    h5ds,
    h5s,
    make_groups,
)
from tpca_cli.store.read import RESERVED, Identity, Reader, identity
from tpca_cli.store.schema import BUNDLE, Attribute, Field, Schema, dataset_digest, root_digest

_PUT_CHUNK = 1 << 20
_BUNDLE_BYTES = 1 << 19
NO_DIGEST = "0" * 32
_THOROUGH, _QUICK, _FASTEST = 9, 4, 1
Array = np.ndarray[Any, np.dtype[Any]]
Leaf = tuple[Field, tuple[int, ...], bytes]  # a dataset that is written: its field, its shape, its digest


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
    """A file that is being written. Use `create`.

    `checked` is the reader that the finished file was read back with, for its digest, its size and what it
    stores. It is closed when the file has its name, unless `finish` handed it out.
    """

    checked: Reader

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
        self._leaves: dict[str, Leaf] = {}
        self._streams: dict[str, Stream] = {}
        self._told = self._attributes  # all, or all but those in a bundle
        self._private = private
        self._most_open = most_open
        self._described = False
        self._reader: Reader | None = None

    def __enter__(self) -> Writer:
        self._temporary = TemporaryFile(
            Place.at(self.target),
            self._force,
            most_open=self._most_open,
            keep_owner=self._expect is not None,
        )
        try:
            self._output = OutputFile(self._temporary.fd)
        except BaseException:
            self._temporary.close()
            raise
        self._file = Hdf5File(self._output, self.target)
        try:
            with self._file.calls("write"):
                self._file.create()
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

        The digest gets its place now and its value in the end, and so do bulk data of one chunk.
        """
        self._bundle()
        with self._file.calls("write"):
            for stream in self._streams.values():
                stream.reserve()
            self._file.take_in()
            self._file.set_attributes({**self._told, "digest": NO_DIGEST})
        self._described = True

    def put(self, path: str, array: Any, *, compress: bool = True, digest: bytes | None = None) -> None:
        """Write a whole dataset at once; where the table has a bundle, as late as possible. One of another
        file may bring its `digest`: none is computed then, and reading back finds out whether it is right."""
        values = np.asarray(array)
        field = self._field(path, values.dtype, values.shape)
        if not values.ndim:
            self._leaves[path] = Stream(self._file, path, field, (), 1, 0, None).put_scalar(values)
            return
        row = values.nbytes // max(1, len(values))
        rows = max(1, _PUT_CHUNK // max(1, row))
        level = (_THOROUGH if values.nbytes <= _PUT_CHUNK else _QUICK) if compress else 0
        stream = Stream(self._file, path, field, values.shape[1:], rows, level, len(values), digest)
        stream.append(values)
        if BUNDLE in self.schema.fields and not self._described:
            self._streams[path] = stream
        else:
            self._leaves[path] = stream.finish()

    def _bundle(self) -> None:
        """Write what `put` left open: as a bundle, or where it is much one by one."""
        held = {path: stream for path, stream in self._streams.items() if not stream.field.bulk}
        rows = {path: stream.held() for path, stream in held.items()}
        small = sum(content.nbytes for content in rows.values()) <= _BUNDLE_BYTES
        if held and small and all(len(rows[path]) == held[path].count for path in held):
            self._leaves |= {path: stream.leaf() for path, stream in held.items()}
            content = join_bundle(str(self._attributes["meta"]), rows)
            whole = Stream(self._file, BUNDLE, self.schema.fields[BUNDLE], (), len(content), 0, len(content))
            whole.append(content)
            whole.finish()
            self._told = {name: value for name, value in self._attributes.items() if name != "meta"}
        else:
            self._leaves |= {path: stream.finish() for path, stream in held.items()}
        self._streams = {path: stream for path, stream in self._streams.items() if path not in held}

    def stream(
        self,
        path: str,
        dtype: Any,
        row_shape: tuple[int, ...],
        chunk_rows: int,
        compress: bool = False,
        rows: int | None = None,
        scales: tuple[str, ...] | None = None,
    ) -> Stream:
        """A dataset that grows by rows; memory is bounded by one chunk of `chunk_rows`.

        Where the number of `rows` is known, HDF5 keeps its list of chunks in one piece, in front of them.

        Compress even what is already coded if the file should be small: it takes the padding of the last
        chunk away, at the lowest level, which costs little. `scales` are those of this file where the table
        allows several.
        """
        field = self._field(path, np.dtype(dtype), (0, *row_shape), growing=True)
        if scales is not None:
            field = replace(field, scales=scales)
        self._streams[path] = Stream(
            self._file, path, field, tuple(row_shape), max(1, chunk_rows), _FASTEST if compress else 0, rows
        )
        return self._streams[path]

    def _field(self, path: str, dtype: Any, shape: tuple[int, ...], growing: bool = False) -> Field:
        field = self.schema.field(path)
        if field is None:
            raise KeyError(f"{path!r} is not in the table of {self.schema.format}")
        narrowed = field.narrowed(np.dtype(dtype).str.lstrip("<|"))
        if narrowed is None:
            raise TypeError(f"{path!r} is {field.dtype} in the table, not {dtype}")
        field = narrowed
        fits = field.admits(shape) or (
            growing and field.admits((field.shape[0] if field.shape and field.shape[0] else 0, *shape[1:]))
        )
        if not fits:
            raise ValueError(f"{path!r} has shape {field.shape} in the table, not {shape}")
        if path in self._leaves or path in self._streams:
            raise ValueError(f"{path!r} is written twice")
        return field

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and not self._private:
                if self._reader is None:
                    self.checked = self._finish()
                    self.checked.close()
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
        self._reader = self.checked = self._finish()
        return self._reader

    def _finish(self) -> Reader:
        for path, stream in self._streams.items():
            self._leaves[path] = stream.finish()
        missing = self.schema.missing(frozenset(self._leaves))
        if missing is not None:
            raise ValueError(f"{missing!r} of {self.schema.format} was not written")
        digest = root_digest(self._attributes, self._leaves)
        with self._file.calls("write"):
            self._file.take_in()
            attach_scales(self._file, self._leaves)
            if self._described:
                self._file.replace_text("digest", digest)
            else:
                self._file.set_attributes({**self._told, "digest": digest})
            self._file.close()
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
        source = LocalBytes(os.dup(self._temporary.fd))
        try:
            reader = Reader(source, self.target, (self.schema,))
        except FileRefused as error:
            source.close()
            raise StorageError(f"what was written did not read back: {error}", errno.EIO) from error
        except BaseException:
            source.close()
            raise
        if reader.digest != digest:
            reader.close()
            raise StorageError(f"cannot write {printable(self.target)}: it read back differently", errno.EIO)
        return reader

    def _abandon(self) -> None:
        try:
            if self._file.id is not None:
                self._output.abandon()
                with suppress(StorageError, FileRefused), self._file.calls("write"):
                    self._file.close()
        finally:
            self._temporary.close()


class Stream:
    """A dataset that grows by rows. Use `Writer.stream`."""

    def __init__(
        self,
        file: Hdf5File,
        path: str,
        field: Field,
        row_shape: tuple[int, ...],
        rows: int,
        level: int,
        total: int | None,
        digest: bytes | None = None,
    ) -> None:
        """Chunks have `rows` rows, deflated at `level` (0: not); `total` are the rows in all, where known."""
        self._file = file
        self._path = path
        self.field = field
        self._kind = field.kind
        self._type: Any = None  # the same for HDF5
        self._row_shape = row_shape
        self._rows = rows
        self._level = level
        self._total = total
        self._held: list[Array] = []
        self._held_rows = 0
        self._id: Any = None
        self._reserved = False
        self._known = digest
        self._digest = dataset_digest()
        self.count = 0

    def reserve(self) -> None:
        """Give a dataset of one chunk its place before there are any rows of it in the file."""
        if self._id is None and self._total and self._total <= self._rows:
            self._create((self._total, *self._row_shape), self._rows, grow=False).close()
            self._reserved = True

    def append(self, rows: Any) -> None:
        """Add rows; what does not fill a chunk waits for the next call."""
        values = np.asarray(rows)
        if values.dtype != self._kind or values.shape[1:] != self._row_shape:
            raise TypeError(f"rows of {self._path!r} are {self.field.dtype} {self._row_shape}")
        values = np.ascontiguousarray(values)
        if self._known is None and not self.field.bulk and values.size:
            self._digest.update(values.data)
        while len(values):
            room = self._rows - self._held_rows
            piece, values = values[:room], values[room:]
            # a whole chunk is written at once; a part must be copied, for the caller may reuse its array
            self._held.append(piece if len(piece) == self._rows else piece.copy())
            self._held_rows += len(piece)
            self.count += len(piece)
            if self._held_rows == self._rows:
                self._flush()

    def _flush(self, last: bool = False) -> None:
        """Write the rows that are held: a whole chunk, or the last, after which the dataset is closed."""
        rows = self.held()
        with self._file.calls("write"):
            if self._id is None and self._reserved:
                self._id = h5d.open(self._file.id, self._path.encode())
            elif self._id is None:
                self._id = self._create((self._total or 0, *self._row_shape), self._rows, self._total is None)
                if self._total is not None and self._total > self._rows:
                    # HDF5 places its list of chunks behind the first one that it is given: here one of a
                    # byte, so that the list is in front, for readers over a network or after a cut
                    self._id.write_direct_chunk((0,) * (1 + len(self._row_shape)), b"\0")
            self._write(rows, self.count - len(rows))
            if last:
                self._id.close()
        self._held, self._held_rows = [], 0

    def finish(self) -> Leaf:
        """Write what is left and close the dataset."""
        if self._total not in (None, self.count):
            raise ValueError(f"{self.count} rows of {self._path!r} were written, not {self._total}")
        if self._id is None:
            # little enough for one chunk of just this size: no index, no padding
            self._rows, self._total = max(1, self.count), self.count
        self._flush(last=True)
        return self.leaf()

    def held(self) -> Array:
        """The rows that are not in the file yet."""
        none = np.zeros((0, *self._row_shape), self._kind)
        return self._held[0] if len(self._held) == 1 else np.concatenate([*self._held, none])

    def leaf(self) -> Leaf:
        """What the file says of its rows so far."""
        return self.field, (self.count, *self._row_shape), self._known or self._digest.digest()

    def put_scalar(self, value: Array) -> Leaf:
        """The whole of a dataset without axes."""
        with self._file.calls("write"):
            dataset = self._create((), 1, grow=False)
            dataset.write(h5s.ALL, h5s.ALL, value, self._type)
            dataset.close()
        self._digest.update(value.data)
        return self.field, (), self._digest.digest()

    def _create(self, shape: tuple[int, ...], rows: int, grow: bool) -> Any:
        """Make the dataset in chunks of `rows`; one that is to `grow` starts without any."""
        # no checksum for a scalar or an empty array: both live in the object header, which has its own
        compact = shape == () or (0 in shape and not grow)
        chunk = None if compact else (rows if grow else min(rows, shape[0]), *shape[1:])
        space = h5s.create_simple(shape, (h5s.UNLIMITED, *shape[1:]) if grow else None)
        size = math.prod(shape) * self._kind.itemsize
        bare = not grow and not self.field.scales and chunk in (None, shape) and size <= _PUT_CHUNK
        place = self._file.apart(size) if bare else self._file.id
        make_groups(place, self._path)
        layout = creation_properties(self._kind, chunk, self._level)
        self._type = type_of(self._kind)
        return h5d.create(place, self._path.encode(), self._type, space, layout)

    def _write(self, rows: Array, start: int) -> None:
        if not rows.size:
            return
        if self._total is None and len(rows) + start > self._id.shape[0]:
            self._id.set_extent((start + len(rows), *rows.shape[1:]))
        space = self._id.get_space()
        space.select_hyperslab((start, *(0 for _ in rows.shape[1:])), rows.shape)
        self._id.write(h5s.create_simple(rows.shape), space, rows, self._type)


def attach_scales(file: Hdf5File, leaves: Mapping[str, Leaf]) -> None:
    """Make the datasets that others are counted by their dimension scales, in the order of their names."""
    fields = {path: leaf[0] for path, leaf in leaves.items() if leaf[0].scales}
    datasets = {path: h5d.open(file.id, path.encode()) for path in sorted(fields)}
    for path in sorted({scale for field in fields.values() for scale in field.scales}):
        h5ds.set_scale(datasets[path], path.encode())
    for path in sorted(fields):
        for axis, scale in enumerate(fields[path].scales):
            if scale != path:
                h5ds.attach_scale(datasets[path], datasets[scale], axis)
    for dataset in datasets.values():
        dataset.close()
