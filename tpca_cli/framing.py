"""Images to frames and back: `whole` takes an image as one frame, `tile` cuts any size into T x T tiles.

Arrays in, arrays out. A tile that hangs over the edge is filled by mirroring the image (and, where the image
is too small for that, mirroring again), which continues edges and shading and so costs few coefficients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpca_cli.errors import ImageRefused

Pixels: TypeAlias = NDArray[Any]

WHOLE, TILE = "whole", "tile"
CANVAS_PIXELS = 2**21
"""No canvas of several images has more: a long and a high image would take memory by their product."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How images become frames of one shape; for tiles height = width = T."""

    kind: str
    height: int
    width: int
    channels: int
    frame_shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame_shape", (self.height, self.width, self.channels))
        if self.kind not in (WHOLE, TILE):
            raise ValueError(f"framing {self.kind!r} is neither {WHOLE} nor {TILE}")
        if min(self.height, self.width) < 1 or not 1 <= self.channels <= 4:
            raise ValueError(f"frame shape {self.frame_shape} has an impossible side")
        if self.kind == TILE and self.height != self.width:
            raise ValueError(f"tiles are square, not {self.height}x{self.width}")

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of frames that an image of this size becomes."""
        if self.kind == WHOLE:
            if (height, width) != (self.height, self.width):
                raise ImageRefused(
                    f"{height}x{width} pixels where all images have {self.height}x{self.width}; "
                    "use --size or --tile"
                )
            return 1, 1
        return -(-height // self.height), -(-width // self.width)

    def count(self, height: int, width: int) -> int:
        """How many frames an image of this size becomes."""
        rows, columns = self.grid(height, width)
        return rows * columns

    def split(self, pixels: Pixels) -> Pixels:
        """One image (h, w, c), or images of one size (n, h, w, c), to frames (count, T, T, c) row by row."""
        images = pixels if pixels.ndim == 4 else pixels[None]  # (n, h, w, c)
        n, h, w, c = images.shape
        if c != self.channels:
            raise ImageRefused(f"{c} channels where the frames have {self.channels}")
        rows, columns = self.grid(h, w)
        th, tw = self.height, self.width
        if self.kind == WHOLE:
            return images
        tiles = np.empty((n, rows, columns, th, tw, c), images.dtype)
        full_rows, full_columns = h // th, w // tw
        inner = images[:, : full_rows * th, : full_columns * tw]
        cells = inner.reshape(n, full_rows, th, full_columns, tw, c)
        tiles[:, :full_rows, :full_columns] = cells.swapaxes(2, 3)  # (n, rows, columns, T, T, c)
        across = mirror(w, columns * tw)
        if full_columns < columns:
            right = images[:, : full_rows * th, across[full_columns * tw :]]  # (n, full_rows*T, T, c)
            tiles[:, :full_rows, -1] = right.reshape(n, full_rows, th, tw, c)
        if full_rows < rows:
            below = mirror(h, rows * th)[full_rows * th :]
            bottom = images[:, below][:, :, across].reshape(n, th, columns, tw, c)
            tiles[:, -1] = bottom.swapaxes(1, 2)  # (n, columns, T, T, c)
        return tiles.reshape(n * rows * columns, th, tw, c)

    def join(self, frames: Pixels, height: int, width: int) -> Pixels:
        """The inverse: frames (count, T, T, c) of one image to (h, w, c), or of n images to (n, h, w, c)."""
        rows, columns = self.grid(height, width)
        th, tw, c = self.height, self.width, frames.shape[-1]
        n, rest = divmod(len(frames), rows * columns)
        if rest or frames.shape[1:3] != (th, tw):
            raise ValueError(f"frames of shape {frames.shape} do not make images of {height}x{width}")
        grid = frames.reshape(n, rows, columns, th, tw, c).swapaxes(2, 3)  # (n, rows, T, columns, T, c)
        images: Pixels = grid.reshape(n, rows * th, columns * tw, c)[:, :height, :width]  # (n, h, w, c)
        return images[0] if n == 1 else images

    def to_dict(self) -> dict[str, Any]:
        """The framing as plain values, for a file."""
        return {"kind": self.kind, "height": self.height, "width": self.width, "channels": self.channels}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Framing:
        """The framing from the plain values of a file."""
        return cls(str(data["kind"]), int(data["height"]), int(data["width"]), int(data["channels"]))


@dataclass(frozen=True, slots=True)
class Canvas:
    """Where the frames of images lie that are coded together: grid below grid, as wide as the widest."""

    rows: int = 0
    columns: int = 0

    def beside(self, rows: int, columns: int) -> Canvas:
        """The canvas with one more grid on it."""
        return Canvas(self.rows + rows + 1, max(self.columns, columns))

    @property
    def places(self) -> int:
        """Frames that it has room for, with the empty ones around each grid."""
        return (self.rows + 2) * (self.columns + 1) + 1


def mirror(have: int, want: int) -> NDArray[np.intp]:
    """Indices 0..have-1 continued to `want` by reflection that repeats the last sample: abc -> abccbaab."""
    period = np.arange(want) % (2 * have)
    return np.minimum(period, 2 * have - 1 - period)
