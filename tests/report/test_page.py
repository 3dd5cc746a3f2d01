"""Laws of the HTML report: self-contained, well-formed, no name ever becomes markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli.report import page
from tpca_cli.report.charts import Curve
from tpca_cli.report.facts import Facts, Section

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
    curve = Curve(name, (0.5, 1.0), (30.0, 33.0))
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
