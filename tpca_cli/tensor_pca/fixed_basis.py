"""A basis in integers: the same coefficients and the same pixels on every machine.

The fitted basis is floating point; what an archive stores is this fixed-point form. Every product is
a sum of integers that stays below 2^53, so float64 BLAS adds it exactly in any order, and after each mode
the result is rounded by a power of two. Blocking, threads and libraries therefore cannot change a bit.

`archive`, `coder` and the pipeline use it. Planes come first inside, (I1, .., Id, n) and (M, n): each mode is
then one product without a transposed copy, and a component of all frames is contiguous for the coder.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

SHORT, SHORT_DEEP = 15, 21
"""Fractional bits of a basis for 8 and for 16 bits, where its own rounding is below that of the step."""
MOST_BITS = 30
LOW_BITS = 12
"""Where a sum would leave 2^53, so many low bits of the basis are multiplied on their own."""


def _round_shift(values: Floats, bits: int) -> Floats:
    """values / 2^bits, rounded half up, in place."""
    values *= 2.0**-bits
    values += 0.5
    return np.floor(values, out=values)


def _room(frame_size: int, depth: int) -> int:
    """Fractional bits up to which every partial sum of one product stays below 2^53.

    A sum of products of one fiber with one column is at most |frame| * |column| (Cauchy-Schwarz), that is
    2^depth * sqrt(L) * 2^SCALE_BITS * 2^bits. Decoded coefficients can be longer than the frame that they
    stand for: two more bits are left to them.
    """
    return 50 - depth - SCALE_BITS - math.ceil(math.log2(frame_size) / 2)


def _short_bits(frame_size: int, depth: int) -> int:
    """Fractional bits of a basis that need not give every pixel back."""
    return min(_room(frame_size, depth), SHORT if depth <= 8 else SHORT_DEEP)


def _exact_bits(entries: int, frame_size: int, depth: int) -> int:
    """Fractional bits with which all components give every pixel back.

    Rounding changes a pixel by about 0.4 |x| 2^-bits sqrt(entries), entries those of all columns that it is
    multiplied with: three bits more than make that 1 leave no pixel wrong.
    """
    needed = math.ceil(depth + math.log2(entries) / 2 + 3)
    return min(MOST_BITS, max(needed, _short_bits(frame_size, depth)))


def _multiplied(factor: NDArray[Any], values: Floats, shift: int, room: int, bits: int) -> Floats:
    """factor @ values / 2^shift, rounded half up; both hold integers, and so does every sum on the way."""
    if bits <= room:
        return _round_shift(np.asarray(factor, np.float64) @ values, shift)
    factor = factor.astype(np.int64)
    half = 1 << LOW_BITS - 1
    low = ((factor + half) & ((1 << LOW_BITS) - 1)) - half
    high = (factor - low) >> LOW_BITS
    with np.errstate(invalid="ignore"):  # of numbers that no encoder writes
        total: Ints = (high.astype(np.float64) @ values).astype(np.int64) << LOW_BITS
        total += (low.astype(np.float64) @ values).astype(np.int64)
    total += 1 << shift >> 1
    rounded: Floats = (total >> shift).astype(np.float64)
    return rounded


@dataclass(frozen=True, eq=False)
class CodedForm:
    """How a file holds a dense matrix in fewer bytes; `codec.basis_coding` makes and reads it."""

    settings: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class FixedBasis:
    """Integer eigenvectors of each mode with the chosen multi-indices, or one dense integer matrix.

    A matrix with a coded form is what that gives back. Its columns are not orthonormal to the last bit, so
    coefficients are products with their dual: the least-squares ones.
    """

    frame_shape: tuple[int, ...]
    depth: int
    bits: int
    factors: tuple[Ints, ...]
    indices: Ints | None
    mean: Ints | None  # in units of 2^-mean_bits
    coded: CodedForm | None = None
    mean_bits: int = 0
    source: str = ""  # the digest that the basis is known by, where that is not the one of these integers
    oblique: bool = False  # its three colors are not at right angles to one another
    components: int = field(init=False)  # M, the number of coefficients per frame
    dtype: np.dtype[Any] = field(init=False)  # of the pixels
    analysis_factors: tuple[Ints, ...] = field(init=False)  # whose products with a frame are coefficients

    def __post_init__(self) -> None:
        components = self.factors[0].shape[1] if self.indices is None else self.indices.shape[0]
        object.__setattr__(self, "components", int(components))
        object.__setattr__(self, "dtype", np.dtype(np.uint8 if self.depth == 8 else np.uint16))
        *sides, colors = self.factors
        duals = (*sides, _dual_of_three(colors, self.bits)) if self.oblique else self.factors
        object.__setattr__(self, "analysis_factors", duals)

    @classmethod
    def from_modes(
        cls,
        modes: Sequence[Floats],
        indices: NDArray[Any],
        *,
        dtype: Any = np.uint8,
        mean: NDArray[Any] | None = None,
        short: bool = False,
    ) -> FixedBasis:
        """Rank-1 eigentensors: component m is the outer product of column indices[m, k] of each mode k."""
        shape = tuple(int(mode.shape[0]) for mode in modes)
        depth, size = 8 * np.dtype(dtype).itemsize, math.prod(shape)
        bits = _short_bits(size, depth) if short else _exact_bits(sum(shape), size, depth)
        factors = tuple(_integer_factor(mode, bits) for mode in modes)
        mean_bits = 0 if short else SCALE_BITS
        whole = _integer_mean(mean, mean_bits)
        colors = np.asarray(modes[-1])
        oblique = len(shape) == 3 == len(colors) and bool(abs(colors.T @ colors - np.eye(3)).max() > 1e-6)
        indices = np.asarray(indices, np.int64)
        return cls(shape, depth, bits, factors, indices, whole, mean_bits=mean_bits, oblique=oblique)

    @classmethod
    def from_dense(
        cls,
        matrix: Floats,
        frame_shape: Sequence[int],
        *,
        dtype: Any = np.uint8,
        mean: NDArray[Any] | None = None,
        short: bool = False,
        fine: bool = True,
    ) -> FixedBasis:
        """Eigentensors as columns of an (L, M) matrix in C order; the rest as in `integer_basis`."""
        shape = tuple(int(side) for side in frame_shape)
        depth, size = 8 * np.dtype(dtype).itemsize, math.prod(shape)
        bits = _exact_bits(size, size, depth) if fine and not short else _short_bits(size, depth)
        factor = _integer_factor(matrix, bits)
        mean_bits = 0 if short else SCALE_BITS
        whole = _integer_mean(mean, mean_bits)
        return cls(shape, depth, bits, (factor,), None, whole, mean_bits=mean_bits)

    @property
    def peak(self) -> int:
        """The largest pixel value."""
        return (1 << self.depth) - 1

    def analyze(self, planes: Floats, bits: int = 0) -> Floats:
        """Coefficients (M, n) of frames (I1, .., Id, n) in units of 2^-bits; both hold integers."""
        n = planes.shape[-1]
        values = np.array(planes, np.float64).reshape(math.prod(self.frame_shape), n)
        have = bits
        if self.mean is not None:
            have = max(bits, self.mean_bits)
            values *= float(1 << have - bits)
            values -= (self.mean * float(1 << have - self.mean_bits))[:, None]
        if self.indices is None:
            # d_m = X_i U_im  (eq 4.1.2)
            return self._times(self._analysis.T, values, self.bits + have - SCALE_BITS)
        for axis, factor in enumerate(self.analysis_factors):
            values = self._along(values, axis, factor.T, self.bits + have - SCALE_BITS)
            have = SCALE_BITS
        return values[self._flat_indices()]

    def synthesize(self, coefficients: Floats) -> Floats:
        """Frames (I1, .., Id, n) in units of 2^-SCALE_BITS from coefficients (M, n); both hold integers."""
        count, n = coefficients.shape
        if self.indices is None:
            values = self._times(self.factors[0][:, :count], coefficients, self.bits)
        else:
            values = np.zeros((math.prod(self.frame_shape), n))
            values[self._flat_indices()[:count]] = coefficients
            for axis, factor in enumerate(self.factors):
                values = self._along(values, axis, factor, self.bits)
        if self.mean is not None:
            values += (self.mean * float(1 << SCALE_BITS - self.mean_bits))[:, None]
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

    def _times(self, factor: NDArray[Any], values: Floats, shift: int) -> Floats:
        """The product, rounded by a power of two."""
        return _multiplied(factor, values, shift, _room(math.prod(self.frame_shape), self.depth), self.bits)

    def _along(self, values: Floats, axis: int, factor: Ints, shift: int) -> Floats:
        """The mode product: `factor` applied along `axis` of (I1*..*Id, n), rounded."""
        shape = self.frame_shape
        before, side, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        product = self._times(factor, values.reshape(before, side, after * values.shape[-1]), shift)
        return product.reshape(values.shape)

    @functools.cached_property
    def _analysis(self) -> Floats:
        """The matrix whose products with a frame are its coefficients, (L, M)."""
        matrix = self.factors[0].astype(np.float64)
        return matrix if self.coded is None else _dual(matrix, self.bits)

    @property
    def bounded(self) -> bool:
        """Whether rows and columns of a coded matrix are as short as sums below 2^53 need them."""
        squares = (self.factors[0] * 2.0**-self.bits) ** 2  # (L, M)
        return bool(max(squares.sum(axis=0).max(initial=0.0), squares.sum(axis=1).max(initial=0.0)) <= 4)

    @property
    def invertible(self) -> bool:
        """Whether the dual of a coded matrix is one: every coefficient comes back, or is always zero."""
        product = (self._analysis.T @ self.factors[0]) * 2.0 ** (-2 * self.bits)
        return bool(np.abs(product - np.diag(np.rint(product.diagonal()))).max(initial=0.0) < 2.0**-7)

    @property
    def stored_bytes(self) -> int:
        """About what the arrays take in a file."""
        return sum(len(zlib.compress(array.tobytes(), 1)) for array in self.to_arrays().values())

    def _flat_indices(self) -> Ints:
        assert self.indices is not None
        return np.asarray(np.ravel_multi_index(tuple(self.indices.T), self.frame_shape), np.int64)

    @property
    def meta(self) -> dict[str, Any]:
        """What the arrays do not say, as plain JSON."""
        meta = {
            "kind": "dense" if self.indices is None else "modes",
            "frame": list(self.frame_shape),
            "depth": self.depth,
            "bits": self.bits,
        }
        if self.source:
            meta["source"] = self.source
        if self.oblique:
            meta["oblique"] = True
        return meta if self.coded is None else {**meta, "coded": dict(self.coded.settings)}

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The integers as small arrays."""
        kind = np.int16 if self.bits <= 15 else np.int32
        arrays: dict[str, NDArray[Any]] = {f"factor{k}": f.astype(kind) for k, f in enumerate(self.factors)}
        if self.coded is not None:
            arrays = {f"coded_{name}": array for name, array in self.coded.arrays.items()}
        if self.indices is not None:
            flat = self._flat_indices()
            arrays["indices"] = flat.astype(np.uint8 if flat.max(initial=0) < 256 else np.uint32)
        if self.mean is not None and self.mean_bits:
            arrays["fine_mean"] = self.mean.astype(np.uint16 if self.depth == 8 else np.uint32)
        elif self.mean is not None:
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
            if not 1 <= bits <= MOST_BITS:
                raise FileRefused(f"basis has {bits} fractional bits, not 1 to {MOST_BITS}")
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
            name = "fine_mean" if "fine_mean" in arrays else "mean"
            mean = np.asarray(arrays[name]).astype(np.int64).reshape(size) if name in arrays else None
            mean_bits, source = SCALE_BITS if name == "fine_mean" else 0, str(meta.get("source", ""))
        except (KeyError, TypeError, ValueError) as error:
            raise FileRefused(f"basis is incomplete or malformed ({error})") from error
        if meta.get("coded") is None:
            oblique = bool(meta.get("oblique", False)) and not dense and shape[-1:] == (3,)
            _check_orthonormal(factors[:-1] if oblique else factors, shape, bits, dense)
            if oblique:
                _check_colors(factors[-1], bits)
            return cls(shape, depth, bits, factors, indices, mean, None, mean_bits, source, oblique)
        form = {k.removeprefix("coded_"): v for k, v in arrays.items() if k.startswith("coded_")}
        coded = CodedForm(dict(meta["coded"]), form)
        basis = cls(shape, depth, bits, factors, indices, mean, coded, mean_bits, source)
        if not dense or factors[0].shape[:1] != (size,) or not basis.bounded:
            raise FileRefused("a coded basis is far from orthonormal")
        return basis


