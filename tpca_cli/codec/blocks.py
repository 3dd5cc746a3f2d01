"""One walk over the components of a block, the same for encoder and decoder.

The walk asks a port for flags and values and keeps what both sides know: decoded magnitudes and dequantised
values. The port of the encoder decides and writes; the port of the decoder reads. Since everything else is
this one function, the two cannot drift apart.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec import priors
from tpca_cli.codec.grid import Grid, Level
from tpca_cli.codec.model import CODES, LEVELS, UNIT, Model, classes_of
from tpca_cli.codec.plan import Ints, Step
from tpca_cli.codec.quantize import dequantize

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

LARGEST = 4095.0
STIFFNESS = 24
FARTHEST = 1023
"""Squared steps of evidence that color needs before it follows the first channel."""


class Port(Protocol):
    """Where flags and values come from or go to."""

    def flags(self, color: int, zone: int, places: Ints, classes: Ints) -> Flags:
        """Whether the tile at each place has anything in this zone or later ones."""

    def values(self, rows: slice, places: Ints, classes: Ints, means: Floats | None) -> Floats:
        """Quantised values (k, n) as integers in floats; `means` only for the lowest components."""


class State:
    """What is decoded so far, on the canvas of the block."""

    def __init__(self, model: Model, grid: Grid) -> None:
        self.model, self.stride = model, grid.stride
        self.own: Floats = np.zeros((model.expected.size, grid.size))
        self.values: Floats = np.zeros((model.expected.size, grid.size))
        self.flagged: dict[tuple[int, int], Floats] = {key: np.zeros(grid.size) for key in model.plan.zones}

    def see(self, kind: int, start: int, stop: int, places: Ints) -> Floats:
        """Magnitudes (rows, n) of the tiles themselves, or summed over two opposite neighbours."""
        rows = self.own[start:stop]
        if kind in (0, 3):
            return rows.take(places, axis=1)
        away = self.stride if kind == 1 else 1
        return rows.take(places - away, axis=1) + rows.take(places + away, axis=1)

    def classify(self, index: int, phase: int, places: Ints) -> Ints:
        """Classes (k, n) of the components of a step."""
        model = self.model
        step = model.plan.steps[index]
        total = np.repeat(model.bases[index][phase], places.size, axis=1)
        for look in model.looks[index][phase]:
            total += look.weights @ self.see(look.kind, look.start, look.stop, places)
        np.maximum(total, 1.0, out=total)
        codes = total.view(np.int64)
        codes >>= 49
        codes -= (1023 << 3) - CODES * np.arange(step.start, step.stop)[:, None]
        return model.maps.take(codes)

    def flag_classes(self, step: Step, phase: int, places: Ints) -> Ints:
        """Classes (n,) of the flags that open a zone: by the zone before, flags beside, the first channel."""
        plan, expected = self.model.plan, self.model.expected
        here = plan.zones[step.color, step.zone]
        zone = float(expected[here[0] : here[1]].sum())
        before = plan.zones.get((step.color, step.zone - 1))
        if before is not None:
            previous = float(expected[before[0] : before[1]].sum())
        else:
            low = [row for c, row in enumerate(plan.lowest) if row >= 0 and min(c, 1) == step.color]
            before = (min(low), max(low) + 1) if low else (0, 0)
            channels = slice(0, 1) if step.color == 0 else slice(1, None)
            previous = float(self.model.lowest[channels, LEVELS - 1].sum())
        scale = float(min(int(UNIT) * int(zone) // max(int(previous), 1), 8 * int(UNIT)))
        weights = priors.FLAG_WEIGHTS[(step.color * 4 + min(step.zone, 3)) * 2 + phase]
        own = self.see(0, *before, places).sum(axis=0)
        beside = (self.see(1, *before, places) + self.see(2, *before, places)).sum(axis=0)
        total = weights[0] * zone + weights[1] * scale * own + weights[2] * scale * beside
        flags = self.flagged[step.color, step.zone]
        if phase:
            around = (
                flags[places - 1]
                + flags[places + 1]
                + flags[places - self.stride]
                + flags[places + self.stride]
            )
            total += weights[3] * UNIT * around
        if step.color and (0, step.zone) in self.flagged:
            total += weights[4] * UNIT * self.flagged[0, step.zone][places]
        return classes_of(np.floor(total / UNIT))


def walk(model: Model, grid: Grid, port: Port) -> State:
    """Code or decode one block through `port`."""
    state = State(model, grid)
    for channel, row in enumerate(model.plan.lowest):
        if row >= 0:
            for level in grid.levels:
                _lowest(state, port, channel, row, level)
    live: dict[tuple[int, int], Ints] = {}
    for index, step in enumerate(model.plan.steps):
        for phase in (0, 1):
            places = live.get((step.color, phase), grid.phases[phase])
            if step.opens and places.size:
                classes = state.flag_classes(step, phase, places)
                places = places[port.flags(step.color, step.zone, places, classes)]
                state.flagged[step.color, step.zone][places] = 1.0
            live[step.color, phase] = places
            if places.size:
                classes = state.classify(index, phase, places)
                rows = slice(step.start, step.stop)
                q = port.values(rows, places, classes, None)
                state.own[rows, places] = np.minimum(np.abs(q), LARGEST)
                steps = model.steps[rows]
                state.values[rows, places] = dequantize(q, steps, classes)
    return state


def _lowest(state: State, port: Port, channel: int, row: int, level: Level) -> None:
    """The lowest component of one level of the pyramid, predicted from coarser neighbours."""
    model, values = state.model, state.values[row]
    step, unit = int(model.steps[row, 0]), int(UNIT)
    around = values[level.around].astype(np.int64)  # (4, n)
    means, evidence = lowest_evidence(around, level, step)
    first_row = model.plan.lowest[0]
    if channel and first_row >= 0:
        means += _follow(state.values[first_row], around, means, level, step)
    means = np.where(level.known > 0, means, model.centers[channel])
    prior = int(model.lowest[channel, min(level.fineness, LEVELS - 1)])
    weights = priors.LOWEST_WEIGHTS[min(channel, 1)].astype(np.int64)
    total = weights[0] * prior + (weights[1:4, None] * evidence).sum(axis=0)
    if channel and first_row >= 0:
        first = int(model.lowest[0, min(level.fineness, LEVELS - 1)])
        ratio = min(prior * unit // max(first, 1), 8 * unit)
        total += weights[4] * ratio * state.own[first_row, level.places].astype(np.int64)
    classes = classes_of(total // unit)[None]
    q = port.values(slice(row, row + 1), level.places, classes, means.astype(np.float64))
    values[level.places] = means + dequantize(q, float(step), classes)[0]
    state.own[row, level.places] = np.minimum(np.abs(q[0]), LARGEST)


def _quarters(differences: Ints, step: Ints | int) -> Ints:
    """Differences in quarters of a step, small enough that products of them stay exact."""
    return np.asarray(np.clip(4 * differences // step, -FARTHEST, FARTHEST), np.int64)


def _follow(first: Floats, around: Ints, means: Ints, level: Level, step: int) -> Ints:
    """What a color adds to its mean by following the first channel, as it does among the neighbours."""
    near, present = first[level.around].astype(np.int64), level.present.astype(np.int64)
    known = np.maximum(level.known, 1)
    total = (near * present).sum(axis=0)
    leading = _quarters((near * known - total) * present, known * step)
    trailing = _quarters((around - means) * present, step)
    energy = (leading * leading).sum(axis=0) + 16 * STIFFNESS
    slope = np.clip(256 * (leading * trailing).sum(axis=0) // energy, -256, 256)
    ahead = first[level.places].astype(np.int64) * known - total
    return np.asarray((2 * slope * ahead + 256 * known) // (512 * known), np.int64)


def lowest_evidence(around: Ints, level: Level, step: int) -> tuple[Ints, Ints]:
    """Means (n,) and how far apart neighbours are (3, n) in 1/UNIT steps: two pairs, and between them.

    Of the two pairs of opposite neighbours the closer one counts more: it lies along an edge, not across it.
    """
    known, unit = np.maximum(level.known, 1), int(UNIT)
    present = level.present.astype(np.int64)
    total = (around * present).sum(axis=0)
    apart = (np.abs(around * known - total) * present).sum(axis=0)
    spread = unit * apart // (known * known * step)
    full = level.known == 4
    across, along = np.abs(around[0] - around[1]), np.abs(around[2] - around[3])
    first, second = around[0] + around[1], around[2] + around[3]
    trust_first, trust_second = _quarters(along, step) ** 2 + 16, _quarters(across, step) ** 2 + 16
    trust = trust_first + trust_second
    weighted = (trust_first * first + trust_second * second + trust) // (2 * trust)
    means = np.where(full, weighted, (2 * total + known) // (2 * known))
    evidence = np.stack([
        np.where(full, unit * np.minimum(across, along) // step, spread),
        np.where(full, unit * np.maximum(across, along) // step, spread),
        np.where(full, unit * np.abs(first - second) // (2 * step), spread),
    ])  # fmt: skip
    return means, evidence
