"""A basis in integers: the same coefficients and the same pixels on every machine.

The fitted basis is floating point; what an archive stores is this fixed-point form. Every product is
a sum of integers that stays below 2^53, so float64 BLAS adds it exactly in any order, and after each mode
the result is rounded by a power of two. Blocking, threads and libraries therefore cannot change a bit.

`archive`, `coder` and the pipeline use it. Planes come first inside, (I1, .., Id, n) and (M, n): each mode is
then one product without a transposed copy, and a component of all frames is contiguous for the coder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tpca_cli.errors import FileRefused

if TYPE_CHECKING:
    from tpca_cli.tensor_pca.basis import TensorBasis

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SCALE_BITS = 6
"""Fractional bits of a coefficient: they are stored and quantised in units of 1/64 pixel."""

SCALE = 1 << SCALE_BITS


def _round_shift(values: Floats, bits: int) -> Floats:
    """values / 2^bits, rounded half up, in place."""
    values *= 2.0**-bits
    values += 0.5
    return np.floor(values, out=values)


def _basis_bits(frame_size: int, depth: int) -> int:
    """Fractional bits of the basis: as many as keep every partial sum below 2^53.

    A sum of products of one fiber with one column is at most |frame| * |column| (Cauchy-Schwarz), that is
    2^depth * sqrt(L) * 2^SCALE_BITS * 2^bits. Decoded coefficients can be longer than the frame that they
    stand for: two more bits are left to them.
    """
    room = 50 - depth - SCALE_BITS - math.ceil(math.log2(frame_size) / 2)
    return min(room, 15 if depth <= 8 else 21)


@dataclass(frozen=True, eq=False)
class FixedBasis:
    """Integer eigenvectors of each mode with the chosen multi-indices, or one dense integer matrix."""

    frame_shape: tuple[int, ...]
    depth: int
    bits: int
    factors: tuple[Ints, ...]
    indices: Ints | None
    mean: Ints | None

    @classmethod
    def from_modes(
        cls,
        modes: Sequence[Floats],
        indices: NDArray[Any],
        *,
        dtype: Any = np.uint8,
        mean: NDArray[Any] | None = None,
    ) -> FixedBasis:
        """Rank-1 eigentensors: component m is the outer product of column indices[m, k] of each mode k."""
        shape = tuple(int(mode.shape[0]) for mode in modes)
        depth = 8 * np.dtype(dtype).itemsize
        bits = _basis_bits(math.prod(shape), depth)
        factors = tuple(_integer_factor(mode, bits) for mode in modes)
        return cls(shape, depth, bits, factors, np.asarray(indices, np.int64), _integer_mean(mean))

    @classmethod
    def from_dense(
        cls,
        matrix: Floats,
        frame_shape: Sequence[int],
        *,
        dtype: Any = np.uint8,
        mean: NDArray[Any] | None = None,
    ) -> FixedBasis:
        """Eigentensors as columns of an (L, M) matrix in C order."""
        shape = tuple(int(side) for side in frame_shape)
        depth = 8 * np.dtype(dtype).itemsize
        bits = _basis_bits(math.prod(shape), depth)
        factor = _integer_factor(matrix, bits)
        return cls(shape, depth, bits, (factor,), None, _integer_mean(mean))

    @property
    def components(self) -> int:
        """M, the number of coefficients per frame."""
        return int(self.factors[0].shape[1] if self.indices is None else self.indices.shape[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the pixels."""
        return np.dtype(np.uint8 if self.depth == 8 else np.uint16)

    @property
    def peak(self) -> int:
        """The largest pixel value."""
        return (1 << self.depth) - 1

    def analyze(self, planes: Floats, bits: int = 0) -> Floats:
        """Coefficients (M, n) of frames (I1, .., Id, n) in units of 2^-bits; both hold integers."""
        n = planes.shape[-1]
        values = np.array(planes, np.float64).reshape(math.prod(self.frame_shape), n)
        if self.mean is not None:
            values -= (self.mean * float(1 << bits))[:, None]
        if self.indices is None:
            # d_m = X_i U_im  (eq 4.1.2)
            return _round_shift(self.factors[0].T.astype(np.float64) @ values, self.bits + bits - SCALE_BITS)
        have = bits
        for axis, factor in enumerate(self.factors):
            values = _along(values, self.frame_shape, axis, factor.T.astype(np.float64))
            values = _round_shift(values, self.bits + have - SCALE_BITS)
            have = SCALE_BITS
        return values[self._flat_indices()]

    def synthesize(self, coefficients: Floats) -> Floats:
        """Frames (I1, .., Id, n) in units of 2^-SCALE_BITS from coefficients (M, n); both hold integers."""
        count, n = coefficients.shape
        if self.indices is None:
            values = self.factors[0][:, :count].astype(np.float64) @ coefficients
            _round_shift(values, self.bits)
        else:
            values = np.zeros((math.prod(self.frame_shape), n))
            values[self._flat_indices()[:count]] = coefficients
            for axis, factor in enumerate(self.factors):
                values = _along(values, self.frame_shape, axis, factor.astype(np.float64))
                _round_shift(values, self.bits)
        if self.mean is not None:
            values += (self.mean * float(SCALE))[:, None]
        return values.reshape(*self.frame_shape, n)

    def project(self, frames: NDArray[Any]) -> Ints:
        """Coefficients (n, M) of pixel frames (n, I1, .., Id), in units of 2^-SCALE_BITS."""
        planes = np.moveaxis(np.asarray(frames, np.float64), 0, -1)
        return np.asarray(self.analyze(planes).T, np.int64, order="C")

    def reconstruct(self, coefficients: NDArray[Any]) -> NDArray[Any]:
        """Pixel frames (n, I1, .., Id) of coefficients (n, M) in units of 2^-SCALE_BITS."""
        planes = self.synthesize(np.asarray(coefficients, np.float64).T)
        return np.ascontiguousarray(np.moveaxis(self.to_pixels(planes), -1, 0))

    def to_pixels(self, planes: Floats) -> NDArray[Any]:
        """Scaled integers, rounded and clipped to the pixel type."""
        pixels = _round_shift(planes, SCALE_BITS)
        return np.clip(pixels, 0, self.peak, out=pixels).astype(self.dtype)

    def _flat_indices(self) -> Ints:
        assert self.indices is not None
        return np.asarray(np.ravel_multi_index(tuple(self.indices.T), self.frame_shape), np.int64)

    @property
    def meta(self) -> dict[str, Any]:
        """What the arrays do not say, as plain JSON."""
        return {
            "kind": "dense" if self.indices is None else "modes",
            "frame": list(self.frame_shape),
            "depth": self.depth,
            "bits": self.bits,
        }

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The integers as small arrays."""
        kind = np.int16 if self.bits <= 15 else np.int32
        arrays: dict[str, NDArray[Any]] = {f"factor{k}": f.astype(kind) for k, f in enumerate(self.factors)}
        if self.indices is not None:
            flat = self._flat_indices()
            arrays["indices"] = flat.astype(np.uint8 if flat.max(initial=0) < 256 else np.uint32)
        if self.mean is not None:
            arrays["mean"] = self.mean.astype(self.dtype)
        return arrays

    @classmethod
    def from_arrays(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> FixedBasis:
        """The basis that `meta` and `to_arrays` described; refused unless it is one."""
        try:
            shape = tuple(int(side) for side in meta["frame"])
            depth, bits, dense = int(meta["depth"]), int(meta["bits"]), meta["kind"] == "dense"
            size = math.prod(shape)
            if not shape or min(shape) < 1 or size > 1 << 26 or depth not in (8, 16):
                raise FileRefused(f"basis frame {shape} of {depth} bits is not possible")
            if bits != _basis_bits(size, depth):
                raise FileRefused(f"basis has {bits} fractional bits, expected {_basis_bits(size, depth)}")
            names = ["factor0"] if dense else [f"factor{k}" for k in range(len(shape))]
            factors = tuple(np.asarray(arrays[name]).astype(np.int64) for name in names)
            indices = None
            if not dense:
                flat = np.asarray(arrays["indices"]).astype(np.int64)
                if (
                    flat.ndim != 1
                    or np.unique(flat).size != flat.size
                    or flat.min() < 0
                    or flat.max() >= size
                ):
                    raise FileRefused("basis components are repeated or outside the frame")
                indices = np.stack(np.unravel_index(flat, shape), axis=1).astype(np.int64)  # (M, d)
            mean = np.asarray(arrays["mean"]).astype(np.int64).reshape(size) if "mean" in arrays else None
        except (KeyError, TypeError, ValueError) as error:
            raise FileRefused(f"basis is incomplete or malformed ({error})") from error
        _check_orthonormal(factors, shape, bits, dense)
        return cls(shape, depth, bits, factors, indices, mean)


def _integer_factor(matrix: NDArray[Any], bits: int) -> Ints:
    """Fixed point; with 15 bits an entry of exactly 1 is stored as the largest int16."""
    values = np.rint(np.asarray(matrix, np.float64) * 2.0**bits).astype(np.int64)
    return np.clip(values, -(2**15 - 1), 2**15 - 1) if bits <= 15 else values


def _integer_mean(mean: NDArray[Any] | None) -> Ints | None:
    return None if mean is None else np.rint(np.asarray(mean, np.float64)).astype(np.int64).ravel()


def _along(values: Floats, shape: tuple[int, ...], axis: int, matrix: Floats) -> Floats:
    """The mode product: `matrix` applied along `axis` of (I1*..*Id, n)."""
    before, side, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    product = matrix @ values.reshape(before, side, after * values.shape[-1])
    return product.reshape(values.shape)


def _check_orthonormal(factors: tuple[Ints, ...], shape: tuple[int, ...], bits: int, dense: bool) -> None:
    """Refuse columns that are not orthonormal to the precision of the integers."""
    for side, factor in zip((math.prod(shape),) if dense else shape, factors, strict=True):
        if factor.ndim != 2 or factor.shape[0] != side or not 1 <= factor.shape[1] <= side:
            raise FileRefused(f"basis factor {factor.shape} does not fit a side of {side}")
        if not dense and factor.shape[1] != side:
            raise FileRefused(f"basis factor {factor.shape} is not square")
        columns = factor * 2.0**-bits
        worst = float(np.abs(columns.T @ columns - np.eye(columns.shape[1])).max())
        if not worst <= 4 * side * 2.0**-bits + 1e-9:
            raise FileRefused(f"basis is not orthonormal (off by {worst:.3g})")


def integer_basis(basis: TensorBasis, dtype: DTypeLike) -> FixedBasis:
    """The integer form in which a basis codes images."""
    from tpca_cli.tensor_pca.basis import Rank1Basis  # late: a reader of archives needs no other basis

    dtype = np.dtype(dtype)
    if isinstance(basis, Rank1Basis) and basis.rotation is None:
        return FixedBasis.from_modes(basis.modes, basis.indices, dtype=dtype, mean=basis.mean)
    if isinstance(basis, Rank1Basis):
        unit = basis.reconstruct(np.eye(basis.components))  # (M, *shape)
        matrix = unit.reshape(basis.components, -1).T
        if basis.mean is not None:
            matrix = matrix - basis.mean.reshape(-1, 1)
        return FixedBasis.from_dense(matrix, basis.frame_shape, dtype=dtype, mean=basis.mean)
    return FixedBasis.from_dense(basis.matrix, basis.frame_shape, dtype=dtype, mean=basis.mean)
