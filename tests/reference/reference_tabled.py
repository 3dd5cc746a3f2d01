"""Blocks without learning, over plain integers (FORMAT.md, section 16)."""

from __future__ import annotations

from typing import Any

from reference_entropy import Stream, clip
from reference_plan import Place, Step, Tile, levels, steps_of
from reference_symbols import Block

EIGHTHS = (1024, 1117, 1218, 1328, 1448, 1579, 1722, 1878)
START = 2**32
Item = tuple[Tile, int, int]  # a tile, the mean of its value, its class


class States:
    """Four states that take turns, words for them, and raw bits from the other end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.turn, self.bits = data, 0, 0, 0
        self.states = [self._word() | self._word() << 32 for _ in range(4)]
        assert min(self.states) >= START, "the block is damaged"

    def _word(self) -> int:
        self.at += 4
        assert self.at <= len(self.data), "the block is damaged"
        return int.from_bytes(self.data[self.at - 4 : self.at], "little")

    def take(self, frequencies: list[int]) -> int:
        """What comes next, of as many as there are frequencies."""
        assert sum(frequencies) == 65536 and min(frequencies) > 0
        which, self.turn = self.turn % 4, self.turn + 1
        state = self.states[which]
        rest, found = state % 65536, 0
        while rest >= frequencies[found]:
            rest -= frequencies[found]
            found += 1
        state = frequencies[found] * (state >> 16) + rest
        self.states[which] = state if state >= START else state * START + self._word()
        assert self.states[which] < 2**64
        return found

    def raw(self, count: int, found: int = 0) -> int:
        """So many raw bits, as the digits after those of `found`."""
        for _ in range(count):
            back, place = divmod(self.bits, 8)
            assert back < len(self.data), "the block is damaged"
            found = 2 * found + (self.data[-1 - back] >> place & 1)
            self.bits += 1
        return found

    def finish(self) -> None:
        """Words and raw bits meet, and nothing is left in the states."""
        assert self.states == [START] * 4, "the block is damaged"
        assert self.at + -(-self.bits // 8) == len(self.data), "the block is damaged"
        assert not self.raw(-self.bits % 8), "the block is damaged"


class TabledBlock(Block):
    """One block, as `Block` has it, whose tokens have fixed frequencies."""

    def __init__(self, priors: dict[str, Any], settings: dict[str, Any], grids: list[tuple[int, int]]):
        super().__init__(priors, settings, grids)
        sets, moves = settings.get("token_sets"), settings.get("token_moves")
        if sets is None or moves is None:
            self.tables: list[list[list[int]]] = priors["TABLES"]
            self.sets = {place: family_of(place) for place in self.places}
            return
        assert len(moves) in (3, 6, 9, 12)
        self.tables = [
            [moved(*row) for row in zip(priors["TABLES"][s % 3], rows, strict=True)]
            for s, rows in enumerate(moves)
        ]
        self.sets = dict(zip(self.places, sets, strict=True))
        assert all(s % 3 == family_of(place) for place, s in self.sets.items())

    def decode(self, data: bytes) -> dict[tuple[Place, Tile], int]:
        """The dequantised coefficient of each component and tile; zero where absent."""
        if len(self.factors) > 1:
            length = int.from_bytes(data[:4], "little")
            assert 4 + length <= len(data), "the block is damaged"
            self.stream = Stream(data[4 : 4 + length], 15)
            self._grades()
            self.stream.finish()
            data = data[4 + length :]
        self.bytes = States(data)
        for channel in range(len(self.lowest)):
            place = (0, 0, channel)
            for tiles, offsets, fineness in levels(self.tiles) if place in self.steps else ():
                foreseen = [(t, *self._predict(place, channel, t, offsets, fineness)) for t in tiles]
                self._values(place, foreseen)
        steps = steps_of(self.places)
        self.zones: dict[tuple[int, int], list[Place]] = {}
        for step in steps:
            self.zones.setdefault((step.color, step.zone), []).extend(step.places)
        live = {(c, p): [t for t in self.tiles if (t[1] + t[2]) % 2 == p] for c in (0, 1) for p in (0, 1)}
        for step in steps:
            for phase in (0, 1):
                tiles = live[step.color, phase]
                if step.opens:
                    tiles = live[step.color, phase] = [t for t in tiles if self._flag(step, phase, t)]
                for place in step.places:
                    looks = self._looks(place, step, phase)
                    self._values(place, [(t, 0, self._class(place, t, *looks)) for t in tiles])
        self.bytes.finish()
        return self.values

    def _values(self, place: Place, foreseen: list[Item]) -> None:
        """Those of one component: the tokens of all of them, and then their raw bits."""
        rows = self.tables[self.sets[place]]
        tokens = [self.bytes.take(rows[k if k < 48 else 44 + k % 4]) for _, _, k in foreseen]
        for (tile, mean, k), token in zip(foreseen, tokens, strict=True):
            size = 14 + self.bytes.raw(self._escape(), 1) if token == 15 else token
            self._store((place, tile), k, self.bytes.raw(max(k // 4 - 11, 0), size), mean)

    def _escape(self) -> int:
        """How many digits follow the first one of an escaped token."""
        length = 0
        while self.bytes.raw(1):
            length += 1
            assert length <= 44, "the block is damaged"
        return length

    def _sign(self, place: Place, tile: Tile) -> int:
        return 1 - 2 * self.bytes.raw(1)

    def _flag(self, step: Step, phase: int, tile: Tile) -> int:
        p = clip(self.priors["FLAG_TABLES"][self._flag_class(step, phase, tile)][1], 1, 65535)
        flag = self.bytes.take([65536 - p, p])
        self.flags[step.color, step.zone, tile] = flag
        return flag


def family_of(place: Place) -> int:
    """Section 6: 2 for lowest components, otherwise the color."""
    return 2 if place[:2] == (0, 0) else min(place[2], 1)


def moved(frequencies: list[int], moves: list[int]) -> list[int]:
    """Frequencies, each moved by so many eighths of an octave."""
    assert max(abs(move) for move in moves) <= 63
    weights = [f * EIGHTHS[m % 8] << 8 + m // 8 for f, m in zip(frequencies, moves, strict=True)]
    found = [1 + 65520 * weight // sum(weights) for weight in weights]
    return [found[0] + 65536 - sum(found), *found[1:]]
