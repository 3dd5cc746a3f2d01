"""A dense basis in slices of 8 bits, for products with frames of 8 bits that are exact up to the last sum.

    U_il = 2^-s_l (B_il^0 + 256 B_il^1 + ..) + what is left, B whole numbers of -128 to 127
    d_nl = 2^-s_l sum_k 256^k (X_in - 128) B_il^k + 128 sum_i U_il - mean_i U_il      (eq 4.1.2)

The sums over i are whole numbers, the same whoever computes them. Measured on one core with AVX-512 VNNI for
L = 12288, M = 500: a product in float64 46 Gflop/s, one of 8 bits by `numkong` 300 Gop/s, so that up to five
slices are quicker. `numkong` is an extra; where a plan asks for slices and it is missing, float64 does it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.tensor_pca.basis import Array, DenseBasis

MOST = 5  # slices: six take as long as one product in float64
TOLERANCE = {4: 2.0**-30, 8: 1e-12}  # of the length of a frame, by the bytes of what is written
_SIGMAS = 6 / 12**0.5  # how far six deviations of a rounding are from the truth, in steps
_QUICK = ("icelake", "alder", "sierra", "neonsdot")  # instructions that add products of 8 bits to 32
_LONGEST = 1 << 16  # entries of a frame: so many products of 2^7 and 2^7 stay below 2^31
_ROWS = 128  # of the basis that are sliced at a time, in cache
_TRIED = 8  # components of each slice that are computed twice, to see that the library does not round

Bytes = npt.NDArray[np.int8]


def slices_for(basis: DenseBasis, itemsize: int) -> int:
    """How many slices give coefficients of so many bytes as exactly as they are promised; 0: use floats.

    What a slice leaves of an entry is taken to be of no pattern that a picture has.
    """
    if len(basis.matrix) > _LONGEST or not _library(quick=True):
        return 0
    largest = max(float(basis.matrix.max()), -float(basis.matrix.min()))
    for count in range(1, MOST + 1):
        if _SIGMAS * 2.0 ** -int(_shifts(np.array(largest), count)) <= TOLERANCE[itemsize]:
            return count
    return 0


class Slices:
    """The slices of a basis. Pickled as its basis: the library's form of them stays where it was made."""

    def __init__(self, basis: DenseBasis, count: int) -> None:
        matrix = basis.matrix
        shifts = _shifts(np.maximum(matrix.max(axis=0), -matrix.min(axis=0)), count)
        self._basis, self.count = basis, count
        self._units = np.ldexp(1.0, -shifts)  # (M,)
        self._offset = 128.0 * matrix.sum(axis=0)
        if basis.mean is not None:
            self._offset -= basis.mean.reshape(-1) @ matrix
        slices = _sliced(matrix, np.ldexp(1.0, shifts), count)
        self._products = [_product(slices.pop()) for _ in range(count)]  # highest first; each is freed

    def project(self, frames: Bytes) -> Array:
        """d_nl of frames less 128, (n, L)."""
        found = np.zeros((len(frames), len(self._units)))  # (n, M)
        for product in self._products:
            found *= 256
            found += product(frames)
        found *= self._units
        found += self._offset
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Slices, (self._basis, self.count)


def _shifts(largest: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """The power of two by which columns with these largest entries just fit `count` slices."""
    # 127.5 of 128 is the most that the upper slice can hold when the others carry
    exponents = np.maximum(np.frexp(largest * 1.01)[1], -900)  # no more than float64 can divide by
    return (8 * count - 1 - exponents).astype(np.int64)


def _sliced(matrix: Array, scale: Array, count: int) -> list[Bytes]:
    """The slices, lowest first, each (M, L)."""
    out = [np.empty(matrix.shape[::-1], np.int8) for _ in range(count)]
    carry = np.int64(sum(128 << 8 * k for k in range(count)))  # moves digits to 0..255, and their signs back
    for start in range(0, len(matrix), _ROWS):
        whole = np.rint(matrix[start : start + _ROWS] * scale).astype("<i8")  # (rows, M)
        whole += carry
        whole ^= carry
        digits = whole.view(np.int8).reshape(*whole.shape, 8)
        for k, part in enumerate(out):
            part[:, start : start + _ROWS] = digits[:, :, k].T
    return out


def _product(part: Bytes) -> Callable[[Bytes], npt.NDArray[Any]]:
    """What gives the sums of frames with a slice, (n, M): the library, if it does so to the last digit."""
    library = _library()
    if library is not None:
        packed = library.dots_pack(part)
        ramp = np.arange(part.shape[1]).astype(np.int8)
        frames = np.stack([np.full_like(ramp, -128), np.full_like(ramp, 127), ramp, ~ramp])
        if np.array_equal(_dots(packed, frames)[:, :_TRIED], _exactly(part[:_TRIED], frames)):
            return functools.partial(_dots, packed)
    return functools.partial(_exactly, part)


def _dots(packed: Any, frames: Bytes) -> npt.NDArray[np.int32]:
    return np.asarray(_library().dots_packed(frames, packed))


def _exactly(part: Bytes, frames: Bytes) -> Array:
    """The same in float64: sums of whole numbers below 2^53."""
    sums: Array = frames.astype(np.float64) @ part.T.astype(np.float64)
    return sums


@functools.cache
def _library(quick: bool = False) -> Any:
    """The library of products of 8 bits, or None; `quick`: only where the machine has instructions."""
    try:
        import numkong
    except ImportError:
        return None
    if quick and not any(numkong.get_capabilities().get(name) for name in _QUICK):
        return None
    return numkong
