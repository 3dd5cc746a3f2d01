"""Grades of regions by trial: each region gets the grade at which what it loses and what it costs are least.

How much goes on in a region tells roughly how coarse it may be (`tuning`). Two trials tell more: the block is
coded with all regions one grade finer, then with all one grade coarser, and decoded. What a region loses is
structure of brightness at four scales, as `visual` sees it; what it costs is its share of the bits, by how
many of its values are not zero. In the middle, at the grade it had, both are taken for the geometric means.

Only the encoder does this; an archive holds the grades, however they were found. Nothing here depends on the
machine: sums are those of the kernels, and roots are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.kernel_run import Encoded
from tpca_cli.visual import structure_lost

Pixels = NDArray[Any]
Grades = NDArray[np.uint8]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BIT_PRICE = 0.00064
"""What a bit is worth of structure lost, at a step of 1; it grows as the step to the power of 7/4.

That is about what the two are exchanged at from step to step on photographs: one price for all of them, so
that bits go to those pictures, too, that gain most by them."""
EVERY_TILE = 2
"""What each tile costs besides, in values: its mean, and the flags that say where it ends."""
CHANGES = (-1, 0, 1)
"""Of grades, in the order of what is compared."""


@dataclass(frozen=True)
class Trials:
    """What trials must know of a coder."""

    most: int  # the coarsest grade
    tile: int  # pixels on the side of a tile
    region: int  # tiles on the side of a region, which have one grade
    step: float

    def better(
        self,
        code: Callable[[Grades], Encoded],
        pictures: Sequence[Pixels],
        grids: Sequence[tuple[int, int]],
        grades: Grades,
    ) -> Grades:
        """Better grades (tiles,) for pictures whose tiles lie in these grids; `code` codes them with some."""
        finer, coarser = (code(self._changed(grades, change)) for change in (CHANGES[0], CHANGES[-1]))
        price = BIT_PRICE * self.step * math.sqrt(self.step) * math.sqrt(math.sqrt(self.step))
        found: Grades = grades.copy()
        side = self.tile * self.region
        bits = [list(_bits_by_region(trial, grids, self.region)) for trial in (finer, coarser)]
        for k, own in enumerate(_by_picture(found, grids)):
            lost = [structure_lost(pictures[k], trial.decoded[k], side) for trial in (finer, coarser)]
            if not np.any(lost):  # too small to be compared, or nothing to lose
                continue
            ends = [part + price * spent[k] for part, spent in zip(lost, bits, strict=True)]
            middle = np.sqrt(lost[0] * lost[1]) + price * np.sqrt(bits[0][k] * bits[1][k])
            cheapest = np.argmin([ends[0], middle, ends[1]], axis=0)  # (down, across) regions
            changes = np.array(CHANGES)[cheapest]
            wide = changes.repeat(self.region, axis=0).repeat(self.region, axis=1)
            own[...] = self._changed(own, wide[: own.shape[0], : own.shape[1]])
        return found

    def _changed(self, grades: Grades, change: int | Ints) -> Grades:
        changed: Grades = np.clip(grades.astype(np.int64) + change, 0, self.most).astype(np.uint8)
        return changed


def _by_picture(tiles: NDArray[Any], grids: Sequence[tuple[int, int]]) -> Iterator[NDArray[Any]]:
    """What belongs to tiles, one picture after another, as views (down, across)."""
    first = 0
    for down, across in grids:
        yield tiles[first : first + down * across].reshape(down, across)
        first += down * across


def _bits_by_region(trial: Encoded, grids: Sequence[tuple[int, int]], region: int) -> Iterator[Floats]:
    """The bits of a block as regions of each picture share them."""
    assert trial.busy is not None
    spent = trial.busy + EVERY_TILE
    each = trial.bits / max(int(spent.sum()), 1)
    for busy in _by_picture(spent, grids):
        down, across = busy.shape
        whole = np.pad(busy, ((0, -down % region), (0, -across % region)))
        parts = whole.reshape(-(-down // region), region, -(-across // region), region)
        yield parts.sum(axis=(1, 3)) * each
