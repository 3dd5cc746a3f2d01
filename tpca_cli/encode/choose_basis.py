"""Which basis for a group: method and framing by the smallest cost on a sample, then the fit on all images.

The sample is fixed by the list of images: at most 256 of them, evenly spaced, large ones cut to a band. For
each candidate a basis is fitted to the sample and the sample is coded at the step in question; what counts is
bits, extrapolated to the whole group, plus the basis, plus the error at the exchange rate of the quantiser.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tpca_cli.codec.coder import Coder
from tpca_cli.codec.tiling import batches
from tpca_cli.encode.code_blocks import deviation
from tpca_cli.errors import ImageRefused, StorageError, TpcaError, UsageError
from tpca_cli.framing import Framing
from tpca_cli.interfaces import Pixels, Progress
from tpca_cli.parallel import ordered_map
from tpca_cli.quality import decibel, peak_of, psnr
from tpca_cli.rate import TRUNCATION_LOSS_DB, Range, Target, range_for
from tpca_cli.sources.probe import Kind, Member, Survey, fitting
from tpca_cli.sources.read import read_member
from tpca_cli.sources.read_plan import Reading, skip_or_fail
from tpca_cli.sources.scan import Skipped
from tpca_cli.tensor_pca.algorithm1 import TensorOperator
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, solve_modes
from tpca_cli.tensor_pca.basis import OperatorBasis, TensorBasis
from tpca_cli.tensor_pca.eigen import solve_dense
from tpca_cli.tensor_pca.fixed_basis import FixedBasis, integer_basis

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
    if method == "subspace":
        raise UsageError(
            "a subspace basis has a command of its own: "
            "`tpca fit-basis SOURCE -o basis.h5 --method subspace`, then `tpca encode --basis basis.h5`"
        )
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
        measured = coder.encode(list(sample))
        stored = sum(array.nbytes for array in coder.to_arrays().values())
        error_bits = float(measured.sse.sum()) / (EXCHANGE * step * step)
        costs.append((measured.bits + error_bits) * scale + 8 * stored)
    return designs[int(np.argmin(costs))]


def _sample_basis(design: Design, sample: Sequence[Pixels], kind: Kind) -> TensorBasis:
    operator = design_operator(design, kind)
    for pixels in sample:
        operator.add(design.framing.split(pixels))
    return solve_design(design, operator)


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
    """The basis of an accumulated operator, by the method of the design."""
    if isinstance(operator, ModeOperators):
        return solve_modes(operator)
    pairs = solve_dense(operator.matrix())
    return OperatorBasis(design.framing.frame_shape, pairs.vectors, pairs.values, float(operator.trace))


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
        zip(members, ordered_map(add, members, reading.workers), strict=True), 1
    ):
        if problem is None:
            kept.append(member)
        else:
            skipped.append(problem)
        if progress and (done % 32 == 0 or done == len(members)):
            progress("fitting the basis", done, len(members))
    return solve_design(design, total), kept, skipped


FINE_STEP = 1 / 16
NEAR = 1.25  # a filter serves steps up to this factor from its own,
SIMILAR = 8.0  # and the choice of lapping up to this one
FEWER = 4  # the part of a sample that steps are first tried on


def fewer(sample: Sequence[Pixels]) -> Sequence[Pixels]:
    """Part of a sample, for a first look."""
    return sample[:: FEWER if len(sample) >= 4 * FEWER else 1]


def pixel_count(sample: Sequence[Pixels]) -> int:
    """Pixels of all pictures."""
    return sum(pixels.shape[0] * pixels.shape[1] for pixels in sample)


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
    _tables: Coder | None = field(default=None, repr=False)
    _filtered: Coder | None = field(default=None, repr=False)

    @property
    def scale(self) -> float:
        """Pixels of the group per pixel of the sample."""
        sampled = max(pixel_count(self.sample), 1)
        return float(sum(member.height * member.width for member in self.members) / sampled)

    def coder(self, step: float, components: int | None) -> Coder:
        """The coder at a step, which counts for samples up to 255; its filter was fitted near that step."""
        scaled = step * self.range.unit
        if self._filtered is None or not 1 / NEAR <= scaled / self._filtered.step <= NEAR:
            self._filtered = self.tables(step, components).with_filter(self.sample)
        return self._filtered.with_step(scaled)

    def tables(self, step: float, components: int | None) -> Coder:
        """The coder at a step without its filter; tables and lapping serve for every step near the first."""
        scaled = step * self.range.unit
        if self._tables is None or not 1 / SIMILAR <= scaled / self._tables.step <= SIMILAR:
            self._tables = Coder.train(
                self.sample, self.framing, self.basis, scaled, components=components, effort=0
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
    kind = Kind(stored.dtype, stored.framing.channels)
    everything = sorted(
        (member for members in found.groups.values() for member in members), key=lambda m: m.ref.name
    )
    members, skipped = fitting(everything, kind, stored.framing)
    if not members:
        raise TpcaError(f"no image fits the basis {path}: {skipped[0].reason}")
    sample, _ = take_sample(members, kind, reading, bands=stored.framing.kind == "tile")
    basis = integer_basis(stored.basis, kind.dtype)
    scope = sample_range(sample, kind, target)
    draft = GroupDraft(kind, tuple(members), stored.basis.method, stored.framing, basis, sample, scope, link)
    return [draft], skipped


def sample_range(sample: Sequence[Pixels], kind: Kind, target: Target) -> Range:
    """The range of a group as far as a sample shows it; coding all images shows whether it holds."""
    largest = max((int(pixels.max()) for pixels in sample), default=0)
    variances = [deviation(pixels) / pixels.size for pixels in sample]
    return range_for(target, peak_of(largest, kind.dtype), variances)


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
    """A group with a basis of its own: choose the design on a sample, fit it on all images.

    The step counts for samples up to 255.
    """
    sample, complete = take_sample(members, kind, reading)
    scope = sample_range(sample, kind, target)
    options = candidates(members, kind, method, tile, complete)
    pixels = sum(member.height * member.width for member in members)
    sampled = pixel_count(sample)
    design = choose_design(options, sample, kind, step * scope.unit, pixels / max(sampled, 1))
    skipped: list[Skipped] = []
    if complete:  # all pixels are here already
        basis, kept = _sample_basis(design, sample, kind), list(members)
    else:
        basis, kept, skipped = fit(design, members, kind, reading, progress)
    if not kept:
        return None, skipped
    fixed = integer_basis(basis, kind.dtype)
    return GroupDraft(kind, tuple(kept), design.method, design.framing, fixed, sample, scope), skipped


def sample_value(
    kind: str, drafts: Sequence[GroupDraft], step: float, components: int | None, *, quick: bool = False
) -> float:
    """What a target measures, estimated on the samples at a step; `quick` on few of them, without filters."""
    error = samples = energy = size = 0.0
    for draft in drafts:
        coder = draft.tables(step, components) if quick else draft.coder(step, components)
        sample = fewer(draft.sample) if quick else draft.sample
        scale = draft.scale * pixel_count(draft.sample) / max(pixel_count(sample), 1)
        measured = [coder.encode(pictures) for pictures in batches(draft.framing, sample)]
        share = scale / draft.range.reference**2
        error += sum(float(block.sse.sum()) for block in measured) * share
        samples += sum(pixels.size for pixels in sample) * scale
        energy += sum(float((pixels.astype(float) ** 2).sum()) for pixels in sample) * share
        size += sum(block.bits for block in measured) / 8 * scale
        size += sum(array.nbytes for array in coder.to_arrays().values())
        size += 24 * len(draft.members)  # names and index, about
    if kind == "psnr":
        return psnr(error, samples)
    if kind == "energy":
        return math.inf if error <= 0 else decibel(energy / error)
    return decibel(size + 4000)


def truncation_step(drafts: Sequence[GroupDraft], components: int) -> float:
    """A step whose noise adds at most 0.05 dB to the error of keeping `components` per frame."""
    step = math.inf
    for draft in drafts:
        coder = draft.tables(FINE_STEP, components)
        lost = float(coder.encode(draft.sample).sse.sum())
        frames = sum(draft.framing.count(*pixels.shape[:2]) for pixels in draft.sample)
        kept = frames * min(components, draft.basis.components)
        noise = lost * (10 ** (TRUNCATION_LOSS_DB / 10) - 1)
        # uniform noise of step^2 / 12 per kept coefficient; half of it for safety
        scaled = math.sqrt(12 * noise / max(kept, 1) / 2) / draft.range.unit
        step = min(step, max(scaled, FINE_STEP))
    return step
