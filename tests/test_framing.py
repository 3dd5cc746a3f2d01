"""Laws of framing: the exact inverse for every size, in one shape for all frames."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import natural, noise

from tpca_cli.errors import ImageRefused
from tpca_cli.framing import TILE, WHOLE, Framing, mirror

sides = st.integers(1, 40)


@given(sides, sides, st.integers(1, 17), st.integers(1, 4), st.booleans())
def test_tiles_of_any_size_come_back_exactly(height: int, width: int, side: int, c: int, deep: bool) -> None:
    pixels = noise(height, width, c, dtype=np.uint16 if deep else np.uint8)
    framing = Framing(TILE, side, side, c)
    frames = framing.split(pixels)
    assert frames.shape == (framing.count(height, width), side, side, c)
    assert frames.dtype == pixels.dtype
    np.testing.assert_array_equal(framing.join(frames, height, width), pixels)


@given(st.integers(2, 5), sides, sides)
def test_many_images_of_one_size_are_split_as_each_would_be(n: int, height: int, width: int) -> None:
    images = np.stack([noise(height, width, 3, seed) for seed in range(n)])
    framing = Framing(TILE, 8, 8, 3)
    frames = framing.split(images)
    np.testing.assert_array_equal(frames, np.concatenate([framing.split(image) for image in images]))
    np.testing.assert_array_equal(framing.join(frames, height, width), images)


def test_frames_are_row_by_row() -> None:
    pixels = np.arange(16, dtype=np.uint8).reshape(4, 4, 1)
    frames = Framing(TILE, 2, 2, 1).split(pixels)[..., 0]
    np.testing.assert_array_equal(frames[0], [[0, 1], [4, 5]])
    np.testing.assert_array_equal(frames[1], [[2, 3], [6, 7]])
    np.testing.assert_array_equal(frames[2], [[8, 9], [12, 13]])


def test_whole_images_are_one_frame_each_and_other_sizes_are_refused() -> None:
    framing = Framing(WHOLE, 6, 7, 3)
    pixels = natural(6, 7)
    np.testing.assert_array_equal(framing.split(pixels)[0], pixels)
    np.testing.assert_array_equal(framing.join(framing.split(pixels), 6, 7), pixels)
    with pytest.raises(ImageRefused, match="5x7 pixels where all images have 6x7"):
        framing.split(natural(5, 7))
    with pytest.raises(ImageRefused, match="4 channels"):
        framing.split(natural(6, 7, 4))


def test_padding_continues_the_picture() -> None:
    np.testing.assert_array_equal(mirror(3, 8), [0, 1, 2, 2, 1, 0, 0, 1])
    np.testing.assert_array_equal(mirror(1, 4), [0, 0, 0, 0])
    ramp = np.arange(12, dtype=np.uint8)[:, None, None] * np.ones((1, 12, 1), np.uint8)
    padded = Framing(TILE, 8, 8, 1).split(ramp)[2, :, 0, 0]
    assert np.abs(np.diff(padded.astype(int))).max() == 1  # no jump at the edge


@given(sides, sides)
def test_padding_costs_no_more_energy_than_the_picture(height: int, width: int) -> None:
    pixels = natural(height, width, 1).astype(float)
    framing = Framing(TILE, 8, 8, 1)
    tiles = framing.split(pixels)[..., 0]
    assert np.isin(tiles, pixels).all()


def test_plain_json_gives_it_back() -> None:
    framing = Framing(TILE, 16, 16, 4)
    assert Framing.from_dict(json.loads(json.dumps(framing.to_dict()))) == framing


@pytest.mark.parametrize("bad", [("other", 8, 8, 3), (TILE, 8, 9, 3), (WHOLE, 0, 8, 3), (WHOLE, 8, 8, 5)])
def test_impossible_framings_are_refused(bad: tuple[str, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"framing|square|side"):
        Framing(*bad)


def test_frames_that_make_no_image_are_refused() -> None:
    with pytest.raises(ValueError, match="do not make"):
        Framing(TILE, 8, 8, 1).join(np.zeros((3, 8, 8, 1)), 16, 16)
