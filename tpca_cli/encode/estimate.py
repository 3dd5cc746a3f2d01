"""Targets before anything is coded: which one these images get, and what it would measure at a step.

SSIMULACRA 2 is about photographs of 8 bits. It means little for thumbnails, whose few scales its weights were
not fitted to, and forgives an image of little contrast that loses all of it. Where no target is asked for,
such images are held to a PSNR. What a target measures is estimated on the samples alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpca_cli import visual
from tpca_cli.codec.basis_coding import stored_bytes
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.kernel_run import Encoded
from tpca_cli.codec.tiling import TOGETHER
from tpca_cli.codec.tuning import PSNR, are_small
from tpca_cli.encode.choose_basis import (
    BASIS_SAFETY,
    FINE_STEP,
    SAFETY,
    GroupDraft,
    spans_all,
    tune_of,
)
from tpca_cli.encode.sample import fewer, pixel_count
from tpca_cli.errors import UsageError
from tpca_cli.framing import TILE
from tpca_cli.interfaces import Pixels
from tpca_cli.quality import decibel, psnr
from tpca_cli.rate import TRUNCATION_LOSS_DB, Target
from tpca_cli.sources.probe import Survey

if TYPE_CHECKING:
    from tpca_cli.basisfile import FittedBasis

WINDOW_BITS = 0.97  # of what windows take, whole images do: less of them is an edge
WINDOW_ERROR = 0.989  # and of what they lose
FILE_BYTES = 2000  # of an empty archive


def target_for(target: Target, found: Survey, method: str, given: FittedBasis | None) -> Target:
    """The target, by the headers of the images and a basis that is given; a quality for which neither has
    steps is refused."""
    if target.kind != "quality":
        return target
    deep = sum(len(members) for kind, members in found.groups.items() if kind.dtype == "u2")
    plain = not target.visual or target.components is not None or method == "operator"
    plain = plain or (given is not None and not (given.framing.kind == TILE and spans_all(given.basis)))
    if target.detail:
        sides = [(m.height, m.width) for members in found.groups.values() for m in members]
        fits = not deep and not plain and method != "subspace" and not are_small(sides)
        return target if fits else target.without_quality()
    if deep:
        raise UsageError(
            f"--quality is for images of 8 bits, and {deep} of these have 16: use --psnr, or encode them "
            "apart"
        )
    if plain:
        raise UsageError(
            "--quality needs steps that are made for it: leave out --tune psnr, --components, --method "
            "operator and a --basis that is not of rank-1 tiles, or ask for --psnr"
        )
    return target


def target_with(target: Target, drafts: Sequence[GroupDraft]) -> Target:
    """The target, once a sample of the images is known; the drafts follow it."""
    if all(draft.range.reference >= draft.range.peak for draft in drafts):
        return target
    suited = target.without_quality()
    if suited.kind != target.kind:
        for draft in drafts:
            draft.tune = tune_of(suited, draft.kind, draft.members)
    return suited


def sample_value(
    kind: str, drafts: Sequence[GroupDraft], step: float, components: int | None, *, quick: bool = False
) -> float:
    """What a target measures, estimated on the samples at a step; `quick` on few of them, without filters."""
    if kind == "quality":
        return _sample_quality(drafts, step, quick)
    error = samples = energy = size = 0.0
    for draft in drafts:
        coder = draft.tables(step, components) if quick else draft.coder(step, components)
        sample = fewer(draft.sample) if quick else draft.sample
        scale = draft.scale * pixel_count(draft.sample) / max(pixel_count(sample), 1)
        measured = coder.encode_all(sample)
        share = scale / draft.range.reference**2
        lost = sum(float(block.sse.sum()) for block in measured)
        bits = float(sum(block.bits for block in measured))
        if draft.spread is not None:
            lost *= draft.spread.error_ratio(coder.step, few=quick)
            bits *= draft.spread.size_ratio(coder.step, few=quick)
        if draft.windowed:
            lost, bits = lost * WINDOW_ERROR, bits * WINDOW_BITS
        error += lost * share
        samples += sum(pixels.size for pixels in sample) * scale
        energy += sum(float((pixels.astype(float) ** 2).sum()) for pixels in sample) * share
        size += bits / 8 * scale
        size += stored_bytes(coder)
        size += 24 * len(draft.members)  # names and index, about
    if kind == "psnr":
        return psnr(error, samples)
    if kind == "energy":
        return math.inf if error <= 0 else decibel(energy / error)
    return decibel(size + FILE_BYTES)


def _sample_quality(drafts: Sequence[GroupDraft], step: float, quick: bool) -> float:
    """The mean SSIMULACRA 2 of the images of all groups that have one, estimated on the samples."""
    total = count = 0.0
    for draft in drafts:
        if draft.tune == PSNR:
            continue
        coder = draft.tables(step, None) if quick else draft.coder(step, None)
        sample = fewer(draft.sample) if quick else draft.sample
        total += _mean_score(sample, coder.encode_all(sample)) * len(draft.members)
        count += len(draft.members)
    return total / max(count, 1)


def _mean_score(pictures: Sequence[Pixels], coded: Sequence[Encoded]) -> float:
    """The mean SSIMULACRA 2 of pictures that were coded in these blocks."""
    decoded = (back for block in coded for back in block.decoded)
    scores = [visual.score(picture, back) for picture, back in zip(pictures, decoded, strict=True)]
    return sum(scores) / max(len(scores), 1)


def sampled(kind: str, draft: GroupDraft, coder: Coder) -> tuple[float, float]:
    """What a target measures on the sample of one group with a coder, and the bytes of all its images."""
    coded = coder.encode_all(draft.sample, 1 if kind == "quality" else TOGETHER)
    size = sum(block.bits for block in coded) / 8 * draft.scale
    if kind == "quality":
        return _mean_score(draft.sample, coded), size
    error = sum(float(block.sse.sum()) for block in coded)
    if kind == "psnr":
        return psnr(error, sum(pixels.size for pixels in draft.sample), draft.range.reference), size
    energy = sum(float((pixels.astype(float) ** 2).sum()) for pixels in draft.sample)
    return math.inf if error <= 0 else decibel(energy / error), size


def truncation_step(drafts: Sequence[GroupDraft], components: int) -> float:
    """A step whose noise adds at most 0.05 dB to the error of keeping `components` per frame."""
    step = math.inf
    for draft in drafts:
        coder = draft.tables(FINE_STEP, components)
        lost = sum(float(block.sse.sum()) for block in coder.encode_all(draft.sample, TOGETHER))
        frames = sum(draft.framing.count(*pixels.shape[:2]) for pixels in draft.sample)
        kept = frames * min(components, draft.basis.components) * SAFETY
        if draft.weights is not None:  # the basis is coded with the same step, once for all frames
            kept *= 1 + BASIS_SAFETY / SAFETY * draft.share_of_basis
        noise = lost * (10 ** (TRUNCATION_LOSS_DB / 10) - 1)
        # uniform noise of step^2 / 12 per kept number
        scaled = math.sqrt(12 * noise / max(kept, 1)) / draft.range.unit
        step = min(step, max(scaled, FINE_STEP))
    return step
