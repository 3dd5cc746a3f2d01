"""Frames to coefficients in products of a fixed size, so that the bits depend on the list of images alone.

A run of images is what one worker projects at a time: it follows from the numbers of their frames. Within it
the products have a fixed number of frames, and whoever calls this allows BLAS one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.frames.arrays import regroup
from tpca_cli.framing import Framing
from tpca_cli.interfaces import Block
from tpca_cli.tensor_pca.basis import DenseBasis, Rank1Basis, TensorBasis
from tpca_cli.tensor_pca.slices import Slices, slices_for

RUN_VALUES = 1 << 22  # of all frames of a run; an image with more is a run of its own
RUN_IMAGES = 1 << 12
PRODUCT_VALUES = 1 << 22  # of the frames of one product
MANY = 100  # components: a product with so many takes as long as to decode the image


def runs_of(counts: Sequence[int], framing: Framing) -> list[range]:
    """Neighboring images that are projected together; `counts` are the frames of each."""
    size = prod(framing.frame_shape)
    found: list[range] = []
    first, values = 0, 0
    for number, count in enumerate(counts):
        if number > first and (values + count * size > RUN_VALUES or number - first == RUN_IMAGES):
            found.append(range(first, number))
            first, values = number, 0
        values += count * size
    return [*found, range(first, len(counts))] if counts else found


class Projector:
    """d_nl = X_in U_il (eq 4.1.2), for frames of one sample type and coefficients of one type.

    `slices` say how frames of 8 bits are multiplied: by so many slices of the basis, or by floats (0). The
    bits depend on it: whoever shares work says what others must take.
    """

    def __init__(self, basis: TensorBasis, samples: str, dtype: str, slices: int | None = None) -> None:
        self.basis, self.samples, self.dtype = basis, samples, dtype
        dense = None if isinstance(basis, Rank1Basis) else basis
        if slices is None:
            many = dense is not None and samples == "u1" and basis.components >= MANY
            slices = slices_for(dense, np.dtype(dtype).itemsize) if dense is not None and many else 0
        self.slices = slices
        self._sliced = Slices(dense, slices) if dense is not None and slices else None
        self._own = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return Projector, (self.basis, self.samples, self.dtype, self.slices)

    def coefficients(self, parts: Sequence[Block]) -> npt.NDArray[Any]:
        """The coefficients of the frames of a run, (n, M); they may come in any parts."""
        basis = self.basis
        size, count = prod(basis.frame_shape), sum(map(len, parts))
        rows = max(1, min(count, PRODUCT_VALUES // size))
        out = np.empty((count, basis.components), self.dtype)
        if isinstance(basis, Rank1Basis):
            for start, block in zip(range(0, count, rows), regroup(parts, rows), strict=True):
                out[start : start + rows] = basis.project(block)
            return out
        room, have, done = self._room(rows, size), 0, 0
        for part in parts:
            flat = part.reshape(len(part), size)
            while len(flat):
                piece, flat = flat[: rows - have], flat[rows - have :]
                room[have : have + len(piece)] = piece
                have += len(piece)
                if have == rows or done + have == count:
                    out[done : done + have] = self._product(basis, room[:have])
                    have, done = 0, done + have
        return out

    def _product(self, basis: DenseBasis, frames: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The product of some frames (n, L), which are overwritten."""
        if self._sliced is None:
            return basis.project_rows(frames)
        frames ^= 128
        return self._sliced.project(frames.view(np.int8))

    def _room(self, rows: int, size: int) -> npt.NDArray[Any]:
        """Room for so many frames, the same in every product of a thread: new memory takes longer to fill."""
        if getattr(self._own, "room", np.empty(0)).size < rows * size:
            self._own.room = np.empty(rows * size, np.uint8 if self.slices else np.float64)
        room: npt.NDArray[Any] = self._own.room[: rows * size].reshape(rows, size)
        return room


def by_run(blocks: Iterator[Block], lengths: Sequence[int]) -> Iterator[Block]:
    """Blocks of any lengths as blocks of these lengths."""
    held: list[Block] = []
    have = 0
    for length in lengths:
        while have < length:
            block = next(blocks)
            held.append(block)
            have += len(block)
        whole = held[0] if len(held) == 1 else np.concatenate(held)
        yield whole[:length]
        held, have = [whole[length:]], have - length
