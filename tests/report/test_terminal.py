"""Laws of the text page: it fits its width, keeps its columns, and never needs more than ASCII."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpca_cli.errors import counted, human
from tpca_cli.report.facts import Facts, Section, energies, percent
from tpca_cli.report.terminal import NARROWEST, WIDEST, listing, render, spectrum


def facts(values: np.ndarray) -> Facts:
    return Facts(
        kind="archive",
        name="photos.h5",
        headline="archive of 62 images, 131 kB: 20.6 x smaller than the raw pixels",
        sections=(
            Section(
                "quality", (("target", "PSNR 36 dB"), ("measured", "36.04 dB pooled, 31.20 dB worst image"))
            ),
            Section(
                "basis", (("method", "rank1"), ("energy", "90.12 % in 10, 95.5 % in 50, 99.98 % in 192"))
            ),
        ),
        parts=(("coefficients", 120_000), ("basis", 8_000), ("index", 3_000)),
        values=values,
        total=float(values.sum()),
    )


falling = st.lists(st.floats(0, 1e15), min_size=1, max_size=300).map(
    lambda v: np.array(sorted(v, reverse=True))
)


@given(falling, st.integers(1, 250), st.booleans())
def test_no_line_is_wider_than_the_terminal(values: np.ndarray, width: int, unicode: bool) -> None:
    page = render(facts(values), width, unicode)
    assert max(map(len, page.split("\n"))) <= max(NARROWEST, min(width, WIDEST))
    assert unicode or page.isascii()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_page_says_everything_at_every_width(width: int) -> None:
    page = " ".join(render(facts(10.0 ** -np.arange(8)), width, True).split())
    for words in ("photos.h5", "PSNR 36 dB", "31.20 dB", "120 kB", "91.6 %", "99.98 % in 192", "eigenvalues"):
        assert words in page


def test_narrow_page_is_one_column_and_wide_page_is_two() -> None:
    values = 10.0 ** -np.arange(8)
    narrow, wide = (render(facts(values), width, False).split("\n") for width in (60, 120))
    assert "bytes" in narrow
    assert any(line.startswith("quality ") and len(line.split()) == 2 for line in wide)
    assert len(wide) < len(narrow)


@given(falling.filter(lambda v: v[0] > 0 and len(v) > 1), st.integers(20, 100))
def test_spectrum_falls_from_left_to_right(values: np.ndarray, width: int) -> None:
    *rows, axis = spectrum(values, width, 6, unicode=True)
    heights = [" ▁▂▃▄▅▆▇█".index(mark) for mark in rows[-1][9:]]
    assert heights == sorted(heights, reverse=True) and heights[0] > 0
    assert axis.split()[0] == "1" and axis.split()[-1] == f"{len(values):,}"


def test_listing_keeps_odd_names_last() -> None:
    images = [
        {
            "name": "a/b c.png",
            "height": 96,
            "width": 192,
            "mode": "RGB",
            "psnr": 36.123,
            "quality": None,
            "bytes": 812,
        },
        {
            "name": "x.png",
            "height": 1,
            "width": 1,
            "mode": "L",
            "psnr": float("inf"),
            "quality": None,
            "bytes": 3400,
        },
    ]
    head, first, second = listing(images).split("\n")
    assert first.endswith("36.12 dB     812 B  a/b c.png") and second.endswith("exact    3.4 kB  x.png")
    assert head.index("name") == first.index("a/b") == second.index("x.png")


@given(st.floats(0, 1e6), st.floats(1e-3, 1e6))
def test_percent_is_100_only_for_the_whole(part: float, whole: float) -> None:
    text = percent(part, whole)
    assert (100 * part / whole < 100) == (float(text.split()[-2]) < 100)


def test_words_for_numbers() -> None:
    assert [human(n) for n in (0, 812, 3_400, 999_499, 1_234_567)] == [
        "0 B",
        "812 B",
        "3.4 kB",
        "999 kB",
        "1.2 MB",
    ]
    assert [counted(n, "image") for n in (0, 1, 10_000)] == ["0 images", "1 image", "10,000 images"]


def test_energies_stop_at_the_last_component() -> None:
    assert energies(np.ones(60), 120.0) == [(10, 10 / 120), (50, 50 / 120), (60, 0.5)]
    assert energies(np.zeros(3), 0.0) == []
