"""A block of coefficients to bytes and back, and the symbols that lie between.

The walk over the components is one compiled function for both directions (`kernel/walk.c`). `take` and `give`
move symbols between blocks: every symbol belongs to a tile, and the values it stands for depend on its own
image only, so an image keeps its symbols wherever it goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.engine import Job
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.layout import NO_PICTURES, Fields, lay_out
from tpca_cli.codec.model import Model
from tpca_cli.codec.plan import Ints
from tpca_cli.errors import FileRefused

Floats = NDArray[np.float64]
Array = NDArray[Any]

DECODE, DECIDE, REPLAY = 0, 1, 2
"""What a job does: read, decide and write, or write what was decided before."""


@dataclass(frozen=True)
class Symbols:
    """What was coded for some tiles: values (M, tiles) and flags (zones, tiles)."""

    values: Ints
    flags: NDArray[np.uint8]

    def of(self, first: int, last: int) -> Symbols:
        """Those of the tiles first:last."""
        return Symbols(self.values[:, first:last], self.flags[:, first:last])


def joined(parts: Sequence[Symbols]) -> Symbols:
    """The symbols of several images, one after another."""
    values, flags = [part.values for part in parts], [part.flags for part in parts]
    return Symbols(np.concatenate(values, axis=1), np.concatenate(flags, axis=1))


def encode(model: Model, grid: Grid, coefficients: Floats) -> tuple[bytes, Floats]:
    """The block of coefficients (M, tiles), rows of the plan, and the values that a decoder gets."""
    job = write(model, grid, DECIDE, {"data": coefficients})
    return written(job), _tiles(job["data"], grid)


def decode(model: Model, grid: Grid, block: bytes) -> Floats:
    """The values (M, tiles) of a block; bytes that cannot be a block are refused."""
    return _tiles(read(model, grid, block)["data"], grid)


def take(model: Model, grid: Grid, block: bytes) -> Symbols:
    """Everything that a block says."""
    job = read(model, grid, block, symbols=True)
    return Symbols(_tiles(job["data"], grid).astype(np.int64), _tiles(job["opened"], grid))


def give(model: Model, grid: Grid, symbols: Symbols) -> bytes:
    """The block that says this."""
    return written(write(model, grid, REPLAY, {"data": symbols.values, "wanted": symbols.flags}))


def _tiles(canvas: Array, grid: Grid) -> Array:
    return canvas.reshape(-1, grid.size).take(grid.places, axis=1)


def written(job: Job) -> bytes:
    """The block that a job wrote."""
    return job["bytes"][: job.number("length")].tobytes()


def read(
    model: Model, grid: Grid, block: bytes, pictures: Fields = NO_PICTURES, *, symbols: bool = False
) -> Job:
    """Run a decoder over a block."""
    job = lay_out(model, grid, DECODE, len(block), symbols, pictures)
    job["bytes"][:] = np.frombuffer(block, np.uint8)
    job.run()
    if job.number("damaged") or job.number("length") != len(block):
        raise FileRefused("block is damaged: its symbols do not end where it does")
    return job


def write(
    model: Model, grid: Grid, mode: int, tiles: Mapping[str, Array], pictures: Fields = NO_PICTURES
) -> Job:
    """Run an encoder over arrays (.., tiles) or pictures, with room enough for what it writes."""
    capacity = 4096 + grid.places.size * model.expected.size
    while True:
        job = lay_out(model, grid, mode, capacity, mode == REPLAY, pictures)
        for name, values in tiles.items():
            job[name].reshape(-1, grid.size)[:, grid.places] = values
        job.run()
        if job.number("damaged"):
            raise ValueError("values are too large to be coded")
        if job.number("length") <= capacity:
            return job
        capacity = job.number("length")
