"""The bytes of a block as symbols: a range decoder and a bit string, over plain integers (FORMAT.md)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

ESCAPE = 15


def rounded(product: int, digits: int) -> int:
    """A product as a binary float of so many digits holds it: nearest, ties to even."""
    extra = product.bit_length() - digits
    if extra <= 0:
        return product
    high, low = divmod(product, 1 << extra)
    half = 1 << (extra - 1)
    return (high + (low > half or (low == half and high % 2 == 1))) << extra


def cumulative(frequencies: Sequence[int], digits: int = 24) -> list[int]:
    """Section 6: frequencies of 2^16 as borders between 0 and 2^24."""
    n, below = len(frequencies), 0
    borders = []
    for symbol, frequency in enumerate(frequencies):
        borders.append((rounded(below * (2**24 - n), digits) >> 16) + symbol)
        below += frequency
    assert below == 2**16
    return [*borders, 2**24]


def length_frequencies() -> list[int]:
    found = [max(2**14 >> (k // 2 + 1), 2**7) for k in range(40)]
    found[0] += 2**16 - sum(found)
    return found


LENGTHS = cumulative(length_frequencies(), 53)


class Stream:
    """Section 6: words of the range coder, then raw bits."""

    def __init__(self, data: bytes) -> None:
        count = at = 0
        while True:
            count |= (data[at] & 127) << 7 * at
            at += 1
            if data[at - 1] < 128:
                break
        end = at + 4 * count
        self.words = [int.from_bytes(data[k : k + 4], "little") for k in range(at, end, 4)]
        self.raw, self.bit = data[end:], 0
        self.lower, self.range, self.point, self.at = 0, 2**64 - 1, 0, 0
        for _ in range(2):
            self._shift()

    def _shift(self) -> None:
        word = self.words[self.at] if self.at < len(self.words) else 0
        self.at += 1
        self.point = (self.point << 32 | word) % 2**64

    def symbol(self, borders: list[int]) -> int:
        scale = self.range >> 24
        quantile = (self.point - self.lower) % 2**64 // scale
        assert quantile < 2**24, "the block is damaged"
        symbol = bisect_right(borders, quantile) - 1
        self.lower = (self.lower + scale * borders[symbol]) % 2**64
        self.range = scale * (borders[symbol + 1] - borders[symbol])
        if self.range < 2**32:
            self.lower, self.range = (self.lower << 32) % 2**64, self.range << 32
            self._shift()
        return symbol

    def one(self) -> int:
        byte, place = divmod(self.bit, 8)
        self.bit += 1
        return self.raw[byte] >> (7 - place) & 1

    def values(self, classes: list[int], tables: list[list[int]]) -> list[int]:
        """Section 7: a batch of signed values."""
        shifts = [max(k // 4 - 11, 0) for k in classes]
        low = [0] * len(classes)
        for place in range(max(shifts, default=0)):
            for n, shift in enumerate(shifts):
                if shift > place:
                    low[n] |= self.one() << place
        found = [self.symbol(tables[k if k < 48 else 44 + k % 4]) for k in classes]
        escaped = [n for n, token in enumerate(found) if token == ESCAPE]
        lengths = [self.symbol(LENGTHS) for _ in escaped]
        for n in escaped:
            found[n] = 1
        for place in range(max(lengths, default=0) - 1, -1, -1):
            for n, length in zip(escaped, lengths, strict=True):
                if length > place:
                    found[n] = 2 * found[n] + self.one()
        for n in escaped:
            found[n] += ESCAPE - 1
        sizes = [size << shift | rest for size, shift, rest in zip(found, shifts, low, strict=True)]
        return [-size if size and self.one() else size for size in sizes]
