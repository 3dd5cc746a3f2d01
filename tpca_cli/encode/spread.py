"""What tiles from all over a group say of a sample of it: is it harder to code, or easier, than the rest?

A sample has windows of some images, because a coder needs neighbors; its error is off by tenths of a decibel
where images differ. Single tiles need none: they come from every image, and how large their coefficients are
says about how much a step loses and how many bits it takes. The ratio of what they say of all and of the
sample corrects what the coder measured on the sample. All counts are of integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tpca_cli.codec.contexts import CODES, log_code
from tpca_cli.interfaces import Block
from tpca_cli.tensor_pca.fixed_basis import SCALE, FixedBasis, Floats

TOGETHER = 1 << 16  # pixels of tiles whose coefficients are held
DEAD = 0.62  # of a step: smaller coefficients become zero
FIRST_BITS = 4.0  # of a coefficient that is not zero: where it is, and its sign
NOISE = 0.09  # of a squared step: what is lost of the others
_SIZES = 2.0 ** ((np.arange(CODES) + 0.5) / 8)  # about the size of a coefficient by its code


@dataclass(frozen=True, eq=False)
class Spread:
    """Coefficients by size, (CODES,): of tiles from everywhere, of the sample, and of a small part of it."""

    everywhere: Floats
    sample: Floats
    few: Floats

    def error_ratio(self, step: float, *, few: bool) -> float:
        """The squared error of all images over that of the sample, per pixel, about."""
        units = step * SCALE
        return self._ratio(np.where(DEAD * units > _SIZES, _SIZES**2, NOISE * units**2), few)

    def size_ratio(self, step: float, *, few: bool) -> float:
        """The same of their bits."""
        steps = _SIZES / (step * SCALE * DEAD)
        return self._ratio(np.where(steps < 1, 0.0, FIRST_BITS + np.log2(np.maximum(steps, 1.0))), few)

    def _ratio(self, cost: Floats, few: bool) -> float:
        cost[0] = 0.0  # zeros
        sampled = float((self.few if few else self.sample) @ cost)
        return float(self.everywhere @ cost) / sampled if sampled > 0 else 1.0


def sizes(basis: FixedBasis, frames: Iterable[Block]) -> Floats:
    """Coefficients of tiles (n, T, T, c) by the code of their size, as shares of all, (CODES,)."""
    counts = np.zeros(CODES)
    for block in frames:
        tiles = max(1, TOGETHER // (block.shape[1] * block.shape[2]))
        for start in range(0, len(block), tiles):
            part = block[start : start + tiles].transpose(1, 2, 3, 0)  # (T, T, c, n)
            found = basis.analyze(np.ascontiguousarray(part, np.float64), 0)
            codes = np.minimum(log_code(np.abs(found)), CODES - 1)
            counts += np.bincount(codes.ravel(), minlength=CODES)
    return np.asarray(counts / max(counts.sum(), 1.0), np.float64)
