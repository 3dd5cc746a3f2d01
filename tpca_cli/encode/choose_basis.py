"""Which basis for a group: the design that suits a sample, the fit, and what is stored of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tpca_cli.archive.writer import basis_digest
from tpca_cli.codec.basis_coding import code_basis
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.contexts import LED, TABLED
from tpca_cli.codec.priors import shipped
from tpca_cli.codec.token_tables import TokenTables, fit_tables
from tpca_cli.codec.tuning import PSNR, tune_for
from tpca_cli.encode.choose_design import candidates, choose_design
from tpca_cli.encode.fit_design import (
    FittedGroup,
    fit_spanned,
    sample_basis,
    spread_basis,
    suited,
)
from tpca_cli.encode.sample import fewer, pixel_count, take_images, take_sample
from tpca_cli.encode.spread import Spread, sizes
from tpca_cli.errors import TpcaError, UsageError, printable
from tpca_cli.framing import TILE, Framing
from tpca_cli.interfaces import Pixels, Progress
from tpca_cli.rate import Range, Target
from tpca_cli.sources.probe import Kind, Member, Survey, fitting
from tpca_cli.sources.read_plan import Reading
from tpca_cli.sources.scan import Skipped
from tpca_cli.tensor_pca.basis import Rank1Basis, TensorBasis
from tpca_cli.tensor_pca.fixed_basis import FixedBasis, Floats, integer_basis

if TYPE_CHECKING:
    from tpca_cli.basisfile import FittedBasis

FILTER_PIXELS = 2**19  # from which on every second picture of a sample is enough for a filter
SPREAD_PIXELS = 2**21  # of the tiles that a sample is compared with


FINE_STEP = 1 / 16
SAFETY, BASIS_SAFETY = 2.0, 1.4  # noise of coefficients and of a coded basis may be this many times as large
NEAR = 1.25  # a filter serves steps up to this factor from its own,
SIMILAR = 8.0  # and the choice of lapping up to this one
ALIKE = 1.03  # tables of tokens serve steps up to this factor from theirs
PER_COMPONENT = 4  # images whose coefficients say how eigentensors are turned
USUAL_FACTOR = 1.6  # of steps that are made for people, over what they are called
GUESSED_FACTOR = (
    1.8  # of the steps that reach a PSNR with pictures that were JPEG files, over the first guess
)


def for_filter(sample: Sequence[Pixels]) -> Sequence[Pixels]:
    """Half of a large sample: its few weights do not change by more."""
    return sample[:: 2 if pixel_count(sample) >= FILTER_PIXELS and len(sample) > 1 else 1]


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
    lapped: bool | None = None  # whether that saves bytes, where it is known
    predictor: int = LED  # what values are predicted from
    own_modes: bool = False  # others than those of the basis that was given, in which fewer bits are promised
    spread: Spread | None = None  # how the sample differs from all images, where that is known
    _tables: Coder | None = field(default=None, repr=False)
    _filtered: Coder | None = field(default=None, repr=False)
    _tokens: tuple[float, TokenTables | None] = field(default=(math.inf, None), repr=False)  # and their step

    @property
    def scale(self) -> float:
        """Pixels of the group per pixel of the sample."""
        sampled = max(pixel_count(self.sample), 1)
        return float(sum(member.height * member.width for member in self.members) / sampled)

    @property
    def windowed(self) -> bool:
        """Whether the sample has parts of images rather than images."""
        whole = sum(member.height * member.width for member in self.members) / max(len(self.members), 1)
        return pixel_count(self.sample) < 0.5 * whole * len(self.sample)

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
            self._filtered = tables if self.plain else tables.with_filter(for_filter(self.sample))
        return self._with_tokens(self._filtered.with_step(scaled))

    def _with_tokens(self, coder: Coder) -> Coder:
        """With tables of tokens that were fitted at nearly this step, where a coder has them."""
        if coder.predictor == TABLED and not 1 / ALIKE <= coder.step / self._tokens[0] <= ALIKE:
            some = for_filter(self.sample)
            scale = self.scale * pixel_count(self.sample) / max(pixel_count(some), 1)
            tables = fit_tables(coder.count_tokens(some), coder.token_families, shipped(), scale)
            self._tokens = coder.step, tables
        return replace(coder, tokens=self._tokens[1])

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
                # of steps made for people another choice is the best
                lapped=False if self.plain else self.lapped if self.tune == PSNR else None,
                tune=self.tune,
                predictor=self.predictor,
            )
        return self._tables.with_step(scaled)

    def compared_with(self, tiles: Sequence[Pixels]) -> Spread:
        """How the sample differs from tiles of all images."""

        def found(frames: Iterable[Pixels]) -> Floats:
            return sizes(self.basis, frames)

        few = fewer(self.sample)
        sampled = found(self.framing.split(picture) for picture in few)
        whole = sampled if len(few) == len(self.sample) else found(map(self.framing.split, self.sample))
        apart = -(-sum(map(len, tiles)) * self.framing.height * self.framing.width // SPREAD_PIXELS)
        return Spread(found([np.concatenate(tiles)[::apart]]), whole, sampled)

    def forget_coders(self) -> None:
        """After a change of the range."""
        self._tables = self._filtered = None
        self._tokens = math.inf, None

    def describe(self) -> str:
        """Method, frames and, for 16 bits, the range in a few words."""
        frame = f"{self.framing.height}x{self.framing.width}"
        frames = f"tiles of {frame}" if self.framing.kind == "tile" else f"whole frames of {frame}"
        scope = f", samples up to {self.range.peak}" if self.kind.dtype == "u2" else ""
        modes = ", in modes that suit these images" if self.own_modes else ""
        return f"{self.method} basis, {frames}{scope}{modes}"


def draft_given(
    path: Path,
    stored: FittedBasis,
    found: Survey,
    reading: Reading,
    target: Target,
    step: float,
    *,
    link: bool,
    first_version: bool = False,
) -> tuple[list[GroupDraft], list[Skipped]]:
    """One group for the basis of a file; images that do not fit it are skipped with the reason.

    All rank-1 tensors of tiles span all tiles, in whatever modes: of these, as of a basis that is fitted
    here, those are taken that suit the step. A link, and truncation, are to the basis as it is.
    """
    if stored.origin.item is not None:
        raise UsageError(f"{printable(path)} is a basis of tensors {stored.origin.item}, not of images")
    kind = Kind(stored.dtype, stored.framing.channels)
    everything = sorted(
        (member for members in found.groups.values() for member in members), key=lambda m: m.ref.name
    )
    members, skipped = fitting(everything, kind, stored.framing)
    if not members:
        raise TpcaError(f"no image fits the basis {path}: {skipped[0].reason}")
    seen = target.kind == "quality"
    windows = stored.framing.kind == TILE and not seen
    sample = take_sample(members, kind, reading, windows=windows, seen_area=seen)
    method, framing, scope = stored.basis.method, stored.framing, sample.range(kind, target)
    used: TensorBasis = stored.basis
    coded_at = None if link else _coded_at(target, step, scope, first_version)
    if framing.kind == TILE and coded_at is not None and spans_all(used):
        used = suited(used, [framing.split(picture) for picture in sample.pictures], coded_at, target.visual)
    kept = given_basis(stored.basis, used, kind, target, stored.origin.frames, link=link)
    draft = GroupDraft(kind, tuple(members), method, framing, kept.fixed, sample.pictures, scope, link)
    draft.own_modes = used is not stored.basis
    draft.tune, draft.plain, draft.weights = (
        tune_of(target, kind, members),
        target.truncates,
        kept.weights(draft.frames),
    )
    draft.coefficients = _projection(draft, reading)
    return [draft], skipped


def spans_all(basis: TensorBasis) -> bool:
    """Whether a basis is all rank-1 tensors of its modes, and so spans all frames."""
    plain = isinstance(basis, Rank1Basis) and basis.rotation is None and basis.mean is None
    return plain and basis.components == math.prod(basis.frame_shape)


def _coded_at(target: Target, step: float, scope: Range, first_version: bool) -> float | None:
    """The step that modes have to suit; None where they are the strongest ones, in their order.

    Components that are asked for are the first ones, which hold the most. The first version of the format
    knows no colors of JPEG. The step counts for samples up to 255.
    """
    if target.components is not None or first_version:
        return None
    usual = USUAL_FACTOR if target.visual else GUESSED_FACTOR if target.kind == "psnr" else 1.0
    return step * scope.unit * usual


def _projection(draft: GroupDraft, reading: Reading) -> Callable[[], Floats] | None:
    """What gives the coefficients of images at even distances, a few for each component."""
    if draft.framing.kind == TILE or draft.weights is None:
        return None

    def coefficients() -> Floats:
        count = PER_COMPONENT * draft.basis.components
        pictures = take_images(draft.members, draft.kind, reading, count)
        return np.concatenate([draft.basis.project(picture[None]) for picture in pictures]).astype(np.float64)

    return coefficients


def tune_of(target: Target, kind: Kind, members: Sequence[Member]) -> str:
    """What the steps of new groups are made for."""
    if not target.visual:
        return PSNR
    sides = [(member.height, member.width) for member in members]
    return tune_for(sides, kind.channels, measured=target.kind == "quality", asked=not target.detail)


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
    *,
    first_version: bool = False,
) -> tuple[GroupDraft | None, list[Skipped]]:
    """A group with a basis of its own: choose the design on a sample, and fit it.

    The few numbers of a rank-1 basis are known from part of the pixels; a dense one is fitted to all.
    """
    seen = target.kind == "quality"  # people see whole images, or as much as they look at together
    sample = take_sample(members, kind, reading, windows=method != "subspace" and not seen, seen_area=seen)
    pictures, scope = sample.pictures, sample.range(kind, target)
    if target.kind == "quality" and method == "auto":
        method = "rank1"  # only its steps can be made for people
    options = candidates(members, kind, method, tile, sample.whole, small=target.components is None)
    options = [replace(option, seen=target.visual) for option in options]
    pixels = sum(member.height * member.width for member in members)
    scale = pixels / max(pixel_count(pictures), 1)
    guessed = target.kind != "step"
    design = choose_design(options, pictures, kind, step * scope.unit, scale, guessed=guessed)
    kept, skipped, spread = list(members), list[Skipped](), list[Pixels]()
    coded_at = _coded_at(target, step, scope, first_version)
    if design.method == "subspace":
        basis, kept, skipped = fit_spanned(design, members, kind, reading, target.components)
    elif sample.whole:  # all pixels are here already
        basis = sample_basis(design, pictures, kind, coded_at)
    elif design.method == "rank1" and pictures:
        basis, spread = spread_basis(design, members, kind, reading, coded_at)
    else:
        basis, kept, skipped = fit(design, members, kind, reading, progress)
    if not kept:
        return None, skipped
    frames = sum(design.framing.count(member.height, member.width) for member in kept)
    stored = kept_basis(basis, kind, target, frames)
    draft = GroupDraft(kind, tuple(kept), design.method, design.framing, stored.fixed, pictures, scope)
    draft.tune, draft.plain, draft.weights = (
        tune_of(target, kind, members),
        target.truncates,
        stored.weights(frames),
    )
    draft.coefficients, draft.lapped = _projection(draft, reading), design.lapped
    if spread and design.framing.kind == TILE:
        draft.spread = draft.compared_with(spread)
    return draft, skipped


@dataclass(frozen=True)
class KeptBasis:
    """The integers of a basis, and the energies by which a dense one may be coded in fewer bytes."""

    fixed: FixedBasis
    energies: Floats | None  # (M,) over the fitted frames; None: plain integers
    fitted: int

    def weights(self, frames: int) -> Floats | None:
        """sqrt(lambda_l) over so many frames of a group, from those that the basis was fitted to."""
        if self.energies is None:
            return None
        return np.asarray(np.sqrt(np.maximum(self.energies, 0) * (frames / max(self.fitted, 1))), np.float64)


def kept_basis(basis: TensorBasis, kind: Kind, target: Target, fitted: int) -> KeptBasis:
    """The components that are asked for; fine, and then not coded, if every pixel is to come back."""
    if target.components is not None:
        basis = basis.truncate(target.components)
    dropped = (1 - basis.energy()) * basis.total / max(1, fitted) / math.prod(basis.frame_shape)
    fine = target.near_exact(kind.peak, dropped)
    fixed = integer_basis(basis, kind.dtype, fine=fine)
    return KeptBasis(fixed, None if fine or fixed.indices is not None else basis.energies, fitted)


def given_basis(
    basis: TensorBasis, used: TensorBasis, kind: Kind, target: Target, fitted: int, *, link: bool
) -> KeptBasis:
    """The same of what is used of a basis from a file, by whose digest it is remembered; a link is to all."""
    whole = integer_basis(basis, kind.dtype, short=True)
    if link:
        return KeptBasis(whole, None, fitted)
    kept, source = kept_basis(used, kind, target, fitted), basis_digest(whole)
    if basis_digest(kept.fixed) == source:
        return kept
    return replace(kept, fixed=replace(kept.fixed, source=source))
