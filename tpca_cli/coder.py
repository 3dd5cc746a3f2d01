"""A block of pictures to bytes and back: framing, integer basis, step and tables of one group.

A block is a pure function of the coder and its pictures; it depends on no other block. The error that
`encode` reports is measured on the pixels that `decode` will return, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.entropy import ESCAPE, PRECISION, TOKENS, Reader, Writer, probabilities
from tpca_cli.errors import FileRefused
from tpca_cli.fixed import SCALE, FixedBasis, Floats, Ints
from tpca_cli.framing import Framing

Pixels = NDArray[Any]
LARGEST = 1 << 38


@dataclass(frozen=True)
class Encoded:
    """A coded block, and the squared error of each picture after decoding."""

    data: bytes
    sse: Ints


@dataclass(frozen=True)
class Measured:
    """What encoding would give: squared error per picture, and an estimate of the bits."""

    sse: Ints
    bits: float


@dataclass(frozen=True, eq=False)
class Coder:
    """Everything that turns pictures of one group into blocks and back."""

    framing: Framing
    basis: FixedBasis
    step_units: int
    components: int
    classes: Ints
    tables: Ints

    @classmethod
    def train(
        cls,
        sample: Sequence[Pixels],
        framing: Framing,
        basis: FixedBasis,
        step: float,
        *,
        components: int | None = None,
        effort: int = 1,
    ) -> Coder:
        """Tables that suit a sample of the pictures at this step."""
        kept = min(components or basis.components, basis.components)
        coder = cls(framing, basis, _units(step), kept, np.zeros(kept, np.int64), _builtin_tables())
        q = coder._quantize(coder._analyze(sample))
        mean = np.abs(q).mean(axis=1) if q.shape[1] else np.zeros(kept)
        classes = np.clip(np.rint(4 * np.log2(np.maximum(mean, 2.0**-9)) + 36), 0, 63).astype(np.int64)
        return replace(coder, classes=classes)

    @property
    def step(self) -> float:
        """The quantiser step in pixel units."""
        return self.step_units / SCALE

    def with_step(self, step: float) -> Coder:
        """The same coder at another step; tables stay."""
        return replace(self, step_units=_units(step))

    def encode(self, pictures: Sequence[Pixels]) -> Encoded:
        """One block, with the exact error of each picture."""
        q = self._quantize(self._analyze(pictures))
        writer = Writer()
        models = probabilities(self.tables)
        for component, plane in enumerate(q):
            live = bool(plane.any())
            writer.bits(np.array([live]))
            if live:
                writer.values(np.abs(plane), np.repeat(models[self.classes[component]][None], plane.size, 0))
                writer.bits(plane[plane != 0] < 0)
        decoded = self._pictures(q, [p.shape[:2] for p in pictures])
        return Encoded(writer.finish(), _sse(pictures, decoded))

    def measure(self, pictures: Sequence[Pixels]) -> Measured:
        """The error and an estimate of the size, without entropy coding."""
        q = self._quantize(self._analyze(pictures))
        decoded = self._pictures(q, [p.shape[:2] for p in pictures])
        cost = -np.log2(probabilities(self.tables))[self.classes]  # (M, TOKENS)
        magnitudes = np.minimum(np.abs(q), ESCAPE)
        bits = np.take_along_axis(cost, magnitudes, axis=1)[q.any(axis=1)].sum() + (q != 0).sum()
        return Measured(_sse(pictures, decoded), float(bits))

    def decode(
        self, data: bytes, shapes: Sequence[tuple[int, int]], components: int | None = None
    ) -> list[Pixels]:
        """The pictures of a block; with fewer components they come out blurrier."""
        reader = Reader(data)
        n = sum(self.framing.count(h, w) for h, w in shapes)
        q = np.zeros((self.components, n), np.int64)
        models = probabilities(self.tables)
        for component in range(self.components):
            if reader.bits(1)[0]:
                plane = reader.values(np.repeat(models[self.classes[component]][None], n, 0))
                nonzero = plane != 0
                plane[nonzero] *= 1 - 2 * reader.bits(int(nonzero.sum())).astype(np.int64)
                q[component] = plane
        if np.abs(q).max(initial=0) > LARGEST:
            raise FileRefused("block holds a coefficient out of range")
        return self._pictures(q if components is None else q[: max(components, 0)], shapes)

    def _analyze(self, pictures: Sequence[Pixels]) -> Floats:
        frames = [self.framing.split(p) for p in pictures]
        stacked = np.concatenate(frames) if frames else np.zeros((0, *self.framing.frame_shape))
        return self.basis.analyze(np.moveaxis(stacked, 0, -1))[: self.components]

    def _quantize(self, coefficients: Floats) -> Ints:
        magnitude = np.floor(np.abs(coefficients) / self.step_units + 0.38).astype(np.int64)
        return np.where(coefficients < 0, -magnitude, magnitude)

    def _pictures(self, q: Ints, shapes: Sequence[tuple[int, int]]) -> list[Pixels]:
        planes = self.basis.to_pixels(self.basis.synthesize(q.astype(np.float64) * self.step_units))
        frames = np.ascontiguousarray(np.moveaxis(planes, -1, 0))
        out, at = [], 0
        for h, w in shapes:
            count = self.framing.count(h, w)
            out.append(self.framing.join(frames[at : at + count], h, w))
            at += count
        return out

    @property
    def meta(self) -> dict[str, Any]:
        """Plain JSON that, with `to_arrays`, rebuilds the coder."""
        return {
            "framing": self.framing.to_dict(),
            "basis": self.basis.meta,
            "step": self.step_units,
            "components": self.components,
        }

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The tables and the basis as small integer arrays."""
        basis = {f"basis_{name}": array for name, array in self.basis.to_arrays().items()}
        return {**basis, "classes": self.classes.astype(np.uint8)}

    @classmethod
    def from_arrays(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Coder:
        """The coder that `meta` and `to_arrays` described."""
        try:
            framing = Framing.from_dict(meta["framing"])
            inner = {k.removeprefix("basis_"): v for k, v in arrays.items() if k.startswith("basis_")}
            basis = FixedBasis.from_arrays(meta["basis"], inner)
            step, kept = int(meta["step"]), int(meta["components"])
            classes = np.asarray(arrays["classes"]).astype(np.int64)
        except (KeyError, TypeError, ValueError) as error:
            raise FileRefused(f"coder is incomplete or malformed ({error})") from error
        if not (1 <= step < 1 << 30 and 0 < kept <= basis.components and classes.shape == (kept,)):
            raise FileRefused("coder has an impossible step or number of components")
        if classes.max() > 63:
            raise FileRefused("coder names a table that does not exist")
        return cls(framing, basis, step, kept, classes, _builtin_tables())


def _units(step: float) -> int:
    return max(1, round(step * SCALE))


def _builtin_tables() -> Ints:
    """Geometric distributions by mean magnitude 2^((class - 36) / 4), in integers over 2^PRECISION."""
    rows = []
    for k in range(64):
        ratio = (mean := 2.0 ** ((k - 36) / 4)) / (1 + mean)
        weights = [(1 - ratio) * ratio**v for v in range(ESCAPE)] + [ratio**ESCAPE]
        row = [max(1, math.floor(w * 2**PRECISION)) for w in weights]
        row[0] += 2**PRECISION - sum(row)
        if row[0] < 1:
            row = [2**PRECISION // TOKENS] * TOKENS
        rows.append(row)
    return np.array(rows, np.int64)


def _sse(pictures: Sequence[Pixels], decoded: Sequence[Pixels]) -> Ints:
    pairs = zip(pictures, decoded, strict=True)
    return np.array([int(((a.astype(np.int64) - b) ** 2).sum()) for a, b in pairs], np.int64)
