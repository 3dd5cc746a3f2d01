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
from tpca_cli.tensor_pca.basis import Rank1Basis, TensorBasis

RUN_VALUES = 1 << 22  # of all frames of a run; an image with more is a run of its own
RUN_IMAGES = 1 << 12
PRODUCT_VALUES = 1 << 22  # of the frames of one product


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


def coefficients_of(basis: TensorBasis, parts: Sequence[Block], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """d_nl = X_in U_il (eq 4.1.2) of the frames of a run, (n, M); they may come in any parts."""
    size, count = prod(basis.frame_shape), sum(map(len, parts))
    rows = max(1, min(count, PRODUCT_VALUES // size))
    out = np.empty((count, basis.components), dtype)
    if isinstance(basis, Rank1Basis):
        for start, block in zip(range(0, count, rows), regroup(parts, rows), strict=True):
            out[start : start + rows] = basis.project(block)
        return out
    room, have, done = _floats(rows, size), 0, 0
    for part in parts:
        flat = part.reshape(len(part), size)
        while len(flat):
            piece, flat = flat[: rows - have], flat[rows - have :]
            room[have : have + len(piece)] = piece
            have += len(piece)
            if have == rows or done + have == count:
                out[done : done + have] = basis.project_rows(room[:have])
                have, done = 0, done + have
    return out


_OWN = threading.local()


def _floats(rows: int, size: int) -> npt.NDArray[np.float64]:
    """Room for so many frames, the same in every product of a thread: new memory takes longer to fill."""
    if getattr(_OWN, "room", np.empty(0)).size < rows * size:
        _OWN.room = np.empty(rows * size)
    room: npt.NDArray[np.float64] = _OWN.room[: rows * size].reshape(rows, size)
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
