"""Laws of the charts: inside their frame, well-formed, the same line in SVG and in pixels, honest labels."""

from __future__ import annotations

import io
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tpca_cli.images.draw import Dot, Line, Words
from tpca_cli.report import charts
from tpca_cli.report.charts import HEIGHT, PALETTE, TINY, WIDTH, Chart, Curve, Series

CURVES = (Curve("tpca", (1.0, 0.5), (33.0, 30.0)), Curve("<other>", (0.4, 0.8), (28.0, 31.0)))

points = st.lists(st.tuples(st.floats(1e-3, 1e9), st.floats(0, 1e12)), max_size=400).map(tuple)


def chart_of(*lines: tuple, log_x: bool = True, log_y: bool = True) -> Chart:
    series = tuple(Series(f"<{number}>", line) for number, line in enumerate(lines))
    return Chart(series, "x & y", "y", log_x, log_y, '"s"')


@settings(max_examples=60)
@given(points, points, st.booleans(), st.booleans())
def test_charts_are_xml_within_their_frame(one: tuple, other: tuple, log_x: bool, log_y: bool) -> None:
    drawn = charts.to_svg(chart_of(one, other, log_x=log_x, log_y=log_y))
    if not drawn:
        assert not [y for _, y in (*one, *other) if y > TINY or not log_y]
        return
    tree = ElementTree.fromstring(drawn)
    assert tree.attrib["aria-label"] == '"s"'
    for element in tree.iter("polyline"):
        for point in element.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= WIDTH and 0 <= y <= HEIGHT


@given(points, st.booleans())
def test_every_axis_has_labels_that_say_where_they_stand(line: tuple, log: bool) -> None:
    shapes = charts.layout(chart_of(line, log_x=log, log_y=log))
    for anchor in ("middle", "end"):
        words = [s for s in shapes if isinstance(s, Words) and s.anchor == anchor and s.text[0].isdigit()]
        assert bool(words) == bool(shapes)
        values = [float(word.text.replace(",", "")) for word in words]
        places = [word.at[0] if anchor == "middle" else -word.at[1] for word in words]
        assert values == sorted(values) and places == sorted(places)


def test_legend_stands_above_the_lines() -> None:
    shapes = charts.layout(charts.rate_chart(CURVES))
    names = [s for s in shapes if isinstance(s, Words) and s.text in ("tpca", "<other>")]
    highest = min(y for s in shapes if isinstance(s, Line) for _, y in s.points)
    assert len(names) == 2 and all(word.at[1] < highest for word in names)
    assert len([s for s in shapes if isinstance(s, Dot)]) == 4 + 2  # one per point, one per name


def test_numbers_of_an_axis_share_a_notation() -> None:
    assert charts._numbers([1.0, 100.0, 10_000.0]) == ["1", "100", "10,000"]
    assert charts._numbers([1e3, 1e6, 1e-4]) == ["1e3", "1e6", "1e-4"]
    assert charts._numbers([0.0, 1.5e6]) == ["0", "1.5e6"]
    assert charts._numbers([0.2, 0.5, 1.0]) == ["0.2", "0.5", "1"]


@pytest.mark.parametrize("panels", [1, 2])
def test_png_shows_the_lines_in_their_colors_and_is_repeatable(panels: int) -> None:
    values = 1e6 / np.arange(1.0, 30.0)
    drawn = charts.spectrum_charts(values, 1e7 if panels == 2 else 0.0, "eigenvalues")
    assert len(drawn) == panels
    file = charts.to_file(drawn, "title")
    assert file == charts.to_file(drawn, "title")
    pixels = np.asarray(Image.open(io.BytesIO(file)))
    line = (pixels == PALETTE["series-0"]).all(axis=-1)
    for panel in np.array_split(line, panels, axis=1):
        assert panel.any(axis=0).mean() > 0.7  # from its left end to its right end


def test_spectrum_without_a_falling_value_has_no_chart() -> None:
    assert charts.spectrum_charts(np.zeros(5), 0.0, "eigenvalues") == []
    assert charts.to_svg(charts.rate_chart(())) == ""
