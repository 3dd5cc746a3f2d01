"""What the numerics see of a set of images: a shape, a type and blocks of frames in a fixed order."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Block: TypeAlias = NDArray[Any]


_PIECE_BYTES = 1 << 22


class Frames(Protocol):
    """Frames of one shape; `blocks` may be called again for every pass."""

    @property
    def count(self) -> int: ...

    @property
    def frame_shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def blocks(self, rows: int) -> Iterator[Block]:
        """All frames in order, in blocks (rows, *frame_shape) of which only the last may be shorter."""
        ...


class ArrayFrames:
    """Frames that are in memory; blocks are views, not to be written to."""

    def __init__(self, array: Block) -> None:
        self.array = array

    @property
    def count(self) -> int:
        return len(self.array)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        return self.array.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def blocks(self, rows: int) -> Iterator[Block]:
        for start in range(0, len(self.array), rows):
            yield self.array[start : start + rows]


def regroup(blocks: Iterable[Block], rows: int) -> Iterator[Block]:
    """Blocks of any lengths as blocks of exactly `rows` (the last may be shorter); memory for two of them."""
    held: list[Block] = []
    have = 0
    for block in blocks:
        while len(block):
            part, block = block[: rows - have], block[rows - have :]
            held.append(part)
            have += len(part)
            if have == rows:
                yield held[0] if len(held) == 1 else np.concatenate(held)
                held, have = [], 0
    if held:
        yield held[0] if len(held) == 1 else np.concatenate(held)


def pieces(frames: Block) -> Iterator[Block]:
    """Frames in parts of a few megabytes, which are checked and read one by one."""
    rows = max(1, _PIECE_BYTES // max(1, frames[:1].nbytes))
    for start in range(0, len(frames), rows):
        yield frames[start : start + rows]


def checksum(block: Block) -> int:
    """32 bits over the bytes of a block, quick enough for all pixels of a folder; HDF5 adds its own."""
    return zlib.crc32(block.data) if block.size else 0
