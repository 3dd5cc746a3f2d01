"""Line charts as SVG text for the HTML report: no plotting library, colors that follow the theme."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 560, 330
LEFT, RIGHT, TOP, BOTTOM = 76, 14, 12, 52
MOST_POINTS = 240
TINY = 1e-290  # zero, for a logarithm


@dataclass(frozen=True)
class Series:
    """A named line of (x, y) points, both positive where their axis is logarithmic."""

    name: str
    points: tuple[tuple[float, float], ...]


def line_chart(
    series: Sequence[Series], *, x_label: str, y_label: str, log_x: bool, log_y: bool, summary: str
) -> str:
    """The chart as one <svg> element; `summary` is its text for people who do not see it."""
    lines = [_thin([p for p in each.points if p[0] > TINY and (p[1] > TINY or not log_y)]) for each in series]
    points = [point for line in lines for point in line]
    if not points:
        return ""
    place_x, ticks_x = _axis([x for x, _ in points], log_x, LEFT, WIDTH - RIGHT)
    place_y, ticks_y = _axis([y for _, y in points], log_y, HEIGHT - BOTTOM, TOP)
    bottom = HEIGHT - BOTTOM
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(summary)}">']
    for tick in ticks_x:
        x = place_x(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{_number(tick)}</text>')
    for tick in ticks_y:
        y = place_y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(tick)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{html.escape(x_label)}</text>')
    parts.append(
        f'<text transform="translate(16 {(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">'
        f"{html.escape(y_label)}</text>"
    )
    for number, (each, line) in enumerate(zip(series, lines, strict=True)):
        drawn = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in line)
        parts.append(f'<polyline class="series-{number % 4}" points="{drawn}"/>')
        if len(series) > 1:
            x, y = LEFT + 14, TOP + 22 + 22 * number
            parts.append(f'<circle class="series-{number % 4}" cx="{x}" cy="{y - 5}" r="5"/>')
            parts.append(f'<text x="{x + 12}" y="{y}">{html.escape(each.name)}</text>')
    return "\n".join([*parts, "</svg>"])


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most MOST_POINTS of a long line, denser at its beginning, as a logarithmic axis shows it."""
    last = len(points) - 1
    if last < MOST_POINTS:
        return points
    steps = (round((last + 1) ** (k / (MOST_POINTS - 1))) - 1 for k in range(MOST_POINTS))
    return [points[k] for k in sorted(set(steps))]


def _axis(
    values: Sequence[float], log: bool, start: float, end: float
) -> tuple[Callable[[float], float], list[float]]:
    """Where a value goes between two pixel positions, and the values to label."""
    low, high = min(values), max(values)
    if log:
        low, high = math.log10(low), math.log10(high)
    margin = 0.04 * (high - low) or 0.5
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return start + (end - start) * ((math.log10(value) if log else value) - low) / (high - low)

    if log:
        every = max(1, math.ceil((high - low) / 7))
        decades = [10.0**power for power in range(math.ceil(low), math.floor(high) + 1, every)]
        if len(decades) >= 3:
            return place, decades
        span = range(math.floor(low), math.ceil(high) + 1)
        fine = [lead * 10.0**power for power in span for lead in (1, 2, 5)]
        return place, [value for value in fine if low <= math.log10(value) <= high]
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    step = next(step * k for k in (1, 2, 5, 10) if (high - low) / (step * k) <= 8)
    return place, [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _number(value: float) -> str:
    """A short label: 0.5, 100, 10,000, 1e+12."""
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.0e}".replace("e+0", "e+").replace("e-0", "e-")
    return f"{value:,.0f}" if abs(value) >= 1 and value == round(value) else f"{value:g}"
