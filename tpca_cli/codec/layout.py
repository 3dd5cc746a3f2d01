"""The fields of a job in the order of `Job` in `kernel/values.h`: grid, model, format, room to work.

Only `blocks` lays out jobs; `pictures` adds the last fields, if there are pictures.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.engine import Job, Room
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.model import CLASSES, LEVELS, Model, before
from tpca_cli.codec.plan import Ints, Plan
from tpca_cli.codec.priors import Priors

Array = NDArray[Any]
Fields = Mapping[str, int | Array | Room]

NO_PICTURES: Fields = {"picture_count": 0}
LAMBDA = 0.08
"""Bits are worth this many squared steps."""
ROWS, CYCLE = 48, 4
"""Classes 44 to 47 stand for all larger ones too: for each octave above, one more low bit goes out raw."""


def lay_out(model: Model, grid: Grid, mode: int, capacity: int, symbols: bool, pictures: Fields) -> Job:
    """A job with room for `capacity` bytes; `symbols` go out in place of the values that they stand for."""
    plan, size = model.plan, grid.size
    rows, zones, channels = len(plan.places), len(plan.zones), len(plan.lowest)
    canvas, room = rows * size, -(-size // 8) * 8
    most_pairs = max((b - a + 1 for step in plan.steps for a, b in step.sights), default=0) // 2
    return Job({
        "mode": mode,
        "symbols": int(symbols),
        "rows": rows,
        "size": size,
        "room": room,
        "stride": grid.stride,
        "colored": plan.colored,
        "channels": channels,
        "zones": zones,
        "capacity": capacity,
        "length": 0,
        "damaged": 0,
        "step_count": len(plan.steps),
        "level_count": len(grid.levels),
        "phase_0_count": grid.phases[0].size,
        "phase_1_count": grid.phases[1].size,
        **_of_grid(grid),
        **_of_model(model),
        **_of_priors(model.priors),
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
def _of_plan(plan: Plan) -> dict[str, Array]:
    """The order of coding and who sees what."""
    zones = {key: index for index, key in enumerate(plan.zones)}
    steps = [
        (s.start, s.stop, s.color, zones[s.color, s.zone], s.opens, *before(plan, s),
         zones.get((0, s.zone), -1), *(first for first, _ in s.sights), *(last for _, last in s.sights))
        for s in plan.steps
    ]  # fmt: skip
    pairs = _pairs(plan)[0]
    return {
        "steps": np.array(steps, np.int32).reshape(-1, 12),
        "sights": plan.looks.sights.astype(np.int32),
        "looks": np.searchsorted(pairs[0], np.arange(2 * len(plan.places) + 1)).astype(np.int32),
        "look_pairs": pairs[1].astype(np.int32),
        "near": _near(plan),
        "lowest_rows": np.array(plan.lowest, np.int32),
    }


@functools.lru_cache(maxsize=4)
def _pairs(plan: Plan) -> tuple[Ints, Ints]:
    """Looks two by two, as the kernel multiplies: (row and phase, pair) of each, and where each look went."""
    looks = plan.looks
    lookers, pair = (2 * looks.rows + looks.phases).astype(np.int64), looks.chosen // 2
    most = int(pair.max(initial=0)) + 1
    pairs, which = np.unique(lookers * most + pair, return_inverse=True)
    return np.stack(np.divmod(pairs, most)), 2 * which.ravel() + looks.chosen % 2


def _near(plan: Plan) -> NDArray[np.int32]:
    """For each row: near rows (-1 for none), the axis of its slope, and what selects its counters."""
    rows = {place: row for row, place in enumerate(plan.places)}
    found = []
    for i, j, c in plan.places:
        third, fourth = (i, j, 0) if c else (i - 1, j - 1, c), (i - 1, j - 1, c) if c else (i - 1, j + 1, c)
        before_it = (i, j, 1) if c == 2 else (-1, 0, 0)
        near = [(i - 1, j, c), (i, j - 1, c), third, before_it, (i - 2, j, c), (i, j - 2, c), fourth]
        axis = 0 if bool(i) == bool(j) else 1 if i else 2
        spot = 4 * min(i, 3) + min(j, 3) + 16 * min(c, 1)
        found.append([*(rows.get(place, -1) for place in near), axis, c, spot])
    return np.array(found, np.int32)


@functools.lru_cache(maxsize=4)
def _of_model(model: Model) -> dict[str, Array]:
    """Weights at this step."""
    pairs, places = _pairs(model.plan)
    weights = np.zeros(2 * pairs.shape[1], np.int16)
    weights[places] = model.weights
    return {
        **_of_plan(model.plan),
        "look_weights": weights,
        "bases": model.bases.astype(np.uint32),
        "maps": model.maps.astype(np.uint8),
        "quanta": model.steps,
        "expected": model.expected,
        "lowest_priors": model.lowest.astype(np.int64),
        "centers": model.centers.astype(np.int64),
        "flag_weights": model.flag_weights,
    }


@functools.lru_cache(maxsize=4)
def _of_priors(priors: Priors) -> dict[str, Array]:
    """The tables of the format, and what tokens cost the encoder."""
    classes = np.arange(CLASSES)
    bits = 16 - np.log2(priors.tables)
    bits[..., 1:] += 1
    shifts = np.maximum(classes // CYCLE - (ROWS // CYCLE - 1), 0)
    bits = bits[:, np.where(classes < ROWS, classes, ROWS - CYCLE + classes % CYCLE)] + shifts[:, None]
    return {
        "lowest_weights": priors.lowest_weights.astype(np.int64),
        "tables": priors.tables.astype(np.int32),
        "flag_tables": priors.flag_tables.astype(np.int32),
        "offsets": priors.offsets.astype(np.int32),
        "prices": LAMBDA * np.floor(bits * 256 + 0.5) / 256,
        "log_prices": LAMBDA * np.concatenate([[1.0], 1.5 * np.log2(np.arange(1, 64))]),
        "bit_prices": LAMBDA * np.floor(256 * (12 - np.log2(np.arange(4096) + 0.5)) + 0.5) / 256,
    }
