"""What the coder knows before it reads: scales of the components, weights and tables; all integers.

`classify` turns decoded magnitudes around a coefficient into a class: the expected magnitude on a scale of
quarter octaves, read from the bits of an exact float. Each class has a table of token frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec import priors
from tpca_cli.codec.entropy import probabilities
from tpca_cli.codec.plan import SLOTS, Ints, Plan

Floats = NDArray[np.float64]

UNIT = 1024.0
"""Expected magnitudes are counted in 1/1024."""
CLASSES = 112
CODES = 256
"""Eighth octaves that an expected magnitude can have."""
LEVELS = 4


@dataclass(frozen=True, eq=False)
class Look:
    """Weights (k, rows) of what a step sees in rows start:stop of one kind of magnitude."""

    kind: int
    start: int
    stop: int
    weights: Floats


@dataclass(frozen=True, eq=False)
class Model:
    """Prior magnitudes, weights and tables at one quantiser step; components are rows of the plan."""

    plan: Plan
    steps: Floats  # (M, 1) quantiser step of each component
    expected: Floats  # (M,) prior magnitude in 1/UNIT
    lowest: Floats  # (channels, LEVELS) prior magnitude of the lowest components
    centers: Ints  # (channels,) the lowest component where nothing is near
    looks: list[tuple[list[Look], list[Look]]]
    bases: list[tuple[Floats, Floats]]
    maps: Ints  # (M * CODES,) class by code of the expected magnitude
    tables: NDArray[np.float32]  # (families, rows, TOKENS)
    flag_tables: NDArray[np.float32]

    def family(self, rows: slice, lowest: bool) -> int:
        """Which tables rows use: of the first channel, of color, of the lowest components."""
        return 2 if lowest else int(rows.start >= self.plan.colored)


def log_code(values: NDArray[Any]) -> Ints:
    """8 log2 of numbers >= 1 in whole eighths of an octave, from the bits of the float."""
    bits = np.maximum(np.asarray(values, np.float64), 1.0).view(np.int64) >> 49
    return np.asarray(bits - (1023 << 3), np.int64)


def classes_of(expected: Floats) -> Ints:
    """Quarter octaves of an expected magnitude in 1/UNIT, from class 0 at 2^-9."""
    return np.asarray(np.clip((log_code(expected) >> 1) - 4, 0, CLASSES - 1), np.int64)


def expected_magnitude(scales: Ints, steps: Floats) -> Floats:
    """Prior magnitude, in 1/UNIT, of coefficients whose mean size has code `scales`."""
    difference = scales - log_code(steps) + priors.EXPECTED_ZERO
    return np.asarray(priors.EXPECTED[np.clip(difference, 0, priors.EXPECTED.size - 1)], np.float64)


def _class_maps(expected: Floats) -> Ints:
    """For each component (M, CODES): the class of an expected magnitude with this code.

    What was decoded nearby is only evidence: it is corrected by how far it lies from the prior magnitude.
    """
    codes = np.arange(CODES)[None, :]
    away = np.clip(log_code(expected)[:, None] - codes, -48, 48)
    adjusted = codes * 8 + priors.ADJUST.astype(np.int64)[away + 48]  # 1/64 octave
    return np.asarray(np.clip((adjusted >> 4) - 4, 0, CLASSES - 1), np.int64)


def build(plan: Plan, scales: Ints, lowest: Ints, centers: Ints, steps: Ints) -> Model:
    """The model of components with scale codes (M,) and (channels, LEVELS), quantised with `steps` (M,)."""
    row_steps = steps[plan.order].astype(np.float64)
    expected = expected_magnitude(scales[plan.order], row_steps)
    weights = np.concatenate([priors.WEIGHTS[..., :SLOTS], np.zeros((*priors.WEIGHTS.shape[:2], 1))], axis=2)
    positions = np.pad(priors.POSITION, ((0, 1), (0, 1), (0, 0), (0, 0)), constant_values=64)
    looks: list[tuple[list[Look], list[Look]]] = []
    bases: list[tuple[Floats, Floats]] = []
    for step in plan.steps:
        mine = expected[step.start : step.stop]
        near = np.minimum(step.sides, 8)
        factor = positions[near[:, 0], near[:, 1], step.color]  # (k, phases), in 1/64
        pair: tuple[list[Look], list[Look]] = ([], [])
        for phase in (0, 1):
            for sight in step.sights[phase]:
                chosen = np.take_along_axis(weights[step.kinds, phase], sight.slots, axis=1)
                chosen *= factor[:, phase, None]
                # products are below 2^51, so the floor of a rounded quotient is the exact one
                ratio = chosen * mine[:, None] / (64 * expected[None, sight.start : sight.stop])
                final = np.floor(np.minimum(ratio, chosen / 8))
                pair[phase].append(Look(sight.kind, sight.start, sight.stop, final))
        looks.append(pair)
        prior = mine[:, None] * priors.WEIGHTS[step.kinds, :, SLOTS] * factor / (64 * UNIT)  # (k, phases)
        bases.append((np.floor(prior[:, :1]), np.floor(prior[:, 1:])))
    low_steps = np.array([[row_steps[max(row, 0)]] for row in plan.lowest])
    return Model(
        plan,
        row_steps[:, None],
        expected,
        expected_magnitude(lowest[: len(plan.lowest)], low_steps),
        centers,
        looks,
        bases,
        _class_maps(expected).ravel(),
        probabilities(priors.TABLES),
        probabilities(priors.FLAG_TABLES),
    )
