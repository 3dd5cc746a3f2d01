"""Symbols move between blocks, and pictures reach them on either way: no byte and no pixel changes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from coders import check_both_paths, coder_of, shapes
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import natural, noise

from tpca_cli.codec.coder import Coder
from tpca_cli.codec.grid import Grid, grid_of
from tpca_cli.codec.kernel_run import joined, read_symbols, write_symbols
from tpca_cli.codec.restore import Restorer, bright_count, feature_count
from tpca_cli.codec.tuning import PSNR, VISUAL
from tpca_cli.framing import Framing
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, solve_modes
from tpca_cli.tensor_pca.fixed_basis import FixedBasis

PICTURES = [natural(40, 56, seed=0), noise(17, 9, seed=1), natural(64, 8, seed=2), natural(24, 24, seed=3)]


@pytest.fixture(scope="module", params=[PSNR, VISUAL])
def coder(request: pytest.FixtureRequest) -> Coder:
    framing = Framing("tile", 8, 8, 3)
    operators = ModeOperators(framing.frame_shape)
    for picture in PICTURES:
        operators.add(framing.split(picture))
    basis = solve_modes(operators)
    fixed = FixedBasis.from_modes(basis.modes, basis.indices, dtype=np.dtype("u1"))
    return Coder.train(PICTURES, framing, fixed, 12.0, tune=request.param)


def grid(coder: Coder, pictures: list[np.ndarray]) -> Grid:
    return grid_of(tuple(coder.framing.grid(h, w) for h, w in shapes(pictures)))


@settings(max_examples=20)
@given(st.permutations(range(4)), st.integers(0, 4))
def test_images_move_between_blocks_unchanged(coder: Coder, order: list[int], cut: int) -> None:
    """Code in two blocks, take out, put together in another order: the same pixels, the same symbols."""
    symbols, decoded = {}, {}
    for numbers in (order[:cut], order[cut:]):
        if not numbers:
            continue
        pictures = [PICTURES[number] for number in numbers]
        data = coder.encode(pictures).data
        taken = read_symbols(coder.model, grid(coder, pictures), data)
        assert write_symbols(coder.model, grid(coder, pictures), taken) == data
        decoded.update(zip(numbers, coder.decode(data, shapes(pictures)), strict=True))
        at = 0
        for number in numbers:
            tiles = coder.framing.count(*PICTURES[number].shape[:2])
            symbols[number] = taken.of(at, at + tiles)
            at += tiles
    together = joined([symbols[number] for number in range(4)])
    data = write_symbols(coder.model, grid(coder, PICTURES), together)
    for number, back in enumerate(coder.decode(data, shapes(PICTURES))):
        assert np.array_equal(back, decoded[number])
    again = read_symbols(coder.model, grid(coder, PICTURES), data)
    assert np.array_equal(again.values, together.values) and np.array_equal(again.flags, together.flags)


def filtered(coder: Coder, mixed: bool, bound: int) -> Coder:
    rng = np.random.default_rng(0)
    channels = coder.framing.channels
    mixing = rng.integers(-200, 201, (channels, feature_count(channels)))
    weights = rng.integers(-127, 128, (24, bright_count(bound)))
    restorer = Restorer(np.arange(1, 8) * 300, weights, mixing[: channels * mixed], bound)
    return dataclasses.replace(coder, restorer=restorer, restore_step=coder.step_units)


@pytest.mark.parametrize("restored", ["plain", "restored", "mixed", "bounded"])
@pytest.mark.parametrize("lapped", [False, True], ids=["apart", "lapped"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("side", [8, 16, 32])
def test_the_kernel_does_to_pictures_what_arrays_do(
    side: int, channels: int, lapped: bool, restored: str
) -> None:
    coder = coder_of(side, channels, lapped)
    assert coder.lapped == lapped
    if restored != "plain":
        coder = filtered(coder, restored != "restored", 40 if restored == "bounded" else 0)
    pictures = [natural(41, 67, channels, 2), noise(side - 1, 3 * side + 5, channels, 3)]
    pictures += [noise(1, 1, channels, 4), natural(2 * side, 9 * side + 1, channels, 5)]
    check_both_paths(coder, pictures)


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 90)), min_size=1, max_size=4),
    st.sampled_from([0.05, 1.0, 10.0, 300.0]),
    st.sampled_from([None, 1, 40]),
    st.booleans(),
)
def test_either_path_suits_any_picture_step_and_choice_of_components(
    sizes: list[tuple[int, int]], step: float, components: int | None, lapped: bool
) -> None:
    coder = coder_of(8, 3, lapped and components is None, components).with_step(step)
    check_both_paths(coder, [(noise if k % 2 else natural)(h, w, 3, k) for k, (h, w) in enumerate(sizes)])
