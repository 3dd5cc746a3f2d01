"""A = X' X of integer rows, exact to the last bit at the speed of single-precision BLAS.

Pixels are shifted to y = x - 2^(bits-1), so that |y| <= 128 for bytes. A float32 product adds integers; it
is exact while every partial sum stays within 2^24, and by Cauchy-Schwarz a partial sum of entry (i, j)
is at most the larger of the column energies sum y_i^2 and sum y_j^2. So rows are gathered while the
largest energy allows, multiplied at once, and added to int64, where the shift is undone:

    A_ij += B_ij + s (S_i + S_j) + s^2 n        B = Y'Y, S the column sums of Y, s the shift

Before a product counts, B r = Y'(Y r) is checked for a random vector r of signs: a BLAS that computes in
less precision than it claims is found, and float64 (bound 2^53) is used from then on. 16-bit pixels use
float64 from the start.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.parallel import side_by_side

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Arithmetic:
    """A floating type, the integer up to which it has all of them, and the type that holds these."""

    dtype: npt.DTypeLike
    limit: int
    integer: npt.DTypeLike


SINGLE = Arithmetic(np.float32, 1 << 24, np.int32)
DOUBLE = Arithmetic(np.float64, 1 << 53, np.int64)

_CALL = 512  # rows looked at together: 512 * 128^2 < 2^24, so they are always safe
_GATHERED = 1 << 25  # values gathered before they are multiplied, unless the energies say earlier
_PANEL = 768  # rows of A multiplied together, half as many if A is small: the float block is never as large
_COLUMNS = 3072  # columns that are gathered by one thread
_CACHED = 1 << 17  # values that stay in cache from one step to the next
_FEW = 4  # panels that are not worth threads of their own


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
        # For the check: float64 holds what bytes can add up to; 16-bit sums may wrap, on both sides alike.
        self._wide = np.dtype(np.float64 if self.dtype.itemsize == 1 else np.int64)
        self._signs = (np.random.default_rng(size).integers(0, 2, size) * 2 - 1).astype(self._wide)
        self._gathered: Floats = np.empty((0, size), self.arithmetic.dtype)  # rows of Y, the first `_count`
        self._count = 0
        self._energy = np.zeros(size, np.int64)
        self._shifted_rows = 0  # rows whose shift is still to be undone, and their S
        self._shifted_sums = np.zeros(size, np.int64)

    def add(self, rows: npt.NDArray[np.unsignedinteger]) -> None:
        """Count rows, (b, size) of the dtype of this operator."""
        if rows.dtype != self.dtype or rows.shape[1:] != (self.size,):
            raise ValueError(f"expected rows ({self.size},) {self.dtype}, got {rows.shape[1:]} {rows.dtype}")
        for start in range(0, len(rows), _CALL):
            self._gather(rows[start : start + _CALL])

    def lower(self) -> Integers:
        """A, of which only the lower triangle is filled; the array itself, not a copy."""
        self._multiply()
        self._undo_shift()
        return self._lower

    def _gather(self, rows: npt.NDArray[np.unsignedinteger]) -> None:
        sums, energy = self._place(rows)
        if (self._energy + energy).max(initial=0) > self.arithmetic.limit:
            self._multiply()
            self._place(rows)
        self._energy += energy
        self._count += len(rows)
        self._shifted_rows += len(rows)
        self._shifted_sums += sums
        self.sums += sums + self._shift * len(rows)
        self.n += len(rows)

    def _place(self, rows: npt.NDArray[np.unsignedinteger]) -> tuple[Integers, Integers]:
        """Shift rows to where they are gathered; they do not count yet. Their column sums and energies."""
        most = max(_CALL, _GATHERED // max(1, self.size))
        if self._count + len(rows) > most:
            self._multiply()
        if self._count + len(rows) > len(self._gathered):  # little at first: small operators see few rows
            room = min(most, max(2 * len(self._gathered), self._count + len(rows)))
            room = most if self.size > _COLUMNS else room
            larger = np.empty((room, self.size), self.arithmetic.dtype)
            larger[: self._count] = self._gathered[: self._count]
            self._gathered = larger
        y = self._gathered[self._count : self._count + len(rows)]
        if self.size <= _COLUMNS:
            return _shifted(rows, self._shift, y)
        parts = [slice(start, start + _COLUMNS) for start in range(0, self.size, _COLUMNS)]
        found = list(side_by_side(lambda part: _shifted(rows[:, part], self._shift, y[:, part]), parts))
        return np.concatenate([sums for sums, _ in found]), np.concatenate([energy for _, energy in found])

    def _multiply(self) -> None:
        """Add the product of the gathered rows to A."""
        if not self._count:
            return
        y = self._gathered[: self._count]
        self._count = 0
        self._energy[:] = 0
        # The longest panels come first, so that no thread is left with one at the end.
        high = _PANEL if self.size > _FEW * _PANEL else _PANEL // 2
        panels = [(start, min(start + high, self.size)) for start in range(0, self.size, high)][::-1]
        work = side_by_side if len(panels) > _FEW else map
        # Y r over the columns up to the end of each panel, (panels, rows)
        images = np.cumsum(list(work(lambda panel: self._image(y, *panel), panels))[::-1], axis=0)[::-1]
        checked = work(lambda k: self._add_panel(y, *panels[k], images[k]), range(len(panels)))
        for k in [k for k, good in enumerate(list(checked)) if not good]:
            self._add_again(y, *panels[k])

    def _image(self, y: Floats, start: int, stop: int) -> npt.NDArray[Any]:
        """Y r over some columns, (rows,); exact in any type, as the columns of a panel are few."""
        with np.errstate(all="ignore"):  # as in `multiply`
            image: npt.NDArray[Any] = y[:, start:stop] @ self._signs[start:stop].astype(y.dtype)
        return image.astype(self._wide)

    def _add_panel(self, y: Floats, start: int, stop: int, image: npt.NDArray[Any]) -> bool:
        """Add rows `start` to `stop` of B, with the columns before `stop`, if B r is as it should be."""
        own = y[:, start:stop]
        expected = image @ own.astype(self._wide)
        room = _scratch(stop - start, stop, y.dtype)
        parts = [
            (slice(0, start), multiply(own, y[:, :start], room[:, :start])),
            (slice(start, stop), multiply(own, own, None)),
        ]
        for few in _few(stop - start):
            found = sum(product[few].astype(self._wide) @ self._signs[columns] for columns, product in parts)
            if not np.array_equal(found, expected[few]):
                return False
        for few in _few(stop - start):
            for columns, product in parts:
                self._lower[start:stop, columns][few] += product[few].astype(self.arithmetic.integer)
        return True

    def _add_again(self, y: Floats, start: int, stop: int) -> None:
        """The same in float64, which is used from now on."""
        if self.arithmetic is SINGLE:
            self.arithmetic = DOUBLE
            self._gathered = np.empty((0, self.size), DOUBLE.dtype)  # `y` keeps what was gathered
        wide = y.astype(np.float64)
        image = wide[:, :stop] @ self._signs[:stop]
        if y.dtype == np.float64 or not self._add_panel(wide, start, stop, image):
            raise ArithmeticError("this BLAS adds small integers wrongly, even in float64")

    def _undo_shift(self) -> None:
        """A += s (S_i + S_j) + s^2 n for all rows since the last time; they have been multiplied."""
        if not self._shifted_rows:
            return
        own = self._shift * self._shifted_sums
        rest = own + self._shift**2 * self._shifted_rows
        for few in _few(self.size):
            self._lower[few, : few.stop] += rest[few, None] + own[: few.stop]
        self._shifted_rows = 0
        self._shifted_sums[:] = 0


def _shifted(rows: npt.NDArray[np.unsignedinteger], shift: int, out: Floats) -> tuple[Integers, Integers]:
    """y = x - s into `out`, with the sums of y and of y^2 by columns: exact, as the rows are few."""
    sums = energy = np.zeros(rows.shape[1], np.int64)
    step = max(16, _CACHED // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        y = out[start : start + step]
        np.subtract(rows[start : start + step], shift, out=y, dtype=out.dtype)
        sums = sums + y.sum(axis=0).astype(np.int64)
        energy = energy + np.einsum("bi,bi->i", y, y).astype(np.int64)
    return sums, energy


def _few(count: int) -> list[slice]:
    """Slices over rows, few at a time: what is computed from them stays in cache."""
    return [slice(start, min(start + 16, count)) for start in range(0, count, 16)]


def multiply(left: Floats, right: Floats, out: Floats | None) -> Floats:
    """left' right, one BLAS product (half of one where both are the same): what the check guards.

    Floating-point warnings of the product are not looked at: the check decides. Some were seen without a
    reason in the data; we suppose that the BLAS computes on lanes that it throws away.
    """
    with np.errstate(all="ignore"):
        product: Floats = np.matmul(left.T, right, out=out)
    return product


_local = threading.local()


def _scratch(rows: int, columns: int, dtype: npt.DTypeLike) -> Floats:
    """Room for a product, the same for all panels of a thread: new memory costs more than using it."""
    have: Floats | None = getattr(_local, "room", None)
    if have is None or have.dtype != dtype or have.size < rows * columns:
        have = _local.room = np.empty(rows * columns, dtype)
    return have[: rows * columns].reshape(rows, columns)


def mirrored(lower: Integers) -> Integers:
    """The whole symmetric matrix from its lower triangle."""
    whole: Integers = np.empty_like(lower)
    for start in range(0, len(lower), _PANEL):  # a few rows at a time: no third matrix
        panel = slice(start, start + _PANEL)
        rows = np.tril(lower[panel, : start + _PANEL], start)
        whole[panel, : start + _PANEL] = rows
        whole[:start, panel] = rows[:, :start].T
        whole[panel, panel] += np.tril(rows[:, start:], -1).T
    return whole


def centered(products: Integers, outer: Integers, n: int, peak: int) -> npt.NDArray[np.float64]:
    """Sums of products minus those of the sums over n, correctly rounded: (n A - S S') / n.

    In integers, because subtracting two large floats would leave their rounding errors in place of the
    zeros of frames that are all alike. `peak` bounds n A; where int64 is too small, floats must do.
    """
    if peak < 1 << 62:
        return (n * products - outer) / n
    return products.astype(np.float64) - outer.astype(np.float64) / n
