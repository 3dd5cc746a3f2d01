"""A group on its way to a coder: its images, its basis and the sample that steps are tried on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tpca_cli.archive import embedded_basis
from tpca_cli.codec.coder import Coder
from tpca_cli.errors import TpcaError
from tpca_cli.fixed import FixedBasis
from tpca_cli.framing import Framing
from tpca_cli.pipeline import design as designing
from tpca_cli.pipeline.design import Pixels
from tpca_cli.pipeline.survey import Kind, Member, Progress, Reading, Survey, fitting
from tpca_cli.quality import decibel, psnr
from tpca_cli.rate import TRUNCATION_LOSS_DB
from tpca_cli.scan import Skipped

FINE_STEP = 1 / 16


@dataclass
class GroupDraft:
    """What is settled before the step is: everything but the tables."""

    kind: Kind
    members: tuple[Member, ...]
    method: str
    framing: Framing
    basis: FixedBasis
    sample: list[Pixels]
    link: bool = False
    _coders: dict[tuple[float, int | None], Coder] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """Pixels of the group per pixel of the sample."""
        sampled = sum(pixels.shape[0] * pixels.shape[1] for pixels in self.sample)
        return float(sum(member.height * member.width for member in self.members) / max(sampled, 1))

    def coder(self, step: float, components: int | None) -> Coder:
        """Tables trained on the sample at a step, which is relative to a peak of 255."""
        key = (step, components)
        if key not in self._coders:
            self._coders.clear()
            scaled = step * self.kind.peak / 255
            self._coders[key] = Coder.train(
                self.sample, self.framing, self.basis, scaled, components=components
            )
        return self._coders[key]

    def describe(self) -> str:
        frame = f"{self.framing.height}x{self.framing.width}"
        frames = f"tiles of {frame}" if self.framing.kind == "tile" else f"whole frames of {frame}"
        return f"{self.method} basis, {frames}"


def draft_given(
    path: Path, found: Survey, reading: Reading, *, link: bool
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
    sample, _ = designing.take_sample(members, kind, reading, bands=stored.framing.kind == "tile")
    basis = designing.fixed(stored.basis, kind)
    draft = GroupDraft(kind, tuple(members), stored.basis.method, stored.framing, basis, sample, link)
    return [draft], skipped


def draft_fitted(
    kind: Kind,
    members: Sequence[Member],
    reading: Reading,
    method: str,
    tile: int | None,
    step: float,
    progress: Progress = None,
) -> tuple[GroupDraft | None, list[Skipped]]:
    """A group with a basis of its own: choose the design on a sample, fit it on all images."""
    sample, complete = designing.take_sample(members, kind, reading)
    options = designing.candidates(members, kind, method, tile, complete)
    pixels = sum(member.height * member.width for member in members)
    sampled = sum(picture.shape[0] * picture.shape[1] for picture in sample)
    design = designing.choose(options, sample, kind, step, pixels / max(sampled, 1))
    basis, kept, skipped = designing.fit(design, members, kind, reading, progress)
    if not kept:
        return None, skipped
    fixed = designing.fixed(basis, kind)
    return GroupDraft(kind, tuple(kept), design.method, design.framing, fixed, sample), skipped


def sample_value(kind: str, drafts: Sequence[GroupDraft], step: float, components: int | None) -> float:
    """What a target measures, estimated on the samples at a step."""
    error = samples = energy = size = 0.0
    for draft in drafts:
        coder = draft.coder(step, components)
        measured = coder.encode(draft.sample)
        share = draft.scale / draft.kind.peak**2
        error += float(measured.sse.sum()) * share
        samples += sum(pixels.size for pixels in draft.sample) * draft.scale
        energy += sum(float((pixels.astype(float) ** 2).sum()) for pixels in draft.sample) * share
        size += measured.bits / 8 * draft.scale
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
        coder = draft.coder(FINE_STEP, components)
        lost = float(coder.encode(draft.sample).sse.sum())
        frames = sum(draft.framing.count(*pixels.shape[:2]) for pixels in draft.sample)
        kept = frames * min(components, draft.basis.components)
        noise = lost * (10 ** (TRUNCATION_LOSS_DB / 10) - 1)
        # uniform noise of step^2 / 12 per kept coefficient; half of it for safety
        scaled = math.sqrt(12 * noise / max(kept, 1) / 2) * 255 / draft.kind.peak
        step = min(step, max(scaled, FINE_STEP))
    return step


def linked_basis(path: Path) -> npt.NDArray[np.uint8]:
    """The basis of a file in the form that an archive made with it would embed."""
    from tpca_cli.basisfile import read_basis

    stored = read_basis(path)
    fixed = designing.fixed(stored.basis, Kind(stored.dtype, stored.framing.channels))
    return embedded_basis(fixed)
