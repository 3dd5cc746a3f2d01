"""The symbols of a block, decoded slowly: loops over plain integers, written from docs/FORMAT.md alone.

Nothing of the package is used here, and no entropy library: `reference_decoder` is an independent reading of
the format. Names follow FORMAT.md; a section number stands at each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reference_entropy import Stream, cumulative

OWN = ((-1, 0), (0, -1), (-1, -1), (-2, 0), (0, -2), (-2, -1), (-1, -2), (-2, 1), (1, -2), (-3, 0), (0, -3),
       (-2, -2))  # fmt: skip
BESIDE = ((0, 0), (-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (1, -1), (-1, 1), (-2, 0), (0, -2))
FIRST = ((0, 0), (-1, 0), (0, -1), (1, 0), (0, 1))
WINDOWS = (OWN, BESIDE, BESIDE, FIRST)
BASES = (0, 12, 22, 32)
PRIOR = 37

Place = tuple[int, int, int]
Tile = tuple[int, int, int]  # image, row, column


def log_code(value: int) -> int:
    """8 log2 in whole eighths of an octave, the last three bits linear."""
    value = max(value, 1)
    octave = value.bit_length() - 1
    return 8 * octave + (value * 8 >> octave) - 8


def clip(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def class_of(value: int) -> int:
    return clip((log_code(value) >> 1) - 4, 0, 111)


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


class Block:
    """One block: `places` of the components in the order of the basis, `grids` of tiles per image."""

    def __init__(self, priors: dict[str, Any], settings: dict[str, Any], grids: list[tuple[int, int]]):
        self.priors, self.grids = priors, grids
        self.places: list[Place] = settings["places"]
        self.steps = dict(zip(self.places, settings["steps"], strict=True))
        self.centers, channels = settings["centers"], 1 + max(c for _, _, c in self.places)
        self.expected = {
            p: self._expected(code, self.steps[p])
            for p, code in zip(self.places, settings["scales"], strict=True)
        }
        # the row whose step a channel without a lowest component uses is the first in the order of section 5
        first = min(self.places, key=lambda p: (min(p[2], 1), p[0] + p[1] > 0, sum(p), p))
        self.lowest = [
            [self._expected(code, self.steps.get((0, 0, c), self.steps[first])) for code in codes]
            for c, codes in enumerate(settings["lowest"][:channels])
        ]
        self.tables = [[cumulative(row) for row in family] for family in priors["TABLES"]]
        self.flag_tables = [cumulative(row) for row in priors["FLAG_TABLES"]]
        self.tiles = [(n, r, c) for n, (h, w) in enumerate(grids) for r in range(h) for c in range(w)]
        self.sizes: dict[tuple[Place, Tile], int] = {}
        self.values: dict[tuple[Place, Tile], int] = {}

    def _expected(self, code: int, step: int) -> int:
        return self.priors["EXPECTED"][clip(code - log_code(step) + 80, 0, 255)]

    def decode(self, data: bytes) -> dict[tuple[Place, Tile], int]:
        """The dequantised coefficient of each component and tile; zero where absent."""
        self.stream = Stream(data)
        for channel in range(len(self.lowest)):
            if (0, 0, channel) in self.steps:
                self._pyramid((0, 0, channel), channel)
        steps = steps_of(self.places)
        self.zones: dict[tuple[int, int], list[Place]] = {}
        for step in steps:
            self.zones.setdefault((step.color, step.zone), []).extend(step.places)
        self.flags: dict[tuple[int, int, Tile], int] = {}
        phases = [[t for t in self.tiles if (t[1] + t[2]) % 2 == phase] for phase in (0, 1)]
        live = {(color, phase): phases[phase] for color in (0, 1) for phase in (0, 1)}
        for step in steps:
            for phase in (0, 1):
                tiles = live[step.color, phase]
                if step.opens:
                    classes = [self._flag_class(step, phase, tile) for tile in tiles]
                    flags = [self.stream.symbol(self.flag_tables[k]) for k in classes]
                    tiles = [tile for tile, flag in zip(tiles, flags, strict=True) if flag]
                    self.flags.update({(step.color, step.zone, tile): 1 for tile in tiles})
                    live[step.color, phase] = tiles
                keys = [(place, tile) for place in step.places for tile in tiles]
                looks = {place: self._looks(place, step, phase) for place in step.places}
                classes = [self._class(place, tile, *looks[place]) for place, tile in keys]
                for key, k, q in zip(
                    keys, classes, self.stream.values(classes, self.tables[step.color]), strict=True
                ):
                    self._store(key, k, q, 0)
        return self.values

    def _store(self, key: tuple[Place, Tile], k: int, q: int, mean: int) -> None:
        """Section 9: reconstruction inside the interval, as the class has it."""
        size = abs(q)
        offset = self.priors["OFFSETS"][k][min(size, 3)]
        value = ((-1 if q < 0 else 1) * (256 * size - offset) * self.steps[key[0]] + 128) >> 8 if q else 0
        self.sizes[key] = min(size, 4095)
        self.values[key] = mean + value

    def _looks(self, place: Place, step: Step, phase: int) -> tuple[int, list[tuple[int, Place, int]]]:
        """Section 7: the prior part, and (kind, component, weight) of everything that is seen."""
        i, j, c = place
        low, high = min(i, j), max(i, j)
        kind_of_place = (0 if low == 0 else 2 if low == high else 1) + (3 if c else 0)
        weights = self.priors["WEIGHTS"][kind_of_place][phase]
        factor = self.priors["POSITION"][low][high][step.color][phase] if high < 8 else 64
        mine, found = self.expected[place], []
        beside = step.before | set(step.places) if phase else step.before
        for kind, window in enumerate(WINDOWS):
            if kind == 3 and c == 0:
                continue
            used = 3 - kind if i > j and kind in (1, 2) else kind
            for slot, (di, dj) in enumerate(window):
                a, b = (dj, di) if i > j else (di, dj)
                other = (i + a, j + b, 0 if kind == 3 else c)
                if other in (beside if kind in (1, 2) else step.before):
                    found.append(
                        (kind, other, self._weight(weights[BASES[used] + slot], mine, other, factor))
                    )
        return mine * weights[PRIOR] * factor >> 16, found

    def _weight(self, weight: int, mine: int, other: Place, factor: int) -> int:
        return min(weight * factor * mine // (64 * self.expected[other]), weight * factor // 8)

    def _class(self, place: Place, tile: Tile, total: int, looks: list[tuple[int, Place, int]]) -> int:
        for kind, other, weight in looks:
            total += weight * sum(self.sizes.get((other, t), 0) for t in around(tile, kind))
        code = log_code(total)
        away = clip(log_code(self.expected[place]) - code, -48, 48)
        return clip((code * 8 + self.priors["ADJUST"][away + 48] >> 4) - 4, 0, 111)

    def _flag_class(self, step: Step, phase: int, tile: Tile) -> int:
        """Section 8."""
        key = (step.color, step.zone)
        before = self.zones.get((step.color, step.zone - 1))
        zone = sum(self.expected[place] for place in self.zones[key])
        if before is not None:
            previous = sum(self.expected[place] for place in before)
        else:
            before = [p for p in self.steps if p[0] + p[1] == 0 and min(p[2], 1) == step.color]
            previous = sum(row[3] for row in (self.lowest[1:] if step.color else self.lowest[:1]))
        scale = min(1024 * zone // max(previous, 1), 8192)
        weights = self.priors["FLAG_WEIGHTS"][(step.color * 4 + min(step.zone, 3)) * 2 + phase]
        own = sum(self.sizes.get((p, tile), 0) for p in before)
        near = [*around(tile, 1), *around(tile, 2)]
        beside = sum(self.sizes.get((p, t), 0) for p in before for t in near)
        total = weights[0] * zone + weights[1] * scale * own + weights[2] * scale * beside
        if phase:
            total += weights[3] * 1024 * sum(self.flags.get((*key, t), 0) for t in near)
        if step.color:
            total += weights[4] * 1024 * self.flags.get((0, step.zone, tile), 0)
        return class_of(total >> 10)

    def _pyramid(self, place: Place, channel: int) -> None:
        """Section 8: the lowest component, coarse to fine."""
        for tiles, offsets, fineness in levels(self.tiles):
            found = [self._predict(place, channel, tile, offsets, fineness) for tile in tiles]
            means, classes = [mean for mean, _ in found], [k for _, k in found]
            values = self.stream.values(classes, self.tables[2])
            for tile, k, q, mean in zip(tiles, classes, values, means, strict=True):
                self._store((place, tile), k, q, mean)

    def _predict(
        self, place: Place, channel: int, tile: Tile, offsets: list[tuple[int, int]], fineness: int
    ) -> tuple[int, int]:
        """The mean and the class of a lowest component."""
        n, r, c = tile
        near = [(n, r + a, c + b) for a, b in offsets]
        known = [t for t in near if (place, t) in self.values]
        values, count, step = [self.values[place, t] for t in known], max(len(known), 1), self.steps[place]
        total = sum(values)
        if len(known) == 4:
            first, second = values[0] + values[1], values[2] + values[3]
            across, along = abs(values[0] - values[1]), abs(values[2] - values[3])
            one, two = quarters(along, step) ** 2 + 16, quarters(across, step) ** 2 + 16
            mean = (one * first + two * second + one + two) // (2 * (one + two))
            spreads = [1024 * e // step for e in (min(across, along), max(across, along))]
            spreads.append(1024 * abs(first - second) // (2 * step))
        else:
            mean = (2 * total + count) // (2 * count)
            apart = sum(abs(count * value - total) for value in values)
            spreads = [1024 * apart // (count * count * step)] * 3
        prior, weights = self.lowest[channel][fineness], self.priors["LOWEST_WEIGHTS"][min(channel, 1)]
        expected = sum(w * e for w, e in zip(weights, [prior, *spreads], strict=False))
        leader = (0, 0, 0)
        if channel and leader in self.steps:
            ratio = min(1024 * prior // max(self.lowest[0][fineness], 1), 8192)
            expected += weights[4] * ratio * self.sizes[leader, tile]
            ahead = [self.values[leader, t] for t in known]
            leading = [quarters(count * a - sum(ahead), count * step) for a in ahead]
            trailing = [quarters(value - mean, step) for value in values]
            energy = sum(a * a for a in leading) + 16 * 24
            slope = clip(
                256 * sum(a * b for a, b in zip(leading, trailing, strict=True)) // energy, -256, 256
            )
            rise = count * self.values[leader, tile] - sum(ahead)
            mean += (2 * slope * rise + 256 * count) // (512 * count)
        return mean if known else self.centers[channel], class_of(expected >> 10)


def quarters(difference: int, step: int) -> int:
    return clip(4 * difference // step, -1023, 1023)


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
