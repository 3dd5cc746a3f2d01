"""Frames that the workers of a cluster read: each pass over them is a sum over shards, computed there.

Operators are sums of integers, so that shards for them may be cut as the cluster likes. Passes that add
floats keep to the runs of `operators.fold`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.basisfile import Operator
from tpca_cli.cluster import Cluster
from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.images import Header
from tpca_cli.operators import FAN, Frames, ModeOperators, run_length
from tpca_cli.pipeline.abroad import Progress, anchored, as_given, meter, probes, shards_of
from tpca_cli.pipeline.shards import (
    Block,
    Refused,
    Run,
    Shard,
    Unread,
    add_counted,
    add_state,
    count_shard,
    fold_run,
    load_run,
    pair_runs,
    probe_shard,
)
from tpca_cli.scan import ImageRef
from tpca_cli.tensors.choice import Recipe, framed
from tpca_cli.tensors.frames import regroup
from tpca_cli.tensors.parcel import unpack_headers
from tpca_cli.tensors.taken import Refusal, Taken

Chosen = Sequence[tuple[int, Header]]

SMALL = 1 << 10  # values of a frame up to which eight of its operators are little to hold
HELD = 0.4  # of the workers' memory may be filled with frames


class RemoteReader:
    """The workers of a cluster as `tensors.stage` sees them.

    `decide` names the method whose operator is worth adding up while the files are read, or None; the sum
    then goes with the frames.
    """

    def __init__(self, cluster: Cluster, decide: Callable[[int, Recipe], str | None]) -> None:
        self._cluster = cluster
        self._decide = decide
        self._counted: tuple[str, tuple[Any, ...]] | None = None

    def probe(self, refs: Sequence[ImageRef], max_pixels: int) -> Iterator[Header | Refusal]:
        """The header of every file, in order."""
        self._look_at(refs)
        size = probes(len(refs), self._cluster.threads)
        starts = range(0, len(refs), size)
        shards = (Unread(tuple(map(anchored, refs[start : start + size]))) for start in starts)
        for start, found in zip(starts, self._cluster.map(probe_shard, shards, max_pixels), strict=True):
            headers, refused = iter(unpack_headers(*found[0])), {each.index: each.error for each in found[1]}
            for index in range(min(size, len(refs) - start)):
                error = refused.get(index)
                yield next(headers) if error is None else _as_given(refs, start + index, error)

    def read(
        self,
        refs: Sequence[ImageRef],
        chosen: Chosen,
        recipe: Recipe,
        fail: bool,
        progress: Progress | None,
    ) -> tuple[Sequence[Taken], Sequence[Refusal]]:
        """Decode all files once, adding up an operator on the way where one is wanted."""
        self._look_at(refs)
        self._counted = None
        counts = _counts(chosen, recipe)
        method = self._decide(sum(counts), recipe)
        cuts = shards_of(counts, recipe.framing.frame_shape, recipe.dtype, self._cluster.threads, method)
        shards = (_shard(refs, chosen[cut], recipe, fail) for cut in cuts)
        try:
            counted = self._cluster.reduce(
                count_shard,
                add_counted,
                shards,
                method,
                weigh=lambda shard: len(shard.chosen),
                done=meter(progress, "read images", len(chosen)),
                together=8 if method != "operator" or prod(recipe.framing.frame_shape) <= SMALL else 2,
            )
        except Refused as refused:
            index, error = refused.args
            return [], [_as_given(refs, index, error)]
        if method is not None:
            self._counted = method, counted.state
        return counted.taken, [_as_given(refs, each.index, each.error) for each in counted.refused]

    def frames(self, refs: Sequence[ImageRef], taken: Sequence[Taken], recipe: Recipe) -> Frames:
        """The frames of the files that were read."""
        chosen = [(each.number, each.header) for each in taken]
        return RemoteFrames(self._cluster, refs, chosen, recipe, self._counted)

    def _look_at(self, refs: Sequence[ImageRef]) -> None:
        if refs:
            self._cluster.check_sees(anchored(refs[0]).path, refs[0].size)


class RemoteFrames:
    """Frames that stay with the workers, or are decoded by them again for each pass if they are too many."""

    def __init__(
        self,
        cluster: Cluster,
        refs: Sequence[ImageRef],
        chosen: Chosen,
        recipe: Recipe,
        counted: tuple[str, tuple[Any, ...]] | None = None,
    ) -> None:
        counts = _counts(chosen, recipe)
        self._cluster, self._refs, self._chosen, self._recipe = cluster, refs, chosen, recipe
        self._starts = np.array([0, *accumulate(counts)])  # frames before each file, and all
        self._counted = counted
        self._held: list[Any] | None = None
        self.count = int(self._starts[-1])
        self.frame_shape: tuple[int, ...] = recipe.framing.frame_shape
        self.dtype: np.dtype[Any] = np.dtype(recipe.dtype)

    def only(self, keep: npt.NDArray[np.bool_]) -> RemoteFrames:
        """The frames of some of the files."""
        chosen = [item for item, kept in zip(self._chosen, keep, strict=True) if kept]
        return RemoteFrames(self._cluster, self._refs, chosen, self._recipe)

    def blocks(self, rows: int) -> Iterator[Block]:
        """All frames in order, brought here; for those who cannot work where they are."""
        return regroup((frames for _, frames in self._cluster.map(load_run, self._runs())), rows)

    def add_to(self, operator: Operator, progress: Progress | None = None) -> None:
        """Add all frames to an operator; they are counted already if it is the one that was foreseen."""
        method = "rank1" if isinstance(operator, ModeOperators) else "operator"
        if self._counted is None or self._counted[0] != method:
            again = RemoteReader(self._cluster, lambda frames, recipe: method)
            _, refused = again.read(self._refs, self._chosen, self._recipe, True, progress)
            for each in refused:  # it could be read before: the result would not be of one folder
                raise each.error
            self._counted = again._counted
        assert self._counted is not None
        add_state(operator, self._counted[1])
        self._counted = None

    def fold(
        self,
        part: Callable[..., Any],
        combine: Callable[[Any, Any], Any],
        *given: Any,
        stage: str = "",
        progress: Progress | None = None,
    ) -> Any:
        """The sum over all runs, as `operators.fold` has it; BLAS rounds as it does here."""
        items = self._items()
        step = self.count / len(items)
        return self._cluster.reduce(
            fold_run,
            combine,
            items,
            part,
            *(None if value is None else self._cluster.share(value) for value in given),
            weigh=lambda _: step,
            done=meter(progress, stage, self.count),
            blas=os.cpu_count() or 1,
            fan=FAN,
        )

    def pairs(self, function: Callable[..., Block]) -> Iterator[Any]:
        """A function of every two runs, the later one first."""
        items = self._items()
        both = [[one, other] for i, one in enumerate(items) for other in items[: i + 1]]
        return self._cluster.map(pair_runs, both, function)

    def _items(self) -> list[Any]:
        if self._held is None:
            runs = list(self._runs())
            fits = self.count * prod(self.frame_shape) * self.dtype.itemsize <= HELD * self._cluster.memory
            self._held = self._cluster.hold(load_run, runs) if fits else list(runs)
        return self._held

    def _runs(self) -> Iterator[Run]:
        length = run_length(self.frame_shape)
        for at in range(0, self.count, length):
            stop = min(at + length, self.count)
            first = int(np.searchsorted(self._starts, at, "right")) - 1
            last = int(np.searchsorted(self._starts, stop, "left"))
            shard = _shard(self._refs, self._chosen[first:last], self._recipe, True)
            yield Run(at, stop - at, at - int(self._starts[first]), shard)


def _shard(refs: Sequence[ImageRef], chosen: Chosen, recipe: Recipe, fail: bool) -> Shard:
    return Shard(tuple(anchored(refs[index]) for index, _ in chosen), tuple(chosen), recipe, fail)


def _counts(chosen: Chosen, recipe: Recipe) -> list[int]:
    """The frames of each file; most share the object of their header."""
    known: dict[int, int] = {}
    for header in {id(header): header for _, header in chosen}.values():
        after = framed(header, recipe.size)
        known[id(header)] = recipe.framing.count(after.height, after.width)
    return [known[id(header)] for _, header in chosen]


def _as_given(refs: Sequence[ImageRef], index: int, error: ImageRefused | StorageError) -> Refusal:
    error.args = (as_given(refs[index], str(error)), *error.args[1:])
    return Refusal(index, error)
