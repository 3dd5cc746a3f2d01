"""A = X' X of integer rows, exact to the last bit at the speed of single-precision BLAS.

Pixels are shifted to y = x - 2^(bits-1), so that |y| <= 128 for bytes. A float32 `syrk` adds integers; it
is exact while every partial sum stays within 2^24, and by Cauchy-Schwarz a partial sum of entry (i, j)
is at most the larger of the column energies sum y_i^2 and sum y_j^2. So the energies are tracked, and the
float32 block is flushed into int64 before the largest of them would pass 2^24. There the shift is undone:

    A_ij += B_ij + s (S_i + S_j) + s^2 n        B = Y'Y, S the column sums of Y, s the shift

Before a flush counts, C r = Y'(Y r) is checked for a random vector r of signs: a BLAS that computes in
less precision than it claims is found, the rows are added again in float64 (bound 2^53), and float64 is
used from then on. 16-bit pixels use float64 from the start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

_PANEL = 32  # rows of the triangle handled at a time in a flush: the temporaries stay in cache
_CALL = 1024  # rows per product: 1024 * 128^2 = 2^24, so one call is always safe
_PENDING = 4096  # rows between flushes: they are kept for the case that the check fails


@dataclass(frozen=True)
class Arithmetic:
    """A floating type with its `syrk` and the largest integer below which all of them are exact."""

    dtype: npt.DTypeLike
    limit: int


SINGLE = Arithmetic(np.float32, 1 << 24)
DOUBLE = Arithmetic(np.float64, 1 << 53)


class ExactGram:
    """The lower triangle of A = X'X (int64) and the column sums, from blocks of unsigned rows (b, size)."""

    def __init__(self, size: int, dtype: npt.DTypeLike = np.uint8) -> None:
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.dtype(np.uint8), np.dtype(np.uint16)):
            raise TypeError(f"pixels are {self.dtype}; an exact operator needs uint8 or uint16")
        self.size = size
        self.n = 0
        self.sums = np.zeros(size, np.int64)
        self.arithmetic = SINGLE if self.dtype.itemsize == 1 else DOUBLE
        self._shift = 1 << (8 * self.dtype.itemsize - 1)
        self._lower = np.zeros((size, size), np.int64)
        self._signs = np.random.default_rng(size).integers(0, 2, size) * 2 - 1
        self._block: npt.NDArray[np.floating] | None = None  # C, lower triangle, not yet in _lower
        self._pending: list[npt.NDArray[np.unsignedinteger]] = []
        self._pending_sums = np.zeros(size, np.int64)
        self._energy = np.zeros(size, np.int64)

    def add(self, rows: npt.NDArray[np.unsignedinteger]) -> None:
        """Count rows, (b, size) of the dtype of this operator."""
        if rows.dtype != self.dtype or rows.shape[1:] != (self.size,):
            raise ValueError(f"expected rows ({self.size},) {self.dtype}, got {rows.shape[1:]} {rows.dtype}")
        for start in range(0, len(rows), _CALL):
            self._add(rows[start : start + _CALL])

    def lower(self) -> Integers:
        """A, of which only the lower triangle is filled; the array itself, not a copy."""
        self._flush()
        self._block = None
        return self._lower

    def _add(self, rows: npt.NDArray[np.unsignedinteger]) -> None:
        y = self._shifted(rows, self.arithmetic)  # (b, size)
        energy = np.einsum("bi,bi->i", y, y).astype(np.int64)
        waiting = sum(map(len, self._pending))
        full = (self._energy + energy).max(initial=0) > self.arithmetic.limit
        if waiting and (full or waiting + len(rows) > _PENDING):
            self._flush()
        if self._block is None:
            self._block = np.zeros((self.size, self.size), self.arithmetic.dtype)
        multiply_into(self._block, y)
        sums = rows.sum(axis=0, dtype=np.int64)
        self._energy += energy
        self._pending.append(rows.copy())
        self._pending_sums += sums
        self.sums += sums
        self.n += len(rows)

    def _flush(self) -> None:
        """Check the floating block, add it to A with the shift undone, and start a new one."""
        if self._block is None or not self._pending:
            return
        if not np.array_equal(self._product(self._block), self._expected()):
            self._recompute()
        count = sum(map(len, self._pending))
        shifted = self._pending_sums - self._shift * count  # S, the column sums of Y
        undo = self._shift * shifted + self._shift**2 * count
        for start in range(0, self.size, _PANEL):
            stop = min(start + _PANEL, self.size)
            panel = self._block[start:stop, :stop]
            total = self._lower[start:stop, :stop]
            total += panel.astype(np.int64)
            total += undo[start:stop, None] + self._shift * shifted[:stop]
            panel[...] = 0
        self._pending.clear()
        self._pending_sums[:] = 0
        self._energy[:] = 0

    def _shifted(
        self, rows: npt.NDArray[np.unsignedinteger], arithmetic: Arithmetic
    ) -> npt.NDArray[np.floating]:
        y: npt.NDArray[np.floating] = np.empty(rows.shape, arithmetic.dtype)
        np.subtract(rows, self._shift, out=y, dtype=arithmetic.dtype)
        return y

    def _expected(self) -> Integers:
        """Y'(Y r) of the pending rows, in int64: sums that wrap around wrap on both sides."""
        total = np.zeros(self.size, np.int64)
        for rows in self._pending:
            # |Y r| <= 2^15 size is exact in float64, and so is Y' of it over few rows of bytes.
            y = self._shifted(rows, DOUBLE)
            image = y @ self._signs.astype(np.float64)  # (b,)
            if self.dtype.itemsize == 1 and self.size < 1 << 27:
                total += (image @ y).astype(np.int64)
            else:
                total += image.astype(np.int64) @ y.astype(np.int64)
        return total

    def _product(self, block: npt.NDArray[np.floating]) -> Integers:
        """C r from the lower triangle of C, in int64."""
        product = np.zeros(self.size, np.int64)
        for start in range(0, self.size, _PANEL):
            stop = min(start + _PANEL, self.size)
            panel = block[start:stop, :stop].astype(np.int64)
            # The upper part of the diagonal block is never written: it is 0 and adds nothing twice.
            product[start:stop] += panel @ self._signs[:stop]
            product[:stop] += self._signs[start:stop] @ panel
            diagonal = panel[np.arange(stop - start), np.arange(start, stop)]
            product[start:stop] -= diagonal * self._signs[start:stop]
        return product

    def _recompute(self) -> None:
        """The pending rows again in float64, which also serves every later block."""
        self.arithmetic = DOUBLE
        self._block = np.zeros((self.size, self.size), np.float64)
        for rows in self._pending:
            multiply_into(self._block, self._shifted(rows, DOUBLE))
        if not np.array_equal(self._product(self._block), self._expected()):
            raise ArithmeticError("this BLAS adds small integers wrongly, even in float64")


def multiply_into(block: npt.NDArray[np.floating], y: npt.NDArray[np.floating]) -> None:
    """Add Y'Y to the lower triangle of `block`, in place; both in C order."""
    from scipy.linalg import blas  # late: looking at a file must not wait for scipy

    syrk = blas.ssyrk if block.dtype == np.float32 else blas.dsyrk
    # BLAS sees the transposes: the lower triangle in C order is its upper one.
    syrk(1.0, y.T, beta=1.0, c=block.T, trans=0, lower=0, overwrite_c=1)


def mirrored(lower: Integers) -> Integers:
    """The whole symmetric matrix from its lower triangle."""
    whole: Integers = np.tril(lower)
    whole += np.tril(lower, -1).T
    return whole


def centered(products: Integers, outer: Integers, n: int, peak: int) -> npt.NDArray[np.float64]:
    """Sums of products minus those of the sums over n, correctly rounded: (n A - S S') / n.

    In integers, because subtracting two large floats would leave their rounding errors in place of the
    zeros of frames that are all alike. `peak` bounds n A; where int64 is too small, floats must do.
    """
    if peak < 1 << 62:
        return (n * products - outer) / n
    return products.astype(np.float64) - outer.astype(np.float64) / n
