"""What images say about the constants of the codec: they are coded, and every value is kept with what it saw.

`gather` turns pictures into material, `code` codes it with some constants, a `Collector` samples what was
coded. A sample keeps what decides the class of a value: the features that the weights multiply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec import kernel_run
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.contexts import LEVELS, ContextModel, before, build_contexts, kind_of, log_code
from tpca_cli.codec.grid import Grid, Level, grid_of
from tpca_cli.codec.priors import Priors
from tpca_cli.codec.scan_order import SLOTS, ScanOrder, Step
from tpca_cli.codec.tiling import batches, planes_of
from tpca_cli.framing import TILE, Framing
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, solve_modes
from tpca_cli.tensor_pca.fixed_basis import SCALE_BITS, FixedBasis

Pixels = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LARGEST = 4095
"""Magnitudes that contexts see are cut here."""
UNIT = 1024
"""Expected magnitudes are counted in 1/1024."""
USUAL_STEP = 16.0
"""Whether tiles are lapped is decided at this step."""


@dataclass(frozen=True, eq=False)
class Material:
    """Pictures of one folder and one number of channels, as coefficients of tiles of one size."""

    coder: Coder
    blocks: list[tuple[Grid, Floats]]  # where tiles lie, and coefficients (M, tiles) in the order of the plan

    @property
    def pixels(self) -> int:
        """How many pixels, padding included."""
        tile = self.coder.framing.height * self.coder.framing.width
        return sum(grid.places.size for grid, _ in self.blocks) * tile


@dataclass(frozen=True, eq=False)
class Coded:
    """A block after coding."""

    model: ContextModel
    grid: Grid
    length: int  # bytes
    magnitudes: NDArray[np.uint16]  # (M, places) cut at LARGEST
    flags: NDArray[np.uint8]  # (zones, places)
    rows: Floats  # (M, tiles) the coefficients
    tiles: Ints  # (places,) the tile at each place
    low: Floats  # (channels, places) decoded values of the lowest components

    @property
    def live(self) -> int:
        """How many values were coded, lowest components left out."""
        sizes = [last - first for first, last in self.model.scan.zones.values()]
        return int(self.flags.sum(axis=1, dtype=np.int64) @ np.array(sizes, np.int64))


@dataclass(frozen=True, eq=False)
class Sample:
    """Values of one kind, each with a weight, what it saw, and what was coded.

    The expected magnitude in 1/UNIT is `factor * (features @ weights)`, its prior part alone is `prior`.
    """

    features: NDArray[np.float32]  # (n, k)
    symbols: Ints  # (n,) magnitudes, or flags
    counts: Floats  # (n,) how many values each one stands for
    group: Ints  # (n,) which weights it uses
    spot: Ints  # (n,) its place in the table of positions, flattened, -1 for none
    prior: Floats  # (n,)
    ratio: Floats  # (n,) the coefficient in quantiser steps
    family: Ints  # (n,)


def gather(pictures: Sequence[Pixels], tile: int) -> Material:
    """Pictures of equal channels with a basis fitted to them."""
    channels = pictures[0].shape[2]
    framing = Framing(TILE, tile, tile, channels)
    operator = ModeOperators(framing.frame_shape)
    for picture in pictures:
        operator.add(framing.split(picture))
    modes = solve_modes(operator)
    basis = FixedBasis.from_modes(modes.modes, modes.indices, dtype=np.dtype(np.uint8))
    coder = Coder.train(list(pictures), framing, basis, USUAL_STEP, effort=0)
    order, found = coder.model.scan.order, []
    for batch in batches(framing, pictures):
        grid = grid_of(tuple(framing.grid(p.shape[0], p.shape[1]) for p in batch))
        planes = planes_of(framing, batch, grid.shapes, coder.lapped)
        found.append((grid, basis.analyze(planes, SCALE_BITS if coder.lapped else 0)[order]))
    return Material(coder, found)


def model_of(material: Material, step: float, priors: Priors) -> ContextModel:
    """The model of material at a step, with these constants instead of the shipped ones."""
    coder = material.coder.with_step(step)
    plan = coder.model.scan
    steps = np.zeros(len(plan.order), np.int64)
    steps[plan.order] = coder.model.steps.astype(np.int64)
    return build_contexts(plan, coder.scales, coder.lowest, coder.centers, steps, priors)


def code(material: Material, step: float, priors: Priors) -> Iterator[Coded]:
    """Each block of the material, coded at a step."""
    model = model_of(material, step, priors)
    for grid, rows in material.blocks:
        data, values = kernel_run.encode(model, grid, rows)
        symbols = kernel_run.read_symbols(model, grid, data)
        magnitudes = np.zeros((len(rows), grid.size), np.uint16)
        magnitudes[:, grid.places] = np.minimum(np.abs(symbols.values), LARGEST)
        flags = np.zeros((len(symbols.flags), grid.size), np.uint8)
        flags[:, grid.places] = symbols.flags
        tiles = np.zeros(grid.size, np.int64)
        tiles[grid.places] = np.arange(grid.places.size)
        low = np.zeros((len(model.scan.lowest), grid.size))
        for channel, row in enumerate(model.scan.lowest):
            if row >= 0:
                low[channel, grid.places] = values[row]
        yield Coded(model, grid, len(data), magnitudes, flags, rows, tiles, low)


def mean_sizes(coded: Coded, coder: Coder) -> Iterator[tuple[Ints, Floats, Floats]]:
    """(scale code minus step code, mean magnitude, how many) of components; of the lowest by fineness."""
    model, grid = coded.model, coded.grid
    others = np.ones(len(model.scan.order), bool)
    others[[row for row in model.scan.lowest if row >= 0]] = False
    codes = coder.scales[model.scan.order] - log_code(model.steps)
    means = coded.magnitudes[:, grid.places].mean(axis=1)
    yield codes[others], means[others], np.full(int(others.sum()), float(grid.places.size))
    for channel, row in enumerate(model.scan.lowest):
        for level in grid.levels if row >= 0 else []:
            fineness = min(level.fineness, LEVELS - 1)
            difference = int(coder.lowest[channel, fineness] - log_code(model.steps[row : row + 1])[0])
            found = coded.magnitudes[row, level.places]
            yield np.array([difference]), np.array([found.mean()]), np.array([float(found.size)])


class Collector:
    """Gathers samples block by block: of values, of flags and of the lowest components."""

    def __init__(self, share: float, zero_share: float, weight: float, seed: int) -> None:
        """Keep a share of values that are not zero, and another of zeros; `weight` is what a value counts."""
        self._shares = np.array([zero_share, share])
        self._weight, self._random = weight, np.random.default_rng(seed)

    def _kept(self, symbols: NDArray[Any]) -> tuple[NDArray[np.bool_], Floats]:
        """Which to keep, and how many values each of these stands for."""
        shares = self._shares[(symbols > 0).astype(np.int64)]
        kept = self._random.random(len(symbols)) < shares
        return kept, self._weight / shares[kept]

    def values(self, coded: Coded) -> Iterator[Sample]:
        """All but the lowest components."""
        model, own, stride = coded.model, coded.magnitudes.astype(np.float32), coded.grid.stride
        plan, looks, expected = model.scan, model.scan.looks, model.expected
        keys = 2 * looks.rows + looks.phases
        zones = {key: index for index, key in enumerate(plan.zones)}
        for step in plan.steps:
            for phase in (0, 1):
                places = coded.grid.phases[phase]
                places = places[coded.flags[zones[step.color, step.zone], places] > 0]
                for row in range(step.start, step.stop) if len(places) else ():
                    kept, counts = self._kept(coded.magnitudes[row, places])
                    here = places[kept]
                    if not len(here):
                        continue
                    first, last = np.searchsorted(keys, (2 * row + phase, 2 * row + phase + 1))
                    seen = looks.seen[first:last, None]
                    kinds = plan.looks.sights[step.sights[phase][0] + looks.chosen[first:last], 0]
                    away = np.array([0, stride, 1, 0])[kinds][:, None]
                    beside = (away > 0).astype(np.float32)
                    found = own[seen, here - away] + beside * own[seen, here + away]
                    features = np.zeros((len(here), SLOTS + 1), np.float32)
                    scale = np.minimum(expected[row] / expected[seen], 8).astype(np.float32)
                    features[:, looks.slots[first:last]] = (found * scale).T
                    features[:, SLOTS] = expected[row] / UNIT
                    yield _sample(
                        features,
                        coded.magnitudes[row, here],
                        counts,
                        group=2 * kind_of(*plan.places[row]) + phase,
                        spot=_spot(plan, row, phase),
                        prior=float(expected[row]),
                        ratio=np.abs(coded.rows[row, coded.tiles[here]]) / model.steps[row],
                        family=step.color,
                    )

    def flags(self, coded: Coded) -> Iterator[Sample]:
        """The flags that open zones."""
        model, grid, stride = coded.model, coded.grid, coded.grid.stride
        plan, own = model.scan, coded.magnitudes
        zones = {key: index for index, key in enumerate(plan.zones)}
        for step in plan.steps:
            if not step.opens:
                continue
            opened = coded.flags[zones[step.color, step.zone]].astype(np.int64)
            sizes = own[slice(*before(plan, step))].sum(axis=0, dtype=np.int64)
            earlier = zones.get((step.color, step.zone - 1))
            first = zones.get((0, step.zone)) if step.color else None
            zone, scale = _zone_scale(model, step)
            for phase in (0, 1):
                places = grid.phases[phase]
                if earlier is not None:
                    places = places[coded.flags[earlier, places] > 0]
                features = np.zeros((len(places), 5), np.float32)
                features[:, 0] = zone
                features[:, 1] = scale * sizes[places]
                features[:, 2] = scale * _around(sizes, places, stride)
                features[:, 3] = UNIT * _around(opened, places, stride) if phase else 0
                features[:, 4] = float(UNIT) * coded.flags[first, places] if first is not None else 0
                group = (step.color * 4 + min(step.zone, 3)) * 2 + phase
                counts = np.full(len(places), self._weight)
                yield _sample(features, opened[places], counts, group=group)

    def lowest(self, coded: Coded) -> Iterator[Sample]:
        """The lowest components of all channels."""
        model, plan = coded.model, coded.model.scan
        for channel, row in enumerate(plan.lowest):
            for level in coded.grid.levels if row >= 0 else []:
                fineness = min(level.fineness, LEVELS - 1)
                prior = float(model.lowest[channel, fineness])
                features = np.zeros((level.places.size, 5), np.float32)
                features[:, 0] = prior
                features[:, 1:4] = _spreads(coded.low[channel], level, float(model.steps[row])).T
                if channel and plan.lowest[0] >= 0:
                    ratio = min(UNIT * prior // max(float(model.lowest[0, fineness]), 1), 8 * UNIT)
                    features[:, 4] = ratio * coded.magnitudes[plan.lowest[0], level.places]
                symbols = coded.magnitudes[row, level.places]
                counts = np.full(len(symbols), self._weight)
                yield _sample(features, symbols, counts, group=min(channel, 1), family=2)


def _sample(
    features: NDArray[np.float32],
    symbols: NDArray[Any],
    counts: Floats,
    *,
    group: int,
    spot: int = -1,
    prior: float = 1.0,
    ratio: NDArray[Any] | None = None,
    family: int = 0,
) -> Sample:
    n = len(symbols)
    ratios = np.zeros(n) if ratio is None else ratio.astype(np.float64)
    groups, spots, families = (np.full(n, number, np.int64) for number in (group, spot, family))
    return Sample(
        features, symbols.astype(np.int64), counts, groups, spots, np.full(n, prior), ratios, families
    )


def join(parts: Sequence[Sample]) -> Sample:
    """All parts as one."""
    names = ("features", "symbols", "counts", "group", "spot", "prior", "ratio", "family")
    return Sample(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _spot(plan: ScanOrder, row: int, phase: int) -> int:
    """The place of a component in the table of positions, flattened."""
    i, j, channel = plan.places[row]
    low, high = min(i, j), max(i, j)
    return int(np.ravel_multi_index((low, high, min(channel, 1), phase), (8, 8, 2, 2))) if high < 8 else -1


def _zone_scale(model: ContextModel, step: Step) -> tuple[int, int]:
    """The expected sum of a zone, and its ratio to that of the zone before."""
    plan = model.scan
    zone = int(model.expected[slice(*plan.zones[step.color, step.zone])].sum())
    if (step.color, step.zone - 1) in plan.zones:
        previous = int(model.expected[slice(*plan.zones[step.color, step.zone - 1])].sum())
    else:
        channels = slice(1, None) if step.color else slice(0, 1)
        previous = int(model.lowest[channels, LEVELS - 1].sum())
    return zone, min(UNIT * zone // max(previous, 1), 8 * UNIT)


def _around(canvas: NDArray[Any], places: Ints, stride: int) -> NDArray[Any]:
    """Sums over the tiles left, right, above and below."""
    found: NDArray[Any] = (
        canvas[places - 1] + canvas[places + 1] + canvas[places - stride] + canvas[places + stride]
    )
    return found


def _spreads(low: Floats, level: Level, step: float) -> Floats:
    """(3, n) how far the coarser neighbours lie apart, in 1/UNIT of a step."""
    near = low[level.around] * level.present  # (4, n)
    known = np.maximum(level.known, 1)
    apart = (np.abs(near * known - near.sum(axis=0)) * level.present).sum(axis=0)
    few = UNIT * apart / (known * known * step)
    across, along = np.abs(near[0] - near[1]), np.abs(near[2] - near[3])
    bent = np.abs(near[0] + near[1] - near[2] - near[3]) / 2
    many = UNIT * np.stack([np.minimum(across, along), np.maximum(across, along), bent]) / step
    found: Floats = np.floor(np.where(level.known == 4, many, few))
    return found
