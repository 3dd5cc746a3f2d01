"""From samples of coded values to the constants: those with which the samples would take the fewest bits.

A class is the logarithm of an expected magnitude, in quarter octaves. `Costs` says how many bits a symbol
takes in a class; between classes it is interpolated, so that weights can be found by descent. Weights, the
tables of positions and of adjustments, and the frequencies are fitted in turn, each with the others fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from priors_evidence import UNIT, Floats, Ints, Sample
from scipy.optimize import minimize

from tpca_cli.codec.priors import EXPECTED_ZERO, SHAPES, Priors

CLASSES = 112
ROWS, CYCLE, TOKENS = 48, 4, 16
ONE = 1 << 16
FARTHEST = 48
"""Adjustments end where the expected magnitude is 48 eighth octaves from the prior."""
HEAVIEST = 1.0
"""No weight is larger, so that sums fit the kernel's 32 bits."""
ITERATIONS = 30
TURNS = 5
EXCHANGE = np.log(2) / 6
"""Squared steps that a bit is worth: the error of a uniform quantiser is 1/12, and a bit divides it by 4."""


def start() -> Priors:
    """Constants that know nothing of images: plain distributions, equal weights for near neighbours."""
    weights = np.zeros(SHAPES["WEIGHTS"])
    weights[..., :2], weights[..., 12], weights[..., 22], weights[..., 32], weights[..., -1] = (
        250,
        80,
        80,
        150,
        100,
    )
    flag_weights = np.tile([10.0, 200, 20, 300, 50], (16, 1))
    expected = UNIT * 2.0 ** ((np.arange(256) - EXPECTED_ZERO) / 8)
    return Priors(
        weights=weights,
        expected=np.rint(np.clip(expected, 1, 2**30)),
        tables=np.stack([whole_rows(_geometric()[:ROWS])] * 3),
        flag_tables=whole_rows(_odds()),
        flag_weights=flag_weights,
        offsets=np.zeros(SHAPES["OFFSETS"]),
        position=np.full(SHAPES["POSITION"], 64.0),
        adjust=np.zeros(SHAPES["ADJUST"]),
        lowest_weights=np.tile([500.0, 100, 100, 100, 100], (2, 1)),
    )


def _middles() -> Floats:
    """The magnitude in the middle of each class."""
    found: Floats = 2.0 ** ((np.arange(CLASSES) + 4.5) / 4) / UNIT
    return found


def _geometric() -> Floats:
    """(CLASSES, TOKENS) token probabilities of geometric magnitudes with the mean of their class."""
    odds = _middles()[:, None] / (1 + _middles()[:, None])
    found = odds ** np.arange(TOKENS) * (1 - odds)
    found[:, -1] = odds[:, 0] ** (TOKENS - 1)
    return found


def _odds() -> Floats:
    """(CLASSES, 2) probabilities of flags whose odds are the magnitude of their class."""
    odds = _middles()
    return np.stack([1 / (1 + odds), odds / (1 + odds)], axis=1)


def whole_rows(probabilities: Floats) -> Floats:
    """Rows of frequencies: whole numbers from 1 on that add up to 2^16."""
    shares = probabilities / probabilities.sum(axis=-1, keepdims=True)
    found: Floats = 1 + np.floor(shares * (ONE - shares.shape[-1]))
    top = np.argmax(found, axis=-1)[..., None]
    missing = ONE - found.sum(axis=-1, keepdims=True)
    np.put_along_axis(found, top, np.take_along_axis(found, top, -1) + missing, -1)
    return found


@dataclass(frozen=True, eq=False)
class Costs:
    """Bits of symbols by class, family by family; symbols beyond the table cost what geometric ones do."""

    bits: Floats  # (families, classes, symbols)

    def at(self, classes: Floats, symbols: Ints, families: Ints) -> tuple[Floats, Floats]:
        """The cost of each symbol at a fractional class, and its derivative by the class."""
        _, rows, width = self.bits.shape
        at = np.clip(classes - 0.5, 0, rows - 1.001)
        low = at.astype(np.int64)
        inside = np.minimum(symbols, width - 1)
        first, second = self.bits[families, low, inside], self.bits[families, low + 1, inside]
        cost, slope = first + (at - low) * (second - first), second - first
        slope = np.where((classes > 0.5) & (classes < rows - 0.5), slope, 0.0)
        beyond = (classes >= rows - 0.5) | (symbols >= TOKENS - 1)
        if width > 2 and beyond.any():
            mean = 2.0 ** ((np.minimum(classes[beyond], CLASSES) + 4) / 4) / UNIT
            q = symbols[beyond]
            cost[beyond] = (q + 1) * np.log2(1 + mean) - q * np.log2(mean)
            slope[beyond] = ((q + 1) * mean / (1 + mean) - q) / 4
        return cost, slope


def value_costs(tables: Floats) -> Costs:
    """What tokens cost by these frequencies."""
    return Costs(16 - np.log2(tables))


def flag_costs(flag_tables: Floats) -> Costs:
    """What flags cost by these frequencies."""
    return Costs(16 - np.log2(flag_tables)[None])


