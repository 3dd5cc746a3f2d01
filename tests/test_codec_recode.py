"""Symbols move between blocks and no pixel changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import natural, noise

from tpca_cli.bases import Rank1Basis
from tpca_cli.codec.grid import grid_of
from tpca_cli.codec.recode import give, joined, take
from tpca_cli.coder import Coder
from tpca_cli.fixed import FixedBasis
from tpca_cli.framing import Framing
from tpca_cli.operators import ModeOperators

PICTURES = [natural(40, 56, seed=0), noise(17, 9, seed=1), natural(64, 8, seed=2), natural(24, 24, seed=3)]


@pytest.fixture(scope="module")
def coder() -> Coder:
    framing = Framing("tile", 8, 8, 3)
    operators = ModeOperators(framing.frame_shape)
    for picture in PICTURES:
        operators.add(framing.split(picture))
    basis = Rank1Basis.from_operators(operators)
    fixed = FixedBasis.from_modes(basis.modes, basis.indices, dtype=np.dtype("u1"))
    return Coder.train(PICTURES, framing, fixed, 12.0)


def shapes(pictures) -> list[tuple[int, int]]:
    return [picture.shape[:2] for picture in pictures]


def grid(coder, pictures):
    return grid_of(tuple(coder.framing.grid(h, w) for h, w in shapes(pictures)))


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(4)), st.integers(0, 4))
def test_images_move_between_blocks_unchanged(coder, order, cut) -> None:
    """Code in two blocks, take out, put together in the original order: as if coded together, to the byte."""
    symbols = {}
    for numbers in (order[:cut], order[cut:]):
        if not numbers:
            continue
        pictures = [PICTURES[number] for number in numbers]
        data = coder.encode(pictures).data
        taken = take(coder.model, grid(coder, pictures), data)
        assert give(coder.model, grid(coder, pictures), taken) == data
        at = 0
        for number in numbers:
            tiles = coder.framing.count(*PICTURES[number].shape[:2])
            symbols[number] = taken.of(at, at + tiles)
            at += tiles
    together = coder.encode(PICTURES)
    data = give(coder.model, grid(coder, PICTURES), joined([symbols[number] for number in range(4)]))
    assert data == together.data
    back = coder.decode(data, shapes(PICTURES))
    assert all(
        np.array_equal(one, two)
        for one, two in zip(back, coder.decode(together.data, shapes(PICTURES)), strict=True)
    )
