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

PRECISION = 12
TOKENS = 16
"""Tokens 0 .. 14 are values; 15 is the escape, followed by value - 15 in Elias gamma bits."""
ESCAPE = TOKENS - 1
LONGEST = 40

_FAMILY = constriction.stream.model.Categorical(perfect=False)


def probabilities(tables: NDArray[Any]) -> NDArray[np.float64]:
    """Integer tables (classes, TOKENS) whose rows sum to 2^PRECISION, as exact floats."""
    return np.asarray(tables, np.float64) * 2.0**-PRECISION


class Writer:
    """Collects tokens and bits of one block."""

    def __init__(self) -> None:
        self._range = constriction.stream.queue.RangeEncoder()
        self._bits: list[NDArray[np.uint8]] = []

    def values(self, magnitudes: Ints, models: NDArray[np.float64]) -> None:
        """Magnitudes (n,) each with its own distribution, a row of `models` (n, TOKENS)."""
        tokens = np.minimum(magnitudes, ESCAPE)
        if tokens.size:
            self._range.encode(tokens.astype(np.int32), _FAMILY, models)
        for value in magnitudes[tokens == ESCAPE] - ESCAPE + 1:
            width = int(value).bit_length()
            self.bits(np.array([0] * (width - 1) + [int(b) for b in f"{int(value):b}"], np.uint8))

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

    def values(self, models: NDArray[np.float64]) -> Ints:
        """Magnitudes (n,) under the rows of `models` (n, TOKENS)."""
        if not len(models):
            return np.zeros(0, np.int64)
        try:
            tokens = np.asarray(self._range.decode(_FAMILY, models))
        except (AssertionError, ValueError, RuntimeError) as error:
            raise FileRefused(f"block tokens are damaged ({error})") from error
        magnitudes = tokens.astype(np.int64)
        for place in np.flatnonzero(tokens == ESCAPE):
            width = 1
            while not self.bits(1)[0]:
                width += 1
                if width > LONGEST:
                    raise FileRefused("block holds a value out of range")
            value = 1
            for bit in self.bits(width - 1):
                value = 2 * value + int(bit)
            magnitudes[place] = value - 1 + ESCAPE
        return magnitudes

    def bits(self, count: int) -> NDArray[np.uint8]:
        """The next raw bits."""
        if self._at + count > self._bits.size:
            raise FileRefused("block bits are truncated")
        self._at += count
        return self._bits[self._at - count : self._at]
