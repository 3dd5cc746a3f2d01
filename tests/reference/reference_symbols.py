"""The symbols of a block, decoded slowly: loops over plain integers, written from docs/FORMAT.md alone.

Nothing of the package is used here: `reference_decoder` is an independent reading of the format. Names follow
FORMAT.md; a section number stands at each step.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from reference_entropy import Counter, Pair, Stream, Values, clip, stretch
from reference_plan import Place, Step, Tile, around, levels, steps_of

OWN = ((-1, 0), (0, -1), (-1, -1), (-2, 0), (0, -2), (-2, -1), (-1, -2), (-2, 1), (1, -2), (-3, 0), (0, -3),
       (-2, -2))  # fmt: skip
BESIDE = ((0, 0), (-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (1, -1), (-1, 1), (-2, 0), (0, -2))
FIRST = ((0, 0), (-1, 0), (0, -1), (1, 0), (0, 1))
WINDOWS = (OWN, BESIDE, BESIDE, FIRST)
BASES = (0, 12, 22, 32)
PRIOR = 37


def log_code(value: int) -> int:
    """8 log2 in whole eighths of an octave, the last three bits linear."""
    value = max(value, 1)
    octave = value.bit_length() - 1
    return 8 * octave + (value * 8 >> octave) - 8


def class_of(value: int) -> int:
    return clip((log_code(value) >> 1) - 4, 0, 111)


class Block:
    """One block: `places` of the components in the order of the basis, `grids` of tiles per image."""

    def __init__(self, priors: dict[str, Any], settings: dict[str, Any], grids: list[tuple[int, int]]):
        self.priors, self.grids = priors, grids
        self.places: list[Place] = settings["places"]
        own = settings["steps"]
        self.grains = dict(zip(self.places, settings.get("grains", [0] * len(own)), strict=True))
        self.whole: int = settings.get("whole", 0)
        self.own_steps = dict(zip(self.places, own, strict=True))
        self.steps = {p: self._grained(p, step) for p, step in self.own_steps.items()}
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
        self.factors, self.region = settings.get("factors", [64]), settings.get("region", 1)
        self.model: int = settings.get("model", 1)
        self.shares: list[list[int]] = settings.get("shares", [])
        self.borders: dict[Place, list[int]] = settings.get("borders", {})
        self.edges: defaultdict[tuple[Tile, int, int], int] = defaultdict(int)
        self.squares: defaultdict[tuple[int, Tile], int] = defaultdict(int)
        self.products: defaultdict[tuple[int, Tile], int] = defaultdict(int)
        self.grades: dict[Tile, int] = {}
        self.tiles = [(n, r, c) for n, (h, w) in enumerate(grids) for r in range(h) for c in range(w)]
        self.sizes: dict[tuple[Place, Tile], int] = {}
        self.signs: dict[tuple[Place, Tile], int] = {}
        self.values: dict[tuple[Place, Tile], int] = {}
        self.flags: dict[tuple[int, int, Tile], int] = {}
        self.busy: defaultdict[tuple[int, Tile], int] = defaultdict(int)
        self.flag_counters: defaultdict[tuple[int, ...], Counter] = defaultdict(Counter)
        self.flag_weights: defaultdict[tuple[int, int], list[int]] = defaultdict(
            lambda: [40000, 10000, 10000, 10000]
        )

    def _expected(self, code: int, step: int) -> int:
        return self.priors["EXPECTED"][clip(code - log_code(step) + 80, 0, 255)]

    def decode(self, data: bytes) -> dict[tuple[Place, Tile], int]:
        """The dequantised coefficient of each component and tile; zero where absent."""
        self.stream = Stream(data, 15 if self.model == 1 else 14)
        self.coded = Values(self.stream, self.priors["TABLES"], self.model)
        if len(self.factors) > 1:
            self._grades()
        for channel in range(len(self.lowest)):
            if (0, 0, channel) in self.steps:
                self._pyramid((0, 0, channel), channel)
        steps = steps_of(self.places)
        self.zones: dict[tuple[int, int], list[Place]] = {}
        for step in steps:
            self.zones.setdefault((step.color, step.zone), []).extend(step.places)
        phases = [[t for t in self.tiles if (t[1] + t[2]) % 2 == phase] for phase in (0, 1)]
        self._start_leading()
        live = {(color, phase): phases[phase] for color in (0, 1) for phase in (0, 1)}
        for step in steps:
            if step.color:
                for sums in (self.squares, self.products):
                    sums.update({key: total // 4 for key, total in sums.items()})
            for phase in (0, 1):
                slopes = {
                    (c, t): self._led_slope(c, t) for t in phases[phase] for c in range(1, len(self.lowest))
                }
                if step.opens:
                    live[step.color, phase] = [
                        t for t in live[step.color, phase] if self._flag(step, phase, t)
                    ]
                for place in step.places:
                    looks = self._looks(place, step, phase)
                    guesses = self._guesses(place, phases[phase], slopes)
                    self.values.update({(place, tile): guess for tile, guess in guesses.items()})
                    for tile in live[step.color, phase]:
                        k = self._class(place, tile, *looks)
                        self._value(place, tile, phase, k, guesses.get(tile, 0))
                    for tile in guesses:
                        light = clip(self.values.get(((*place[:2], 0), tile), 0), -65535, 65535)
                        self.squares[place[2], tile] += light * light
                        self.products[place[2], tile] += light * clip(self.values[place, tile], -65535, 65535)
        self.stream.finish()
        return self.values

    def _grades(self) -> None:
        """Section 6: the grade of each region, after those to the left and above."""
        counters: defaultdict[tuple[Any, ...], Counter] = defaultdict(Counter)
        weights: defaultdict[int, list[int]] = defaultdict(lambda: [0, 24000, 24000])
        side = self.region
        for n, (height, width) in enumerate(self.grids):
            for top in range(0, height, side):
                for start in range(0, width, side):
                    left, above = (self.grades.get(t) for t in ((n, top, start - 1), (n, top - 1, start)))
                    known = [grade for grade in (left, above) if grade is not None]
                    both = sum(known) * 2 // len(known) if known else None
                    grade = 0
                    while grade < len(self.factors) - 1:
                        pair = [counters["near", left, above, grade], counters["crowd", both, grade]]
                        if not self.stream.mixed(0, pair, weights[grade]):
                            break
                        grade += 1
                    for r in range(top, min(top + side, height)):
                        for c in range(start, min(start + side, width)):
                            self.grades[n, r, c] = grade

    def _step(self, place: Place, tile: Tile) -> int:
        """Section 4: the step of a component in a tile."""
        if len(self.factors) == 1:
            return self.steps[place]
        step = max(self.own_steps[place] * self.factors[self.grades[tile]] + 32 >> 6, 1)
        return self._grained(place, step)

    def _grained(self, place: Place, step: int) -> int:
        return self.grains[place] if 2 * step < (self.whole or 3) * self.grains[place] else step

    def _start_leading(self) -> None:
        """Section 8: what the lowest components say of how colors go with brightness."""
        first = (0, 0, 0)
        for channel in range(1, len(self.lowest)):
            color = (0, 0, channel)
            if first not in self.steps or color not in self.steps:
                continue
            for n, r, c in self.tiles:
                for beside in ((n, r, c + 1), (n, r + 1, c)):
                    if (first, beside) in self.values:
                        ahead, after = (
                            clip(self.values[p, beside] - self.values[p, (n, r, c)], -65535, 65535) >> 2
                            for p in (first, color)
                        )
                        for tile in ((n, r, c), beside):
                            self.squares[channel, tile] += ahead * ahead
                            self.products[channel, tile] += ahead * after

    def _led_slope(self, channel: int, tile: Tile) -> int:
        """Section 8: how much of a color goes with brightness."""
        tiles = [tile, tile, *around(tile, 1), *around(tile, 2)]
        squares, products = (
            sum(sums.get((channel, t), 0) for t in tiles) for sums in (self.squares, self.products)
        )
        return clip(1024 * products // (squares + 2**18), -4095, 4095)

    def _guesses(
        self, place: Place, tiles: list[Tile], slopes: dict[tuple[int, Tile], int]
    ) -> dict[Tile, int]:
        """Section 8: what brightness says of a component of color; nothing where it does not lead."""
        i, j, c = place
        share = self.shares[c - 1][min(i + j, 15)] if c and self.shares else 0
        if not share or self.grains[place] or (i, j, 0) not in self.steps:
            return {}
        found = {}
        for tile in tiles:
            light = clip(self.values.get(((i, j, 0), tile), 0), -65535, 65535)
            found[tile] = (light * slopes[c, tile] + 512 >> 10) * share + 32 >> 6
        return found

    def _value(self, place: Place, tile: Tile, phase: int, k: int, guess: int) -> None:
        color, key = min(place[2], 1), (place, tile)
        near, crowd = self._surroundings(place, tile, phase)
        pairs = [self.coded.pair("near", color, phase, *near), self.coded.pair("crowd", color, phase, *crowd)]
        pairs += self._more((color, phase), key, k)
        size = self.coded.magnitude(color, k, place, pairs)
        self._store(key, k, size, guess)
        self.busy[color, tile] = min(self.busy[color, tile] + min(size, 2), 255)

    def _more(self, kind: tuple[int | str, ...], key: tuple[Place, Tile], k: int) -> list[Pair]:
        """Section 7: further surroundings in the second model, by grade and by component."""
        if self.model == 1:
            return []
        place, tile = key
        graded = self.coded.pair("graded", *kind, self.grades.get(tile, 0), min(k, 63))
        return [graded, self.coded.pair("placed", *place, k // 8)]

    def _store(self, key: tuple[Place, Tile], k: int, size: int, mean: int) -> None:
        """Section 9: reconstruction inside the interval, as the class has it."""
        self.values[key] = mean
        if size:
            self.sizes[key] = min(size, 4095)
            self.signs[key] = self._sign(*key)
            step, offset = self._step(*key), self.priors["OFFSETS"][k][min(size, 3)]
            if self.whole and step == self.grains[key[0]] and key[0][:2] != (0, 0):
                offset = 0
            self.values[key] += (self.signs[key] * (256 * size - offset) * step + 128) >> 8
        place, tile = key
        if place in self.borders and place[2] == 0:
            value = clip(self.values[key], -(2**20), 2**20)
            for side, weight in enumerate(self.borders[place]):
                self.edges[tile, side, place[1 if side < 2 else 0]] += value * weight >> 8

    def _sign(self, place: Place, tile: Tile) -> int:
        """Section 6: the sign, after those around it and the slope of the lowest component."""
        i, j, c = place
        along, across = (
            clip(sum(self.signs.get((place, t), 0) for t in around(tile, kind)), -1, 1) for kind in (1, 2)
        )
        if i + j == 0:
            return self.coded.sign(32, across, along, 0)
        spot = 16 * min(c, 1) + 4 * min(i, 3) + min(j, 3)
        if place in self.borders and c == 0:
            jumps = self._jumps(place, tile)
            every = [jumps[0] + jumps[1], jumps[2] + jumps[3], sum(jumps)]
            return self.coded.smooth_sign(spot, across, along, every, self._step(place, tile))
        level = 0
        if i == 0 or j == 0:
            before, after = (self.values.get(((0, 0, c), t), 0) for t in around(tile, 1 if i else 2))
            rise = after - before if before and after else 0
            step = self._step(place, tile)
            level = sum(4 * abs(rise) >= step << s for s in range(7)) * (1 if rise > 0 else -1)
        return self.coded.sign(spot, across, along, level)

    def _jumps(self, place: Place, tile: Tile) -> list[int]:
        """Section 6: how far samples along borders are from those of the tile beside, times the weight."""
        found, inside = [], set(self.tiles)
        for side, beside in enumerate([*around(tile, 1), *around(tile, 2)]):
            at = place[1 if side < 2 else 0]
            jump = self.edges[beside, side ^ 1, at] - self.edges[tile, side, at] if beside in inside else 0
            found.append(jump * self.borders[place][side])
        return found

    def _size(self, place: Place, *tiles: Tile) -> int:
        return sum(self.sizes.get((place, tile), 0) for tile in tiles)

    def _surroundings(self, place: Place, tile: Tile, phase: int) -> tuple[list[int], list[int]]:
        """Section 7: what selects the counters of a value."""
        i, j, c = place
        up, left = (i - 1, j, c), (i, j - 1, c)
        third, fourth = ((i, j, 0), (i - 1, j - 1, c)) if c else ((i - 1, j - 1, 0), (i - 1, j + 1, 0))
        beside = [*around(tile, 1), *around(tile, 2)]
        other = self._size(place, *beside) if phase else self._size((i, j, 1), tile) if c == 2 else 0
        near = [*(self._size(o, tile) for o in (up, left, third)), other]
        inside = sum(self._size(o, tile) for o in (up, left, third, (i - 2, j, c), (i, j - 2, c), fourth))
        outside = sum(self._size(o, *beside) for o in (place, up, left))
        return [min(size, 3) for size in near], [min(inside, 15), min(outside, 15)]

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
            total += weight * self._size(other, *around(tile, kind))
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
        near = [*around(tile, 1), *around(tile, 2)]
        own, beside = (sum(self._size(p, *tiles) for p in before) for tiles in ([tile], near))
        opened, first = self._flags_near(step, phase, tile)
        total = weights[0] * zone + scale * (weights[1] * own + weights[2] * beside)
        return class_of(total + 1024 * (weights[3] * opened + weights[4] * first) >> 10)

    def _flags_near(self, step: Step, phase: int, tile: Tile) -> tuple[int, int]:
        """Section 8: flags of the tiles around, and that of the first channel."""
        near = [*around(tile, 1), *around(tile, 2)]
        opened = sum(self.flags.get((step.color, step.zone, t), 0) for t in near) if phase else 0
        return opened, self.flags.get((0, step.zone, tile), 0) if step.color else 0

    def _flag(self, step: Step, phase: int, tile: Tile) -> int:
        """Section 8."""
        near = [*around(tile, 1), *around(tile, 2)]
        opened, first = self._flags_near(step, phase, tile)
        number = min(sorted(self.zones).index((step.color, step.zone)), 15)
        counters = [
            self.flag_counters[0, number, opened if phase else 5, first],
            self.flag_counters[1, number, rank(self.busy[step.color, tile])],
            self.flag_counters[2, number, rank_beside(sum(self.busy[step.color, t] for t in near)), phase],
        ]
        given = stretch(min(self.priors["FLAG_TABLES"][self._flag_class(step, phase, tile)][1], 65535))
        flag = self.stream.mixed(given, counters, self.flag_weights[number, phase])
        self.flags[step.color, step.zone, tile] = flag
        return flag

    def _pyramid(self, place: Place, channel: int) -> None:
        """Section 8: the lowest component, coarse to fine."""
        kind, pair = min(channel, 2), self.coded.pair
        for tiles, offsets, fineness in levels(self.tiles):
            for tile in tiles:
                mean, k = self._predict(place, channel, tile, offsets, fineness)
                others = [self._size((0, 0, c), tile) if c < channel else 0 for c in (0, 1)]
                near = pair("lowest near", kind, *(min(size, 7) for size in others))
                crowd = pair("lowest crowd", kind, min(k // 2, 31))
                pairs = [near, crowd, *self._more(("lowest",), (place, tile), k)]
                self._store((place, tile), k, self.coded.magnitude(2, k, place, pairs), mean)

    def _predict(
        self, place: Place, channel: int, tile: Tile, offsets: list[tuple[int, int]], fineness: int
    ) -> tuple[int, int]:
        """The mean and the class of a lowest component."""
        n, r, c = tile
        near = [(n, r + a, c + b) for a, b in offsets]
        known = [t for t in near if (place, t) in self.values]
        values, count, step = (
            [self.values[place, t] for t in known],
            max(len(known), 1),
            self._step(place, tile),
        )
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
            expected += weights[4] * ratio * self._size(leader, tile)
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


def rank(busy: int) -> int:
    """Section 8: how busy a tile is, in 16 steps."""
    if busy < 8:
        return busy
    return 8 + (busy - 8) // 2 if busy < 16 else 12 + (busy - 16) // 8 if busy < 40 else 15


def rank_beside(busy: int) -> int:
    """Section 8: the same for the tiles around."""
    if busy < 8:
        return busy // 2
    return 4 + (busy - 8) // 4 if busy < 40 else min(12 + (busy - 40) // 32, 15)


def quarters(difference: int, step: int) -> int:
    return clip(4 * difference // step, -1023, 1023)
