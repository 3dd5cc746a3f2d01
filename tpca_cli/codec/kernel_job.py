"""A job for the compiled coder, `kernel/walk.wasm`: its fields in the order of `Job` in `kernel/values.h`.

The coder learns from every bit, which arrays cannot do. A `Job` is what it works on; jobs may run in any
thread or forked process. `kernel_run` makes jobs and adds the fields of pictures, if there are any.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec import priors
from tpca_cli.codec.contexts import CLASSES, LEVELS, ContextModel, before
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.scan_order import Ints, ScanOrder
from tpca_cli.errors import FileRefused
from tpca_cli.wasm import MOST, Stopped, aligned, machine

_PROGRAM = "codec/kernel/walk.wasm"

Array = NDArray[Any]


def prepare() -> None:
    """Compile now: processes that are forked later inherit the machine instead of making their own."""
    machine(_PROGRAM)


def source_digest() -> str:
    """The first digits of the digest of the sources that the machine code was built from."""
    return f"{machine(_PROGRAM).constant('source'):x}"


class Room(NamedTuple):
    """An array that the walk needs, with zeros in it unless it is for scratch."""

    dtype: Any
    size: int
    scratch: bool = False


class Job:
    """Numbers and arrays in the order of the kernel's `Job`; arrays live in its memory until the next job."""

    def __init__(self, fields: Mapping[str, int | Array | Room]) -> None:
        """Arrays are copied in."""
        self._machine, self._names = machine(_PROGRAM), list(fields)
        self._places: dict[str, tuple[int, np.dtype[Any], int]] = {}
        at = self._machine.base + aligned(4 * len(fields))
        head = []
        for name, given in fields.items():
            head.append(given if isinstance(given, int) else at)
            if not isinstance(given, int):
                dtype = np.dtype(given.dtype)
                self._places[name] = (at, dtype, given.size)
                at += aligned(dtype.itemsize * given.size)
        if at > MOST:
            raise MemoryError(f"a block needs {at >> 20} MB, more than coding can address")
        self._memory = self._machine.room(at)
        self._head = self._memory[self._machine.base :][: 4 * len(fields)].view(np.uint32)
        self._head[:] = head
        for name, given in fields.items():
            if isinstance(given, Room):
                if not given.scratch:
                    self[name][:] = 0
            elif not isinstance(given, int):
                self[name][:] = given.ravel()

    def __getitem__(self, name: str) -> Array:
        """An array of the job, in place."""
        at, dtype, size = self._places[name]
        return self._memory[at : at + dtype.itemsize * size].view(dtype)

    def number(self, name: str) -> int:
        """A number that the walk wrote."""
        return int(self._head[self._names.index(name)])

    def run(self) -> None:
        """Run it; whatever stops the machine was caused by the data."""
        try:
            self._machine.run(self._machine.base)
        except Stopped as error:
            raise FileRefused(f"block is damaged ({error})") from error


Fields = Mapping[str, int | Array | Room]

NO_PICTURES: Fields = {"picture_count": 0}
LAMBDA = 0.08
"""Bits are worth this many squared steps."""
ROWS, CYCLE = 48, 4
"""Classes 44 to 47 stand for all larger ones too: for each octave above, one more low bit goes out raw."""


