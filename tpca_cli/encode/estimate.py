"""What a target would measure at a step, and a step for some components: both from the samples alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tpca_cli import visual
from tpca_cli.codec.coder import Coder, Encoded
from tpca_cli.codec.tiling import TOGETHER
from tpca_cli.encode.choose_basis import BASIS_SAFETY, FINE_STEP, SAFETY, GroupDraft, fewer
from tpca_cli.encode.sample import pixel_count
from tpca_cli.interfaces import Pixels
from tpca_cli.quality import decibel, psnr
from tpca_cli.rate import TRUNCATION_LOSS_DB

WINDOW_BITS = 0.97  # of what windows take, whole images do: less of them is an edge
WINDOW_ERROR = 0.989  # and of what they lose
FILE_BYTES = 2000  # of an empty archive


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
        size += sum(array.nbytes for array in coder.to_arrays().values())
        size += 24 * len(draft.members)  # names and index, about
    if kind == "psnr":
        return psnr(error, samples)
    if kind == "energy":
        return math.inf if error <= 0 else decibel(energy / error)
    return decibel(size + FILE_BYTES)


def _sample_quality(drafts: Sequence[GroupDraft], step: float, quick: bool) -> float:
    """The mean SSIMULACRA 2 of the images of all groups, estimated on the samples."""
    total = count = 0.0
    for draft in drafts:
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