def classes_of(totals: Floats, prior: Floats, adjust: Floats | None) -> tuple[Floats, Floats]:
    """Fractional classes of expected magnitudes, and their derivatives by the logarithm (base 2)."""
    logs = 8 * np.log2(np.maximum(totals, 1.0))
    found, slope = logs / 2 - 4, np.where(totals > 1, 4.0, 0.0)
    if adjust is not None:
        away = np.clip(8 * np.log2(prior) - logs, -FARTHEST, FARTHEST - 0.001) + FARTHEST
        low = away.astype(np.int64)
        rise = adjust[low + 1] - adjust[low]
        found = found + (adjust[low] + (away - low) * rise) / 16
        slope = slope * (1 - rise / 8)
    return found, slope


def whole_classes(totals: Floats, prior: Floats, adjust: Floats | None) -> Ints:
    """The classes that the codec uses."""
    return np.clip(np.floor(classes_of(totals, prior, adjust)[0]), 0, CLASSES - 1).astype(np.int64)


def fit_weights(
    sample: Sample, factors: Floats, costs: Costs, weights: Floats, adjust: Floats | None
) -> Floats:
    """Weights (groups, k) in 1/UNIT, none negative, with which the sample takes the fewest bits."""
    found = weights / UNIT
    for group in np.unique(sample.group):
        here = np.flatnonzero(sample.group == group)
        features, symbols, families = sample.features[here], sample.symbols[here], sample.family[here]
        counts = sample.counts[here] / sample.counts[here].sum()
        factor, prior = factors[here], sample.prior[here]
        used = features.max(axis=0) > 0
        features = features[:, used]

        def bits(
            some: Floats,
            features: NDArray[np.float32] = features,
            symbols: Ints = symbols,
            families: Ints = families,
            counts: Floats = counts,
            factor: Floats = factor,
            prior: Floats = prior,
        ) -> tuple[float, Floats]:
            totals = UNIT * factor * (features @ some.astype(np.float32))
            classes, steepness = classes_of(totals, prior, adjust)
            cost, slope = costs.at(classes, symbols, families)
            by_total = counts * slope * steepness / (np.log(2) * np.maximum(totals, 1.0))
            gradient = (by_total * UNIT * factor).astype(np.float32) @ features
            return float(counts @ cost), gradient.astype(np.float64)

        began = np.maximum(found[group, used], 1e-3)
        answer: Any = minimize(
            bits, began, jac=True, method="L-BFGS-B", bounds=[(0, HEAVIEST)] * len(began),
            options={"maxiter": ITERATIONS},
        )  # fmt: skip
        found[group] = 0
        found[group, used] = answer.x
    return np.asarray(np.rint(found * UNIT))


def totals_of(sample: Sample, weights: Floats, factors: Floats) -> Floats:
    """Expected magnitudes in 1/UNIT; the prior part counts as a feature."""
    found = np.zeros(len(sample.symbols))
    for group in np.unique(sample.group):
        here = sample.group == group
        found[here] = sample.features[here] @ (weights[group]).astype(np.float32)
    return np.maximum(found * factors, 1.0)


def _best_shift(
    sample: Sample, bins: Ints, count: int, classes: Floats, costs: Costs, shifts: Floats
) -> Floats:
    """(count, shifts) bits that the values of each bin take if their classes are shifted."""
    found = np.zeros((count, len(shifts)))
    for k, shift in enumerate(shifts):
        cost, _ = costs.at(classes + shift, sample.symbols, sample.family)
        found[:, k] = np.bincount(bins, sample.counts * cost, count)
    return found


def fit_position(sample: Sample, totals: Floats, adjust: Floats, costs: Costs, position: Floats) -> Floats:
    """The factor of each place that saves the most bits; places that no sample has keep theirs."""
    some = sample.spot >= 0
    part = replace(
        sample, symbols=sample.symbols[some], counts=sample.counts[some], family=sample.family[some]
    )
    classes, _ = classes_of(totals[some], sample.prior[some], adjust)
    shifts = np.arange(-8, 9) / 4.0  # quarter octaves
    bits = _best_shift(part, sample.spot[some], position.size, classes, costs, shifts)
    best = np.where(bits.max(axis=1) > 0, shifts[np.argmin(bits, axis=1)], 0)
    return np.asarray(np.rint(np.clip(position.ravel() * 2 ** (best / 4), 16, 128)).reshape(position.shape))


def fit_adjust(sample: Sample, totals: Floats, costs: Costs) -> Floats:
    """The correction (97,) in 1/64 octave, by how far the total lies from the prior."""
    logs = 8 * np.log2(totals)
    away = np.clip(np.floor(8 * np.log2(sample.prior)) - np.floor(logs), -FARTHEST, FARTHEST).astype(np.int64)
    shifts = np.arange(-40, 41) / 8.0
    bits = _best_shift(sample, away + FARTHEST, 2 * FARTHEST + 1, logs / 2 - 4, costs, shifts)
    bits = blur(bits, 2.0) + 1e-4 * sample.counts.sum() * (shifts / 5) ** 2 / len(bits)
    return np.asarray(np.rint(blur(16 * shifts[np.argmin(bits, axis=1)][:, None], 1.5)[:, 0]))


