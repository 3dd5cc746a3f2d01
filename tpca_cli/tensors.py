"""Items of any order: a tensor (I_1, .., I_d) with a sample type. An image is the case (h, w, c).

By Proposition 1 of the paper neither eigenvalues nor eigentensors depend on how the indices are laid out, so
an item is coded as a picture with the same samples in the same order. Floats are put on a grid of 16 bits
between the smallest and the largest sample, zero among them: sample = scale (integer - zero).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_ORDER = 8
MAX_SIDE = 2**16 - 1
"""Rows and columns of the picture that an item is coded as."""
DTYPES = ("u1", "u2", "f4", "f8")
GRID_PEAK = 65535
LARGEST, SMALLEST = 1e60, 1e-60
"""Magnitudes between which the largest float has to lie: residuals are sums of fourth powers of samples."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Item:
    """The kind of an item: its shape and the type of its samples, one of `DTYPES`."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def order(self) -> int:
        """d, the number of modes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """L, the number of samples."""
        return math.prod(self.shape)

    @property
    def floating(self) -> bool:
        """Whether samples are floats."""
        return self.dtype.startswith("f")

    @property
    def nbytes(self) -> int:
        """What its samples take."""
        return self.size * int(self.dtype[1])

    @property
    def picture(self) -> tuple[int, int, int]:
        """Rows, columns and channels of the picture that it is coded as."""
        if self.dtype == "u1" and self.order >= 3 and self.shape[-1] in (3, 4):
            return math.prod(self.shape[:-2]), self.shape[-2], self.shape[-1]
        return math.prod(self.shape[:-1]), self.shape[-1], 1

    @property
    def mode(self) -> str:
        """The mode of that picture in an archive."""
        return {1: "L", 3: "RGB", 4: "RGBA"}[self.picture[2]] if self.dtype == "u1" else "I;16"

    def problem(self) -> str | None:
        """Why such an item cannot be taken, or None."""
        if not 1 <= self.order <= MAX_ORDER or min(self.shape) < 1:
            return f"a tensor of shape {self.shape}; it must have 1 to {MAX_ORDER} modes, none of them empty"
        if max(self.picture[:2]) > MAX_SIDE:
            return (
                f"a tensor of shape {self.shape}: all modes but the last have {self.picture[0]} "
                f"combinations, more than {MAX_SIDE}; cut it into smaller items"
            )
        return None

    def __str__(self) -> str:
        names = {"u1": "uint8", "u2": "uint16", "f4": "float32", "f8": "float64"}
        return f"{'x'.join(str(side) for side in self.shape)} {names[self.dtype]}"

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return {"shape": list(self.shape), "dtype": self.dtype}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Item:
        """From the plain values of a file; ValueError unless that is possible."""
        shape, dtype = data["shape"], data["dtype"]
        if not isinstance(shape, list) or any(type(side) is not int for side in shape) or dtype not in DTYPES:
            raise ValueError("an impossible kind of item")
        item = cls(tuple(shape), dtype)
        problem = item.problem()
        if problem is not None:
            raise ValueError(problem)
        return item


@dataclass(frozen=True, slots=True)
class Grid:
    """The integers that stand for samples: sample = scale (integer - zero); (0, 1) for integers."""

    zero: int = 0
    scale: float = 1.0

    @classmethod
    def between(cls, smallest: float, largest: float) -> Grid:
        """The finest grid of 16 bits with zero on it that holds all samples between these."""
        low, high = min(smallest, 0.0), max(largest, 0.0)
        scale = (high - low) / (GRID_PEAK - 1)  # one to spare, so that zero can be on the grid
        if scale == 0.0 or not math.isfinite(1 / scale):
            return cls(0, 1.0)
        return cls(math.ceil(-low / scale), scale)

    def integers(self, samples: Array, item: Item) -> Array:
        """An item as its picture, (h, w, c) uint8 or uint16."""
        if item.floating:
            scaled = np.rint(np.asarray(samples, np.float64) / self.scale) + self.zero
            samples = np.clip(scaled, 0, GRID_PEAK).astype(np.uint16)
        return np.ascontiguousarray(samples).reshape(item.picture)

    def samples(self, picture: Array, item: Item) -> Array:
        """The item of a picture."""
        if item.floating:
            picture = (picture.astype(np.float64) - self.zero) * self.scale
        return picture.astype(np.dtype(item.dtype)).reshape(item.shape)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return {"zero": self.zero, "scale": self.scale}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Grid:
        """From the plain values of a file; ValueError unless that is possible."""
        zero, scale = data["zero"], data["scale"]
        if type(zero) is not int or not 0 <= zero <= GRID_PEAK or type(scale) not in (int, float):
            raise ValueError("an impossible grid of samples")
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError("an impossible grid of samples")
        return cls(zero, float(scale))
