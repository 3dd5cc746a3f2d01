"""A dataset that grows by rows, for data larger than memory. Callers: `write` only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tpca_cli.store.dataset import Array, Dataset
from tpca_cli.store.digest import LeafDigest
from tpca_cli.store.guard import element
from tpca_cli.store.read import Reader
from tpca_cli.store.schema import Field

if TYPE_CHECKING:
    from tpca_cli.store.write import Writer


class Stream:
    """A dataset that grows by rows. Use `Writer.stream`."""

    def __init__(
        self, writer: Writer, path: str, field: Field, row_shape: tuple[int, ...], rows: int, level: int
    ) -> None:
        self._writer = writer
        self._path = path
        self._field = field
        self._row_shape = row_shape
        self._rows = rows
        self._level = level
        self._held: list[Array] = []
        self._held_rows = 0
        self._dataset: Dataset | None = None
        self._leaf = LeafDigest()
        self.count = 0

    def append(self, rows: Any) -> None:
        """Add rows; what does not fill a chunk waits for the next call."""
        values = np.asarray(rows)
        if values.dtype != element(self._field) or values.shape[1:] != self._row_shape:
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

    def take(self, reader: Reader, path: str, start: int = 0, stop: int | None = None) -> None:
        """Add rows of another file's dataset, block by block."""
        end = reader.shape(path)[0] if stop is None else stop
        for first in range(start, end, self._rows):
            self.append(reader.rows(path, first, min(end, first + self._rows)))

    def _flush(self) -> None:
        rows = self._held[0] if len(self._held) == 1 else np.concatenate(self._held)
        if self._dataset is None:
            self._dataset = self._writer._dataset()
            empty = (0, *self._row_shape)
            self._dataset.create(self._path, self._field, empty, self._rows, self._level, grow=True)
        self._dataset.write(rows, self.count - len(rows), grow=True)
        self._held, self._held_rows = [], 0

    def _finish(self) -> tuple[Field, tuple[int, ...], bytes]:
        shape = (self.count, *self._row_shape)
        if self._dataset is None:
            # little enough for one chunk of just this size: no index, no padding
            rows = np.concatenate([*self._held, np.zeros((0, *self._row_shape), self._field.dtype)])
            self._dataset = self._writer._dataset()
            self._dataset.create(self._path, self._field, shape, max(1, self.count), self._level, grow=False)
            self._dataset.write(rows, 0)
        elif self._held_rows:
            self._flush()
        self._dataset.close()
        return self._field, shape, self._leaf.value()
