"""Laws of resizing by compiled code: the filter of Pillow, in integers; what is constant stays."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tpca_cli import wasm
from tpca_cli.images import resize
from tpca_cli.images.resize import bicubic, resized, suits

SIDES = st.integers(1, 150)
SIZES = st.tuples(SIDES, SIDES)


def smooth(height: int, width: int, channels: int, seed: int) -> np.ndarray:
    """Pixels that stay away from black and white: between its two passes Pillow clips, we do not."""
    rng = np.random.default_rng(seed)
    small = rng.integers(60, 190, (height // 4 + 1, width // 4 + 1, channels))
    pixels = small.repeat(4, 0).repeat(4, 1)[:height, :width] + rng.integers(0, 8, (height, width, channels))
    return pixels.astype(np.uint8)


def by_pillow(pixels: np.ndarray, size: tuple[int, int], extent: tuple[float, float]) -> np.ndarray:
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    box = (0, 0, extent[1], extent[0])
    return np.asarray(image.resize(size[::-1], Image.Resampling.BICUBIC, box)).reshape(*size, -1)


@settings(max_examples=200)
@given(SIZES, SIZES, st.sampled_from([1, 3]), st.integers(0, 99), st.floats(0, 0.9))
def test_it_is_the_filter_of_pillow(
    have: tuple[int, int], want: tuple[int, int], channels: int, seed: int, cut: float
) -> None:
    pixels = smooth(*have, channels, seed)
    extent = (have[0] - cut if have[0] > 1 else 1.0, have[1] - cut if have[1] > 1 else 1.0)
    ours = bicubic(pixels, want, extent)
    assert ours.shape == (*want, channels)
    assert np.abs(ours.astype(int) - by_pillow(pixels, want, extent)).max() <= 1


@settings(max_examples=50)
@given(SIZES, SIZES, st.sampled_from([1, 3]), st.integers(0, 255))
def test_one_value_stays_what_it_is(
    have: tuple[int, int], want: tuple[int, int], channels: int, value: int
) -> None:
    pixels = np.full((*have, channels), value, np.uint8)
    assert (bicubic(pixels, want, have) == value).all()


@settings(max_examples=50)
@given(SIZES, SIZES, st.integers(0, 99))
def test_colors_are_three_gray_pictures(have: tuple[int, int], want: tuple[int, int], seed: int) -> None:
    pixels = np.random.default_rng(seed).choice(np.array([0, 255], np.uint8), (*have, 3))
    channels = [bicubic(np.ascontiguousarray(pixels[:, :, [c]]), want, have) for c in range(3)]
    assert np.array_equal(bicubic(pixels, want, have), np.concatenate(channels, axis=2))


def test_the_order_of_pictures_does_not_matter() -> None:
    large, small = smooth(900, 1000, 3, 1), smooth(5, 7, 3, 2)
    alone = bicubic(small, (30, 3), (5, 7))
    bicubic(large, (20, 1000), (900, 1000))
    assert np.array_equal(bicubic(small, (30, 3), (5, 7)), alone)


def test_a_forked_process_and_a_frugal_instance_give_the_same() -> None:
    pixels = smooth(100, 90, 3, 3)
    usual = bicubic(pixels, (32, 40), (100, 90))
    kernel = resize.bicubic_kernel()
    wasm._local.__dict__[kernel.program] = wasm.WasmInstance(kernel, frugal=True)
    try:
        assert np.array_equal(bicubic(pixels, (32, 40), (100, 90)), usual)
    finally:
        del wasm._local.__dict__[kernel.program]
    resize.prepare_resizing()
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(bicubic(pixels, (32, 40), (100, 90)), usual) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("shape", [(2000, 1500, 3), (1400, 1400, 1), (30, 4000, 3), (900, 700, 3)])
def test_large_pictures_are_resized_alike(shape: tuple[int, int, int]) -> None:
    pixels = smooth(*shape, 4)
    for size in ((700, 600), (40, 50)):
        image = Image.fromarray(pixels[:, :, 0] if shape[2] == 1 else pixels)
        expected = image.resize(size[::-1], Image.Resampling.BICUBIC, reducing_gap=3.0)
        difference = resized(pixels, size).astype(int) - np.asarray(expected).reshape(*size, -1)
        assert np.abs(difference).max() <= 1


def test_what_would_take_much_memory_does_not_suit() -> None:
    assert suits((1024, 1024), (64, 64))
    assert not suits((1025, 1024), (64, 64))
    assert not suits((1, 1 << 20), (1 << 20, 1))
