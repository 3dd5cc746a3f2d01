"""Symbols to bytes and back: a range coder for tokens and a bit string for what is not worth modelling.

The range coder takes floats; all probabilities here are integers over 2^PRECISION, which floats hold exactly,
so its internal rounding is the same everywhere. Signs and the low bits of large values go to the bit string.
"""

from __future__ import annotations

from typing import Any

import constriction
import numpy as np
from numpy.typing import NDArray

from tpca_cli.errors import FileRefused

Ints = NDArray[np.int64]
Models = NDArray[np.float32]

PRECISION = 16
TOKENS = 16
"""Tokens 0 .. 14 are values; 15 is the escape: the length of value - 14 and its lower bits follow."""
ESCAPE = TOKENS - 1
LENGTHS = 40
ROWS = 48
"""Classes 44 to 47 stand for all larger ones too: for each octave above, one more low bit goes out raw."""
CYCLE = 4

_FAMILY = constriction.stream.model.Categorical(perfect=False)


def rows_of(classes: Ints) -> Ints:
    """The row of the tables that a class uses."""
    return np.where(classes < ROWS, classes, ROWS - CYCLE + classes % CYCLE)


def shifts_of(classes: Ints) -> Ints:
    """How many low bits of a magnitude of this class are written raw."""
    return np.maximum(classes // CYCLE - (ROWS // CYCLE - 1), 0)


def _length_model() -> Any:
    """Lengths halve in frequency, down to a floor that keeps every length possible."""
    frequencies = np.array(
        [max(2 ** (PRECISION - 2) >> (k // 2 + 1), 2 ** (PRECISION - 9)) for k in range(LENGTHS)]
    )
    frequencies[0] += 2**PRECISION - frequencies.sum()
    return constriction.stream.model.Categorical(frequencies * 2.0**-PRECISION, perfect=False)


_LENGTH_MODEL = _length_model()


def probabilities(tables: NDArray[Any]) -> Models:
    """Integer tables (classes, TOKENS) whose rows sum to 2^PRECISION, as exact floats."""
    return np.asarray(tables * 2.0**-PRECISION, np.float32)


class Writer:
    """Collects tokens and bits of one block."""

    def __init__(self) -> None:
        self._range = constriction.stream.queue.RangeEncoder()
        self._bits: list[NDArray[np.uint8]] = []

    def values(self, magnitudes: Ints, classes: Ints, tables: Models) -> None:
        """Magnitudes (n,) with the tables of their classes."""
        rows = classes
        if classes.max(initial=0) >= ROWS:
            rows, shifts = rows_of(classes), shifts_of(classes)
            for place in range(int(shifts.max())):
                self.bits(magnitudes[shifts > place] >> place & 1)
            magnitudes = magnitudes >> shifts
        tokens = np.minimum(magnitudes, ESCAPE)
        if tokens.size:
            self._range.encode(tokens.astype(np.int32), _FAMILY, tables.take(rows, axis=0))
        large = magnitudes[tokens == ESCAPE] - (ESCAPE - 1)
        if large.size:
            lengths = np.frexp(large.astype(np.float64))[1] - 1  # floor(log2), exact below 2^53
            self._range.encode(lengths.astype(np.int32), _LENGTH_MODEL)
            for place in range(int(lengths.max()) - 1, -1, -1):
                self.bits(large[lengths > place] >> place & 1)

    def flags(self, flags: NDArray[np.bool_], models: Models) -> None:
        """Flags (n,) under the rows of `models` (n, 2)."""
        if flags.size:
            self._range.encode(flags.astype(np.int32), _FAMILY, models)

    def bits(self, bits: NDArray[Any]) -> None:
        """Raw bits."""
        self._bits.append(np.asarray(bits, np.uint8).ravel())

    def finish(self) -> bytes:
        """The block: words of the range coder (count as LEB128), then the bits."""
        words = bytes(self._range.get_compressed().astype("<u4").tobytes())
        count, head = len(words) // 4, bytearray()
        while count >= 128:
            head.append(count & 127 | 128)
            count >>= 7
        head.append(count)
        raw = np.concatenate(self._bits) if self._bits else np.zeros(0, np.uint8)
        return bytes(head) + words + np.packbits(raw).tobytes()


class Reader:
    """The mirror of `Writer`; bytes that cannot be a block are refused."""

    def __init__(self, data: bytes) -> None:
        count = shift = at = 0
        while True:
            if at >= len(data) or shift > 28:
                raise FileRefused("block is truncated before its length")
            count |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                break
        if at + 4 * count > len(data):
            raise FileRefused(f"block claims {4 * count} bytes of tokens but has {len(data) - at}")
        words = np.frombuffer(data, "<u4", count, at).astype(np.uint32)
        self._range = constriction.stream.queue.RangeDecoder(words)
        self._bits = np.unpackbits(np.frombuffer(data, np.uint8, offset=at + 4 * count))
        self._at = 0

    def _decode(self, models: Models) -> NDArray[np.int32]:
        if not len(models):
            return np.zeros(0, np.int32)
        try:
            return np.asarray(self._range.decode(_FAMILY, models), np.int32)
        except (AssertionError, ValueError, RuntimeError) as error:
            raise FileRefused(f"block tokens are damaged ({error})") from error

    def values(self, classes: Ints, tables: Models) -> Ints:
        """Magnitudes (n,) of these classes."""
        if classes.max(initial=0) < ROWS:
            return self._tokens(tables.take(classes, axis=0))
        shifts = shifts_of(classes)
        low = np.zeros(classes.size, np.int64)
        for place in range(int(shifts.max())):
            some = shifts > place
            low[some] |= self.bits(int(some.sum())).astype(np.int64) << place
        return (self._tokens(tables.take(rows_of(classes), axis=0)) << shifts) | low

    def _tokens(self, models: Models) -> Ints:
        tokens = self._decode(models)
        magnitudes = tokens.astype(np.int64)
        escaped = np.flatnonzero(tokens == ESCAPE)
        if escaped.size:
            try:
                lengths = np.asarray(self._range.decode(_LENGTH_MODEL, escaped.size))
            except (AssertionError, ValueError, RuntimeError) as error:
                raise FileRefused(f"block tokens are damaged ({error})") from error
            large = np.ones(escaped.size, np.int64)
            for place in range(int(lengths.max()) - 1, -1, -1):
                longer = lengths > place
                large[longer] = 2 * large[longer] + self.bits(int(longer.sum()))
            magnitudes[escaped] = large + (ESCAPE - 1)
        return magnitudes

    def flags(self, models: Models) -> NDArray[np.bool_]:
        """Flags (n,) under the rows of `models` (n, 2)."""
        return np.asarray(self._decode(models) != 0)

    def bits(self, count: int) -> NDArray[np.uint8]:
        """The next raw bits."""
        if self._at + count > self._bits.size:
            raise FileRefused("block bits are truncated")
        self._at += count
        return self._bits[self._at - count : self._at]

    def finish(self) -> None:
        """Refuse a block that says more than it was asked for."""
        rest = self._bits[self._at :]
        if rest.size > 7 or rest.any() or not self._range.maybe_exhausted():
            raise FileRefused("block has more symbols than its pictures")