def _integer_factor(matrix: NDArray[Any], bits: int) -> Ints:
    """Fixed point; with 15 bits an entry of exactly 1 is stored as the largest int16."""
    values = np.rint(np.asarray(matrix, np.float64) * 2.0**bits).astype(np.int64)
    return np.clip(values, -(2**15 - 1), 2**15 - 1) if bits <= 15 else values


def _integer_mean(mean: NDArray[Any] | None, bits: int) -> Ints | None:
    return (
        None if mean is None else np.rint(np.asarray(mean, np.float64) * 2.0**bits).astype(np.int64).ravel()
    )


DUAL_BITS = 22
"""Fractional bits of the inverse of a Gram matrix."""


def _dual(matrix: Floats, bits: int) -> Floats:
    """U (U' U)^-1 in integers, for columns that are nearly orthonormal or zero (Newton's iteration)."""
    # norms are at most 2, so all sums are below 2^53
    gram = _round_shift(matrix.T @ matrix, 2 * bits - DUAL_BITS)  # (M, M)
    twice = 2.0 ** (DUAL_BITS + 1) * np.eye(len(gram))
    inverse = twice / 2
    for _ in range(3):  # I - G is squared by each
        inverse = _round_shift(inverse @ (twice - _round_shift(gram @ inverse, DUAL_BITS)), DUAL_BITS)
    return _round_shift(matrix @ inverse, DUAL_BITS)


