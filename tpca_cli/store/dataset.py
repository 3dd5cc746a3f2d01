"""One dataset in the making. Every handle of HDF5 lives and dies inside the guard."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpca_cli.store.files import AnyPath
from tpca_cli.store.guard import element
from tpca_cli.store.hdf5 import close_all, guarded, h5d, h5g, h5p, h5s, h5t
from tpca_cli.store.layout import creation
from tpca_cli.store.schema import Field
from tpca_cli.store.sink import Sink

Array = np.ndarray[Any, np.dtype[Any]]


class Dataset:
    """Rows are written in order, whole chunks at a time; a growing dataset starts without any."""

    def __init__(self, file: Any, sink: Sink, target: AnyPath) -> None:
        self._file = file
        self._sink = sink
        self._target = target
        self._id: Any = None

    def create(
        self, path: str, field: Field, shape: tuple[int, ...], rows: int, level: int, *, grow: bool
    ) -> None:
        """Make it in the file, in chunks of `rows`."""
        with guarded(self._sink, self._target, "write"):
            self._create(path, field, shape, rows, level, grow)

    def _create(
        self, path: str, field: Field, shape: tuple[int, ...], rows: int, level: int, grow: bool
    ) -> None:
        kind = element(field)
        # nothing to checksum in a scalar or an empty array: both live in the object header, which is
        compact = shape == () or (0 in shape and not grow)
        chunk = None if compact else (rows if grow else min(rows, shape[0]), *shape[1:])
        space = h5s.create_simple(shape, (h5s.UNLIMITED, *shape[1:]) if grow else None)
        self._make_groups(path)
        layout = creation(kind, chunk, level)
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
            with guarded(self._sink, self._target, "write"):
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
        """Done with it."""
        with guarded(self._sink, self._target, "write"):
            close_all(None, self._id)
            self._id = None
