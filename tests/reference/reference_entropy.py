"""The bytes of a block as bits, and bits as values, over plain integers (FORMAT.md, section 6)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

KNOTS = (
    22, 28, 36, 47, 60, 77, 98, 126, 162, 208, 267, 342, 439,
    562, 720, 922, 1179, 1506, 1921, 2446, 3108, 3938, 4971, 6249, 7812, 9702,
    11955, 14595, 17625, 21025, 24743, 28693, 32768, 36843, 40793, 44511, 47911, 50941, 53581,
    55834, 57724, 59287, 60565, 61598, 62428, 63090, 63615, 64030, 64357, 64614, 64816, 64974,
    65097, 65194, 65269, 65328, 65374, 65410, 65438, 65459, 65476, 65489, 65500, 65508, 65514,
)  # fmt: skip
STEEPEST = 2047
STAGES = 15


def clip(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def squash(logit: int) -> int:
    """The probability, of 2^16, of a logit in 1/256."""
    knot, between = divmod(clip(logit, -STEEPEST, STEEPEST) + 2048, 64)
    return (KNOTS[knot] * (64 - between) + KNOTS[knot + 1] * between + 32) >> 6


def _stretched() -> list[int]:
    found, logit = [], -STEEPEST
    for p in range(4096):
        while logit < STEEPEST and squash(logit) < 16 * p + 8:
            logit += 1
        found.append(logit)
    return found


STRETCHED = _stretched()


def stretch(p: int) -> int:
    """The logit of a probability."""
    return STRETCHED[p >> 4]


@dataclass
class Counter:
    """A probability, and how often it learned."""

    p: int = 32768
    n: int = 0

    def learn(self, bit: int, limit: int) -> None:
        self.p += ((65535 * bit - self.p) * (655360 // (10 * self.n + 16))) >> 16
        self.n += self.n < limit


class Stream:
    """The range decoder and the ways to code a bit."""

    def __init__(self, data: bytes, slowness: int) -> None:
        self.data, self.read, self.done, self.slowness = data, 0, 0, slowness
        self.low, self.high, self.point = 0, 2**32 - 1, 0
        for _ in range(4):
            self.point = 256 * self.point + self._byte()

    def _byte(self) -> int:
        self.read += 1
        return self.data[self.read - 1] if self.read <= len(self.data) else 0

    def bit(self, p: int) -> int:
        """A bit that is 1 with probability p / 2^16."""
        assert 0 < p < 2**16
        middle = self.low + ((self.high - self.low) * p >> 16)
        bit = int(self.point <= middle)
        if bit:
            self.high = middle
        else:
            self.low = middle + 1
        while self.low >> 24 == self.high >> 24:
            self.low, self.high = 256 * self.low % 2**32, 256 * self.high % 2**32 + 255
            self.point = 256 * self.point % 2**32 + self._byte()
            self.done += 1
        return bit

    def raw(self, count: int, found: int = 0) -> int:
        """So many raw bits, as the digits after those of `found`."""
        for _ in range(count):
            found = 2 * found + self.bit(32768)
        return found

    def plain(self, counter: Counter) -> int:
        bit = self.bit(clip(counter.p, 24, 65512))
        counter.learn(bit, 240)
        return bit

    def mixed(self, given: int, counters: list[Counter], weights: list[int]) -> int:
        unit = self.slowness
        logits = [given, *(stretch(counter.p) for counter in counters)]
        total = sum(weight * logit for weight, logit in zip(weights, logits, strict=True))
        p = clip(squash(total >> 16), 24, 65512)
        bit = self.bit(p)
        for k, logit in enumerate(logits):
            weights[k] += (logit * (65536 * bit - p) + 2 ** (unit - 1)) >> unit
        for counter in counters:
            counter.learn(bit, 120)
        return bit

    def finish(self) -> None:
        """The bytes that are left must be the fewest that end the block."""
        tail = b""
        for count in (1, 2, 3, 4) if self.low else ():
            unit = 2 ** (32 - 8 * count)
            found = -(-self.low // unit) * unit
            if found <= self.high:
                tail = found.to_bytes(4, "big")[:count]
                break
        assert len(self.data) == self.done + len(tail), "the block is damaged"
        assert self.data[self.done :] == tail, "the block is damaged"


Key = tuple[int | str, ...]
Pair = list[Counter]
Place = tuple[int, int, int]


class Values:
    """Magnitudes and signs, and everything that is learned of them in a block."""

    def __init__(self, stream: Stream, tables: list[list[list[int]]], model: int) -> None:
        self.stream, self.model = stream, model
        starts = [[_starts(row) for row in family] for family in tables]
        self.given = [[[stretch(p) for p in row] for row in family] for family in starts]
        self.plain = [[[Counter(p, 30) for p in row] for row in family] for family in starts]
        start = [46000, 12000, 12000] if model == 1 else [30000, 11000, 11000, 11000, 11000]
        self.weights: defaultdict[Key, list[int]] = defaultdict(lambda: list(start))
        self.late_weights: defaultdict[Key, list[int]] = defaultdict(lambda: [10000, 40000, 15000])
        self.late: defaultdict[Key, Counter] = defaultdict(Counter)
        self.pairs: defaultdict[Key, Pair] = defaultdict(lambda: [Counter(), Counter()])
        self.signs: defaultdict[Key, Counter] = defaultdict(Counter)
        self.sign_weights: defaultdict[int, list[int]] = defaultdict(lambda: [22000] * 4)
        self.beyond: defaultdict[Key, Counter] = defaultdict(Counter)

    def pair(self, *key: int | str) -> Pair:
        """The counters of some surroundings, one for each of the first two stages."""
        return self.pairs[key]

    def magnitude(self, family: int, k: int, place: Place, around: list[Pair]) -> int:
        """A value of class k."""
        row = k if k < 48 else 44 + k % 4
        given, plain = self.given[family][row], self.plain[family][row]
        token = 0
        while token < STAGES:
            if token > 1 and self.model > 1:
                counters = [plain[token], self.late[(*place, token)]]
                more = self.stream.mixed(given[token], counters, self.late_weights[family, token])
            elif token > 1 or (token == 0 and given[0] < -600 and self.model == 1):
                more = self.stream.plain(plain[token])
            else:
                weights = self.weights[family, min(k // 4, 15) if self.model == 1 else k // 8, token]
                more = self.stream.mixed(given[token], [pair[token] for pair in around], weights)
            if not more:
                break
            token += 1
        if token == STAGES:
            token = 14 + self._digits(self.escape())
        return self.stream.raw(max(k // 4 - 11, 0), token)

    def escape(self) -> int:
        """How many digits follow the first one of an escaped token."""
        length, learned = 0, self.model == 3
        while self.stream.plain(self.beyond["length", min(length, 15)]) if learned else self.stream.raw(1):
            length += 1
            assert length <= 44, "the block is damaged"
        return length

    def _digits(self, length: int) -> int:
        """A number of so many digits after the first, which is 1."""
        if self.model < 3 or not length:
            return self.stream.raw(length, 1)
        return self.stream.raw(length - 1, 2 + self.stream.plain(self.beyond["digit", min(length, 15)]))

    def smooth_sign(self, spot: int, across: int, along: int, jumps: list[int], step: int) -> int:
        """1 or -1 in the third model; `jumps` are what it would take to make borders smooth, in 1/256."""
        turned = [int((across, along) < (0, 0)), *(int(jump < 0) for jump in jumps)]
        if turned[0]:
            across, along = -across, -along
        counters = [self.signs["near", spot, across, along]]
        for k, jump in enumerate(jumps):
            steepness = sum(16 * abs(jump) >= step << s + 8 for s in range(15))
            counters.append(self.signs["border", k, spot, steepness])
        weights = self.sign_weights[spot]
        logits = [stretch(c.p) * (1 - 2 * turn) for c, turn in zip(counters, turned, strict=True)]
        p = squash(sum(w * x for w, x in zip(weights, logits, strict=True)) >> 16)
        bit = self.stream.bit(p)
        for k, logit in enumerate(logits):
            weights[k] += (logit * (65536 * bit - p) + 2**13) >> 14
            counters[k].learn(bit ^ turned[k], 250)
        return 1 - 2 * bit

    def sign(self, spot: int, across: int, along: int, slope: int) -> int:
        """1 or -1; `across` and `along` are the signs of left + right and above + below."""
        turned, falling = int((across, along) < (0, 0)), int(slope < 0)
        if turned:
            across, along = -across, -along
        first, second = self.signs["near", spot, across, along], self.signs["slope", spot, abs(slope)]
        logit = stretch(first.p) * (1 - 2 * turned) + stretch(second.p) * (1 - 2 * falling)
        bit = self.stream.bit(squash(3 * logit >> 2))
        first.learn(bit ^ turned, 500)
        second.learn(bit ^ falling, 500)
        return 1 - 2 * bit


def _starts(frequencies: list[int]) -> list[int]:
    """How likely a token is larger than 0, 1, .. 14, if it is not smaller."""
    rests = [sum(frequencies[k:]) for k in range(len(frequencies))]
    assert rests[0] == 2**16
    return [min(65536 * more // rest, 65535) for rest, more in pairwise(rests)]
