"""Which basis for a group: method and framing by the smallest cost on a sample, then the fit.

For each candidate a basis is fitted to the sample and the sample is coded at the step in question; what
counts is bits, extrapolated to the whole group, plus the basis, plus the error at the exchange rate of the
quantiser.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from tpca_cli.archive.writer import basis_digest
from tpca_cli.codec.basis_coding import code_basis
from tpca_cli.codec.coder import PSNR, VISUAL, Coder
from tpca_cli.codec.tiling import TOGETHER, batches
from tpca_cli.encode.kept_basis import given_basis, kept_basis
from tpca_cli.encode.sample import pixel_count, take_images, take_sample
from tpca_cli.errors import ImageRefused, StorageError, TpcaError, UsageError, printable
from tpca_cli.framing import TILE, Framing
from tpca_cli.interfaces import Pixels, Progress
from tpca_cli.parallel import ordered_map
from tpca_cli.rate import Range, Target
from tpca_cli.sources.probe import Kind, Member, Survey, fitting, nothing_usable
from tpca_cli.sources.read import read_member
from tpca_cli.sources.read_plan import Reading, skip_or_fail
from tpca_cli.sources.scan import NOTHING_IGNORED, Skipped
from tpca_cli.tensor_pca.algorithm1 import TensorOperator
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, solve_modes
from tpca_cli.tensor_pca.basis import OperatorBasis, TensorBasis
from tpca_cli.tensor_pca.eigen import solve_dense
from tpca_cli.tensor_pca.fixed_basis import FixedBasis, Floats, integer_basis

TILES = (8, 16)
MAX_WHOLE = 2**14  # samples of a whole frame that `auto` considers
EXCHANGE = 0.15  # squared error per bit, in squared steps: the slope of a uniform quantiser at these rates
BASIS_IMAGES, BASIS_PIXELS = 1024, 2**22  # that the basis of a large group is fitted to
MAX_SPANNED, SPANNED_BYTES = 4096, 2**30  # images, and their pixels, whose space `encode` finds
MAX_DENSE = 2**12  # samples of a frame whose dense operator is solved within `encode`
TILES_HELD = 2**14  # of an image of which only some are wanted

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Design:
    """How a group is going to be coded."""

    method: str
    framing: Framing


def candidates(
    members: Sequence[Member], kind: Kind, method: str, tile: int | None, sampled_whole: bool
) -> list[Design]:
    """What is worth trying, cheapest basis first."""
    if method == "subspace":
        return [Design("subspace", _one_frame(members, kind, tile))]
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


def _one_frame(members: Sequence[Member], kind: Kind, tile: int | None) -> Framing:
    """Whole images: tiles are many, and the space that they span is all there is."""
    shapes = {(member.height, member.width) for member in members}
    if tile or len(shapes) > 1:
        raise UsageError("--method subspace takes whole images of one size: use --size, and no --tile")
    (h, w) = next(iter(shapes))
    size = len(members) * h * w * kind.channels * int(kind.dtype[1])
    if len(members) > MAX_SPANNED or size > SPANNED_BYTES:
        raise UsageError(
            f"--method subspace of {len(members)} images with {size >> 20} MB of pixels is more than "
            f"{MAX_SPANNED} or {SPANNED_BYTES >> 20} MB: use `tpca fit-basis --method subspace`, "
            "then `tpca encode --basis`"
        )
    return Framing("whole", h, w, kind.channels)


def choose_design(
    designs: Sequence[Design], sample: Sequence[Pixels], kind: Kind, step: float, scale: float
) -> Design:
    """The design with the smallest cost; `scale` is pixels of the group per pixel of the sample."""
    if len(designs) == 1 or not sample:
        return designs[0]
    if all(design.framing.kind == "tile" for design in designs):  # few tiles tell them apart
        scale, sample = scale * pixel_count(sample) / pixel_count(fewer(sample)), fewer(sample)
    costs = []
    for design in designs:
        basis = integer_basis(_sample_basis(design, sample, kind), kind.dtype)
        coder = Coder.train(list(sample), design.framing, basis, step, effort=0)
        measured = [coder.encode(pictures) for pictures in batches(design.framing, list(sample), TOGETHER)]
        stored = sum(array.nbytes for array in coder.to_arrays().values())
        error_bits = sum(float(part.sse.sum()) for part in measured) / (EXCHANGE * step * step)
        costs.append((sum(part.bits for part in measured) + error_bits) * scale + 8 * stored)
    return designs[int(np.argmin(costs))]


def _sample_basis(design: Design, sample: Sequence[Pixels], kind: Kind) -> TensorBasis:
    operator = design_operator(design, kind)
    for pixels in sample:
        operator.add(design.framing.split(pixels))
    return solve_design(design, operator)


def _spread_basis(design: Design, members: Sequence[Member], kind: Kind, reading: Reading) -> TensorBasis:
    """The basis of tiles at even distances in images at even distances."""
    chosen = members[:: -(-len(members) // BASIS_IMAGES)]
    apart = -(-sum(member.height * member.width for member in chosen) // BASIS_PIXELS) | 1  # odd: all columns

    def tiles(numbered: tuple[int, Member]) -> Pixels | None:
        try:
            pixels = read_member(numbered[1], kind.channels, reading).pixels
        except (ImageRefused, StorageError):
            return None  # the pass over all images reports it
        return _every(design.framing, pixels, numbered[0] % apart, apart)

    operator = design_operator(design, kind)
    for frames in _side_by_side(tiles, enumerate(chosen), reading, lambda numbered: numbered[1]):
        if frames is not None:
            operator.add(frames)
    return solve_design(design, operator)


def _every(framing: Framing, pixels: Pixels, first: int, apart: int) -> Pixels:
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


def _side_by_side(
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

    for member, found in zip(members, _side_by_side(read, members, reading, lambda one: one), strict=True):
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
        zip(members, _side_by_side(add, members, reading, lambda one: one), strict=True), 1
    ):
        if problem is None:
            kept.append(member)
        else:
            skipped.append(problem)
        if progress and (done % 32 == 0 or done == len(members)):
            progress("fitting the basis", done, len(members))
    return solve_design(design, total), kept, skipped


FINE_STEP = 1 / 16
SAFETY, BASIS_SAFETY = 2.0, 1.4  # noise of coefficients and of a coded basis may be this many times as large
NEAR = 1.25  # a filter serves steps up to this factor from its own,
SIMILAR = 8.0  # and the choice of lapping up to this one
PER_COMPONENT = 4  # images whose coefficients say how eigentensors are turned
FEWER = 4  # the part of a sample that steps are first tried on


def fewer(sample: Sequence[Pixels]) -> Sequence[Pixels]:
    """Part of a sample, for a first look."""
    return sample[:: FEWER if len(sample) >= 4 * FEWER else 1]


@dataclass
class GroupDraft:
    """What is settled before the step is: everything but the tables."""

    kind: Kind
    members: tuple[Member, ...]
    method: str
    framing: Framing
    basis: FixedBasis
    sample: list[Pixels]
    range: Range
    link: bool = False
    tune: str = PSNR
    weights: Floats | None = None  # (M,) sqrt(lambda_l) over the frames of the group; None: plain integers
    coefficients: Callable[[], Floats] | None = None  # of some frames, (n, M), where frames are whole images
    plain: bool = False  # the truncation and nothing else: neither lapped nor filtered
    _tables: Coder | None = field(default=None, repr=False)
    _filtered: Coder | None = field(default=None, repr=False)

    @property
    def scale(self) -> float:
        """Pixels of the group per pixel of the sample."""
        sampled = max(pixel_count(self.sample), 1)
        return float(sum(member.height * member.width for member in self.members) / sampled)

    @property
    def frames(self) -> int:
        """Frames of all images."""
        return sum(self.framing.count(member.height, member.width) for member in self.members)

    @property
    def share_of_basis(self) -> float:
        """Numbers of the basis per coefficient of all frames."""
        return math.prod(self.framing.frame_shape) / max(self.frames, 1)

    def coder(self, step: float, components: int | None) -> Coder:
        """The coder at a step, which counts for samples up to 255; its filter was fitted near that step."""
        scaled = step * self.range.unit
        if self._filtered is None or not 1 / NEAR <= scaled / self._filtered.step <= NEAR:
            tables = self.tables(step, components)
            if self.weights is not None:
                from tpca_cli.tensor_pca.solve import fixed_threads

                known = self.basis.source or basis_digest(self.basis)
                with fixed_threads():
                    coded = code_basis(self.basis, self.weights, scaled, known, self.coefficients)
                tables = replace(tables, basis=coded)
            self._filtered = tables if self.plain else tables.with_filter(self.sample)
        return self._filtered.with_step(scaled)

    def tables(self, step: float, components: int | None) -> Coder:
        """The coder at a step without its filter; tables and lapping serve for every step near the first."""
        scaled = step * self.range.unit
        if self._tables is None or not 1 / SIMILAR <= scaled / self._tables.step <= SIMILAR:
            self._tables = Coder.train(
                self.sample,
                self.framing,
                self.basis,
                scaled,
                components=components,
                effort=0,
                lapped=False if self.plain else None,
                tune=self.tune,
            )
        return self._tables.with_step(scaled)

    def forget_coders(self) -> None:
        """After a change of the range."""
        self._tables = self._filtered = None

    def describe(self) -> str:
        """Method, frames and, for 16 bits, the range in a few words."""
        frame = f"{self.framing.height}x{self.framing.width}"
        frames = f"tiles of {frame}" if self.framing.kind == "tile" else f"whole frames of {frame}"
        scope = f", samples up to {self.range.peak}" if self.kind.dtype == "u2" else ""
        return f"{self.method} basis, {frames}{scope}"


def draft_given(
    path: Path, found: Survey, reading: Reading, target: Target, *, link: bool
) -> tuple[list[GroupDraft], list[Skipped]]:
    """One group for a basis from a file; images that do not fit it are skipped with the reason."""
    from tpca_cli.basisfile import read_basis

    stored = read_basis(path)
    if stored.origin.item is not None:
        raise UsageError(f"{printable(path)} is a basis of tensors {stored.origin.item}, not of images")
    kind = Kind(stored.dtype, stored.framing.channels)
    everything = sorted(
        (member for members in found.groups.values() for member in members), key=lambda m: m.ref.name
    )
    members, skipped = fitting(everything, kind, stored.framing)
    if not members:
        raise TpcaError(f"no image fits the basis {path}: {skipped[0].reason}")
    sample = take_sample(members, kind, reading, windows=stored.framing.kind == "tile")
    kept = given_basis(stored.basis, kind, target, stored.origin.frames, link=link)
    method, framing, scope = stored.basis.method, stored.framing, sample.range(kind, target)
    draft = GroupDraft(kind, tuple(members), method, framing, kept.fixed, sample.pictures, scope, link)
    draft.tune, draft.plain, draft.weights = tune_of(target), target.truncates, kept.weights(draft.frames)
    draft.coefficients = _projection(draft, reading)
    return [draft], skipped


def _projection(draft: GroupDraft, reading: Reading) -> Callable[[], Floats] | None:
    """What gives the coefficients of images at even distances, a few for each component."""
    if draft.framing.kind == TILE or draft.weights is None:
        return None

    def coefficients() -> Floats:
        count = PER_COMPONENT * draft.basis.components
        pictures = take_images(draft.members, draft.kind, reading, count)
        return np.concatenate([draft.basis.project(picture[None]) for picture in pictures]).astype(np.float64)

    return coefficients


def tune_of(target: Target) -> str:
    """What the steps of new groups are made for."""
    return VISUAL if target.visual else PSNR


def draft_fitted(
    kind: Kind,
    members: Sequence[Member],
    reading: Reading,
    method: str,
    tile: int | None,
    target: Target,
    step: float,
    fit: Callable[..., FittedGroup],
    progress: Progress | None = None,
) -> tuple[GroupDraft | None, list[Skipped]]:
    """A group with a basis of its own: choose the design on a sample, and fit it.

    The few numbers of a rank-1 basis are known from part of the pixels; a dense one is fitted to all. The
    step counts for samples up to 255.
    """
    windows = method != "subspace" and target.kind != "quality"  # people see whole images
    sample = take_sample(members, kind, reading, windows=windows)
    pictures, scope = sample.pictures, sample.range(kind, target)
    if target.kind == "quality" and method == "auto":
        method = "rank1"  # only its steps can be made for people
    options = candidates(members, kind, method, tile, sample.whole)
    pixels = sum(member.height * member.width for member in members)
    scale = pixels / max(pixel_count(pictures), 1)
    design = choose_design(options, pictures, kind, step * scope.unit, scale)
    kept, skipped = list(members), list[Skipped]()
    if design.method == "subspace":
        basis, kept, skipped = fit_spanned(design, members, kind, reading, target.components)
    elif sample.whole:  # all pixels are here already
        basis = _sample_basis(design, pictures, kind)
    elif design.method == "rank1" and pictures:
        basis = _spread_basis(design, members, kind, reading)
    else:
        basis, kept, skipped = fit(design, members, kind, reading, progress)
    if not kept:
        return None, skipped
    frames = sum(design.framing.count(member.height, member.width) for member in kept)
    stored = kept_basis(basis, kind, target, frames)
    draft = GroupDraft(kind, tuple(kept), design.method, design.framing, stored.fixed, pictures, scope)
    draft.tune, draft.plain, draft.weights = tune_of(target), target.truncates, stored.weights(frames)
    draft.coefficients = _projection(draft, reading)
    return draft, skipped
