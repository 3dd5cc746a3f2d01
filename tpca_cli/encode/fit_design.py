"""Bases of the designs that `encode` considers: of a sample, of tiles from all over, of all images."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from tpca_cli.errors import ImageRefused, StorageError, UsageError
from tpca_cli.framing import TILE, Framing
from tpca_cli.interfaces import Pixels, Progress
from tpca_cli.parallel import ordered_map
from tpca_cli.sources.probe import Kind, Member, nothing_usable
from tpca_cli.sources.read import read_member
from tpca_cli.sources.read_plan import Reading, skip_or_fail
from tpca_cli.sources.scan import NOTHING_IGNORED, Skipped
from tpca_cli.tensor_pca.algorithm1 import TensorOperator
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, solve_modes
from tpca_cli.tensor_pca.basis import OperatorBasis, TensorBasis
from tpca_cli.tensor_pca.eigen import solve_dense

BASIS_IMAGES, BASIS_PIXELS = 1024, 2**22  # that the basis of a large group is fitted to
MAX_DENSE = 2**12  # samples of a frame whose dense operator is solved within `encode`
TILES_HELD = 2**14  # of an image of which only some are wanted

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Design:
    """How a group is going to be coded."""

    method: str
    framing: Framing
    lapped: bool | None = None  # whether that saves bytes, where it is known


def sample_basis(design: Design, sample: Sequence[Pixels], kind: Kind) -> TensorBasis:
    """The basis of a design that suits the pictures of a sample."""
    operator = design_operator(design, kind)
    for pixels in sample:
        operator.add(design.framing.split(pixels))
    return solve_design(design, operator)


def spread_basis(
    design: Design, members: Sequence[Member], kind: Kind, reading: Reading
) -> tuple[TensorBasis, list[Pixels]]:
    """The basis of tiles at even distances in images at even distances, and the tiles."""
    chosen = members[:: -(-len(members) // BASIS_IMAGES)]
    apart = -(-sum(member.height * member.width for member in chosen) // BASIS_PIXELS) | 1  # odd: all columns

    def tiles(numbered: tuple[int, Member]) -> Pixels | None:
        try:
            pixels = read_member(numbered[1], kind.channels, reading).pixels
        except (ImageRefused, StorageError):
            return None  # the pass over all images reports it
        return every_tile(design.framing, pixels, numbered[0] % apart, apart)

    operator, held = design_operator(design, kind), []
    for frames in read_side_by_side(tiles, enumerate(chosen), reading, lambda numbered: numbered[1]):
        if frames is not None:
            operator.add(frames)
            held.append(frames)
    return solve_design(design, operator), held


def every_tile(framing: Framing, pixels: Pixels, first: int, apart: int) -> Pixels:
    """Each `apart`-th tile of an image from the first on, (tiles, T, T, c); not all of them are held."""
    if framing.kind != TILE:
        return np.ascontiguousarray(framing.split(pixels)[first::apart])
    rows = max(1, TILES_HELD // max(framing.grid(*pixels.shape[:2])[1], 1)) * framing.height
    found = []
    # the last part has a whole row of tiles at least, as mirroring below it needs
    cuts = [0, *range(rows, pixels.shape[0] - framing.height, rows), pixels.shape[0]]
    for top, bottom in itertools.pairwise(cuts):
        frames = framing.split(pixels[top:bottom])  # (tiles, T, T, c)
        found.append(frames[first::apart].copy())
        first = (first - len(frames)) % apart
    return np.concatenate(found)


def read_side_by_side(
    work: Callable[[Item], Result], items: Iterable[Item], reading: Reading, member: Callable[[Item], Member]
) -> Iterator[Result]:
    """Results in order of work that reads one image each, no more of them at once than the memory allows."""
    room = reading.room
    return ordered_map(
        work, items, reading.workers, weight=lambda item: member(item).weight, budget=room.size
    )


def design_operator(design: Design, kind: Kind) -> ModeOperators | TensorOperator:
    """An empty operator for the method of a design."""
    shape = design.framing.frame_shape
    if design.method == "rank1":
        return ModeOperators(shape)
    if np.prod(shape) > MAX_DENSE:
        raise UsageError(
            f"a dense basis of {shape[0]}x{shape[1]} tiles is too large to fit on the way: "
            "use `tpca fit-basis`, then `tpca encode --basis`"
        )
    return TensorOperator(shape, kind.dtype)


def solve_design(design: Design, operator: ModeOperators | TensorOperator) -> TensorBasis:
    """The basis of an accumulated operator, by the method of the design.

    A tile could as well lie the other way round: for rank-1 tiles each counts once more, turned by half a
    circle.
    """
    if isinstance(operator, ModeOperators):
        return solve_modes(operator.with_turned() if design.framing.kind == TILE else operator)
    pairs = solve_dense(operator.matrix())
    return OperatorBasis(design.framing.frame_shape, pairs.vectors, pairs.values, float(operator.trace))


def fit_spanned(
    design: Design, members: Sequence[Member], kind: Kind, reading: Reading, most: int | None
) -> FittedGroup:
    """The basis of the space that whole images span (Algorithm 3); all of them are held in memory."""
    from tpca_cli.frames.arrays import ArrayFrames
    from tpca_cli.tensor_pca.solve import fixed_threads, solve_frames

    kept: list[Member] = []
    skipped: list[Skipped] = []
    frames: list[Pixels] = []

    def read(member: Member) -> Pixels | Skipped:
        try:
            return read_member(member, kind.channels, reading).pixels
        except (ImageRefused, StorageError) as error:
            return skip_or_fail(member.ref.path, error, reading.on_error)

    for member, found in zip(
        members, read_side_by_side(read, members, reading, lambda one: one), strict=True
    ):
        if isinstance(found, Skipped):
            skipped.append(found)
        else:
            kept.append(member)
            frames.append(found)
    if not frames:
        raise nothing_usable([], skipped, NOTHING_IGNORED)
    with fixed_threads():
        return solve_frames(ArrayFrames(np.stack(frames)), "subspace", most), kept, skipped


FittedGroup: TypeAlias = tuple[TensorBasis, list[Member], list[Skipped]]
"""A basis, the images that it was fitted to, and those that could not be read."""


def fit_group(
    design: Design, members: Sequence[Member], kind: Kind, reading: Reading, progress: Progress | None = None
) -> FittedGroup:
    """The basis of all images of a group; images that cannot be read drop out here."""
    total = design_operator(design, kind)
    lock = threading.Lock()

    def add(member: Member) -> Skipped | None:
        try:
            pixels = read_member(member, kind.channels, reading).pixels
        except (ImageRefused, StorageError) as error:
            return skip_or_fail(member.ref.path, error, reading.on_error)
        frames = design.framing.split(pixels)
        with lock:  # sums of integers: the order does not matter
            total.add(frames)
        return None

    kept: list[Member] = []
    skipped: list[Skipped] = []
    for done, (member, problem) in enumerate(
        zip(members, read_side_by_side(add, members, reading, lambda one: one), strict=True), 1
    ):
        if problem is None:
            kept.append(member)
        else:
            skipped.append(problem)
        if progress and (done % 32 == 0 or done == len(members)):
            progress("fitting the basis", done, len(members))
    return solve_design(design, total), kept, skipped