def lay_out(
    model: ContextModel, grid: Grid, mode: int, capacity: int, symbols: bool, pictures: Fields
) -> Job:
    """A job with room for `capacity` bytes; `symbols` go out in place of the values that they stand for."""
    scan, size = model.scan, grid.size
    rows, zones, channels = len(scan.places), len(scan.zones), len(scan.lowest)
    canvas, room = rows * size, -(-size // 8) * 8
    most_pairs = max((b - a + 1 for step in scan.steps for a, b in step.sights), default=0) // 2
    return Job({
        "mode": mode,
        "symbols": int(symbols),
        "rows": rows,
        "size": size,
        "room": room,
        "stride": grid.stride,
        "colored": scan.colored,
        "channels": channels,
        "zones": zones,
        "capacity": capacity,
        "length": 0,
        "damaged": 0,
        "step_count": len(scan.steps),
        "level_count": len(grid.levels),
        "phase_0_count": grid.phases[0].size,
        "phase_1_count": grid.phases[1].size,
        **_of_grid(grid),
        **_of_model(model),
        **_of_format(),
        "data": Room(np.float64, canvas),
        "wanted": Room(np.uint8, zones * size),
        "opened": Room(np.uint8, zones * size),
        "own": Room(np.uint16, canvas + size + 8),
        "signs": Room(np.int8, canvas),
        "busy": Room(np.uint8, 2 * size),
        "low": Room(np.float64, channels * size),
        "worth": Room(np.float64, 2 * size, scratch=True),
        "total": Room(np.uint32, room, scratch=True),
        "seen": Room(np.int16, 2 * most_pairs * room),
        "live": Room(np.int32, 4 * size, scratch=True),
        "bytes": Room(np.uint8, capacity, scratch=True),
        **pictures,
    })  # fmt: skip


@functools.lru_cache(maxsize=16)
def _of_grid(grid: Grid) -> dict[str, Array]:
    """Where the tiles lie."""
    levels = [(level.places.size, min(level.fineness, LEVELS - 1)) for level in grid.levels]
    return {
        "phases_0": grid.phases[0].astype(np.int32),
        "phases_1": grid.phases[1].astype(np.int32),
        "levels": np.array(levels, np.int32).reshape(-1, 2),
        "level_places": np.concatenate([level.places for level in grid.levels]).astype(np.int32),
        "level_around": np.concatenate([level.around.T for level in grid.levels]).astype(np.int32),
    }


@functools.lru_cache(maxsize=4)
def _of_scan(scan: ScanOrder) -> dict[str, Array]:
    """The order of coding and who sees what."""
    zones = {key: index for index, key in enumerate(scan.zones)}
    steps = [
        (s.start, s.stop, s.color, zones[s.color, s.zone], s.opens, *before(scan, s),
         zones.get((0, s.zone), -1), *(first for first, _ in s.sights), *(last for _, last in s.sights))
        for s in scan.steps
    ]  # fmt: skip
    pairs = _pairs(scan)[0]
    return {
        "steps": np.array(steps, np.int32).reshape(-1, 12),
        "sights": scan.looks.sights.astype(np.int32),
        "looks": np.searchsorted(pairs[0], np.arange(2 * len(scan.places) + 1)).astype(np.int32),
        "look_pairs": pairs[1].astype(np.int32),
        "near": _near(scan),
        "lowest_rows": np.array(scan.lowest, np.int32),
    }


@functools.lru_cache(maxsize=4)
def _pairs(scan: ScanOrder) -> tuple[Ints, Ints]:
    """Looks two by two, as the kernel multiplies: (row and phase, pair) of each, and where each look went."""
    looks = scan.looks
    pairs, which = np.unique(
        np.stack([2 * looks.rows + looks.phases, looks.chosen // 2]), axis=1, return_inverse=True
    )
    return pairs, 2 * which.ravel() + looks.chosen % 2


def _near(scan: ScanOrder) -> NDArray[np.int32]:
    """For each row: near rows (-1 for none), the axis of its slope, and what selects its counters."""
    rows = {place: row for row, place in enumerate(scan.places)}
    found = []
    for i, j, c in scan.places:
        third, fourth = (i, j, 0) if c else (i - 1, j - 1, c), (i - 1, j - 1, c) if c else (i - 1, j + 1, c)
        before_it = (i, j, 1) if c == 2 else (-1, 0, 0)
        near = [(i - 1, j, c), (i, j - 1, c), third, before_it, (i - 2, j, c), (i, j - 2, c), fourth]
        axis = 0 if bool(i) == bool(j) else 1 if i else 2
        spot = 4 * min(i, 3) + min(j, 3) + 16 * min(c, 1)
        found.append([*(rows.get(place, -1) for place in near), axis, c, spot])
    return np.array(found, np.int32)


@functools.lru_cache(maxsize=4)
def _of_model(model: ContextModel) -> dict[str, Array]:
    """Weights at this step."""
    pairs, places = _pairs(model.scan)
    weights = np.zeros(2 * pairs.shape[1], np.int16)
    weights[places] = model.weights
    return {
        **_of_scan(model.scan),
        "look_weights": weights,
        "bases": model.bases.astype(np.uint32),
        "maps": model.maps.astype(np.uint8),
        "quanta": model.steps,
        "expected": model.expected,
        "lowest_priors": model.lowest.astype(np.int64),
        "centers": model.centers.astype(np.int64),
        "flag_weights": model.flag_weights,
    }


@functools.lru_cache(maxsize=1)
def _of_format() -> dict[str, Array]:
    """The tables of the format, and what tokens cost the encoder."""
    classes = np.arange(CLASSES)
    bits = 16 - np.log2(priors.TABLES)
    bits[..., 1:] += 1
    shifts = np.maximum(classes // CYCLE - (ROWS // CYCLE - 1), 0)
    bits = bits[:, np.where(classes < ROWS, classes, ROWS - CYCLE + classes % CYCLE)] + shifts[:, None]
    return {
        "lowest_weights": priors.LOWEST_WEIGHTS.astype(np.int64),
        "tables": priors.TABLES.astype(np.int32),
        "flag_tables": priors.FLAG_TABLES.astype(np.int32),
        "offsets": priors.OFFSETS.astype(np.int32),
        "prices": LAMBDA * np.floor(bits * 256 + 0.5) / 256,
        "log_prices": LAMBDA * np.concatenate([[1.0], 1.5 * np.log2(np.arange(1, 64))]),
        "bit_prices": LAMBDA * np.floor(256 * (12 - np.log2(np.arange(4096) + 0.5)) + 0.5) / 256,
    }
