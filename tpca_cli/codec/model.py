"""What the coder knows before it reads: scales of the components, weights and tables; all integers.

Decoded magnitudes around a coefficient add up to a class: the expected magnitude on a scale of
quarter octaves, read from the bits of an exact float. Each class has a table of token frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.plan import SLOTS, Ints, Plan, Step, kind_of
from tpca_cli.codec.priors import EXPECTED_ZERO, Priors, shipped

Floats = NDArray[np.float64]

UNIT = 1024.0
"""Expected magnitudes are counted in 1/1024."""
CLASSES = 112
CODES = 256
"""Eighth octaves that an expected magnitude can have."""
LEVELS = 4


@dataclass(frozen=True, eq=False)
class Model:
    """Prior magnitudes and weights at one quantiser step; components are rows of the plan."""

    plan: Plan
    steps: Floats  # (M,) quantiser step of each component
    expected: Floats  # (M,) prior magnitude in 1/UNIT
    lowest: Floats  # (channels, LEVELS) prior magnitude of the lowest components
    centers: Ints  # (channels,) the lowest component where nothing is near
    weights: Ints  # of each look
    bases: Ints  # (M, 2) what the prior adds
    maps: NDArray[np.uint8]  # (M, CODES) class by code of the expected magnitude
    flag_weights: Ints  # (steps, 2, 5)
    priors: Priors


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


def build(
    plan: Plan, scales: Ints, lowest: Ints, centers: Ints, steps: Ints, priors: Priors | None = None
) -> Model:
    """The model of components with scale codes (M,) and (channels, LEVELS), quantised with `steps` (M,)."""
    priors = priors or shipped()
    row_steps = steps[plan.order].astype(np.float64)
    expected = expected_magnitude(scales[plan.order], row_steps, priors)
    low_steps = np.array([[row_steps[max(row, 0)]] for row in plan.lowest])
    lowest_expected = expected_magnitude(lowest[: len(plan.lowest)], low_steps, priors)
    kinds = np.array([kind_of(*place) for place in plan.places])
    positions = np.pad(priors.position, ((0, 1), (0, 1), (0, 0), (0, 0)), constant_values=64)
    sides = np.minimum(np.sort([place[:2] for place in plan.places], axis=1), 8)
    factors = positions[sides[:, 0], sides[:, 1], np.minimum([place[2] for place in plan.places], 1)]
    looks = plan.looks
    chosen = priors.weights[kinds[looks.rows], looks.phases, looks.slots] * factors[looks.rows, looks.phases]
    # products are below 2^51, so the floor of a rounded quotient is the exact one
    ratios = chosen * expected[looks.rows] / (64 * expected[looks.seen])
    prior = expected[:, None] * priors.weights[kinds, :, SLOTS] * factors / (64 * UNIT)
    return Model(
        plan,
        row_steps,
        expected,
        lowest_expected,
        centers,
        np.floor(np.minimum(ratios, chosen / 8)).astype(np.int64),
        np.floor(prior).astype(np.int64),
        _class_maps(expected, priors),
        _flag_weights(plan, expected, lowest_expected, priors),
        priors,
    )


def _flag_weights(plan: Plan, expected: Floats, lowest: Floats, priors: Priors) -> Ints:
    """How much counts for the flag that opens a zone: its prior, the zone before here and beside, flags."""
    found = np.zeros((len(plan.steps), 2, 5), np.int64)
    for index, step in enumerate(plan.steps):
        if not step.opens:
            continue
        zone = int(expected[slice(*plan.zones[step.color, step.zone])].sum())
        if (step.color, step.zone - 1) in plan.zones:
            previous = int(expected[slice(*before(plan, step))].sum())
        else:
            previous = int(lowest[slice(0, 1) if step.color == 0 else slice(1, None), LEVELS - 1].sum())
        scale = min(int(UNIT) * zone // max(previous, 1), 8 * int(UNIT))
        for phase in (0, 1):
            weights = priors.flag_weights[(step.color * 4 + min(step.zone, 3)) * 2 + phase]
            found[index, phase] = weights * (zone, scale, scale, UNIT, UNIT)
    return found


def before(plan: Plan, step: Step) -> tuple[int, int]:
    """The rows of the zone before that of a step; before the first, the lowest components of its color."""
    low = [row for c, row in enumerate(plan.lowest) if row >= 0 and min(c, 1) == step.color]
    lowest = (min(low), max(low) + 1) if low else (0, 0)
    return plan.zones.get((step.color, step.zone - 1), lowest)
