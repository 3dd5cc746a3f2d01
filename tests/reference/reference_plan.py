"""The order of coding, over plain integers (FORMAT.md): steps of components and levels of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Place = tuple[int, int, int]
Tile = tuple[int, int, int]  # image, row, column


def zone_of(diagonal: int) -> int:
    starts = [1, 3, 5, 8]
    while starts[-1] <= diagonal:
        starts.append(2 * starts[-1])
    return sum(diagonal >= start for start in starts) - 1


@dataclass
class Step:
    """Section 5: components that are coded together."""

    color: int
    zone: int
    opens: bool
    places: list[Place]
    before: set[Place]  # decoded in earlier steps


def diagonals(deepest: int) -> list[tuple[int, int]]:
    found, at = [], 1
    while at <= deepest:
        last = at + (0 if at <= 6 else 1 if at <= 11 else 3)
        while zone_of(last) != zone_of(at):
            last -= 1
        found.append((at, min(last, deepest)))
        at = last + 1
    return found


def steps_of(places: Sequence[Place]) -> list[Step]:
    groups = diagonals(max(i + j for i, j, _ in places))
    found: list[Step] = []
    known = {place for place in places if place[0] + place[1] == 0}
    opened = set()
    # color follows the first channel by one group
    for when in range(len(groups) + 1):
        for color in (0, 1):
            if not 0 <= when - color < len(groups):
                continue
            first, last = groups[when - color]
            mine = [p for p in places if min(p[2], 1) == color and first <= p[0] + p[1] <= last]
            mine.sort(key=lambda p: (sum(p), p))
            if mine:
                zone = zone_of(first)
                found.append(Step(color, zone, (color, zone) not in opened, mine, set(known)))
                opened.add((color, zone))
                known |= set(mine)
    return found


def around(tile: Tile, kind: int) -> list[Tile]:
    n, r, c = tile
    return [[tile], [(n, r - 1, c), (n, r + 1, c)], [(n, r, c - 1), (n, r, c + 1)], [tile]][kind]


def levels(tiles: list[Tile]) -> list[tuple[list[Tile], list[tuple[int, int]], int]]:
    """Tiles, the offsets of their coarser neighbours, and the fineness of each level that has tiles."""
    found: list[tuple[list[Tile], list[tuple[int, int]], int]] = []
    found.append(([t for t in tiles if t[1] + t[2] == 0], [], 0))
    most = max(max(r, c) for _, r, c in tiles)
    side = 1 << max(most.bit_length() - 1, 0)
    while side and most:
        on = [t for t in tiles if t[1] % side == 0 and t[2] % side == 0]
        odd = {t: (t[1] // side % 2, t[2] // side % 2) for t in on}
        fineness = max(3 - side.bit_length(), 0) + 1
        diagonal = [(-side, -side), (side, side), (-side, side), (side, -side)]
        straight = [(-side, 0), (side, 0), (0, -side), (0, side)]
        found.append(([t for t in on if odd[t] == (1, 1)], diagonal, fineness))
        found.append(([t for t in on if sum(odd[t]) == 1], straight, fineness))
        side //= 2
    return [level for level in found if level[0]]
