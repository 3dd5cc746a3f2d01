"""One dataset of a new file: rows gathered into chunks, laid out and written. Callers: `write` only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tpca_cli.store.guard import CHUNK_BYTES, type_of
from tpca_cli.store.hdf5 import Hdf5File, h5d, h5ds, h5g, h5p, h5s
from tpca_cli.store.schema import Field, dataset_digest

Array = np.ndarray[Any, np.dtype[Any]]
Leaf = tuple[Field, tuple[int, ...], bytes]  # a dataset that is written: its field, its shape, its digest


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
    ) -> None:
        """Chunks have `rows` rows, deflated at `level` (0: not); `total` are the rows in all, where known."""
        self._file = file
        self._path = path
        self._field = field
        self._kind = field.kind
        self._row_shape = row_shape
        self._rows = rows
        self._level = level
        self._total = total
        self._held: list[Array] = []
        self._held_rows = 0
        self._id: Any = None
        self._digest = dataset_digest()
        self.count = 0

    def append(self, rows: Any) -> None:
        """Add rows; what does not fill a chunk waits for the next call."""
        values = np.asarray(rows)
        if values.dtype != self._kind or values.shape[1:] != self._row_shape:
            raise TypeError(f"rows of {self._path!r} are {self._field.dtype} {self._row_shape}")
        values = np.ascontiguousarray(values)
        if not self._field.bulk and values.size:
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

    def _flush(self) -> None:
        """Write the rows that are held: a whole chunk, or the last."""
        rows = self._held[0] if len(self._held) == 1 else np.concatenate(self._held)
        with self._file.calls("write"):
            if self._id is None:
                self._id = self._create((self._total or 0, *self._row_shape), self._rows, self._total is None)
                if self._total is not None and self._total > self._rows:
                    # HDF5 places its list of chunks behind the first one that it is given: here one of a
                    # byte, so that the list is in front, for readers over a network or after a cut
                    self._id.write_direct_chunk((0,) * (1 + len(self._row_shape)), b"\0")
            self._write(rows, self.count - len(rows))
        self._held, self._held_rows = [], 0

    def finish(self) -> Leaf:
        """Write what is left and close the dataset."""
        shape = (self.count, *self._row_shape)
        if self._total not in (None, self.count):
            raise ValueError(f"{self.count} rows of {self._path!r} were written, not {self._total}")
        if self._id is not None and self._held_rows:
            self._flush()
        with self._file.calls("write"):
            if self._id is None:
                # little enough for one chunk of just this size: no index, no padding
                self._id = self._create(shape, max(1, self.count), grow=False)
                self._write(np.concatenate([*self._held, np.zeros((0, *self._row_shape), self._kind)]), 0)
            self._id.close()
        return self._field, shape, self._digest.digest()

    def put_scalar(self, value: Array) -> Leaf:
        """The whole of a dataset without axes."""
        with self._file.calls("write"):
            dataset = self._create((), 1, grow=False)
            dataset.write(h5s.ALL, h5s.ALL, value, type_of(self._field))
            dataset.close()
        self._digest.update(value.data)
        return self._field, (), self._digest.digest()

    def _create(self, shape: tuple[int, ...], rows: int, grow: bool) -> Any:
        """Make the dataset in chunks of `rows`; one that is to `grow` starts without any."""
        # no checksum for a scalar or an empty array: both live in the object header, which has its own
        compact = shape == () or (0 in shape and not grow)
        chunk = None if compact else (rows if grow else min(rows, shape[0]), *shape[1:])
        space = h5s.create_simple(shape, (h5s.UNLIMITED, *shape[1:]) if grow else None)
        self._make_groups()
        layout = creation_properties(self._kind, chunk, self._level)
        return h5d.create(self._file.id, self._path.encode(), type_of(self._field), space, layout)

    def _make_groups(self) -> None:
        # not left to HDF5, which may note the time of day in groups that it makes by itself
        root = self._file.root
        plain = h5p.create(h5p.GROUP_CREATE)
        plain.set_obj_track_times(False)
        parts = self._path.encode().split(b"/")
        for end in range(1, len(parts)):
            group = b"/".join(parts[:end])
            if not root.links.exists(group):
                h5g.create(self._file.id, group, gcpl=plain)

    def _write(self, rows: Array, start: int) -> None:
        if not rows.size:
            return
        if self._total is None and len(rows) + start > self._id.shape[0]:
            self._id.set_extent((start + len(rows), *rows.shape[1:]))
        space = self._id.get_space()
        space.select_hyperslab((start, *(0 for _ in rows.shape[1:])), rows.shape)
        self._id.write(h5s.create_simple(rows.shape), space, rows, type_of(self._field))


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
