"""The symbols of coded blocks, taken out and put into other blocks: the same integers, so the same pixels.

Every symbol belongs to a tile, and what a tile is predicted from lies in its own image. Images can therefore
move between blocks: `take` reads the symbols of a block, `give` writes a block from those of any images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.blocks import Flags, walk
from tpca_cli.codec.entropy import Reader, Writer
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.model import Model
from tpca_cli.codec.plan import Ints
from tpca_cli.codec.ports import Decoder

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Symbols:
    """What was coded for some tiles: values (M, tiles) and, for each (color, zone), a flag per tile."""

    values: NDArray[np.int64]
    flags: dict[tuple[int, int], Flags]

    def of(self, first: int, last: int) -> Symbols:
        """Those of the tiles first:last."""
        return Symbols(
            self.values[:, first:last], {key: flags[first:last] for key, flags in self.flags.items()}
        )


def joined(parts: Sequence[Symbols]) -> Symbols:
    """The symbols of several images, one after another."""
    flags = {key: np.concatenate([part.flags[key] for part in parts]) for key in parts[0].flags}
    return Symbols(np.concatenate([part.values for part in parts], axis=1), flags)


def take(model: Model, grid: Grid, data: bytes) -> Symbols:
    """Everything that a block says."""
    port = _Recorder(model, Reader(data), grid.size)
    walk(model, grid, port)
    flags = {key: canvas[grid.places] for key, canvas in port.opened.items()}
    return Symbols(port.seen[:, grid.places], flags)


def give(model: Model, grid: Grid, symbols: Symbols) -> bytes:
    """The block that says this."""
    port = _Replayer(model, grid, symbols)
    walk(model, grid, port)
    return port.writer.finish()


class _Recorder(Decoder):
    """Reads, and remembers by row and place."""

    def __init__(self, model: Model, reader: Reader, size: int) -> None:
        super().__init__(model, reader)
        self.seen = np.zeros((model.expected.size, size), np.int64)
        self.opened = {key: np.zeros(size, np.bool_) for key in model.plan.zones}

    def flags(self, color: int, zone: int, places: Ints, classes: Ints) -> Flags:
        flags = super().flags(color, zone, places, classes)
        self.opened[color, zone][places] = flags
        return flags

    def values(self, rows: slice, places: Ints, classes: Ints, means: Floats | None) -> Floats:
        q = super().values(rows, places, classes, means)
        self.seen[rows, places] = q
        return q


class _Replayer:
    """Writes what was remembered."""

    def __init__(self, model: Model, grid: Grid, symbols: Symbols) -> None:
        self.model, self.writer = model, Writer()
        self.known = np.zeros((model.expected.size, grid.size), np.int64)
        self.known[:, grid.places] = symbols.values
        self.opened = {key: np.zeros(grid.size, np.bool_) for key in model.plan.zones}
        for key, flags in symbols.flags.items():
            self.opened[key][grid.places] = flags

    def flags(self, color: int, zone: int, places: Ints, classes: Ints) -> Flags:
        flags = self.opened[color, zone][places]
        self.writer.flags(flags, self.model.flag_tables.take(classes, axis=0))
        return flags

    def values(self, rows: slice, places: Ints, classes: Ints, means: Floats | None) -> Floats:
        q = self.known[rows].take(places, axis=1)
        magnitudes = np.abs(q).ravel()
        family = self.model.family(rows, means is not None)
        self.writer.values(magnitudes, classes.ravel(), self.model.tables[family])
        self.writer.bits((q < 0).ravel()[magnitudes > 0])
        return q.astype(np.float64)