def fit_expected(codes: Ints, means: Floats, counts: Floats) -> Floats:
    """Prior magnitudes by scale code minus step code, which never fall."""
    at = np.clip(codes + EXPECTED_ZERO, 0, 255)
    sizes = 2.0 ** (codes / 8.0)
    weight = np.bincount(at, counts, 256)
    share = np.bincount(at, counts * means / sizes, 256)
    wide = np.stack([share, weight], axis=1)
    smooth = blur(wide, 1.5) + 1e-3 * blur(wide, 6.0)
    known = smooth[:, 1] > 1e-6 * smooth[:, 1].max()
    ratio = np.interp(np.arange(256), np.flatnonzero(known), smooth[known, 0] / smooth[known, 1])
    found = UNIT * 2.0 ** ((np.arange(256) - EXPECTED_ZERO) / 8) * ratio
    return np.asarray(np.rint(np.clip(np.maximum.accumulate(found), 1, 2**30)))


def fit_tables(sample: Sample, classes: Ints, families: int) -> Floats:
    """Token frequencies (families, ROWS, TOKENS)."""
    shift = np.where(classes < ROWS, 0, classes // CYCLE - (ROWS // CYCLE - 1))
    rows = np.where(classes < ROWS, classes, ROWS - CYCLE + classes % CYCLE)
    tokens = np.minimum(sample.symbols >> shift, TOKENS - 1)
    flat = np.ravel_multi_index((sample.family, rows, tokens), (families, ROWS, TOKENS))
    counts = np.bincount(flat, sample.counts, families * ROWS * TOKENS).reshape(families, ROWS, TOKENS)
    return np.stack([whole_rows(_smoothed(c, _geometric()[:ROWS])) for c in counts])


def fit_flag_tables(sample: Sample, classes: Ints) -> Floats:
    """Flag frequencies (CLASSES, 2)."""
    flat = np.ravel_multi_index((classes, sample.symbols), (CLASSES, 2))
    counts = np.bincount(flat, sample.counts, 2 * CLASSES).reshape(CLASSES, 2)
    found = whole_rows(_smoothed(counts, _odds()))
    return np.clip(found, 24, ONE - 24)


def _smoothed(counts: NDArray[Any], guess: Floats) -> Floats:
    """Counts with a little of their neighbours'; where these are few, of more neighbours and of a guess."""
    near = blur(counts, 0.5)
    wide = blur(counts, 3.0) + 1e-3 * guess
    found: Floats = near + 20 * wide / wide.sum(axis=1, keepdims=True)
    return found


def fit_offsets(sample: Sample, classes: Ints, tables: Floats) -> Floats:
    """By class and magnitude 1, 2, 3 or more: how far coefficients lie below it, in 1/256 of a step.

    The encoder keeps a coefficient if its reconstruction is close enough, so offsets and decisions depend on
    each other; a few turns settle both.
    """
    found = np.zeros(SHAPES["OFFSETS"])
    for _ in range(TURNS):
        sizes = _decided(sample, classes, tables, found)
        gap = sample.counts * (sizes - sample.ratio)
        for size in (1, 2, 3):
            here = np.minimum(sizes, 3) == size
            gaps = np.bincount(classes[here], gap[here], CLASSES)
            counts = np.bincount(classes[here], sample.counts[here], CLASSES)
            both = blur(np.stack([gaps, counts], axis=1), 0.7)
            found[:, size] = np.clip(np.rint(256 * both[:, 0] / (both[:, 1] + 30)), -128, 128)
    return found


def _decided(sample: Sample, classes: Ints, tables: Floats, offsets: Floats) -> Ints:
    """Nearest, one less or zero, whichever costs least in error and bits."""
    bits = 16 - np.log2(tables)[sample.family, np.minimum(classes, ROWS - 1)]  # (n, TOKENS)
    nearest = np.floor(sample.ratio + 0.5).astype(np.int64)
    found, least = np.zeros(len(nearest), np.int64), sample.ratio**2 + EXCHANGE * bits[:, 0]
    for size in (np.maximum(nearest - 1, 1), nearest):
        error = sample.ratio - size + offsets[classes, np.minimum(size, 3)] / 256
        price = np.take_along_axis(bits, np.minimum(size, TOKENS - 1)[:, None], 1)[:, 0] + 1  # and a sign
        better = (size > 0) & (nearest > 0) & (error**2 + EXCHANGE * price < least)
        found = np.where(better, size, found)
        least = np.where(better, error**2 + EXCHANGE * price, least)
    return found


def blur(table: NDArray[Any], width: float) -> Floats:
    """Rows averaged with their neighbours by a normal curve of this width."""
    away = np.arange(len(table))
    kernel = np.exp(-0.5 * ((away[:, None] - away) / width) ** 2)
    found: Floats = (kernel / kernel.sum(axis=1, keepdims=True)) @ table
    return found
