"""The context model: scales, weights and tables that are known before a block is read; all integers.

Decoded magnitudes around a coefficient add up to a class: the expected magnitude on a scale of
quarter octaves, read from the bits of an exact float. Each class has a table of token frequencies.
`measure_scales` finds the few numbers per archive that the model starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.grid import Grid
from tpca_cli.codec.priors import EXPECTED_ZERO, Priors, shipped
from tpca_cli.codec.scan_order import SLOTS, Ints, ScanOrder, Step
from tpca_cli.codec.token_tables import TokenTables
from tpca_cli.tensor_pca.fixed_basis import FixedBasis

Floats = NDArray[np.float64]

UNIT_FACTOR = 64
"""Factors of steps are counted in 1/64."""
UNIT = 1024.0
"""Expected magnitudes are counted in 1/1024."""
CLASSES = 112
CODES = 256
"""Eighth octaves that an expected magnitude can have."""
LEVELS = 4
"""Finenesses of the pyramid of the lowest components."""
PREDICTORS = (1, 2, 3, 4)
"""What values are predicted from: the second has more counters, also by component and by grade; in the third
color is led by brightness, and signs by the borders of tiles; the fourth has tables and learns nothing."""
LOWEST_FAMILY = 2
LOWEST_HEED = 4.0
"""What an error of a lowest component counts, where one of another counts 1: others are predicted from it."""
LED, TABLED = 3, 4
"""The one that makes the smallest blocks, and the one whose blocks are read the fastest."""
CODINGS = {"small": LED, "fast": TABLED}
"""How a group may be coded: for the fewest bytes, or to be read quickly."""
SHARE, SHARED = 64, 16
"""How far colors follow brightness: in 1/64, for so many diagonals; the last stands for all beyond."""
BORDER_BITS = 8
"""Samples along the borders of tiles count in 1/256."""
GRAIN_HALVES, MOST_HALVES = 3, 8
"""Steps below so many halves of a grain become it, where nothing else is said; the most that can be said."""
FLAG_FEATURES = LOWEST_FEATURES = 5
"""What counts for a flag that opens a zone, and for a lowest component."""


@dataclass(frozen=True, eq=False)
class Borders:
    """How much each component counts along the borders of a tile: above, below, left and right."""

    room: int  # numbers that the borders of a tile take, 0 where there are none
    at: Ints  # (M, 4) which of them
    weights: Ints  # (M, 4) in 1/256

    def in_order(self, order: Ints) -> Borders:
        """The same for components in another order."""
        return Borders(self.room, self.at[order], self.weights[order]) if self.room else self


NO_BORDERS = Borders(0, np.zeros((0, 4), np.int64), np.zeros((0, 4), np.int64))


@dataclass(frozen=True, eq=False)
class ContextModel:
    """Prior magnitudes and weights at one quantiser step; components are rows in the scan order."""

    scan: ScanOrder
    steps: Floats  # (M,) quantiser step of each component
    quanta: Floats  # (grades, M) the same for each grade of a region
    region: int  # tiles on the side of a region
    expected: Floats  # (M,) prior magnitude in 1/UNIT
    lowest: Floats  # (channels, LEVELS) prior magnitude of the lowest components
    centers: Ints  # (channels,) the lowest component where nothing is near
    weights: Ints  # of each look
    bases: Ints  # (M, 2) what the prior adds
    maps: NDArray[np.uint8]  # (M, CODES) class by code of the expected magnitude
    flag_weights: Ints  # (steps, 2, FLAG_FEATURES)
    priors: Priors
    bit_price: float  # in squared steps; only the encoder looks
    predictor: int  # one of PREDICTORS
    borders: Borders
    shares: Ints  # (M,) how far a component of color follows brightness, in 1/64
    whole: NDArray[np.bool_]  # (grades, M) whether values stand for whole multiples of their step
    heed: Floats  # (grades, M) what an error of a squared step counts; only the encoder looks
    tables: Ints  # (sets, ROWS, TOKENS) how frequent tokens are, of 2^16
    own_set: Ints  # (M,) which of them a component has: where there is learning, those of its family


def log_code(values: NDArray[Any]) -> Ints:
    """8 log2 of numbers >= 1 in whole eighths of an octave, from the bits of the float."""
    bits = np.maximum(np.asarray(values, np.float64), 1.0).view(np.int64) >> 49
    return np.asarray(bits - (1023 << 3), np.int64)


def expected_magnitude(scales: Ints, steps: Floats, priors: Priors) -> Floats:
    """Prior magnitude, in 1/UNIT, of coefficients whose mean size has code `scales`."""
    difference = scales - log_code(steps) + EXPECTED_ZERO
    found: Floats = priors.expected[np.clip(difference, 0, priors.expected.size - 1)]
    return found


def _class_maps(expected: Floats, priors: Priors) -> NDArray[np.uint8]:
    """For each component (M, CODES): the class of an expected magnitude with this code.

    What was decoded nearby is only evidence: it is corrected by how far it lies from the prior magnitude.
    """
    codes = np.arange(CODES)[None, :]
    own, component = np.unique(log_code(expected), return_inverse=True)  # few differ
    away = np.clip(own[:, None] - codes, -48, 48)
    adjusted = codes * 8 + priors.adjust.astype(np.int64)[away + 48]  # 1/64 octave
    maps: NDArray[np.uint8] = np.clip((adjusted >> 4) - 4, 0, CLASSES - 1).astype(np.uint8)
    return maps[component.ravel()]


def replaced(steps: Floats, grains: NDArray[Any], halves: int = GRAIN_HALVES) -> Floats:
    """Steps (.., M), those below so many halves of a grain replaced by it."""
    return np.where(2 * steps < halves * grains, grains, steps).astype(np.float64)


def borders_of(basis: FixedBasis, none: bool) -> Borders:
    """The samples of each rank-1 component along the borders of a tile, if they count."""
    if basis.indices is None or none:
        return NO_BORDERS
    i, j = basis.indices[:, :2].astype(np.int64).T
    (height, width), (down, across) = basis.frame_shape[:2], basis.factors[:2]
    at = np.stack([j, width + j, 2 * width + i, 2 * width + height + i], axis=1)
    samples = np.stack([down[0, i], down[-1, i], across[0, j], across[-1, j]], axis=1).astype(np.int64)
    shift = basis.bits - BORDER_BITS
    weights = samples << -shift if shift <= 0 else (samples + (1 << (shift - 1))) >> shift
    return Borders(2 * (height + width), at, weights)


def shares_of(shares: Ints | None, indices: Ints | None) -> Ints | None:
    """How far each component follows brightness, (M,), from shares by color and diagonal, if any."""
    if shares is None or indices is None:
        return None
    i, j, c = indices.astype(np.int64).T
    found: Ints = np.where(c > 0, shares[c - 1, np.minimum(i + j, SHARED - 1)], 0)
    return found


def kind_of(i: int, j: int, channel: int) -> int:
    """Which weights a component uses: on an edge of the frequency plane, inside, on its diagonal; color."""
    low, high = min(i, j), max(i, j)
    return (0 if low == 0 else 2 if low == high else 1) + (3 if channel else 0)


def build_contexts(
    scan: ScanOrder,
    scales: Ints,
    lowest: Ints,
    centers: Ints,
    steps: Ints,
    priors: Priors | None = None,
    grades: Ints | None = None,
    region: int = 1,
    bit_price: float = 0.08,
    predictor: int = 1,
    grains: Ints | None = None,
    whole: int = 0,
    borders: Borders = NO_BORDERS,
    shares: Ints | None = None,
    tokens: TokenTables | None = None,
) -> ContextModel:
    """The model of components with scale codes (M,) and (channels, LEVELS), quantised with `steps` (M,)."""
    priors = priors or shipped()
    own_steps = steps[scan.order].astype(np.float64)
    row_grains = np.zeros(1) if grains is None else grains[scan.order].astype(np.float64)
    halves = whole or GRAIN_HALVES
    row_steps = replaced(own_steps, row_grains, halves)
    expected = expected_magnitude(scales[scan.order], row_steps, priors)
    low_steps = np.array([[row_steps[max(row, 0)]] for row in scan.lowest])
    lowest_expected = expected_magnitude(lowest[: len(scan.lowest)], low_steps, priors)
    kinds = np.array([kind_of(*place) for place in scan.places])
    positions = np.pad(priors.position, ((0, 1), (0, 1), (0, 0), (0, 0)), constant_values=64)
    sides = np.minimum(np.sort([place[:2] for place in scan.places], axis=1), 8)
    factors = positions[sides[:, 0], sides[:, 1], np.minimum([place[2] for place in scan.places], 1)]
    looks = scan.looks
    chosen = priors.weights[kinds[looks.rows], looks.phases, looks.slots] * factors[looks.rows, looks.phases]
    # products are below 2^51, so the floor of a rounded quotient is the exact one
    ratios = chosen * expected[looks.rows] / (64 * expected[looks.seen])
    prior = expected[:, None] * priors.weights[kinds, :, SLOTS] * factors / (64 * UNIT)
    wished = _graded_steps(own_steps, grades)
    graded = replaced(wished, row_grains, halves)
    return ContextModel(
        scan,
        row_steps,
        graded,
        region,
        expected,
        lowest_expected,
        centers,
        np.floor(np.minimum(ratios, chosen / 8)).astype(np.int64),
        np.floor(prior).astype(np.int64),
        _class_maps(expected, priors),
        _flag_weights(scan, expected, lowest_expected, priors),
        priors,
        bit_price,
        predictor,
        borders.in_order(scan.order),
        np.where(row_grains > 0, 0, 0 * scan.order if shares is None else shares[scan.order]),
        _whole_multiples(scan, (graded == row_grains) & (whole > 0)),
        (graded / wished) ** 2 * _heeded(scan),
        priors.tables.astype(np.int64) if tokens is None else tokens.frequencies(priors),
        families_of(scan) if tokens is None else tokens.sets[scan.order].astype(np.int64),
    )


def families_of(scan: ScanOrder) -> Ints:
    """The family of each row of a scan: first channel, colors, lowest components."""
    found = (np.arange(len(scan.places)) >= scan.colored).astype(np.int64)
    found[[row for row in scan.lowest if row >= 0]] = LOWEST_FAMILY
    return found


def _graded_steps(steps: Floats, grades: Ints | None) -> Floats:
    """Steps (grades, M) by the factor of each grade, if there are any."""
    if grades is None:
        return steps[None]
    found: Floats = np.maximum((steps * grades[:, None] + UNIT_FACTOR // 2) // UNIT_FACTOR, 1.0)
    return found


def _heeded(scan: ScanOrder) -> Floats:
    """What an error of a value counts, (M,), by what others are predicted from it."""
    found = np.ones(len(scan.places))
    found[[row for row in scan.lowest if row >= 0]] = LOWEST_HEED
    return found


def _whole_multiples(scan: ScanOrder, grained: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of (grades, M) that have grains as steps, those that are no lowest components: these are predicted."""
    return grained & ~np.isin(np.arange(grained.shape[1]), scan.lowest)


