"""Bases of the designs that `encode` considers: of a sample, of tiles from all over, of all images."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.contexts import replaced
from tpca_cli.codec.grains import find_grains
from tpca_cli.errors import ImageRefused, StorageError, UsageError
from tpca_cli.framing import TILE, Framing
from tpca_cli.interfaces import Pixels, Progress
from tpca_cli.parallel import ordered_map
from tpca_cli.sources.probe import Kind, Member, nothing_usable
from tpca_cli.sources.read import read_member
from tpca_cli.sources.read_plan import Reading, skip_or_fail
from tpca_cli.sources.scan import NOTHING_IGNORED, Skipped
from tpca_cli.tensor_pca.algorithm1 import TensorOperator
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, measured_rank1, solve_modes
from tpca_cli.tensor_pca.basis import OperatorBasis, Rank1Basis, TensorBasis
from tpca_cli.tensor_pca.eigen import solve_dense

BASIS_IMAGES, BASIS_PIXELS = 1024, 2**22  # that the basis of a large group is fitted to
MAX_DENSE = 2**12  # samples of a frame whose dense operator is solved within `encode`
SUITED_VALUES = 2**18  # of tiles that modes are compared on
SUITED_PRICE = 0.12  # squared error per bit, in squared steps
LARGE = 255  # steps: values beyond are few
LEARNED_WORTH = 0.97
"""What part of the bits of cosines learned modes have to promise: their first wave is not quite flat, so that
plain areas show tiles, and they take bytes of their own."""
JPEG_WORTH = 0.987, 1.02
"""What part of the bits of others the colors of JPEG have to promise, for the least error and for people. At
equal PSNR and coarse steps they cost more than they promise, up to 9 % on FLOWERS (docs/QUALITY.md)."""
FEWEST_GRAINS = 12  # components that show them
EXACT_PAIRS = 2**20  # whose products, of 16 bits, add without rounding
TILES_HELD = 2**14  # of an image of which only some are wanted

Floats: TypeAlias = NDArray[np.float64]
_RED, _BLUE = (
    1.402,
    1.772,
)  # of JPEG: how far a difference of color moves red and blue, and green the other way
_COLUMNS = np.array([[1, 1, 1], [0, -0.114 * _BLUE / 0.587, _BLUE], [_RED, -0.299 * _RED / 0.587, 0]])
JPEG_UNITS: Floats = np.array([1 / 0.6, *np.linalg.norm(_COLUMNS[1:], axis=1)])
JPEG_COLORS: Floats = _COLUMNS.T / JPEG_UNITS
"""Brightness and the two differences of color of JPEG, as columns about as long as 1."""
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Design:
    """How a group is going to be coded."""

    method: str
    framing: Framing
    lapped: bool | None = None  # whether that saves bytes, where it is known
    seen: bool = True  # whether steps are made for people


def sample_basis(
    design: Design, sample: Sequence[Pixels], kind: Kind, step: float | None = None
) -> TensorBasis:
    """The basis of a design that suits the pictures of a sample; see `spread_basis`."""
    operator, held = design_operator(design, kind), []
    apart = 1 if step is None else -(-sum(pixels.size for pixels in sample) // SUITED_VALUES) | 1
    for pixels in sample:
        frames = design.framing.split(pixels)
        operator.add(frames)
        held.append(frames[::apart])
    basis = solve_design(design, operator)
    if step is None:
        return strongest_first(basis, held)
    return suited(basis, held, step, design.seen) if design.framing.kind == TILE else basis


def spread_basis(
    design: Design, members: Sequence[Member], kind: Kind, reading: Reading, step: float | None = None
) -> tuple[TensorBasis, list[Pixels]]:
    """The basis of tiles at even distances in images at even distances, and the tiles.

    With a step, all components are going to be coded at it: then modes that suit it best are taken. Without,
    the first ones may be all that is kept, and have to be those that hold the most.
    """
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
    basis = solve_design(design, operator)
    found = strongest_first(basis, held) if step is None else suited(basis, held, step, design.seen)
    return found, held


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


def strongest_first(basis: TensorBasis, frames: Sequence[Pixels]) -> TensorBasis:
    """All rank-1 tensors by the energy that frames have in them (eq 4B15); eigentensors are so already.

    Products of mode eigenvalues say little of that. The total is that of the frames too, since an operator
    may count each of them twice, once turned.
    """
    if not isinstance(basis, Rank1Basis) or not frames:
        return basis
    from tpca_cli.frames.arrays import ArrayFrames

    measured = measured_rank1(basis, ArrayFrames(np.concatenate(frames)))
    return replace(measured, total=float(measured.energies.sum()))


def suited(basis: TensorBasis, frames: Sequence[Pixels], step: float, seen: bool) -> TensorBasis:
    """A rank-1 basis of tiles, or another one of all rank-1 tensors that promises fewer bits at a step.

    Mode operators count tiles as they are, and so their first color is the mean color of the folder. But
    means of tiles are few and easily predicted: bytes go into what differs inside of tiles. So the colors of
    these differences are tried, and gray and the colors beside it, which the brightness of JPEG files keeps
    to; each with cosines, which are the tiles of JPEG, and nearly the modes of all photographs.
    """
    if not isinstance(basis, Rank1Basis) or len(basis.frame_shape) != 3 or not frames:
        return basis
    some = np.concatenate(frames)  # (n, T, T, c)
    some = some[:: -(-some.size // SUITED_VALUES) | 1]
    cosines = [_cosines(side) for side in basis.frame_shape[:2]]
    every = [basis, *(basis.in_modes((*cosines, colors)) for colors in _color_modes(some))]
    bits = [_promised_bits(one, some, step) for one in every]
    best = every[0] if bits[0] < LEARNED_WORTH * min(bits[1:]) else every[1 + int(np.argmin(bits[1:]))]
    if basis.frame_shape == (8, 8, 3):
        of_jpeg = basis.in_modes((*cosines, JPEG_COLORS))
        if _promised_bits(of_jpeg, some, step, grains=True) < JPEG_WORTH[seen] * min(bits):
            best = of_jpeg
    # first what has the most energy, for who decodes only some: products of modes say little of that
    return best.measured_by((_coefficients(best, some) ** 2).sum(axis=0))


def _coefficients(basis: Rank1Basis, frames: Pixels) -> Floats:
    """Coefficients (n, M) of frames in modes that need not be orthogonal."""
    dual = tuple(np.linalg.inv(mode).T for mode in basis.modes)
    return np.asarray(replace(basis, modes=dual).project(frames), np.float64)


def _color_modes(frames: Pixels) -> list[Floats]:
    """Orthogonal colors (c, c): of differences between neighbors; of three or four also with gray first."""
    wide = frames.astype(np.float64)
    channels = frames.shape[-1]
    pairs = np.concatenate([np.diff(wide, axis=axis).reshape(-1, channels) for axis in (1, 2)])
    matrix = sum(part.T @ part for part in np.array_split(pairs, -(-len(pairs) // EXACT_PAIRS)))
    found = [solve_dense(matrix).vectors]
    if channels in (3, 4):
        gray, beside = np.full((3, 1), 3**-0.5), np.array([[1.0, 1], [0, -2], [-1, 1]]) / [2**0.5, 6**0.5]
        colors = np.eye(channels)
        colors[:3, :3] = np.hstack([gray, beside @ solve_dense(beside.T @ matrix[:3, :3] @ beside).vectors])
        found.append(colors)
    return found


def _cosines(side: int) -> Floats:
    """The orthonormal cosine transform: column k is a wave of k half periods."""
    waves = np.cos(np.pi / side * np.outer(np.arange(side) + 0.5, np.arange(side))) * (2 / side) ** 0.5
    waves[:, 0] = side**-0.5
    return np.asarray(waves, np.float64)


def _promised_bits(basis: Rank1Basis, frames: Pixels, step: float, *, grains: bool = False) -> float:
    """Bits of all values by how often each comes in its component, and the error at the price of bits.

    With grains those of JPEG are steps in place of finer ones; without any, nothing is promised.
    """
    values = _coefficients(basis, frames) / step  # (n, M)
    sizes = np.ones(values.shape[1])
    if grains:
        found = find_grains(values.T, JPEG_UNITS[basis.indices[:, 2]] / step)
        if np.count_nonzero(found.sizes) < FEWEST_GRAINS:
            return math.inf
        sizes = replaced(sizes, found.for_steps(sizes))
    values /= sizes
    whole = np.rint(values - 0.1 * np.sign(values))
    error = float((((values - whole) * sizes) ** 2).sum())
    at = np.arange(values.shape[1]) * (2 * LARGE + 1) + LARGE
    counts = np.bincount((np.clip(whole, -LARGE, LARGE).astype(np.int64) + at).ravel())
    counts = counts[counts > 0]
    return float(whole.size * math.log2(max(len(whole), 1)) - counts @ np.log2(counts) + error / SUITED_PRICE)


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
