"""The order in which components are coded, and which decoded magnitudes each of them looks at.

A component has a place (i, j) and a channel. Components of neighbouring diagonals i + j form a step: they are
coded at once, without seeing one another, for the even tiles of the checkerboard and then for the odd ones,
which see the even. A component sees lower diagonals of its own tile, the tiles above, below, left and right,
and (color) the first channel. Weights belong to relative places, so every tile size can use them.

Inside the codec components are rows in the order of the plan, so that whatever is coded or seen together is
one slice: the first channel by diagonal, then the others.
"""

from __future__ import annotations

import functools
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


@dataclass(frozen=True, eq=False)
class Sight:
    """Rows start:stop of one kind of magnitude, and for each of the k components the slot of its weight."""

    kind: int
    start: int
    stop: int
    slots: Ints  # (k, stop - start), SLOTS where a component does not look


@dataclass(frozen=True, eq=False)
class Step:
    """Rows start:stop coded together, with what they see in each phase."""

    start: int
    stop: int
    kinds: Ints  # (k,)
    sides: Ints  # (k, 2) smaller and larger of i, j
    color: int
    zone: int
    opens: bool
    sights: tuple[list[Sight], list[Sight]]


@dataclass(frozen=True, eq=False)
class Plan:
    """The lowest component of each channel, coded first, then all steps."""

    order: Ints  # (M,) the component in each row
    lowest: tuple[int, ...]  # row of place (0, 0) of each channel, -1 where absent
    steps: tuple[Step, ...]
    zones: dict[tuple[int, int], tuple[int, int]]  # rows of (color, zone)
    colors: int
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
def plan_of(places: tuple[Place, ...]) -> Plan:
    """The plan for components at (i, j, channel), in the order of the basis."""
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
    done = [row for (_, group), some in members.items() if group < 0 for row in some]
    seen = set(done)
    for _, color, group in sequence:
        start, stop = members[color, group][0], members[color, group][-1] + 1
        zone = zone_of(groups[group][0])
        opens = (color, zone) not in zones
        zones[color, zone] = (start if opens else zones[color, zone][0], stop)
        where = by_row[start:stop]
        sights = tuple(
            [s for kind in range(4) if (s := _sight(where, rows, seen if kind in (0, 3) else beside, kind))]
            for beside in (seen, seen | set(range(start, stop)))
        )
        kinds = np.array([kind_of(*place) for place in where])
        sides = np.array([(min(i, j), max(i, j)) for i, j, _ in where])
        steps.append(Step(start, stop, kinds, sides, color, zone, opens, (sights[0], sights[1])))
        seen.update(range(start, stop))
    lowest = tuple(rows.get((0, 0, c), -1) for c in range(channels))
    colored = sum(place[2] == 0 for place in places)
    return Plan(np.array(order), lowest, tuple(steps), zones, min(channels, 2), colored)


def _sight(where: list[Place], rows: dict[Place, int], seen: set[int], kind: int) -> Sight | None:
    """What these components see of one kind, or nothing.

    Weights are kept for i <= j; a component with i > j is its mirror image, so it swaps both axes.
    """
    looks: list[dict[int, int]] = []
    for i, j, c in where:
        mirrored = i > j
        used = 3 - kind if mirrored and kind in (1, 2) else kind
        look: dict[int, int] = {}
        if kind < 3 or c:
            for slot, (di, dj) in enumerate(WINDOWS[kind]):
                a, b = (dj, di) if mirrored else (di, dj)
                row = rows.get((i + a, j + b, 0 if kind == 3 else c), -1)
                if row in seen:
                    look[row] = BASES[used] + slot
        looks.append(look)
    found = set().union(*looks)
    if not found:
        return None
    start, stop = min(found), max(found) + 1
    slots = np.full((len(where), stop - start), SLOTS, np.int64)
    for k, look in enumerate(looks):
        slots[k, np.array(list(look), np.int64) - start] = list(look.values())
    return Sight(kind, start, stop, slots)
