"""The text page of `tpca inspect`: aligned, as wide as the terminal up to a point, blocks or plain ASCII."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.errors import human, printable
from tpca_cli.report.facts import Facts, Section, percent

NARROWEST, WIDEST, TWO_COLUMNS = 40, 120, 100
BLOCKS, SHADES = " ▁▂▃▄▅▆▇█", " .:|"  # partial cells, and what stands for them in ASCII
DECADES = 8  # how far below the largest value the spectrum is drawn


def render(facts: Facts, width: int, unicode: bool) -> str:
    """The whole page, without a trailing newline."""
    width = max(NARROWEST, min(width, WIDEST))
    column = width if width < TWO_COLUMNS else (width - 4) // 2
    blocks = [_section(section, column) for section in facts.sections if section.rows]
    if facts.parts:
        blocks.append(_parts(facts.parts, column, unicode))
    if facts.values is not None and len(facts.values) > 1:
        blocks.append([facts.values_name, *spectrum(facts.values, column - 2, 6, unicode)])
    head = _wrap(f"{facts.name}: {facts.headline}", width, "", "  ")
    if width < TWO_COLUMNS:
        return "\n".join([*head, "", *_stack(blocks)]).rstrip()
    # the break that leaves the shortest page
    left, right = min(
        ((_stack(blocks[:k]), _stack(blocks[k:])) for k in range(1, len(blocks) + 1)),
        key=lambda pair: max(map(len, pair)),
        default=([], []),
    )
    body = (f"{one:<{column}}    {two}".rstrip() for one, two in zip_longest(left, right, fillvalue=""))
    return "\n".join([*head, "", *body]).rstrip()


def _stack(blocks: Iterable[Sequence[str]]) -> list[str]:
    """Blocks one under the other, an empty line between them."""
    return [line for block in blocks for line in (*block, "")][:-1]


def _section(section: Section, width: int) -> list[str]:
    lines = [section.title]
    label_width = max(len(label) for label, _ in section.rows)
    for label, value in section.rows:
        lead = f"  {label:<{label_width}}  "
        lines += _wrap(value, width, lead, " " * len(lead)) or [lead.rstrip()]
    return lines


def _wrap(text: str, width: int, first: str, later: str) -> list[str]:
    """Lines that never part a number from its unit."""
    glued = re.sub(r"(?<=\d) (?=\S)", "\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(glued, width, initial_indent=first, subsequent_indent=later)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _parts(parts: Sequence[tuple[str, int]], width: int, unicode: bool) -> list[str]:
    """Bytes by part, each with its share of the file as a number and a bar."""
    total = sum(size for _, size in parts)
    label_width = max(len(label) for label, _ in (*parts, ("total", 0)))
    room = width - label_width - 24
    mark = "█" if unicode else "#"
    lines = ["bytes"]
    for label, size in parts:
        bar = mark * round(room * size / total) if total and room > 4 else ""
        lines.append(f"  {label:<{label_width}}  {human(size):>8}  {percent(size, total):>8}  {bar}".rstrip())
    return [*lines, f"  {'total':<{label_width}}  {human(total):>8}"]


def spectrum(values: npt.NDArray[np.float64], width: int, height: int, unicode: bool) -> list[str]:
    """A bar chart of falling values with both axes logarithmic: `height` rows and an axis."""
    count = len(values)
    top = float(values[0])
    if top <= 0:
        return ["  all zero"]
    floor = max(float(values[values > 0].min()), top * 10.0**-DECADES)
    low = math.ceil(math.log10(floor)) - 1  # strictly below: the smallest value still shows
    high = max(math.ceil(math.log10(top)), low + 1)
    margin = 8  # room for 1e-300
    columns = max(width - margin - 1, 8)
    at = (
        np.round(count ** (np.arange(columns) / (columns - 1))).astype(int) - 1
    )  # component under each column
    levels = (np.log10(np.maximum(values[at], 10.0**low)) - low) / (high - low) * height
    steps = BLOCKS if unicode else SHADES
    lines = []
    for row in reversed(range(height)):
        filled = np.clip((levels - row) * (len(steps) - 1), 0, len(steps) - 1)
        bars = "".join(steps[math.ceil(cell)] for cell in filled)
        label = f"1e{high:+03d}" if row == height - 1 else f"1e{low:+03d}" if row == 0 else ""
        lines.append(f"  {label:>{margin - 2}} {bars}".rstrip())
    axis = [" "] * columns
    ticks = [10**power for power in range(1 + int(math.log10(count)))]
    for tick in sorted({*ticks, count}, reverse=True):  # the last one first: it must be there
        text = f"{tick:,}"
        start = min(round((columns - 1) * math.log(tick) / math.log(count)), columns - len(text))
        if all(cell == " " for cell in axis[max(start - 1, 0) : start + len(text) + 1]):
            axis[start : start + len(text)] = text
    return [*lines, " " * (margin + 1) + "".join(axis).rstrip()]


def listing(images: Sequence[Mapping[str, Any]]) -> str:
    """One line per image of an archive; the name stands last, so that any name keeps the columns aligned."""
    scored = any(image["quality"] is not None for image in images)
    heading = f"{'quality':>7}  " if scored else ""
    lines = [f"{'size':>11}  {'mode':<4}  {'PSNR':>8}  {heading}{'bytes':>8}  name"]
    for image in images:
        size = f"{image['height']}x{image['width']}"
        loss = "exact" if math.isinf(image["psnr"]) else f"{image['psnr']:.2f} dB"
        seen = "" if image["quality"] is None else f"{image['quality']:.2f}"
        seen = f"{seen:>7}  " if scored else ""
        name = printable(image["name"])
        columns = f"{size:>11}  {image['mode']:<4}  {loss:>8}  {seen}{human(image['bytes']):>8}"
        lines.append(f"{columns}  {name}")
        if image.get("without"):
            lines.append(f"{'':>11}  in part, without: {', '.join(image['without'])}")
    return "\n".join(lines)