def _dual_of_three(matrix: Ints, bits: int) -> Ints:
    """The columns that give the coefficients of three columns: their cross products by their volume."""
    a, b, c = (matrix[:, k].astype(object) for k in range(3))
    volume = int(_cross(a, b) @ c)
    found = [[(int(v) * (1 << 2 * bits) * 2 + volume) // (2 * volume) for v in _cross(x, y)]
             for x, y in ((b, c), (c, a), (a, b))]  # fmt: skip
    dual: Ints = np.array(found, np.int64).T
    return dual


def _cross(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """The product at right angles to both, in integers of any size."""
    return np.array([a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))], object)


def _check_colors(matrix: Ints, bits: int) -> None:
    """Refuse three colors that are far from orthonormal: no coefficient is then much larger than a pixel."""
    if matrix.shape != (3, 3):
        raise FileRefused(f"basis has colors {matrix.shape}")
    columns = matrix * 2.0**-bits
    if not (np.abs(columns.T @ columns - np.eye(3)).max() <= 0.6 and abs(np.linalg.det(columns)) >= 0.5):
        raise FileRefused("colors of the basis are far from orthonormal")


def _check_orthonormal(factors: tuple[Ints, ...], shape: tuple[int, ...], bits: int, dense: bool) -> None:
    """Refuse columns that are not orthonormal to the precision of the integers."""
    for side, factor in zip((math.prod(shape),) if dense else shape, factors, strict=False):
        if factor.ndim != 2 or factor.shape[0] != side or not 1 <= factor.shape[1] <= side:
            raise FileRefused(f"basis factor {factor.shape} does not fit a side of {side}")
        if not dense and factor.shape[1] != side:
            raise FileRefused(f"basis factor {factor.shape} is not square")
        columns = factor * 2.0**-bits
        worst = float(np.abs(columns.T @ columns - np.eye(columns.shape[1])).max())
        if not worst <= 4 * side * 2.0**-bits + 1e-9:
            raise FileRefused(f"basis is not orthonormal (off by {worst:.3g})")


def integer_basis(
    basis: TensorBasis, dtype: DTypeLike, *, short: bool = False, fine: bool = False
) -> FixedBasis:
    """The integer form in which a basis codes images.

    A dense basis is large, and gets the bits with which all its components give every pixel back only if it
    shall be `fine`. `short` is the form that files linked to a basis have always named: few bits, and a mean
    in whole pixel values.
    """
    from tpca_cli.tensor_pca.basis import Rank1Basis  # late: a reader of archives needs no other basis

    dtype = np.dtype(dtype)
    if isinstance(basis, Rank1Basis) and basis.rotation is None:
        return FixedBasis.from_modes(basis.modes, basis.indices, dtype=dtype, mean=basis.mean, short=short)
    matrix = basis.columns() if isinstance(basis, Rank1Basis) else basis.matrix
    return FixedBasis.from_dense(
        matrix, basis.frame_shape, dtype=dtype, mean=basis.mean, short=short, fine=fine
    )
