"""Grades by trial: regions take what they gain by, in whole regions, and what is coded is worth its bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from codec.test_learned import trained
from coders import shapes, without_trials
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pictures import natural

from tpca_cli.codec import kernel_run, trials
from tpca_cli.codec.contexts import TABLED
from tpca_cli.codec.kernel_run import Encoded
from tpca_cli.codec.tuning import PSNR, VISUAL
from tpca_cli.visual import structure_lost

TILE, REGION, MOST = 8, 2, 11
Grades = NDArray[np.uint8]


def grid_of(picture: np.ndarray) -> tuple[int, int]:
    return -(-picture.shape[0] // TILE), -(-picture.shape[1] // TILE)


def tried(code: Callable[[Grades], Encoded], pictures: list[np.ndarray], grades: Grades) -> Grades:
    grids = [grid_of(picture) for picture in pictures]
    return trials.Trials(MOST, TILE, REGION, 16.0).better(code, pictures, grids, grades)


def test_a_region_that_loses_nothing_becomes_coarser_and_one_that_loses_much_finer() -> None:
    """On the left errors grow with the grade at no cost; on the right there are none, and bits are saved."""
    picture = natural(64, 64, 3, 1)
    right = np.arange(64) >= 32
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 2.0, picture.shape)

    def code(grades: Grades) -> Encoded:
        pixels = np.where(right[None, :, None], picture, picture + noise * 2.0 ** int(grades[0] - 4))
        decoded = np.clip(pixels, 0, 255).astype(np.uint8)
        busy = np.where(np.arange(64) % 8 < 4, 0, 60 - 5 * int(grades[0]))
        return Encoded(bytes(int(busy.sum())), np.zeros(1, np.int64), [decoded], busy)

    found = tried(code, [picture], np.full(64, 5, np.uint8)).reshape(8, 8)
    assert (found[:, :2] == 4).all()  # away from what is blurred across
    assert (found[:, 6:] == 6).all()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(8, 70), st.integers(8, 70)), min_size=1, max_size=3), st.integers(0, MOST)
)
def test_grades_change_by_one_at_most_and_in_whole_regions(sides: list[tuple[int, int]], first: int) -> None:
    pictures = [natural(height, width, 3, k) for k, (height, width) in enumerate(sides)]
    rng = np.random.default_rng(first)
    tiles = sum(int(np.prod(grid_of(picture))) for picture in pictures)

    def code(grades: Grades) -> Encoded:
        decoded = [np.clip(p + rng.normal(0, 9, p.shape), 0, 255).astype(np.uint8) for p in pictures]
        return Encoded(bytes(900), np.zeros(len(pictures), np.int64), decoded, rng.integers(0, 90, tiles))

    before = np.full(tiles, first, np.uint8)
    after = tried(code, pictures, before)
    assert after.max() <= MOST and (np.abs(after.astype(int) - first) <= 1).all()
    assert (before == first).all()
    start = 0
    for picture in pictures:
        down, across = grid_of(picture)
        own = after[start : start + down * across].reshape(down, across)
        start += down * across
        corners = own[::REGION, ::REGION].repeat(REGION, axis=0).repeat(REGION, axis=1)
        np.testing.assert_array_equal(own, corners[:down, :across])


def test_pictures_too_small_to_be_compared_keep_their_grades() -> None:
    pictures = [natural(7, 40, 3, 1), natural(40, 5, 3, 2)]

    def code(grades: Grades) -> Encoded:
        return Encoded(bytes(90 - 5 * int(grades[0])), np.zeros(2, np.int64), pictures, np.full(10, 3))

    before = np.full(10, 5, np.uint8)
    np.testing.assert_array_equal(tried(code, pictures, before), before)


@pytest.mark.parametrize("step", [8.0, 30.0])
def test_what_is_coded_is_worth_its_bits(step: float) -> None:
    """Structure and bits together cost less than without trials, and a reader gets what was measured."""
    pictures = [natural(200, 176, 3, 3), natural(90, 131, 3, 4)]
    coder = trained(pictures, step=step, tune=VISUAL, lapped=True)
    found = coder.encode(pictures)
    for mine, theirs in zip(found.decoded, coder.decode(found.data, shapes(pictures)), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    price = trials.BIT_PRICE * step**1.75

    def cost(of: Encoded) -> float:
        lost = [structure_lost(a, b, TILE * REGION).sum() for a, b in zip(pictures, of.decoded, strict=True)]
        return float(sum(lost) + price * of.bits)

    plain = without_trials(coder, pictures)
    assert found.data != plain.data
    assert cost(found) < cost(plain)


@pytest.mark.parametrize("how", ["least error", "quick", "no filter"])
def test_elsewhere_there_are_no_trials(how: str) -> None:
    pictures = [natural(200, 176, 3, 3)]
    tune, predictor = (
        PSNR if how == "least error" else VISUAL,
        {"predictor": TABLED} if how == "quick" else {},
    )
    coder = trained(pictures, tune=tune, lapped=True, **predictor)
    if how == "no filter":
        coder = dataclasses.replace(coder, restorer=None)
    assert coder.encode(pictures).data == without_trials(coder, pictures).data


def test_busy_tiles_are_those_with_values() -> None:
    pictures = [natural(64, 72, 3, 5)]
    coder = trained([natural(200, 176, 3, 3)], tune=PSNR)
    found = coder.encode(pictures)
    grid = coder._grid(shapes(pictures))
    values = np.minimum(np.abs(kernel_run.read_symbols(coder.model, grid, found.data).values), 2)
    lowest = [row for row in coder._scan.lowest if row >= 0]
    np.testing.assert_array_equal(found.busy, np.delete(values, lowest, axis=0).sum(axis=0))
