"""The order in which components are coded, and which decoded magnitudes each of them looks at.

A component has a place (i, j) and a channel. Components of neighbouring diagonals i + j form a step: they are
coded at once, without seeing one another, for the even tiles of the checkerboard and then for the odd ones,
which see the even. A component sees lower diagonals of its own tile, the tiles above, below, left and right,
and (color) the first channel. Weights belong to relative places, so every tile size can use them.

Inside the codec components are rows in the order of the scan, so that whatever is coded or seen together is
one slice: the first channel by diagonal, then the others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Place = tuple[int, int, int]

OWN = (
    (-1, 0),
    (0, -1),
    (-1, -1),
    (-2, 0),
    (0, -2),
    (-2, -1),
    (-1, -2),
    (-2, 1),
    (1, -2),
    (-3, 0),
    (0, -3),
    (-2, -2),
)
BESIDE = ((0, 0), (-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (1, -1), (-1, 1), (-2, 0), (0, -2))
FIRST = ((0, 0), (-1, 0), (0, -1), (1, 0), (0, 1))
SLOTS = len(OWN) + 2 * len(BESIDE) + len(FIRST)
WINDOWS: tuple[tuple[tuple[int, int], ...], ...] = (OWN, BESIDE, BESIDE, FIRST)
BASES = (0, len(OWN), len(OWN) + len(BESIDE), len(OWN) + 2 * len(BESIDE))
"""What is seen: 0 own tile, 1 above and below, 2 left and right, 3 the first channel of the own tile."""

ZONES = (1, 3, 5, 8)
"""The diagonals where a zone begins: before it, a flag per tile says if anything follows."""


@dataclass(frozen=True)
class Step:
    """Rows start:stop coded together; `sights` are ranges of what they see in each phase."""

    start: int
    stop: int
    color: int
    zone: int
    opens: bool
    sights: tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Looks:
    """Who sees what: one look per row, phase and sight, in the order of rows and phases."""

    sights: Ints  # (s, 2) kind and row, step by step and phase by phase
    rows: Ints  # (n,)
    phases: Ints  # (n,)
    chosen: Ints  # (n,) the sight, counted from the first of its step and phase
    seen: Ints  # (n,) the row of that sight
    slots: Ints  # (n,) the slot of its weight


@dataclass(frozen=True, eq=False)
class ScanOrder:
    """The lowest component of each channel, coded first, then all steps."""

    order: Ints  # (M,) the component in each row
    places: tuple[Place, ...]  # of each row
    lowest: tuple[int, ...]  # row of place (0, 0) of each channel, -1 where absent
    steps: tuple[Step, ...]
    looks: Looks
    zones: dict[tuple[int, int], tuple[int, int]]  # rows of (color, zone), in this order
    colored: int  # the first row of color


def kind_of(i: int, j: int, channel: int) -> int:
    """Which weights a component uses: on an edge of the frequency plane, inside, on its diagonal; color."""
    low, high = min(i, j), max(i, j)
    return (0 if low == 0 else 2 if low == high else 1) + (3 if channel else 0)


def zone_of(diagonal: int) -> int:
    """The zone of a diagonal; zones far out double in width."""
    zone = sum(diagonal >= start for start in ZONES) - 1
    while zone >= len(ZONES) - 1 and diagonal >= ZONES[-1] << (zone - len(ZONES) + 2):
        zone += 1
    return zone


def _groups(deepest: int) -> list[tuple[int, int]]:
    """Diagonals [first, last] of each step: single while they matter, wider far out, never across zones."""
    groups, at = [], 1
    while at <= deepest:
        last = at + (1 if at <= 6 else 2 if at <= 11 else 4) - 1
        while zone_of(last) != zone_of(at):
            last -= 1
        groups.append((at, min(last, deepest)))
        at = last + 1
    return groups


@functools.lru_cache(maxsize=8)
def scan_order_of(places: tuple[Place, ...]) -> ScanOrder:
    """The scan order for components at (i, j, channel), in the order of the basis."""
    channels = 1 + max(c for _, _, c in places)
    groups = _groups(max(i + j for i, j, _ in places))
    group_of = {d: k for k, (first, last) in enumerate(groups) for d in range(first, last + 1)}
    group_of[0] = -1
    order = sorted(
        range(len(places)),
        key=lambda m: (
            min(places[m][2], 1),
            group_of[places[m][0] + places[m][1]],
            sum(places[m]),
            places[m],
        ),
    )
    rows = {places[m]: row for row, m in enumerate(order)}
    by_row = [places[m] for m in order]
    members: dict[tuple[int, int], list[int]] = {}
    for row, (i, j, c) in enumerate(by_row):
        members.setdefault((min(c, 1), group_of[i + j]), []).append(row)
    # Color follows the first channel by one group, so that it sees a little further there.
    sequence = sorted(((group + color, color, group) for color, group in members if group >= 0))
    steps: list[Step] = []
    zones: dict[tuple[int, int], tuple[int, int]] = {}
    sights: list[tuple[int, int]] = []
    looks: list[tuple[int, int, int, int, int]] = []
    done = {row for (_, group), some in members.items() if group < 0 for row in some}
    for _, color, group in sequence:
        start, stop = members[color, group][0], members[color, group][-1] + 1
        zone = zone_of(groups[group][0])
        opens = (color, zone) not in zones
        zones[color, zone] = (start if opens else zones[color, zone][0], stop)
        ranges = []
        for phase in (0, 1):
            beside = done | set(range(start, stop)) if phase else done
            seen = [
                (row, *sight)
                for row in range(start, stop)
                for sight in _sights(by_row[row], rows, done, beside)
            ]
            known = {
                sight: k for k, sight in enumerate(sorted({(kind, other) for _, kind, other, _ in seen}))
            }
            looks += [(row, phase, known[kind, other], other, slot) for row, kind, other, slot in seen]
            ranges.append((len(sights), len(sights) + len(known)))
            sights += known
        steps.append(Step(start, stop, color, zone, opens, (ranges[0], ranges[1])))
        done.update(range(start, stop))
    return ScanOrder(
        np.array(order),
        tuple(by_row),
        tuple(rows.get((0, 0, c), -1) for c in range(channels)),
        tuple(steps),
        Looks(np.array(sights, np.int64).reshape(-1, 2), *np.array(sorted(looks), np.int64).reshape(-1, 5).T),
        dict(sorted(zones.items())),
        sum(place[2] == 0 for place in places),
    )


def _sights(
    place: Place, rows: dict[Place, int], own: set[int], beside: set[int]
) -> Iterator[tuple[int, int, int]]:
    """What a component sees: (kind, row, slot).

    Weights are kept for i <= j; a component with i > j is its mirror image, so it swaps both axes.
    """
    i, j, c = place
    mirrored = i > j
    for kind in range(4 if c else 3):
        used = 3 - kind if mirrored and kind in (1, 2) else kind
        for slot, (di, dj) in enumerate(WINDOWS[kind]):
            a, b = (dj, di) if mirrored else (di, dj)
            row = rows.get((i + a, j + b, 0 if kind == 3 else c), -1)
            if row in (own if kind in (0, 3) else beside):
                yield kind, row, BASES[used] + slot
