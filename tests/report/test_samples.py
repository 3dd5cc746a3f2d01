"""Laws of the samples that pictures compare: which images, which counts, and what a rebuild is."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pictures import natural

from tpca_cli.framing import Framing
from tpca_cli.images import lossy_copy
from tpca_cli.report.samples import _basis_sample, comparisons, component_counts, evenly_spaced, gallery, psnr
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, solve_modes


@given(st.integers(0, 5000), st.integers(1, 70))
def test_evenly_spaced_positions_are_distinct_and_inside(total: int, count: int) -> None:
    positions = evenly_spaced(total, count)
    assert len(set(positions)) == len(positions) == min(total, count)
    assert all(0 <= position < total for position in positions)
    assert positions == sorted(positions)


@given(st.integers(1, 50_000), st.integers(2, 10))
def test_component_counts_rise_to_the_top(most: int, count: int) -> None:
    steps = component_counts(most, count)
    assert steps[-1] == most and len(steps) <= count
    assert steps == sorted(set(steps)) and steps[0] >= 1


def test_psnr_counts_samples_against_the_peak() -> None:
    zero = np.zeros((4, 4, 3), np.uint8)
    assert math.isinf(psnr(zero, zero))
    assert psnr(zero, zero + 255) == 0.0
    deep = zero.astype(np.uint16)
    assert psnr(deep, deep + 65535) == 0.0


def samples() -> list:
    framing = Framing("tile", 8, 8, 3)
    pictures = [natural(20, 28, seed=seed) for seed in range(3)]
    operators = ModeOperators(framing.frame_shape)
    for pixels in pictures:
        operators.add(framing.split(pixels))
    basis = solve_modes(operators)
    return [_basis_sample(basis, framing, f"{k}.png", pixels) for k, pixels in enumerate(pictures)]


def test_all_components_give_the_image_back_and_fewer_never_help() -> None:
    for sample in samples():
        qualities = [psnr(sample.original, sample.rebuild(m)) for m in (1, 5, 20, 80, 192)]
        assert math.isinf(qualities[-1])
        assert qualities == sorted(qualities)


def test_gallery_and_comparisons_show_every_sample() -> None:
    found = samples()
    sheet = gallery(found, [1, 20, 192], side=28)
    top = sheet.shape[0]
    assert gallery(found, [1, 192], side=28).shape[0] < top
    for comparison, sample in zip(comparisons(found, 5), found, strict=True):
        assert comparison.name == sample.name and comparison.most == 192
        assert [step.components for step in comparison.steps] == component_counts(192, 5)
        assert math.isinf(comparison.steps[-1].psnr)
        assert comparison.steps[-1].png == comparison.reference


def test_other_codecs_lose_less_at_higher_quality() -> None:
    for channels in (1, 3):
        pixels = natural(32, 48, channels)
        for codec in ("JPEG", "WebP"):
            small, large = (lossy_copy(pixels, codec, quality) for quality in (20, 95))
            assert small[0] < large[0] and psnr(pixels, small[1]) < psnr(pixels, large[1])
            assert large[1].shape == pixels.shape