def _flag_weights(scan: ScanOrder, expected: Floats, lowest: Floats, priors: Priors) -> Ints:
    """How much counts for the flag that opens a zone: its prior, the zone before here and beside, flags."""
    found = np.zeros((len(scan.steps), 2, FLAG_FEATURES), np.int64)
    for index, step in enumerate(scan.steps):
        if not step.opens:
            continue
        zone = int(expected[slice(*scan.zones[step.color, step.zone])].sum())
        if (step.color, step.zone - 1) in scan.zones:
            previous = int(expected[slice(*before(scan, step))].sum())
        else:
            previous = int(lowest[slice(0, 1) if step.color == 0 else slice(1, None), LEVELS - 1].sum())
        scale = min(int(UNIT) * zone // max(previous, 1), 8 * int(UNIT))
        for phase in (0, 1):
            weights = priors.flag_weights[(step.color * 4 + min(step.zone, 3)) * 2 + phase]
            found[index, phase] = weights * (zone, scale, scale, UNIT, UNIT)
    return found


def before(scan: ScanOrder, step: Step) -> tuple[int, int]:
    """The rows of the zone before that of a step; before the first, the lowest components of its color."""
    low = [row for c, row in enumerate(scan.lowest) if row >= 0 and min(c, 1) == step.color]
    lowest = (min(low), max(low) + 1) if low else (0, 0)
    return scan.zones.get((step.color, step.zone - 1), lowest)


@dataclass(frozen=True, eq=False)
class Scales:
    """Codes of mean sizes, of the lowest components' residuals (channels, LEVELS), and their centers."""

    scales: Ints
    lowest: Ints
    centers: Ints


def measure_scales(blocks: Sequence[tuple[Grid, Floats]], lowest: Sequence[int]) -> Scales:
    """Scales of coefficients (M, tiles) on their grids; `lowest` are the components at (0, 0), or -1."""
    tiles = max(sum(planes.shape[1] for _, planes in blocks), 1)
    sizes = sum(row_sums(np.abs, planes) for _, planes in blocks) / tiles
    centers = np.zeros(len(lowest), np.int64)
    residuals, counts = np.zeros((len(lowest), LEVELS)), np.zeros(LEVELS)
    for grid, _ in blocks:
        for level in grid.levels:
            counts[min(level.fineness, LEVELS - 1)] += level.places.size
    for channel, component in enumerate(lowest):
        if component >= 0:
            total = sum(float(planes[component].sum()) for _, planes in blocks)
            centers[channel] = round(total / tiles)
            residuals[channel] = sum(_residuals(g, p[component], int(centers[channel])) for g, p in blocks)
    overall = residuals.sum(axis=1, keepdims=True) / max(counts.sum(), 1)
    means = np.where(counts > 0, residuals / np.maximum(counts, 1), overall)
    return Scales(log_code(np.rint(sizes)), log_code(np.rint(means)), centers)


def row_sums(function: Callable[[Floats], Floats], values: Floats) -> Floats:
    """Sums (M,) of a function of values (M, n), of which some are held at a time."""
    parts = np.array_split(values, 8)
    return np.concatenate([function(part).sum(axis=1) for part in parts])


def _residuals(grid: Grid, plane: Floats, center: int) -> Floats:
    """Sums (LEVELS,) of what prediction leaves of a lowest component, by fineness."""
    values = np.zeros(grid.size)
    values[grid.places] = plane
    total: Floats = np.zeros(LEVELS)
    for level in grid.levels:
        around = (values[level.around] * level.present).sum(axis=0)
        means = np.where(level.known > 0, around / np.maximum(level.known, 1), center)
        total[min(level.fineness, LEVELS - 1)] += np.abs(values[level.places] - means).sum()
    return total
