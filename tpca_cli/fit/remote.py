"""Frames that the workers of a cluster read: each pass over them is a sum over shards, computed there.

Operators are sums of integers, so that shards for them may be cut as the cluster likes. Passes that add
floats keep to the runs of `operators.fold`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.cluster.cluster import Cluster
from tpca_cli.cluster.paths import anchored, as_given, meter, probes, shards_of
from tpca_cli.errors import ImageRefused, StorageError, TpcaError
from tpca_cli.frames.arrays import SourceFrames, regroup
from tpca_cli.images import Header
from tpca_cli.interfaces import Block, Frames, Progress
from tpca_cli.sources.probe import probe_headers
from tpca_cli.sources.read import read_batches
from tpca_cli.sources.read_plan import ReadPlan, after_resize
from tpca_cli.sources.scan import ImageRef
from tpca_cli.sources.transfer import (
    Packed,
    ReadImage,
    Refusal,
    pack_headers,
    pack_images,
    pack_numbers,
    pack_refs,
    unpack_headers,
    unpack_images,
    unpack_numbers,
    unpack_refs,
)
from tpca_cli.tensor_pca.algorithm2 import ModeOperators
from tpca_cli.tensor_pca.algorithm3 import cross, gram_of_products
from tpca_cli.tensor_pca.fold import FAN, run_length
from tpca_cli.tensor_pca.solve import Operator, add_state, add_states, new_operator, state_of

ChosenImages = Sequence[tuple[int, Header]]

SMALL_OPERATOR = 1 << 10  # values of a frame up to which eight of its operators are little to hold
HELD = 0.4  # of the workers' memory may be filled with frames


class RemoteReader:
    """The workers of a cluster as `tensors.stage` sees them.

    `decide` names the method whose operator is worth adding up while the files are read, or None; the sum
    then goes with the frames.
    """

    def __init__(self, cluster: Cluster, decide: Callable[[int, ReadPlan], str | None]) -> None:
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
        chosen: ChosenImages,
        recipe: ReadPlan,
        fail: bool,
        progress: Progress | None,
    ) -> tuple[Sequence[ReadImage], Sequence[Refusal]]:
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
                together=8
                if method != "operator" or prod(recipe.framing.frame_shape) <= SMALL_OPERATOR
                else 2,
            )
        except Refused as refused:
            index, error = refused.args
            return [], [_as_given(refs, index, error)]
        if method is not None:
            self._counted = method, counted.state
        return counted.taken, [_as_given(refs, each.index, each.error) for each in counted.refused]

    def frames(self, refs: Sequence[ImageRef], taken: Sequence[ReadImage], recipe: ReadPlan) -> Frames:
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
        chosen: ChosenImages,
        recipe: ReadPlan,
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

    def only(self, keep: npt.NDArray[np.bool_], counts: Sequence[int]) -> RemoteFrames:
        """The frames of some of the files, whose headers say how many each has."""
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
        """The sum over all runs, as `tensor_pca.fold` has it; BLAS rounds as it does here."""
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
            blas=1,
            fan=FAN,
        )

    def gram(self, rows: int | None = None) -> npt.NDArray[np.int64]:
        """All inner products of the frames, (N, N), from products of every two runs."""
        items = self._items()
        both = [[one, other] for i, one in enumerate(items) for other in items[: i + 1]]
        return gram_of_products(self.count, self._cluster.map(pair_runs, both, cross))

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


def _shard(refs: Sequence[ImageRef], chosen: ChosenImages, recipe: ReadPlan, fail: bool) -> Shard:
    return Shard(tuple(anchored(refs[index]) for index, _ in chosen), tuple(chosen), recipe, fail)


def _counts(chosen: ChosenImages, recipe: ReadPlan) -> list[int]:
    """The frames of each file; most share the object of their header."""
    known: dict[int, int] = {}
    for header in {id(header): header for _, header in chosen}.values():
        after = after_resize(header, recipe.size)
        known[id(header)] = recipe.framing.count(after.height, after.width)
    return [known[id(header)] for _, header in chosen]


def _as_given(refs: Sequence[ImageRef], index: int, error: ImageRefused | StorageError) -> Refusal:
    error.args = (as_given(refs[index], str(error)), *error.args[1:])
    return Refusal(index, error)


ROWS = 1024  # frames that an operator is given at a time: an L x L one wants many
ROWS_BYTES = 1 << 25


@dataclass(frozen=True)
class Shard:
    """Some files to read, with the numbers that they have in the whole list."""

    refs: tuple[ImageRef, ...]
    chosen: tuple[tuple[int, Header], ...]
    recipe: ReadPlan
    fail: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        numbers, headers = [index for index, _ in self.chosen], [header for _, header in self.chosen]
        return _unpacked_shard, (
            pack_refs(self.refs),
            pack_numbers(numbers),
            pack_headers(headers),
            self.recipe,
            self.fail,
        )

    def source(self) -> SourceFrames:
        """The frames of these files, decoded as they are asked for."""
        local = [(number, header) for number, (_, header) in enumerate(self.chosen)]
        return SourceFrames(self.refs, local, self.recipe, 1, 0)


def _unpacked_shard(refs: Packed, numbers: bytes, headers: Packed, recipe: ReadPlan, fail: bool) -> Shard:
    chosen = zip(unpack_numbers(numbers), unpack_headers(*headers), strict=True)
    return Shard(tuple(unpack_refs(*refs)), tuple(chosen), recipe, fail)


@dataclass(frozen=True)
class Counted:
    """What shards came to: the state of their operator (nothing if none was asked for), and their files.

    Those that were read stay packed, shard by shard, on their way through the sums.
    """

    state: tuple[Any, ...]
    packed: tuple[Packed, ...]
    refused: tuple[Refusal, ...]

    @property
    def taken(self) -> list[ReadImage]:
        """The images that were counted, of all shards, in order."""
        return [each for packed in self.packed for each in unpack_images(*packed)]


@dataclass(frozen=True)
class Run:
    """A run of frames: those of some files, without the first `skip`."""

    at: int
    count: int
    skip: int
    shard: Shard


class Refused(TpcaError):
    """A file that ends the run, by its number in the list."""


def count_shard(shard: Shard, method: str | None) -> Counted:
    """Read a shard and add its frames to an operator of its own."""
    shape, dtype = shard.recipe.framing.frame_shape, np.dtype(shard.recipe.dtype)
    operator = None if method is None else new_operator(method, shape, dtype)
    taken: list[ReadImage] = []
    refused: list[Refusal] = []

    def frames() -> Iterator[Block]:
        local = [(number, header) for number, (_, header) in enumerate(shard.chosen)]
        for batch in read_batches(shard.refs, local, shard.recipe, 1):
            for each in batch.refused:
                index = shard.chosen[each.index][0]
                if shard.fail:
                    raise Refused(index, each.error)
                refused.append(Refusal(index, each.error))
            taken.extend(each._replace(number=shard.chosen[each.number][0]) for each in batch.taken)
            yield batch.frames

    for block in regroup(frames(), max(64, min(ROWS, ROWS_BYTES // prod(shape)))):
        if operator is not None:
            operator.add(block)
    return Counted(() if operator is None else state_of(operator), (pack_images(taken),), tuple(refused))


def add_counted(one: Counted, other: Counted) -> Counted:
    """Two neighboring shards as one."""
    return Counted(add_states(one.state, other.state), one.packed + other.packed, one.refused + other.refused)


def load_run(run: Run) -> tuple[int, Block]:
    """The frames of a run, with the number of the first."""
    parts, have = [], 0
    for block in run.shard.source().blocks(1 << 10):
        parts.append(block)
        have += len(block)
    frames = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return run.at, frames[run.skip : run.skip + run.count]


def fold_run(run: Run | tuple[int, Block], part: Callable[..., Any], *given: Any) -> Any:
    """The part of a sum that a run has; its frames are here already, or are read now."""
    at, frames = load_run(run) if isinstance(run, Run) else run
    return part(at, frames, *given)


def pair_runs(pair: Sequence[Run | tuple[int, Block]], function: Callable[..., Block]) -> tuple[Any, ...]:
    """A product of two runs and where it belongs."""
    (at, one), (then, other) = (load_run(run) if isinstance(run, Run) else run for run in pair)
    return at, then, function(one, other)


@dataclass(frozen=True)
class Unread:
    """Some files of which only the headers are wanted."""

    refs: tuple[ImageRef, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _unread, pack_refs(self.refs)


def _unread(*refs: Any) -> Unread:
    return Unread(tuple(unpack_refs(*refs)))


def probe_shard(shard: Unread, max_pixels: int) -> tuple[Packed, list[Refusal]]:
    """The headers of some files, packed, and the refusals by their number among these."""
    results = list(probe_headers(shard.refs, max_pixels, 1))
    refused = [result for result in results if isinstance(result, Refusal)]
    return pack_headers([result for result in results if not isinstance(result, Refusal)]), refused
