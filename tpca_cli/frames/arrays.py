"""What the numerics see of a set of images: a shape, a type and blocks of frames in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.images import Header
from tpca_cli.interfaces import Block, Frames, Progress
from tpca_cli.sources.read import read_batches
from tpca_cli.sources.read_plan import ReadPlan, failure
from tpca_cli.sources.scan import ImageRef
from tpca_cli.tensor_pca.algorithm3 import gram_of_blocks
from tpca_cli.tensor_pca.fold import fold_runs

BLOCK_VALUES = 1 << 24  # pixels handed to an operator at a time


class LocalFrames:
    """Frames that this process reads: passes over them are made here, block by block."""

    count: int
    frame_shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def blocks(self, rows: int) -> Iterator[Block]:
        """All frames in order, in blocks of `rows`."""
        raise NotImplementedError

    def only(self, keep: npt.NDArray[np.bool_], counts: Sequence[int]) -> Frames:
        """The frames of some of the images; `counts` are the frames of each."""
        return ChosenFrames(self, np.repeat(keep, counts))

    def add_to(self, operator: Any, progress: Progress | None = None) -> None:
        """Add all frames to an operator."""
        done = 0
        for block in self.blocks(max(1, min(8192, BLOCK_VALUES // prod(self.frame_shape)))):
            operator.add(block)
            done += len(block)
            if progress is not None:
                progress("operator", done, self.count)

    def fold(
        self,
        part: Callable[..., Any],
        combine: Callable[[Any, Any], Any],
        *given: Any,
        stage: str = "",
        progress: Progress | None = None,
    ) -> Any:
        """The sum of `part(at, run, *given)` over runs of frames."""
        return fold_runs(self, part, combine, *given, stage=stage, progress=progress)

    def gram(self, rows: int | None = None) -> npt.NDArray[np.int64]:
        """All inner products of the frames, (N, N)."""
        return gram_of_blocks(self, rows)


class ArrayFrames(LocalFrames):
    """Frames that are in memory; blocks are views, not to be written to."""

    def __init__(self, array: Block) -> None:
        self.array = array
        self.count = len(array)
        self.frame_shape = array.shape[1:]
        self.dtype = array.dtype

    def blocks(self, rows: int) -> Iterator[Block]:
        """The frames in blocks of at most `rows`."""
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
                held = held if len(held) == 1 else [np.concatenate(held)]
                have = 0
                yield held.pop()
    if held:
        yield held[0] if len(held) == 1 else np.concatenate(held)


class SourceFrames(LocalFrames):
    """Frames that are decoded from the files again in every pass."""

    def __init__(
        self,
        refs: Sequence[ImageRef],
        chosen: Sequence[tuple[int, Header]],
        recipe: ReadPlan,
        workers: int,
        count: int,
    ) -> None:
        self._refs = refs
        self._chosen = chosen
        self._recipe = recipe
        self._workers = workers
        self.count = count
        self.frame_shape = recipe.framing.frame_shape
        self.dtype = np.dtype(recipe.dtype)

    def blocks(self, rows: int) -> Iterator[Block]:
        """The frames in blocks of at most `rows`, decoded anew from the source files."""
        return regroup(self._decoded(), rows)

    def _decoded(self) -> Iterator[Block]:
        for batch in read_batches(self._refs, self._chosen, self._recipe, self._workers):
            for refusal in batch.refused:  # it could be read before: the result would not be of one folder
                raise failure(self._refs[refusal.index].path, refusal.error)
            yield np.array(batch.frames)


class ChosenFrames(LocalFrames):
    """Some frames of others, by a mask over all of them."""

    def __init__(self, frames: Frames, mask: npt.NDArray[np.bool_]) -> None:
        self._frames = frames
        self._mask = mask
        self.count = int(mask.sum())
        self.frame_shape = frames.frame_shape
        self.dtype = np.dtype(frames.dtype)

    def blocks(self, rows: int) -> Iterator[Block]:
        """The chosen frames in order."""
        at = 0
        for block in self._frames.blocks(rows):
            chosen = block[self._mask[at : at + len(block)]]
            at += len(block)
            if len(chosen):
                yield chosen
