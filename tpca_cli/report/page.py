"""The HTML report: one page with everything inside, that loads nothing and runs from a file.

Arrays and facts in, text out. Whatever comes from a file name or a file is escaped here, in `text` and
`_embedded`; the templates are in `assets/`.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Any

from tpca_cli import __version__
from tpca_cli.errors import human, printable
from tpca_cli.report.charts import Chart, Curve, rate_chart, spectrum_charts, to_svg
from tpca_cli.report.facts import Facts, percent

MOST_ROWS = 500  # images that the table lists, worst first


@dataclass(frozen=True)
class Step:
    """An image rebuilt from some of its components."""

    components: int
    png: bytes
    psnr: float | None  # against the reference; inf when identical


@dataclass(frozen=True)
class Comparison:
    """One image at several component counts beside the picture it is judged by."""

    name: str
    reference: bytes  # PNG
    most: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Pictures:
    """What the page shows besides the numbers; every part may be missing."""

    comparisons: tuple[Comparison, ...] = ()
    reference: str = "original"
    note: str = ""
    basis_sheet: bytes = b""
    curves: tuple[Curve, ...] = ()
    scatter: Chart | None = None  # images by their first two components


def render(facts: Facts, pictures: Pictures, images: Sequence[Mapping[str, Any]] = ()) -> str:
    """The whole page."""
    body = [
        _compare(pictures),
        _numbers(facts),
        _spectrum(facts),
        _scatter(pictures.scatter),
        _basis(pictures),
        _curves(pictures.curves),
        _images(images),
    ]
    return _fill(
        "page.html",
        title=text(facts.name),
        headline=text(facts.headline),
        style=_asset("page.css"),
        script=_asset("page.js"),
        body="\n".join(part for part in body if part),
        data=_embedded(pictures),
        version=__version__,
    )


def text(value: object) -> str:
    """Anything as text that HTML cannot mistake for markup."""
    return html.escape(str(value), quote=True)


def data_uri(png: bytes) -> str:
    """A PNG file inside an address, so that the page needs no other file."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _asset(name: str) -> str:
    return resources.files("tpca_cli.report").joinpath("assets").joinpath(name).read_text("utf-8")


def _fill(name: str, **fields: str) -> str:
    return Template(_asset(name)).substitute(fields)


def _embedded(pictures: Pictures) -> str:
    """The data of the script as JSON in which no `<` can end the element."""
    images = [
        {
            "name": comparison.name,
            "reference": data_uri(comparison.reference),
            "most": comparison.most,
            "steps": [
                {
                    "components": step.components,
                    "uri": data_uri(step.png),
                    "psnr": "exact" if step.psnr == float("inf") else step.psnr,
                }
                for step in comparison.steps
            ],
        }
        for comparison in pictures.comparisons
    ]
    packed = json.dumps({"reference": pictures.reference, "images": images}, allow_nan=False)
    return packed.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{text(title)}</h2>\n{content}\n</section>"


def _compare(pictures: Pictures) -> str:
    if not pictures.comparisons:
        return ""
    return _fill("compare.html", note=text(pictures.note), reference=text(pictures.reference))


def _numbers(facts: Facts) -> str:
    blocks = []
    for section in facts.sections:
        rows = "".join(f"<dt>{text(label)}</dt><dd>{text(value)}</dd>" for label, value in section.rows)
        blocks.append(f"<div><h3>{text(section.title)}</h3><dl>{rows}</dl></div>")
    parts = ""
    if facts.parts:
        total = sum(size for _, size in facts.parts)
        rows = "".join(_part_row(name, size, total) for name, size in facts.parts)
        parts = (
            f'<h3>bytes: {human(total)}</h3><div class="scroll"><table><tbody>{rows}</tbody></table></div>'
        )
    return _section("Numbers", f'<div class="columns">{"".join(blocks)}</div>{parts}')


def _part_row(name: str, size: int, total: int) -> str:
    width = 100 * size / max(total, 1)
    return (
        f'<tr><td class="short">{text(name)}</td><td class="number">{human(size)}</td>'
        f'<td class="number">{percent(size, total)}</td>'
        f'<td class="wide"><span class="bar" style="width:{width:.2f}%"></span></td></tr>'
    )


def _spectrum(facts: Facts) -> str:
    values = () if facts.values is None else spectrum_charts(facts.values, facts.total, facts.values_name)
    drawn = "".join(f"<div>{to_svg(chart)}</div>" for chart in values)
    return _section("Spectrum", f'<div class="columns">{drawn}</div>') if drawn else ""


def _scatter(chart: Chart | None) -> str:
    drawn = "" if chart is None else to_svg(chart)
    return _section("First two components", drawn) if drawn else ""


def _basis(pictures: Pictures) -> str:
    if not pictures.basis_sheet:
        return ""
    uri = data_uri(pictures.basis_sheet)
    return _section(
        "Basis",
        '<p class="note">The strongest basis elements: gray is zero, each is scaled to its own range.</p>'
        '<div class="pan" tabindex="0" role="region" aria-label="basis elements">'
        f'<img class="sheet" alt="contact sheet of the first basis elements" src="{uri}"></div>',
    )


def _curves(curves: Sequence[Curve]) -> str:
    chart = to_svg(rate_chart(curves))
    return _section("Rate and distortion", chart) if chart else ""


def _images(images: Sequence[Mapping[str, Any]]) -> str:
    if not images:
        return ""
    scored = all(image.get("quality") is not None for image in images)
    worst = sorted(images, key=lambda image: float(image["quality" if scored else "psnr"]))[:MOST_ROWS]
    rows = "".join(_image_row(image) for image in worst)
    title = (
        "Images, worst first"
        if len(worst) == len(images)
        else f"The {len(worst)} worst of {len(images)} images"
    )
    return _section(
        title,
        '<div class="scroll" tabindex="0" role="region" aria-label="images"><table><thead><tr><th>name</th>'
        '<th class="number">size</th><th>mode</th><th class="number">PSNR, dB</th>'
        '<th class="number">quality</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>",
    )


def _image_row(image: Mapping[str, Any]) -> str:
    psnr = "identical" if image["psnr"] == float("inf") else f"{image['psnr']:.2f}"
    name, seen = text(printable(image["name"])), image.get("quality")
    quality = "" if seen is None else f"{seen:.2f}"
    return (
        f'<tr><td>{name}</td><td class="number">{image["height"]} x {image["width"]}</td>'
        f'<td class="short">{text(image["mode"])}</td><td class="number">{psnr}</td>'
        f'<td class="number">{quality}</td></tr>'
    )
