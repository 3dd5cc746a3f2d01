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
    i, j, c = np.array(places, np.int64).T
    channels = 1 + int(c.max())
    groups = _groups(int((i + j).max()))
    starts = np.array([first for first, _ in groups], np.int64)
    group = np.searchsorted(starts, i + j, side="right") - 1  # of each component, -1 for the lowest
    color = np.minimum(c, 1)
    order = np.lexsort((c, j, i, i + j + c, group, color))
    i, j, c, group, color = (values[order] for values in (i, j, c, group, color))  # of each row
    # Color follows the first channel by one group, so that it sees a little further there.
    turn = np.where(group < 0, -1, 2 * (group + color) + color)
    turns, first_row, counts = np.unique(turn, return_index=True, return_counts=True)
    sights, bounds, looks = _looks(i, j, c, turn)
    steps: list[Step] = []
    zones: dict[tuple[int, int], tuple[int, int]] = {}
    for at, start, count in zip(turns.tolist(), first_row.tolist(), counts.tolist(), strict=True):
        if at < 0:
            continue
        stop, own_color = start + count, int(color[start])
        zone = zone_of(groups[int(group[start])][0])
        opens = (own_color, zone) not in zones
        zones[own_color, zone] = (start if opens else zones[own_color, zone][0], stop)
        first, middle, last = (int(np.searchsorted(bounds, 2 * at + k)) for k in range(3))
        steps.append(Step(start, stop, own_color, zone, opens, ((first, middle), (middle, last))))
    by_row = list(zip(i.tolist(), j.tolist(), c.tolist(), strict=True))
    lowest = {place[2]: row for row, place in enumerate(by_row) if place[:2] == (0, 0)}
    return ScanOrder(
        order,
        tuple(by_row),
        tuple(lowest.get(channel, -1) for channel in range(channels)),
        tuple(steps),
        Looks(sights, *looks),
        dict(sorted(zones.items())),
        int((c == 0).sum()),
    )


def _looks(i: Ints, j: Ints, c: Ints, turn: Ints) -> tuple[Ints, Ints, tuple[Ints, ...]]:
    """All looks of rows at (i, j, c) that are coded in the order of `turn`.

    Returns the sights (s, 2), when each is used as 2 * turn + phase, and the other columns of `Looks`.
    """
    place = _Places(i, j, c)
    parts: list[tuple[Ints, ...]] = []
    windows = [(kind, slot, *away) for kind, window in enumerate(WINDOWS) for slot, away in enumerate(window)]
    for kind, slot, down, right in windows:
        # Weights are kept for i <= j; a component with i > j is its mirror image, so it swaps both axes.
        mirrored = i > j
        seen = place.rows(
            i + np.where(mirrored, right, down),
            j + np.where(mirrored, down, right),
            0 * c if kind == 3 else c,
        )
        there = (seen >= 0) & (turn >= 0) & ((c > 0) | (kind != 3))
        swapped = BASES[3 - kind if kind in (1, 2) else kind] + slot
        slots = np.where(mirrored, swapped, BASES[kind] + slot)
        for phase in (0, 1):
            # of the own step only the other phase is known, and that only of the tiles beside
            late = turn + 1 if phase and kind in (1, 2) else turn
            rows = np.flatnonzero(there & (turn[seen] < late))
            sight = ((2 * turn[rows] + phase) * 4 + kind) * len(i) + seen[rows]
            parts.append(((2 * rows + phase).astype(np.int32), sight, slots[rows].astype(np.int8)))
    lookers, sight, slots = (np.concatenate(column) for column in zip(*parts, strict=True))
    del parts
    order = np.lexsort((slots, sight, lookers))
    lookers, sight, slots = lookers[order], sight[order], slots[order]
    del order
    known, which = np.unique(sight, return_inverse=True)
    when, (kinds, rows) = known // (4 * len(i)), np.divmod(known % (4 * len(i)), len(i))
    starts = np.searchsorted(when, when)  # of the sights of one turn and phase
    chosen, seen = (
        (which.ravel() - starts[which.ravel()]).astype(np.int32),
        rows.astype(np.int32)[which.ravel()],
    )
    return np.stack([kinds, rows], axis=1), when, (lookers >> 1, lookers & 1, chosen, seen, slots)


class _Places:
    """Finds the row of a component by its place."""

    def __init__(self, i: Ints, j: Ints, c: Ints) -> None:
        self._sides = int(i.max()) + 1, int(j.max()) + 1, int(c.max()) + 1
        keys = self._keys(i, j, c)
        self._order = np.argsort(keys)
        self._keys_sorted = keys[self._order]

    def _keys(self, i: Ints, j: Ints, c: Ints) -> Ints:
        return (i * self._sides[1] + j) * self._sides[2] + c

    def rows(self, i: Ints, j: Ints, c: Ints) -> Ints:
        """The row of each place, -1 where there is none."""
        inside = (i >= 0) & (j >= 0) & (i < self._sides[0]) & (j < self._sides[1])
        keys = np.where(inside, self._keys(i, j, c), -1)
        at = np.minimum(np.searchsorted(self._keys_sorted, keys), len(self._keys_sorted) - 1)
        return np.where(self._keys_sorted[at] == keys, self._order[at], -1)
