"""Steps as people see errors: by component, by region."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from coders import check_both_paths, coder_of, shapes
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import natural, noise

from tpca_cli.codec import tuning
from tpca_cli.codec.basis_coding import arrays_of, coder_from_arrays, meta_of
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.tuning import PSNR, THUMBNAIL, VISUAL
from tpca_cli.errors import FileRefused


def visual(side: int, channels: int, lapped: bool, tune: str = VISUAL) -> Coder:
    """A coder whose steps are made for people."""
    return coder_of(side, channels, lapped)._tuned(tune)


CASES = [
    *((side, lapped, VISUAL) for side in (8, 16, 32) for lapped in (False, True)),
    *((side, False, THUMBNAIL) for side in (8, 16, 32)),
]


@pytest.mark.parametrize(("side", "lapped", "tune"), CASES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_both_ways_and_a_stored_coder_agree(side: int, channels: int, lapped: bool, tune: str) -> None:
    coder = visual(side, channels, lapped, tune)
    pictures = [natural(70, 45, channels, 2), noise(19, 33, channels, 3), natural(5, 3, channels, 4)]
    check_both_paths(coder, pictures)
    again = coder_from_arrays(meta_of(coder), arrays_of(coder))
    assert again.tune == tune and coder_of(side, channels, lapped).tune == PSNR
    assert again.encode(pictures).data == coder.encode(pictures).data


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=4), st.integers(0, 99)
)
def test_what_is_decoded_is_what_was_measured(sizes: list[tuple[int, int]], seed: int) -> None:
    coder = visual(8, 3, True)
    pictures = [natural(h, w, 3, seed + k) for k, (h, w) in enumerate(sizes)]
    coded = coder.encode(pictures)
    back = coder.decode(coded.data, shapes(pictures))
    for picture, one, two, sse in zip(pictures, back, coded.decoded, coded.sse, strict=True):
        assert np.array_equal(one, two)
        assert int(((picture.astype(int) - one) ** 2).sum()) == sse


@given(
    st.integers(1, 70), st.integers(1, 70), st.sampled_from([8, 16, 32]), st.integers(1, 4),
    st.sampled_from([VISUAL, THUMBNAIL]),
)  # fmt: skip
@settings(max_examples=40)
def test_every_tile_has_a_grade_and_regions_share_one(
    h: int, w: int, tile: int, channels: int, tune: str
) -> None:
    grades = tuning.grades_of([natural(h, w, channels, h)], tile, 255, tune)
    down, right = -(-h // tile), -(-w // tile)
    assert grades.shape == (down * right,) and grades.max() < tuning.MANNERS[tune].grades
    side = tuning.region_tiles(tile, tune)
    grid = grades.reshape(down, right)
    for top in range(0, down, side):
        for left in range(0, right, side):
            assert len(np.unique(grid[top : top + side, left : left + side])) == 1


@pytest.mark.parametrize("tune", [VISUAL, THUMBNAIL])
def test_quiet_regions_get_finer_steps_than_busy_ones(tune: str) -> None:
    picture = np.full((64, 64, 3), 120, np.uint8)
    picture[:, 32:] = noise(64, 32, 3, 1)
    grades = tuning.grades_of([picture], 16, 255, tune).reshape(4, 4)
    assert grades[:, 0].max() < grades[:, 3].min()
    manner = tuning.MANNERS[tune]
    assert np.all(np.diff(manner.factors) > 0) and manner.factors[manner.grades // 2] == 64


def test_factors_and_regions_that_cannot_be_are_refused() -> None:
    coder = visual(8, 3, True)
    arrays = arrays_of(coder)
    for name, wrong in (
        ("factors", np.zeros(4, np.uint16)),
        ("factors", np.full(17, 64, np.uint16)),
        ("factors", np.full(1, 64, np.uint16)),
        ("factors", np.full((2, 2), 64, np.uint16)),
    ):
        with pytest.raises(FileRefused):
            coder_from_arrays(meta_of(coder), {**arrays, name: wrong})
    for region in (0, 3, -1, 1 << 40):
        with pytest.raises(FileRefused):
            coder_from_arrays({**meta_of(coder), "region": region}, arrays)
    without = {name: array for name, array in arrays.items() if name != "gains"}
    with pytest.raises(FileRefused):
        coder_from_arrays(meta_of(coder), without)


def test_images_are_thumbnails_below_128_pixels_unless_they_have_alpha() -> None:
    for channels, small in ((1, THUMBNAIL), (2, VISUAL), (3, THUMBNAIL), (4, VISUAL)):
        for sides in ([(127, 500)], [(64, 64), (127, 700), (200, 200)]):
            assert tuning.tune_for(sides, channels) == small
        for sides in ([(128, 128)], [(64, 64), (300, 300), (200, 200)]):
            assert tuning.tune_for(sides, channels) == VISUAL


def test_color_of_thumbnails_is_coarse_and_their_brightness_is_not() -> None:
    places = np.array([[i, j, c] for i in range(8) for j in range(8) for c in range(3)])
    seen, small = (tuning.component_factors(places, (8, 8), tune, False) for tune in (VISUAL, THUMBNAIL))
    color, fine = places[:, 2] > 0, places[:, :2].sum(axis=1) > 0
    assert (small[fine & ~color] <= seen[fine & ~color]).all() and (small[color] > seen[color]).all()
    sample = [natural(64, 64, 3, seed) for seed in range(4)]
    like = coder_of(8, 3, True)
    coder = Coder.train(sample, like.framing, like.basis, 10.0, effort=0, tune=THUMBNAIL)
    assert coder.tune == THUMBNAIL and not coder.lapped


def test_deep_and_truncated_coders_are_not_tuned() -> None:
    plain = coder_of(8, 3, True)
    sample = [natural(70, 90, 3, 1)]
    few = Coder.train(sample, plain.framing, plain.basis, 10.0, components=20, effort=0, tune=VISUAL)
    assert few.tune == PSNR
    assert dataclasses.replace(plain).tune == PSNR


@pytest.mark.parametrize("tune", [PSNR, VISUAL])
@pytest.mark.parametrize("step", [4.0, 40.0])
def test_lapping_is_chosen_with_the_steps_that_will_be_used(tune: str, step: float) -> None:
    """Blocky pictures, as JPEG leaves them: coarse steps for people hide their grid sooner than others."""
    like, pictures = coder_of(8, 3, False), [blocky(natural(96, 96, 3, seed)) for seed in (1, 2)]
    both = [
        Coder.train(pictures, like.framing, like.basis, step, effort=0, lapped=lapped, tune=tune)
        for lapped in (True, False)
    ]
    best = Coder.train(pictures, like.framing, like.basis, step, effort=0, tune=tune)
    assert best.tune == tune
    assert best.lapped == min(both, key=lambda coder: coder._price(pictures)).lapped
    assert best._price(pictures) == min(coder._price(pictures) for coder in both)


def blocky(picture: np.ndarray) -> np.ndarray:
    """Each tile of 8 x 8 with the slope that it has across, and nothing finer."""
    found = picture.copy()
    for y in range(0, picture.shape[0], 8):
        for x in range(0, picture.shape[1], 8):
            tile = found[y : y + 8, x : x + 8]
            tile[:] = tile.mean(axis=0, keepdims=True) // 16 * 16
    return found


def test_mean_colors_of_lapped_tiles_are_finer_for_the_least_error() -> None:
    sample = [natural(72, 88, 3, seed) for seed in (1, 2)]
    lapped, apart = (
        Coder.train(sample, coder_of(8, 3, True).framing, coder_of(8, 3, True).basis, 20.0, lapped=lap)
        for lap in (True, False)
    )
    assert apart.basis.indices is not None
    means = (apart.basis.indices[:, :2] == 0).all(axis=1)
    color = apart.basis.indices[:, 2] > 0
    norms = lapped.gains[means & ~color]
    assert (lapped.gains[means & color] == np.rint(norms / 0.8)).all()
    for coder in (lapped, apart):
        assert coder.tune == PSNR and np.array_equal(
            coder_from_arrays(meta_of(coder), arrays_of(coder))._steps, coder._steps
        )
