"""Pictures straight to blocks and back: tiling, lapping, basis and filter inside the kernel.

This is the way of most archives: 8-bit pictures in tiles of rank-1 components. It gives the bits that
`tiling`, `fixed` and `restore` define; they serve every other case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec import blocks, lapping
from tpca_cli.codec.engine import Job, Room
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.layout import Fields
from tpca_cli.codec.model import Model
from tpca_cli.codec.plan import Ints
from tpca_cli.codec.restore import Restorer
from tpca_cli.framing import Framing

Pixels = NDArray[Any]
Shape = tuple[int, int]

SIDES = (8, 16, 32)
MOST_COLORS = 4
"""What the kernel has room for."""


@dataclass(frozen=True, eq=False)
class Tiles:
    """What the kernel must know of a coder to turn pictures into coefficients."""

    framing: Framing
    factors: Sequence[Ints]  # of height, width and channels
    bits: int
    lapped: bool
    restorer: Restorer | None

    def encode(self, model: Model, grid: Grid, pictures: Sequence[Pixels]) -> tuple[bytes, Ints]:
        """A block, and the squared error of each picture after decoding."""
        pixels = np.concatenate([picture.ravel() for picture in pictures])
        shapes = [(int(p.shape[0]), int(p.shape[1])) for p in pictures]
        job = blocks.write(model, grid, blocks.DECIDE, {}, self._fields(model, grid, shapes, pixels))
        return blocks.written(job), job["errors"].copy()

    def decode(self, model: Model, grid: Grid, shapes: Sequence[Shape], block: bytes) -> list[Pixels]:
        """The pictures of a block."""
        job = blocks.read(model, grid, block, self._fields(model, grid, shapes, np.zeros(0, np.uint8)))
        return self._cut(job, shapes)

    def _cut(self, job: Job, shapes: Sequence[Shape]) -> list[Pixels]:
        pixels, out, at = job["decoded"].copy(), [], 0
        for height, width in shapes:
            size = height * width * len(self.factors[2])
            out.append(pixels[at : at + size].reshape(height, width, -1))
            at += size
        return out

    def _fields(self, model: Model, grid: Grid, shapes: Sequence[Shape], pixels: Pixels) -> Fields:
        side, colors = self.framing.height, len(self.factors[2])
        grids = [self.framing.grid(height, width) for height, width in shapes]
        firsts = np.cumsum([0] + [down * right for down, right in grids])[:-1]
        table = [
            (*shape, *tiles, place)
            for shape, tiles, place in zip(shapes, grids, grid.places[firsts], strict=True)
        ]
        pixel_count = sum(math.prod(shape) for shape in shapes)
        most_tiles = max(math.prod(tiles) for tiles in grids)
        most_shorts = max((colors + 5) * (h + 4) * stride_of(w) + 2 * stride_of(w) + 8 for h, w in shapes)
        most_ints = max(9 * stride_of(w) + 8 for _, w in shapes)
        restorer = self.restorer
        return {
            "picture_count": len(shapes),
            "side": side,
            "colors": colors,
            "lapped": int(self.lapped),
            "restored": 0 if restorer is None else 2 if restorer.mixing.size else 1,
            "basis_bits": self.bits,
            "shapes": np.array(table, np.int32),
            "indices": np.array(model.plan.places, np.int32),
            "factors": np.concatenate([factor.ravel() for factor in self.factors]).astype(np.float64),
            "factors_back": np.concatenate([factor.T.ravel() for factor in self.factors]).astype(np.float64),
            "lap_before": lapping.halves(lapping.BEFORE),
            "lap_after": lapping.halves(lapping.AFTER),
            "borders": restorer.borders.astype(np.int32) if restorer else np.zeros(0, np.int32),
            "weights": restorer.weights.astype(np.int32) if restorer else np.zeros(0, np.int32),
            "mixing": restorer.mixing.astype(np.int32) if restorer else np.zeros(0, np.int32),
            "pixels": pixels,
            "decoded": Room(np.uint8, colors * pixel_count, scratch=True),
            "errors": Room(np.int64, len(shapes)),
            "planes": Room(np.float64, colors * side**2 * most_tiles, scratch=True),
            "shorts": Room(np.int16, most_shorts, scratch=True),
            "ints": Room(np.int32, most_ints, scratch=True),
        }


def stride_of(width: int) -> int:
    """Samples from line to line where the filter works: margins, and whole vectors."""
    return (width + 19) // 8 * 8
