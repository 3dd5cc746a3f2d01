"""Laws of drawing: any text has a picture of the width it says, and shapes are where they were put."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tpca_cli.images.draw import Dot, Line, Words, draw, text_mask, text_width

PALETTE = {"ink": (200, 0, 0)}


def test_every_printable_character_has_its_own_picture() -> None:
    assert len({text_mask(chr(code), 14).tobytes() for code in range(33, 127)}) == 94
    assert not text_mask(" ", 14).any()


@given(st.text(max_size=20), st.integers(8, 30))
def test_any_text_can_be_drawn_in_one_height(text: str, size: int) -> None:
    assert text_mask(text, size).shape == (text_mask("", size).shape[0], text_width(text, size))


@given(st.text(st.characters(min_codepoint=127), min_size=1, max_size=5))
def test_what_the_font_lacks_is_a_question_mark(text: str) -> None:
    assert (text_mask(text, 14) == text_mask("?" * len(text), 14)).all()


@given(st.integers(0, 39), st.sampled_from([1.0, 1.5, 2.0]))
def test_a_level_line_covers_its_row(row: int, scale: float) -> None:
    y = row + 0.5
    pixels = draw([Line("ink", ((0.0, y), (60.0, y)), 1.0)], (60, 40), PALETTE, scale=scale)
    assert pixels.shape == (40 * scale, 60 * scale, 3)
    inked = np.flatnonzero((pixels != 255).any(axis=(1, 2)))
    assert len(inked) and np.abs((inked + 0.5) / scale - y).max() <= 1.0


def test_dots_are_round_and_in_place() -> None:
    pixels = draw([Dot("ink", (30.0, 20.0), 8.0)], (60, 40), PALETTE)
    share = (255.0 - pixels[:, :, 1]) / 255.0
    assert abs(share.sum() - np.pi * 64) < 6
    y, x = np.mgrid[:40, :60] + 0.5
    assert abs((share * x).sum() / share.sum() - 30) < 0.3 and abs((share * y).sum() / share.sum() - 20) < 0.3


def test_words_stand_where_their_anchor_says() -> None:
    for anchor, low, high in (("start", 60, 110), ("middle", 35, 85), ("end", 10, 60)):
        pixels = draw([Words("ink", (60.0, 30.0), "width", anchor)], (120, 60), PALETTE)
        columns = np.flatnonzero((pixels != 255).any(axis=(0, 2)))
        rows = np.flatnonzero((pixels != 255).any(axis=(1, 2)))
        assert low <= columns.min() and columns.max() <= high and abs(rows.max() - 29) <= 1
        upright = draw([Words("ink", (60.0, 30.0), "width", "middle", upright=True)], (120, 60), PALETTE)
        assert (upright != 255).any(axis=(0, 2)).sum() == len(rows)
