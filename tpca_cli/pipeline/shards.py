"""What a worker of a cluster is handed and what it hands back in a fit: pure functions over plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.basisfile import Operator
from tpca_cli.errors import TpcaError
from tpca_cli.images import Header
from tpca_cli.operators import ModeOperators, TensorOperator, add
from tpca_cli.pipeline.solving import new_operator
from tpca_cli.scan import ImageRef
from tpca_cli.tensors.choice import Recipe
from tpca_cli.tensors.frames import regroup
from tpca_cli.tensors.intake import SourceFrames, probe_all, read_batches
from tpca_cli.tensors.parcel import (
    Packed,
    pack_headers,
    pack_numbers,
    pack_refs,
    unpack_headers,
    unpack_numbers,
    unpack_refs,
)
from tpca_cli.tensors.taken import Refusal, Taken, pack_taken, unpack_taken

Block = npt.NDArray[Any]

ROWS = 1024  # frames that an operator is given at a time: an L x L one wants many
ROWS_BYTES = 1 << 25
NARROW = 2**31 // 255**2  # frames of bytes whose products add up to less than 2^31: half the bytes to move


@dataclass(frozen=True)
class Shard:
    """Some files to read, with the numbers that they have in the whole list."""

    refs: tuple[ImageRef, ...]
    chosen: tuple[tuple[int, Header], ...]
    recipe: Recipe
    fail: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        numbers, headers = [index for index, _ in self.chosen], [header for _, header in self.chosen]
        return _shard, (
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


def _shard(refs: Packed, numbers: bytes, headers: Packed, recipe: Recipe, fail: bool) -> Shard:
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
    def taken(self) -> list[Taken]:
        return [each for packed in self.packed for each in unpack_taken(*packed)]


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
    taken: list[Taken] = []
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
    return Counted(() if operator is None else state_of(operator), (pack_taken(taken),), tuple(refused))


def add_counted(one: Counted, other: Counted) -> Counted:
    """Two neighboring shards as one."""
    return Counted(add_states(one.state, other.state), one.packed + other.packed, one.refused + other.refused)


def state_of(operator: Operator) -> tuple[Any, ...]:
    """What adds up, entry by entry."""
    if isinstance(operator, ModeOperators):
        return operator.n, operator.sums, *operator.matrices
    dtype = np.int32 if operator.dtype.itemsize == 1 and operator.n < NARROW else np.int64
    return operator.n, operator.sums, operator.packed(dtype=dtype)


def add_states(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """Two states as one; what might no longer fit into 32 bits gets 64."""
    if one and one[0] + other[0] >= NARROW:
        one = tuple(value.astype(np.int64) if isinstance(value, np.ndarray) else value for value in one)
    return add(one, other)


def add_state(operator: Operator, state: tuple[Any, ...]) -> None:
    """Add what `state_of` gave to an operator of the same kind."""
    n, sums, *rest = state
    if isinstance(operator, TensorOperator):
        operator.count(n, sums)
        operator.add_packed(rest[0])
        return
    arrays = {f"modes/{k}": matrix for k, matrix in enumerate(rest)}
    operator.merge(ModeOperators.from_arrays({"n": np.array([n]), "sums": sums, **arrays}))


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
    results = list(probe_all(shard.refs, max_pixels, 1))
    refused = [result for result in results if isinstance(result, Refusal)]
    return pack_headers([result for result in results if not isinstance(result, Refusal)]), refused
