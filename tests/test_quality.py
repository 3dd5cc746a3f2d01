"""What is judged by itself: colors as far as they are seen, alpha, and images of one color."""

from __future__ import annotations

import tracemalloc
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpca_cli import quality
from tpca_cli.quality import errors_of, loses_detail, parts_of

SHAPES = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 4))


@given(SHAPES, st.sampled_from([np.uint8, np.uint16]), st.integers(0, 99), st.integers(1, 500))
def test_parts_are_colors_weighted_by_alpha_and_alpha(shape, dtype, seed, chunk) -> None:
    rng = np.random.default_rng(seed)
    pixels, back = rng.integers(0, np.iinfo(dtype).max, (2, *shape), dtype, endpoint=True)
    if seed % 3 == 0:
        pixels[..., -1] *= rng.integers(0, 2, shape[:2], dtype)
    colors = shape[2] - (shape[2] in (2, 4))
    wide, error = pixels.astype(object), (pixels.astype(object) - back) ** 2
    weights = wide[..., -1:] if colors < shape[2] else np.ones_like(wide[..., :1])
    with mock.patch.object(quality, "_CHUNK", chunk):
        errors = errors_of(pixels, back)
        parts = parts_of(pixels, errors)
    seen, deviation = weights.sum(), 0
    for c in range(colors if seen else 0):
        q, s = (weights[..., 0] * wide[..., c] ** 2).sum(), (weights[..., 0] * wide[..., c]).sum()
        deviation += (seen * q - s * s) // seen
    assert parts[0] == ((weights * error[..., :colors]).sum(), colors * seen, deviation)
    if colors == shape[2]:
        assert len(parts) == 1 and deviation == pytest.approx(
            pixels.reshape(-1, colors).astype(float).var(axis=0).sum() * wide[..., 0].size, abs=colors + 1e-3
        )
    else:
        n, q, s = wide[..., -1].size, (wide[..., -1] ** 2).sum(), wide[..., -1].sum()
        assert parts[1:] == [(error[..., -1].sum(), n, (n * q - s * s) // n)]


def test_colors_that_are_not_seen_do_not_count() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (9, 8, 4), np.uint8)
    pixels[..., 3] = 255 * (pixels[..., 3] > 99)
    other = np.where(pixels[..., 3:] == 0, 255 - pixels, pixels)
    other[..., 3] = pixels[..., 3]
    assert errors_of(pixels, other) == [0, 0]
    assert parts_of(pixels, [0, 0]) == parts_of(other, [0, 0])
    nothing = pixels * np.uint8([1, 1, 1, 0])
    assert parts_of(nothing, errors_of(nothing, other * 0)) == [(0, 0, 0), (0, 72, 0)]
    assert not loses_detail(0, 0, 0)


@pytest.mark.parametrize("peak", [255, 4095, 65535])
def test_a_plain_image_has_its_color_to_lose(peak: int) -> None:
    limit = peak * peak / 1000
    for deviation in (0, 1000):  # one of 1000 samples is one squared level
        assert not loses_detail(1000 * limit * 0.999, 1000, deviation, peak)
        assert loses_detail(1000 * limit * 1.001, 1000, deviation, peak)
    assert not loses_detail(1000, 1000, 0, 1)  # one gray level is no loss


def test_looking_at_a_large_picture_takes_little_memory() -> None:
    pixels = np.zeros((2000, 2000, 4), np.uint8)
    pixels[::7] = 200
    tracemalloc.start()
    try:
        parts_of(pixels, errors_of(pixels, pixels))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < pixels.nbytes
