"""The job of a block: every field of `kernel_job.BLOCK_FIELDS`, from a model and a grid of tiles."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.contexts import CLASSES, LEVELS, TABLED, Borders, ContextModel, before
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.kernel_job import (
    CHUNK,
    CYCLE,
    DECODE,
    KERNEL,
    LOG_PRICES,
    PRICE_SHIFT,
    RECORDS,
)
from tpca_cli.codec.priors import ROWS, TOKENS, Priors
from tpca_cli.codec.scan_order import Ints, ScanOrder
from tpca_cli.wasm import Room, Value, Values

Array = NDArray[Any]


def block_values(
    model: ContextModel,
    grid: Grid,
    mode: int,
    coded: Array | Room,
    symbols: bool,
    pictures: Values,
    counting: bool = False,
) -> dict[str, Value]:
    """The job of a block: its bytes or room for them; `symbols` instead of the values that they stand for."""
    scan, size = model.scan, grid.size
    rows, zones, channels = len(scan.places), len(scan.zones), len(scan.lowest)
    canvas, room = rows * size, -(-size // 8) * 8
    direct = mode == DECODE and pictures["picture_count"] != 0
    most_rows, most_pairs = _most_of_step(scan)
    return {
        "mode": mode,
        "symbols": int(symbols),
        "rows": rows,
        "size": size,
        "room": room,
        "stride": grid.stride,
        "colored": scan.colored,
        "channels": channels,
        "zones": zones,
        "capacity": coded.size,
        **dict.fromkeys(("length", "damaged", "wide"), 0),
        "direct": int(direct),
        "model": model.predictor,
        "step_count": len(scan.steps),
        "level_count": len(grid.levels),
        "even_count": grid.phases[0].size,
        "odd_count": grid.phases[1].size,
        "grades": len(model.quanta),
        **_of_regions(grid, model.region if len(model.quanta) > 1 else 0),
        **_of_grid(grid),
        **_of_model(model),
        **_of_priors(model.priors, model.bit_price),
        "sets": len(model.tables),
        "data": Room(0 if direct else canvas),
        "grade": Room(size + 8),
        "wanted": Room(zones * size, scratch=mode == DECODE),
        "opened": Room(zones * size),
        "own": Room(canvas + size + 8, scratch=True),
        "busy": Room(2 * size),
        "low": Room(channels * size),
        "totals": Room(size + 8, scratch=True),
        "worth": Room(3 * size, scratch=True),
        "classes": Room(room * max(most_rows, 1) + 8, scratch=True),
        "closest": Room(size + 16, scratch=True),
        **_learning(model, size),
        **_led_and_smooth(model, size),
        **_without_learning(model, size, mode, counting),
        "hits": Room(room, scratch=True),
        "seen": Room(2 * most_pairs * CHUNK, scratch=True),
        "live": Room(4 * size, scratch=True),
        "bytes": coded,
        **pictures,
    }


def _learning(model: ContextModel, size: int) -> Values:
    """Room for what surrounds values and for counters, where there is learning."""
    learns, rows = model.predictor != TABLED, len(model.scan.places)
    rich, canvas = learns and model.predictor > 1, rows * size if learns else 0
    rooms = {
        "small": canvas + size + 16,
        "around": canvas + size + 16,
        "signs": canvas + 16,
        "crowded": size + 16,
        "turns": size + 16,
        "spots": 8 * CHUNK,
        "placed": 32 * rows * rich,
        "tall": (TOKENS - 1) * rows * rich,
    }
    return {"rich": int(rich), **{name: Room(count, scratch=True) for name, count in rooms.items()}}


def _without_learning(model: ContextModel, size: int, mode: int, counting: bool) -> Values:
    """Room for what is written when all is known, and for tokens that are counted."""
    rows, zones = len(model.scan.places), len(model.scan.zones)
    noted = (rows + zones) * size if model.predictor == TABLED and mode != DECODE else 0
    counts = Room(rows * ROWS * TOKENS if counting else 0)
    return {"records": Room(noted, scratch=True), "counting": int(counting), "counts": counts}


def _led_and_smooth(model: ContextModel, size: int) -> Values:
    """Room for what the third model knows besides."""
    led = int(model.shares.any())
    colored, channels = led * model.scan.colored, led * len(model.scan.lowest)
    cleared = {"lit_counts": 2 * colored, "when_found": led * size}
    cleared |= {"slopes": channels * size, "fit": 2 * led * len(model.scan.places), "guesses": led * size}
    rest = dict.fromkeys(("light", "lit"), colored * size)
    rest |= {"together": 2 * channels * size, "edges": size * model.borders.room}
    rooms = {name: Room(count) for name, count in cleared.items()}
    rooms |= {name: Room(count, scratch=True) for name, count in rest.items()}
    return {"led": led, "edge_room": model.borders.room, **rooms}


@functools.lru_cache(maxsize=16)
def _of_grid(grid: Grid) -> dict[str, Array]:
    """Where the tiles lie."""
    levels = np.zeros(len(grid.levels), RECORDS["Level"])
    levels["count"] = [level.places.size for level in grid.levels]
    levels["fineness"] = [min(level.fineness, LEVELS - 1) for level in grid.levels]
    inside = np.zeros(grid.size, np.uint8)
    inside[grid.places] = 1
    return KERNEL.typed({
        "phases": np.concatenate(grid.phases),
        "inside": inside,
        "levels": levels,
        "level_places": np.concatenate([level.places for level in grid.levels]),
        "level_around": np.concatenate([level.around.T for level in grid.levels]),
    })  # fmt: skip


@functools.lru_cache(maxsize=16)
def _of_regions(grid: Grid, side: int) -> Values:
    """Squares of tiles that share a step, image by image, row by row."""
    found = grid.regions(side) if side else np.zeros((0, 5), np.int64)
    regions = np.zeros(len(found), RECORDS["Region"])
    for name, column in zip(RECORDS["Region"].names or (), found.T, strict=True):
        regions[name] = column
    return {"region_count": len(found), "regions": regions}


@functools.lru_cache(maxsize=4)
def _most_of_step(scan: ScanOrder) -> tuple[int, int]:
    """The most rows that a step has, and pairs of what it sees."""
    sights = max((b - a + 1 for step in scan.steps for a, b in step.sights), default=0)
    return max((step.stop - step.start for step in scan.steps), default=0), sights // 2


@functools.lru_cache(maxsize=4)
def _of_scan(scan: ScanOrder) -> dict[str, Array]:
    """The order of coding and who sees what."""
    zones = {key: index for index, key in enumerate(scan.zones)}
    steps = np.zeros(len(scan.steps), RECORDS["Step"])
    for name in ("start", "stop", "color", "opens"):
        steps[name] = [getattr(step, name) for step in scan.steps]
    steps["zone"] = [zones[step.color, step.zone] for step in scan.steps]
    steps["first"] = [zones.get((0, step.zone), -1) for step in scan.steps]
    if scan.steps:
        steps["before"], steps["before_stop"] = zip(*(before(scan, step) for step in scan.steps), strict=True)
        sights = np.array([step.sights for step in scan.steps])  # (steps, phase, begin and end)
        steps["sights"], steps["sights_stop"] = sights[..., 0], sights[..., 1]
    pairs = _pairs(scan)[0]
    return KERNEL.typed({
        "steps": steps,
        "sights": scan.looks.sights,
        "looks": np.searchsorted(pairs[0], np.arange(2 * len(scan.places) + 1)),
        "look_pairs": pairs[1],
        "near": _near(scan),
        "lowest_rows": scan.lowest,
        "indices": scan.places,
    })  # fmt: skip


@functools.lru_cache(maxsize=4)
def _pairs(scan: ScanOrder) -> tuple[Ints, Ints]:
    """Looks two by two, as the kernel multiplies: (row and phase, pair) of each, and where each look went."""
    looks = scan.looks
    lookers, pair = (2 * looks.rows + looks.phases).astype(np.int64), looks.chosen // 2
    most = int(pair.max(initial=0)) + 1
    pairs, which = np.unique(lookers * most + pair, return_inverse=True)
    return np.stack(np.divmod(pairs, most)), 2 * which.ravel() + looks.chosen % 2


def _near(scan: ScanOrder) -> Array:
    """For each row: near rows (-1 for none), the axis of its slope, and what selects its counters."""
    rows = {place: row for row, place in enumerate(scan.places)}
    near = np.zeros(len(scan.places), RECORDS["Near"])
    for row, (i, j, c) in enumerate(scan.places):
        third, fourth = (i, j, 0) if c else (i - 1, j - 1, c), (i - 1, j - 1, c) if c else (i - 1, j + 1, c)
        before_it = (i, j, 1) if c == 2 else (-1, 0, 0)
        around = [(i - 1, j, c), (i, j - 1, c), third, before_it, (i - 2, j, c), (i, j - 2, c), fourth]
        near["rows"][row] = [rows.get(place, -1) for place in around]
        near["axis"][row] = 0 if bool(i) == bool(j) else 1 if i else 2
        near["channel"][row] = c
        near["sign_spot"][row] = 4 * min(i, 3) + min(j, 3) + 16 * min(c, 1)
    return near


@functools.lru_cache(maxsize=4)
def _of_model(model: ContextModel) -> dict[str, Array]:
    """Weights at this step."""
    pairs, places = _pairs(model.scan)
    weights = np.zeros(2 * pairs.shape[1], np.int16)
    weights[places] = model.weights
    return _of_scan(model.scan) | KERNEL.typed({
        "look_weights": weights,
        "shares": model.shares,
        "row_edges": _edges(model.borders, len(model.scan.places)),
        "bases": model.bases,
        "maps": model.maps,
        "quanta": model.quanta,
        "whole": model.whole,
        "heed": model.heed,
        "expected": model.expected,
        "lowest_priors": model.lowest,
        "centers": model.centers,
        "flag_weights": model.flag_weights,
        "own_set": model.own_set,
        "tables": model.tables,
    })  # fmt: skip


def _edges(borders: Borders, rows: int) -> Array:
    edges = np.zeros(rows, RECORDS["Edge"])
    if borders.room:
        edges["at"], edges["weight"] = borders.at, borders.weights
    return edges


@functools.lru_cache(maxsize=4)
def _of_priors(priors: Priors, price: float) -> dict[str, Array]:
    """The numbers of the format, and what tokens cost the encoder."""
    classes = np.arange(CLASSES)
    bits = 16 - np.log2(priors.tables)
    bits[..., 1:] += 1
    shifts = np.maximum(classes // CYCLE - (ROWS // CYCLE - 1), 0)
    rows = np.where(classes < ROWS, classes, ROWS - CYCLE + classes % CYCLE)
    bits = bits[:, rows] + shifts[:, None]  # (FAMILIES, CLASSES, TOKENS)
    price_bits = 16 - PRICE_SHIFT
    costs = price_bits - np.log2(np.arange(1 << price_bits) + 0.5)  # bits, by probability
    return KERNEL.typed({
        "lowest_weights": priors.lowest_weights,
        "flag_tables": priors.flag_tables,
        "offsets": priors.offsets,
        "prices": price * np.floor(bits * 256 + 0.5) / 256,
        "log_prices": price * np.concatenate([[1.0], 1.5 * np.log2(np.arange(1, LOG_PRICES))]),
        "bit_prices": price * np.floor(256 * costs + 0.5) / 256,
    })  # fmt: skip
