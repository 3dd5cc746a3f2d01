"""How a dataset is laid out and written in HDF5: chunks, filters, attributes. Callers: `write` only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tpca_cli.store.digest import Attribute
from tpca_cli.store.files import AnyPath
from tpca_cli.store.guard import CHUNK_BYTES, dtype_of
from tpca_cli.store.hdf5 import OutputFile, close_identifiers, h5a, h5d, h5g, h5p, h5s, h5t, hdf5_calls
from tpca_cli.store.schema import Field

Array = np.ndarray[Any, np.dtype[Any]]


class DatasetWriter:
    """One dataset: `create`, then `write` rows in order, whole chunks at a time, then `close`."""

    def __init__(self, file: Any, output: OutputFile, target: AnyPath) -> None:
        self._file = file
        self._output = output
        self._target = target
        self._id: Any = None

    def create(
        self, path: str, field: Field, shape: tuple[int, ...], rows: int, level: int, *, grow: bool
    ) -> None:
        """Make the dataset in the file, in chunks of `rows`; one that is to `grow` starts without rows."""
        with hdf5_calls(self._output, self._target, "write"):
            self._create(path, field, shape, rows, level, grow)

    def _create(
        self, path: str, field: Field, shape: tuple[int, ...], rows: int, level: int, grow: bool
    ) -> None:
        kind = dtype_of(field)
        # no checksum for a scalar or an empty array: both live in the object header, which has its own
        compact = shape == () or (0 in shape and not grow)
        chunk = None if compact else (rows if grow else min(rows, shape[0]), *shape[1:])
        space = h5s.create_simple(shape, (h5s.UNLIMITED, *shape[1:]) if grow else None)
        self._make_groups(path)
        layout = creation_properties(kind, chunk, level)
        self._id = h5d.create(self._file, path.encode(), h5t.py_create(kind), space, layout)

    def _make_groups(self, path: str) -> None:
        # not left to HDF5, which may note the time of day in groups that it makes by itself
        root = h5g.open(self._file, b"/")
        plain = h5p.create(h5p.GROUP_CREATE)
        plain.set_obj_track_times(False)
        parts = path.encode().split(b"/")
        for end in range(1, len(parts)):
            group = b"/".join(parts[:end])
            if not root.links.exists(group):
                h5g.create(self._file, group, gcpl=plain)

    def write(self, rows: Array, start: int, *, grow: bool = False) -> None:
        """Write rows from `start` on (a scalar: its value)."""
        if rows.size:
            with hdf5_calls(self._output, self._target, "write"):
                self._write(rows, start, grow)

    def _write(self, rows: Array, start: int, grow: bool) -> None:
        if rows.ndim == 0:
            self._id.write(h5s.ALL, h5s.ALL, rows)
            return
        if grow:
            self._id.set_extent((start + len(rows), *rows.shape[1:]))
        space = self._id.get_space()
        space.select_hyperslab((start, *(0 for _ in rows.shape[1:])), rows.shape)
        self._id.write(h5s.create_simple(rows.shape), space, rows)

    def close(self) -> None:
        """Close the dataset: what HDF5 still holds of it goes to the file."""
        with hdf5_calls(self._output, self._target, "write"):
            close_identifiers(None, self._id)
            self._id = None


def creation_properties(kind: np.dtype[Any], chunk: tuple[int, ...] | None, level: int) -> Any:
    """The property list of a dataset: compact without a chunk, else chunked, checksummed, maybe deflated."""
    layout = h5p.create(h5p.DATASET_CREATE)
    layout.set_obj_track_times(False)
    layout.set_fill_time(h5d.FILL_TIME_NEVER)
    if chunk is None:
        layout.set_layout(h5d.COMPACT)
        return layout
    layout.set_chunk(bounded_chunk(chunk, kind.itemsize))
    if level:
        if kind.itemsize > 1:
            layout.set_shuffle()
        layout.set_deflate(level)
    layout.set_fletcher32()
    return layout


def bounded_chunk(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The chunk shape at most as large as allowed: leading axes shrink first."""
    chunk = list(shape)
    for axis in range(len(chunk)):
        rest = itemsize * math.prod(chunk[axis + 1 :])
        if rest * chunk[axis] <= CHUNK_BYTES:
            break
        chunk[axis] = max(1, CHUNK_BYTES // rest)
    return tuple(chunk)


def set_attributes(file: Any, values: Mapping[str, Attribute]) -> None:
    """All attributes of the root, in the order of their names."""
    root = h5g.open(file, b"/")
    for name in sorted(values):
        _set_attribute(root, name, values[name])


def replace_text(file: Any, name: str, text: str) -> None:
    """Another text of the same length in an attribute of the root: nothing moves in the file."""
    attribute = h5a.open(h5g.open(file, b"/"), name.encode("ascii"))
    content = np.array(text.encode(), dtype=f"S{len(text.encode())}")
    if attribute.get_type().get_size() != content.dtype.itemsize:
        raise ValueError(f"attribute {name!r} has another length")
    attribute.write(content, mtype=attribute.get_type())


def _set_attribute(root: Any, name: str, value: Attribute) -> None:
    # fixed-size text, a number, or bytes
    if isinstance(value, str):
        text = value.encode()
        kind = h5t.C_S1.copy()
        kind.set_size(max(1, len(text)))
        kind.set_strpad(h5t.STR_NULLPAD)
        kind.set_cset(h5t.CSET_UTF8)
        content = np.array(text, dtype=f"S{max(1, len(text))}")
    elif isinstance(value, bytes):
        kind, content = h5t.STD_U8LE, np.frombuffer(value, "u1")
    elif isinstance(value, int):
        kind, content = h5t.STD_I64LE, np.array(value, "<i8")
    else:
        kind, content = h5t.IEEE_F64LE, np.array(value, "<f8")
    attribute = h5a.create(root, name.encode("ascii"), kind, h5s.create_simple(content.shape))
    if content.size:
        attribute.write(content, mtype=kind)
