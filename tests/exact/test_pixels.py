"""Pixels come back exactly, or no sample is off by more than was allowed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import natural, noise

from tpca_cli.errors import FileRefused
from tpca_cli.exact import pixels
from tpca_cli.exact.coders import PixelCoder


def check_within(pictures, peak, tolerance=0) -> bytes:
    coder = PixelCoder(pictures[0].shape[2], peak, tolerance)
    data, told = coder.encode(pictures)
    back = coder.decode(data, [picture.shape[:2] for picture in pictures])
    for source, one, other in zip(pictures, back, told, strict=True):
        assert one.dtype == source.dtype and np.array_equal(one, other)
        assert np.abs(source.astype(np.int64) - one).max() <= tolerance
    return data


@pytest.mark.parametrize("make", [natural, noise])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("tolerance", [0, 2])
def test_samples_come_back_within_the_tolerance(make, channels, dtype, tolerance):
    sizes = [(1, 1), (1, 30), (30, 1), (33, 47)]
    pictures = [make(h, w, channels, seed=k, dtype=dtype) for k, (h, w) in enumerate(sizes)]
    check_within(pictures, int(np.iinfo(dtype).max), tolerance)


@settings(max_examples=40)
@given(st.data())
def test_any_samples_come_back(data):
    height, width, channels = (data.draw(st.integers(1, high)) for high in (20, 20, 4))
    tolerance = data.draw(st.integers(0, 5))
    values = data.draw(st.sampled_from([[0, 255], [0, 1, 2], list(range(256)), [255], [127, 128]]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    picture = rng.choice(values, (height, width, channels)).astype(np.uint8)
    check_within([picture], 255, tolerance)


def test_what_is_smooth_takes_less_than_what_is_not():
    pictures = [natural(64, 64, seed=seed) for seed in range(4)]
    exact, near = check_within(pictures, 255), check_within(pictures, 255, 2)
    random = check_within([noise(64, 64, 3, seed=seed) for seed in range(4)], 255)
    assert len(near) < 0.75 * len(exact) and len(exact) < 0.75 * len(random)
    assert len(random) < 1.06 * 4 * 64 * 64 * 3


def test_flat_drawings_take_next_to_nothing():
    drawing = np.zeros((64, 64, 4), np.uint8)
    drawing[10:50, 20:40] = (255, 30, 30, 255)
    assert len(check_within([drawing], 255)) < 300


@pytest.mark.parametrize("tolerance", [0, 3])
def test_steps_with_ragged_edges_take_less_than_their_edges_alone(tolerance):
    rng = np.random.default_rng(3)
    slope = np.linspace(0, 12, 96)[None, :] + np.linspace(0, 6, 64)[:, None] + rng.normal(0, 0.15, (64, 96))
    steps = (50 * slope.astype(np.int64) + 1000).astype(np.uint16)[:, :, None]
    equal = np.mean(steps[:, 1:] == steps[:, :-1])
    assert 0.5 < equal < 0.95
    data = check_within([steps], 65535, tolerance)
    edges = -(equal * np.log2(equal) + (1 - equal) * np.log2(1 - equal)) * steps.size / 8
    assert len(data) < edges + 300


def test_pictures_of_one_block_help_one_another():
    pictures = [natural(32, 32, seed=seed) for seed in range(16)]
    together = check_within(pictures, 255)
    assert len(together) < sum(len(check_within([picture], 255)) for picture in pictures)


@settings(max_examples=60)
@given(st.data())
def test_mutated_blocks_are_refused_or_give_some_pixels(data):
    coder = PixelCoder(3, 255)
    block = bytearray(coder.encode([natural(16, 16)])[0])
    for _ in range(data.draw(st.integers(1, 5))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(block)))
    try:
        found = coder.decode(bytes(block[:cut]), [(16, 16)])
    except FileRefused:
        return
    assert found[0].shape == (16, 16, 3)


def test_values_with_gaps_are_coded_by_their_rank():
    levels = np.cumsum(np.random.default_rng(3).integers(2, 40, 300)).astype(np.uint16)
    pictures = [levels[natural(30, 40, 1, seed=k).astype(int)] for k in range(2)]
    ranked = len(check_within(pictures, 65535))
    assert ranked < 0.8 * len(pixels.encode(pictures, 65535, 0)[0])
    check_within([np.full((4, 5, 1), 9, np.uint16)], 65535)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_mutated_tables_of_values_are_refused_or_give_some_samples(data):
    picture = (natural(9, 11, 1) // 8).astype(np.uint16) * 1000
    block = bytearray(PixelCoder(1, 65535).encode([picture])[0])
    block[data.draw(st.integers(0, 30))] = data.draw(st.integers(0, 255))
    try:
        (found,) = PixelCoder(1, 65535).decode(bytes(block), [(9, 11)])
    except FileRefused:
        return
    assert found.shape == picture.shape and found.dtype == np.uint16
