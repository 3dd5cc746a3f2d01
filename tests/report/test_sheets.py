"""Laws of the contact sheets: every picture is on the sheet, unchanged where it fits, with its label."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tpca_cli.images.draw import text_width
from tpca_cli.report.sheets import (
    FONT,
    INK,
    PAPER,
    Cell,
    basis_sheet,
    contact_sheet,
    fit,
    in_grid,
    shorten,
    tensor_to_rgb,
    to_rgb,
)


@given(st.text(max_size=40), st.integers(20, 200))
def test_shortened_names_fit_and_keep_their_ends(text: str, room: int) -> None:
    short = shorten(text, room)
    assert text_width(short, FONT) <= room
    if text_width(text, FONT) <= room:
        assert short == text
    else:
        # the text may have dots of its own beside those for what was left out
        cuts = [at for at in range(len(short)) if short.startswith("..", at)]
        kept = [(short[:at], short[at + 2 :]) for at in cuts]
        assert not short or any(text.startswith(head) and text.endswith(tail) for head, tail in kept)


def test_every_mode_becomes_rgb() -> None:
    gray = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    assert (to_rgb(gray) == gray).all()
    assert (to_rgb(gray.astype(np.uint16) * 257) == gray).all()
    color = np.dstack([gray, gray + 50, gray + 100])
    assert (to_rgb(color) == color).all()
    opaque, clear = np.full((2, 3, 1), 255, np.uint8), np.zeros((2, 3, 1), np.uint8)
    assert (to_rgb(np.dstack([color, opaque])) == color).all()
    assert (to_rgb(np.dstack([color, clear])) == 128).all()
    assert (to_rgb(np.dstack([gray, opaque])) == gray).all()


def test_basis_elements_are_normalized_about_gray() -> None:
    tensor = np.linspace(-3.0, 1.0, 12).reshape(2, 2, 3)
    shown = tensor_to_rgb(tensor)
    assert shown.min() == 0 and shown.max() < 255
    assert (tensor_to_rgb(-tensor * 7.0) == tensor_to_rgb(-tensor)).all()
    assert np.ptp(tensor_to_rgb(np.zeros((2, 2, 3)))) == 0


@given(st.integers(1, 300), st.integers(1, 300))
def test_pictures_fit_their_cell(h: int, w: int) -> None:
    small = fit(np.full((h, w, 3), 77, np.uint8), 96)
    assert max(small.shape) <= 96 and min(small.shape) >= 1
    assert (small == 77).all()


def test_averages_keep_the_mean() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (200, 100, 3), np.uint8)
    assert abs(fit(pixels, 50).mean() - pixels.mean()) < 0.5


def test_sheet_holds_every_picture_and_its_words() -> None:
    colors = [(shade, 0, 255) for shade in (10, 90, 170)]  # words are gray
    pictures = [np.full((20, 30, 3), color, np.uint8) for color in colors]
    sheet = contact_sheet([[Cell(p, "a b") for p in pictures]] * 2, titles=["original", "M=5"], side=30)
    for color in colors:
        assert (sheet == color).all(axis=-1).sum() == 2 * 20 * 30
    bare = contact_sheet([[Cell(p) for p in pictures]] * 2, side=30)
    assert bare.shape[0] < sheet.shape[0] and bare.shape[1] < sheet.shape[1]
    assert (sheet[0] == PAPER).all()
    assert (sheet == INK).all(axis=-1).any() and not (bare == INK).any()


@given(st.integers(1, 70))
def test_grid_loses_no_cell(count: int) -> None:
    tensors = np.ones((count, 4, 4, 1))
    cells = [Cell(tensor_to_rgb(t), str(k)) for k, t in enumerate(tensors)]
    assert [cell for row in in_grid(cells) for cell in row] == cells
    assert basis_sheet(tensors, [str(k) for k in range(count)], side=8).shape[2] == 3
