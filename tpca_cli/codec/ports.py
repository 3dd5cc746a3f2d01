"""The two ends of the walk: `Encoder` decides what to keep and writes it, `Decoder` reads it back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.blocks import Flags
from tpca_cli.codec.entropy import ESCAPE, Reader, Writer, rows_of, shifts_of
from tpca_cli.codec.model import CLASSES, Model, classes_of
from tpca_cli.codec.plan import Ints
from tpca_cli.codec.quantize import LAMBDA, decide

Floats = NDArray[np.float64]

_LOG2 = np.log2(np.maximum(np.arange(64), 1))


def costs_of(tables: NDArray[np.float32]) -> Floats:
    """Bits (CLASSES, TOKENS) of each token with its sign and low bits, in whole 1/256."""
    bits = -np.log2(tables.astype(np.float64))
    bits[:, 1:] += 1
    classes = np.arange(CLASSES)
    bits = bits[rows_of(classes)] + shifts_of(classes)[:, None]
    return np.asarray(np.floor(bits * 256 + 0.5) / 256, np.float64)


class Encoder:
    """Decides while the walk goes on; counts bits, and writes them if it has a writer.

    `coefficients` (M, canvas) are rows of the plan.
    """

    def __init__(self, model: Model, coefficients: Floats, writer: Writer | None) -> None:
        self.model, self.coefficients, self.writer = model, coefficients, writer
        self.costs = [costs_of(tables) for tables in model.tables]
        self.flag_costs = -np.log2(model.flag_tables.astype(np.float64))
        self.bits = 0.0
        self.wanted = self._zones()

    def _zones(self) -> dict[tuple[int, int], Flags]:
        """For each (color, zone), the places where this zone or a later one is worth its bits."""
        model = self.model
        wanted: dict[tuple[int, int], Flags] = {}
        prior = self.costs[0][classes_of(model.expected)]  # (M, TOKENS)
        more = LAMBDA * (prior[:, 1] - prior[:, 0])[:, None]
        for color in range(model.plan.colors):
            later: Floats = np.zeros(self.coefficients.shape[1])
            for zone in sorted((z for c, z in model.plan.zones if c == color), reverse=True):
                start, stop = model.plan.zones[color, zone]
                ratio = np.abs(self.coefficients[start:stop]) / model.steps[start:stop]
                q = np.floor(ratio + 0.5)
                # What coding saves in error, less what it costs in bits beyond a zero.
                gain = (
                    (2 * ratio - q) * q
                    - more[start:stop]
                    - (1.5 * LAMBDA) * _LOG2.take(np.minimum(q, _LOG2.size - 1).astype(np.int64))
                )
                worth = (np.maximum(gain, 0.0) * (q > 0)).sum(axis=0) + later
                later = np.maximum(worth - LAMBDA, 0.0)
                wanted[color, zone] = later > 0
        return wanted

    def flags(self, color: int, zone: int, places: Ints, classes: Ints) -> Flags:
        """Write the flags decided beforehand."""
        flags = self.wanted[color, zone][places]
        if self.writer:
            self.writer.flags(flags, self.model.flag_tables.take(classes, axis=0))
        else:
            self.bits += float(self.flag_costs[classes, flags.astype(np.int64)].sum())
        return flags

    def values(self, rows: slice, places: Ints, classes: Ints, means: Floats | None) -> Floats:
        """Decide and write."""
        rest = self.coefficients[rows].take(places, axis=1)
        if means is not None:
            rest -= means
        family = self.model.family(rows, means is not None)
        costs = self.costs[family]
        q = decide(np.abs(rest) / self.model.steps[rows], costs, classes)
        magnitudes = q.astype(np.int64).ravel()
        negative = rest < 0
        flat = classes.ravel()
        if self.writer:
            self.writer.values(magnitudes, flat, self.model.tables[family])
            self.writer.bits(negative.ravel()[magnitudes > 0])
        else:
            tokens = np.minimum(magnitudes >> shifts_of(flat), ESCAPE)
            self.bits += float(costs[flat, tokens].sum())
        np.negative(q, out=q, where=negative)
        return q


class Decoder:
    """Reads what `Encoder` wrote."""

    def __init__(self, model: Model, reader: Reader) -> None:
        self.model, self.reader = model, reader

    def flags(self, color: int, zone: int, places: Ints, classes: Ints) -> Flags:
        """Read flags."""
        return self.reader.flags(self.model.flag_tables.take(classes, axis=0))

    def values(self, rows: slice, places: Ints, classes: Ints, means: Floats | None) -> Floats:
        """Read magnitudes, then the signs of those that are not zero."""
        family = self.model.family(rows, means is not None)
        magnitudes = self.reader.values(classes.ravel(), self.model.tables[family])
        nonzero = np.flatnonzero(magnitudes)
        q = magnitudes.astype(np.float64)
        q[nonzero] *= 1.0 - 2.0 * self.reader.bits(nonzero.size)
        return q.reshape(classes.shape)
