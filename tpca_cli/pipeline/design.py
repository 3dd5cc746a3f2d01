"""Which basis for a group: method and framing by the smallest cost on a sample, then the fit on all images.

The sample is fixed by the list of images: at most 256 of them, evenly spaced, large ones cut to a band. For
each candidate a basis is fitted to the sample and the sample is coded at the step in question; what counts is
bits, extrapolated to the whole group, plus the basis, plus the error at the exchange rate of the quantiser.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.bases import Basis, OperatorBasis, Rank1Basis
from tpca_cli.cluster import Cluster
from tpca_cli.codec.coder import Coder
from tpca_cli.eigen import solve_dense
from tpca_cli.errors import ImageRefused, StorageError, UsageError
from tpca_cli.fixed import FixedBasis
from tpca_cli.framing import Framing
from tpca_cli.operators import ModeOperators, TensorOperator
from tpca_cli.parallel import ordered_map
from tpca_cli.pipeline.abroad import anchored, as_given, errors_as_given, meter, shards_of
from tpca_cli.pipeline.shards import add_state, add_states, state_of
from tpca_cli.pipeline.survey import Kind, Member, Progress, Reading, read_member, refusal
from tpca_cli.scan import Skipped

Pixels = npt.NDArray[Any]

SAMPLE_IMAGES = 256
SAMPLE_PIXELS = 2**20
TILES = (8, 16)
MAX_WHOLE = 2**14  # samples of a whole frame that `auto` considers
EXCHANGE = 0.15  # squared error per bit, in squared steps: the slope of a uniform quantiser at these rates
MAX_DENSE = 2**12  # samples of a frame whose dense operator is solved within `encode`


@dataclass(frozen=True)
class Design:
    """How a group is going to be coded."""

    method: str
    framing: Framing


def take_sample(
    members: Sequence[Member], kind: Kind, reading: Reading, *, bands: bool = True
) -> tuple[list[Pixels], bool]:
    """Pixels of evenly spaced images, and whether they are all there is, uncut.

    Large images give a band each; without `bands`, for frames that are whole images, fewer images are taken.
    """
    count = min(len(members), SAMPLE_IMAGES)
    if not bands:
        largest = max(member.height * member.width for member in members)
        count = min(count, max(1, SAMPLE_PIXELS // largest))
    chosen = [members[len(members) * k // count] for k in range(count)]
    share = max(SAMPLE_PIXELS // max(count, 1), 4096)
    pictures = []
    whole = count == len(members)

    def read(member: Member) -> Pixels | None:
        try:
            return read_member(member, kind.channels, reading).pixels
        except (ImageRefused, StorageError):
            return None  # the pass over all images reports it

    for pixels in ordered_map(read, chosen, reading.workers):
        if pixels is None:
            whole = False
            continue
        rows = max(64, share // pixels.shape[1] // 64 * 64)
        if bands and pixels.shape[0] > rows and sum(m.height * m.width for m in chosen) > SAMPLE_PIXELS:
            start = (pixels.shape[0] - rows) // 128 * 64  # a band from the middle
            pixels = pixels[start : start + rows]
            whole = False
        pictures.append(pixels)
    return pictures, whole


def candidates(
    members: Sequence[Member], kind: Kind, method: str, tile: int | None, sampled_whole: bool
) -> list[Design]:
    """What is worth trying, cheapest basis first."""
    tiles = [Framing("tile", size, size, kind.channels) for size in ((tile,) if tile else TILES)]
    shapes = {(member.height, member.width) for member in members}
    if method == "operator":
        return [Design("operator", framing) for framing in tiles[:1]]
    designs = [Design("rank1", framing) for framing in tiles]
    if method == "auto" and not tile and len(shapes) == 1 and sampled_whole:
        h, w = next(iter(shapes))
        if h * w * kind.channels <= MAX_WHOLE:
            designs.append(Design("rank1", Framing("whole", h, w, kind.channels)))
    if method == "auto" and sum(m.height * m.width for m in members) > 2**22:
        designs.append(Design("operator", tiles[0]))
    return designs


def choose(
    designs: Sequence[Design], sample: Sequence[Pixels], kind: Kind, step: float, scale: float
) -> Design:
    """The design with the smallest cost; `scale` is pixels of the group per pixel of the sample."""
    if len(designs) == 1 or not sample:
        return designs[0]
    costs = []
    for design in designs:
        basis = fixed(_sample_basis(design, sample, kind), kind)
        coder = Coder.train(list(sample), design.framing, basis, step)
        measured = coder.encode(list(sample))
        stored = sum(array.nbytes for array in coder.to_arrays().values())
        error_bits = float(measured.sse.sum()) / (EXCHANGE * step * step)
        costs.append((measured.bits + error_bits) * scale + 8 * stored)
    return designs[int(np.argmin(costs))]


def _sample_basis(design: Design, sample: Sequence[Pixels], kind: Kind) -> Basis:
    operator = _operator(design, kind)
    for pixels in sample:
        operator.add(design.framing.split(pixels))
    return _solved(design, operator)


def _operator(design: Design, kind: Kind) -> ModeOperators | TensorOperator:
    shape = design.framing.frame_shape
    if design.method == "rank1":
        return ModeOperators(shape)
    if np.prod(shape) > MAX_DENSE:
        raise UsageError(
            f"a dense basis of {shape[0]}x{shape[1]} tiles is too large to fit on the way: "
            "use `tpca fit-basis`, then `tpca encode --basis`"
        )
    return TensorOperator(shape, kind.dtype)


def _solved(design: Design, operator: ModeOperators | TensorOperator) -> Basis:
    if isinstance(operator, ModeOperators):
        return Rank1Basis.from_operators(operator)
    pairs = solve_dense(operator.matrix())
    return OperatorBasis(design.framing.frame_shape, pairs.vectors, pairs.values, float(operator.trace))


def fit(
    design: Design, members: Sequence[Member], kind: Kind, reading: Reading, progress: Progress = None
) -> tuple[Basis, list[Member], list[Skipped]]:
    """The basis of all images of a group; images that cannot be read drop out here."""
    if reading.cluster is not None:
        return _fit_on(reading.cluster, design, members, kind, reading, progress)
    total = _operator(design, kind)
    lock = threading.Lock()

    def add(member: Member) -> Skipped | None:
        try:
            pixels = read_member(member, kind.channels, reading).pixels
        except (ImageRefused, StorageError) as error:
            return refusal(member.ref, error, reading)
        frames = design.framing.split(pixels)
        with lock:  # sums of integers: the order does not matter
            total.add(frames)
        return None

    kept: list[Member] = []
    skipped: list[Skipped] = []
    for done, (member, problem) in enumerate(
        zip(members, ordered_map(add, members, reading.workers), strict=True), 1
    ):
        if problem is None:
            kept.append(member)
        else:
            skipped.append(problem)
        if progress and (done % 32 == 0 or done == len(members)):
            progress("fitting the basis", done, len(members))
    return _solved(design, total), kept, skipped


@dataclass(frozen=True)
class Part:
    """Some images of a group on a worker, or what they came to."""

    first: int
    members: tuple[Member, ...] = ()
    state: tuple[Any, ...] = ()
    skipped: tuple[tuple[int, Skipped], ...] = ()


def fit_part(part: Part, design: Design, kind: Kind, reading: Reading) -> Part:
    """The operator of some images, and which of them could not be read."""
    total = _operator(design, kind)
    skipped = []
    for position, member in enumerate(part.members, part.first):
        try:
            total.add(design.framing.split(read_member(member, kind.channels, reading).pixels))
        except (ImageRefused, StorageError) as error:
            skipped.append((position, refusal(member.ref, error, reading)))
    return Part(part.first, (), state_of(total), tuple(skipped))


def add_parts(one: Part, other: Part) -> Part:
    """Two neighboring parts as one."""
    return Part(one.first, (), add_states(one.state, other.state), one.skipped + other.skipped)


def _fit_on(
    cluster: Cluster,
    design: Design,
    members: Sequence[Member],
    kind: Kind,
    reading: Reading,
    progress: Progress,
) -> tuple[Basis, list[Member], list[Skipped]]:
    total = _operator(design, kind)
    counts = [design.framing.count(member.height, member.width) for member in members]
    shards = shards_of(counts, design.framing.frame_shape, kind.dtype, cluster.threads, design.method)
    parts = (
        Part(shard.start, tuple(replace(m, ref=anchored(m.ref)) for m in members[shard])) for shard in shards
    )
    with errors_as_given([member.ref for member in members[:1]]):
        result = cluster.reduce(
            fit_part,
            add_parts,
            parts,
            design,
            kind,
            reading.on_worker,
            weigh=lambda part: len(part.members),
            done=meter(progress, "fitting the basis", len(members)),
        )
    add_state(total, result.state)
    lost = {i: Skipped(members[i].ref.path, as_given(members[i].ref, s.reason)) for i, s in result.skipped}
    return _solved(design, total), [m for i, m in enumerate(members) if i not in lost], list(lost.values())


def fixed(basis: Basis, kind: Kind) -> FixedBasis:
    """The integer form in which a basis codes images."""
    dtype = np.dtype(kind.dtype)
    if isinstance(basis, Rank1Basis) and basis.rotation is None:
        return FixedBasis.from_modes(basis.modes, basis.indices, dtype=dtype, mean=basis.mean)
    if isinstance(basis, Rank1Basis):
        unit = basis.reconstruct(np.eye(basis.components))  # (M, *shape)
        matrix = unit.reshape(basis.components, -1).T
        if basis.mean is not None:
            matrix = matrix - basis.mean.reshape(-1, 1)
        return FixedBasis.from_dense(matrix, basis.frame_shape, dtype=dtype, mean=basis.mean)
    return FixedBasis.from_dense(basis.matrix, basis.frame_shape, dtype=dtype, mean=basis.mean)
