"""Laws of the HTML report and its charts: self-contained, well-formed, no name ever becomes markup."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli.errors import TpcaError
from tpca_cli.report import page, plots
from tpca_cli.report.facts import Facts, Section
from tpca_cli.report.svg import HEIGHT, TINY, WIDTH, Series, line_chart

VOID = {"meta", "link", "img", "input", "br"}
PNG = b"\x89PNG\r\n\x1a\n"


class Tree(HTMLParser):
    """Checks that tags nest, and collects what a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.setdefault(self.open[-1] if self.open else "", []).append(data)


def report(name: str) -> str:
    values = 1e6 / np.arange(1.0, 30.0)
    facts = Facts("archive", name, name, (Section(name, ((name, name),)),), ((name, 5),), values, total=1e7)
    comparison = page.Comparison(name, PNG, 29, (page.Step(1, PNG, 20.0), page.Step(29, PNG, np.inf)))
    curve = plots.Curve(name, (0.5, 1.0), (30.0, 33.0))
    pictures = page.Pictures((comparison,), note=name, basis_sheet=PNG, curves=(curve,))
    return page.render(facts, pictures, [{"name": name, "height": 2, "width": 3, "mode": "L", "psnr": 31.0}])


@settings(max_examples=40)
@given(st.text(min_size=1, max_size=30))
def test_any_name_leaves_the_same_elements(name: str) -> None:
    plain = [tag for tag, _ in Tree(report("plain")).tags]
    assert [tag for tag, _ in Tree(report(name)).tags] == plain


@pytest.mark.parametrize(
    "name", ["</script><b>", "<!--", "&lt;b&gt;", "'\"onload=x ", "$style ${x}", "\\u003c"]
)
def test_hostile_names_are_shown_as_they_are(name: str) -> None:
    tree = Tree(report(name))
    assert "".join(tree.words["h1"]) == name
    assert not any(tag == "b" or "onload" in attributes for tag, attributes in tree.tags)
    data = json.loads(re.search(r'id="data">(.*?)</script>', report(name), re.S)[1])
    assert data["images"][0]["name"] == name
    assert data["images"][0]["steps"][1]["psnr"] == "exact"


def test_page_refers_to_nothing_outside() -> None:
    for tag, attributes in Tree(report("x")).tags:
        for key in ("src", "href", "action", "data", "srcset"):
            assert not attributes.get(key) or attributes[key].startswith("data:"), (tag, key)
    assert not re.search(r"https?:|@import|url\(", report("x"))


def test_parts_that_are_missing_leave_no_trace() -> None:
    tree = Tree(page.render(Facts("tensor", "t.h5", "a tensor", ()), page.Pictures()))
    assert "svg" not in [tag for tag, _ in tree.tags]
    assert "compare" not in [attributes.get("id") for _, attributes in tree.tags]


points = st.lists(st.tuples(st.floats(1e-3, 1e9), st.floats(0, 1e12)), max_size=400).map(tuple)


@settings(max_examples=60)
@given(points, st.booleans(), st.booleans())
def test_charts_are_xml_within_their_frame(line: tuple, log_x: bool, log_y: bool) -> None:
    chart = line_chart(
        [Series("<a>", line)], x_label="x & y", y_label="y", log_x=log_x, log_y=log_y, summary='"s"'
    )
    if not chart:
        assert not [y for _, y in line if y > TINY or not log_y]
        return
    for element in ElementTree.fromstring(chart).iter("polyline"):
        for point in element.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= WIDTH and 0 <= y <= HEIGHT


def test_plots_are_png_and_repeatable() -> None:
    values = 1e6 / np.arange(1.0, 30.0)
    curve = plots.Curve("tpca", (0.5, 1.0), (30.0, 33.0))
    for draw in (
        lambda: plots.spectrum_png(values, 1e7, name="eigenvalue", title="t"),
        lambda: plots.rate_distortion_png([curve], title="t"),
    ):
        first = draw()
        assert first.startswith(PNG) and first == draw()


def test_missing_matplotlib_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TpcaError, match=r"pip install 'tpca-cli\[plot\]'"):
        plots.spectrum_png(np.ones(3), 3.0, name="", title="")
