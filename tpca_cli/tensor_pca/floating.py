"""The three algorithms for frames of floats: sums in float64, block by block in the order of the frames.

Integers add up exactly and their operators do not depend on blocks; sums of floats are rounded. Blocks follow
from the shape of a frame alone, so the same frames give the same bits on the same machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
import numpy.typing as npt

from tpca_cli.errors import TpcaError
from tpca_cli.interfaces import Frames
from tpca_cli.tensor_pca.algorithm1 import check_residual, holding, strongest
from tpca_cli.tensor_pca.algorithm2 import singular_rank1
from tpca_cli.tensor_pca.basis import (
    Array,
    OperatorBasis,
    Rank1Basis,
    SubspaceBasis,
    TensorBasis,
    enough,
)
from tpca_cli.tensor_pca.eigen import Eigenpairs, fix_signs

BLOCK_VALUES = 1 << 22
SMALL = 8192
"""Up to this size LAPACK solves."""
SYMMETRIC = 1e-12
"""How far a given operator may be from its transpose, as a share of its largest entry."""
SMALLEST_ENTRY, LARGEST_ENTRY = 1e-120, 1e120
"""Magnitudes between which its largest entry has to lie: residuals are sums of their squares."""


def solve_floats(
    frames: Frames,
    method: str,
    components: int | None = None,
    *,
    energy: float | None = None,
    center: bool = False,
    tolerance: float | None = None,
    truncation: str = "indices",
) -> TensorBasis:
    """The basis of float frames: `operator`, `rank1` or `subspace`."""
    mean = _mean(frames) if center else None
    if method != "rank1":
        return _principal(frames, method, components, energy, mean, tolerance)
    basis = Rank1Basis.from_matrices(_modes(frames, mean), mean=_shaped(mean, frames))
    if truncation == "svd":
        principal = _principal(frames, "operator", components, energy, mean, tolerance)
        return singular_rank1(basis, principal)
    energies = np.zeros(basis.components)
    for block in _blocks(frames, None):
        energies += (basis.project(block.reshape(-1, *frames.frame_shape)) ** 2).sum(axis=0)
    basis = basis.measured_by(energies)
    if energy is not None:
        components = enough(basis.energies, energy * basis.total)
    return basis if components is None else basis.truncate(components)


def solve_matrix(
    matrix: Array,
    frame_shape: tuple[int, ...],
    components: int | None = None,
    *,
    energy: float | None = None,
    tolerance: float | None = None,
    mean: Array | None = None,
    rank: int | None = None,
) -> OperatorBasis:
    """The eigentensors of a self-adjoint operator (L, L) in float64: A_ij U_jl = lambda_l U_il  (eq 4A5)."""
    size = len(matrix)
    total = float(np.trace(matrix))
    most = size if rank is None else max(1, min(size, rank))
    if energy is not None:
        pairs = holding(matrix, frame_shape, most, energy * total, tolerance)
    else:
        pairs = strongest(matrix, frame_shape, min(components or size, most), tolerance)
    if components is not None or energy is not None:
        pairs = pairs.first(max(1, pairs.rank()))
    check_residual(pairs, tolerance)
    return OperatorBasis(frame_shape, pairs.vectors, pairs.values, total, mean, pairs.residuals)


def self_adjoint(operator: npt.NDArray[np.generic]) -> tuple[Array, tuple[int, ...]]:
    """A given operator (I_1, .., I_d, I_1, .., I_d) as a matrix (L, L), and the shape of its frames."""
    shape = operator.shape
    half = len(shape) // 2
    if len(shape) % 2 or not half or shape[:half] != shape[half:]:
        raise TpcaError(
            f"an operator of shape {shape} has no 2d modes: it needs (I_1, .., I_d, I_1, .., I_d)"
        )
    matrix = np.array(operator, np.float64).reshape(prod(shape[:half]), -1)
    if not np.isfinite(matrix).all():
        raise TpcaError("the operator has entries that are infinite or not a number")
    largest = float(np.abs(matrix).max(initial=0.0))
    if largest and not SMALLEST_ENTRY <= largest <= LARGEST_ENTRY:
        raise TpcaError(
            f"the operator has entries up to {largest:.3g} in magnitude, not between {SMALLEST_ENTRY:g} and "
            f"{LARGEST_ENTRY:g}: scale it"
        )
    away = float(np.abs(matrix - matrix.T).max(initial=0.0))
    if away > SYMMETRIC * largest:
        raise TpcaError(
            f"the operator is not self-adjoint: A(i, j) and A(j, i) differ by up to {away:.3g}, "
            f"with entries up to {largest:.3g}; give (A + A') / 2 if that is meant"
        )
    return (matrix + matrix.T) / 2, shape[:half]


def check_energies(matrix: Array, precision: float) -> None:
    """An error where a self-adjoint matrix has an eigenvalue below zero by more than rounding explains.

    Eigenvalues are energies in everything that follows: the order of components, and shares of the trace.
    """
    values = np.linalg.eigvalsh(matrix)  # (L,), rising
    smallest, largest = float(values[0]), float(values[-1])
    if smallest < -precision * len(matrix) * max(abs(smallest), abs(largest)):
        raise TpcaError(
            f"the operator has negative eigenvalues, down to {smallest:.3g} with the largest {largest:.3g}, "
            f"and energies are never negative; {-smallest:.3g} added to its diagonal leaves its eigentensors "
            "as they are, and A A has squared eigenvalues"
        )


def _principal(
    frames: Frames,
    method: str,
    components: int | None,
    energy: float | None,
    mean: Array | None,
    tolerance: float | None,
) -> OperatorBasis | SubspaceBasis:
    """Principal components by the smaller of the two operators, which have the same eigenvalues."""
    size, count = prod(frames.frame_shape), frames.count
    shaped = _shaped(mean, frames)
    if method == "subspace" or count < size:
        spanned = _spanned(frames, components, energy, mean, tolerance)
        return spanned if method == "subspace" else OperatorBasis.of(spanned)
    matrix = np.zeros((size, size))
    for block in _blocks(frames, mean):
        matrix += block.T @ block  # A_ij = X_in X_jn  (eq 4A8)
    rank = count - int(mean is not None)
    return solve_matrix(
        matrix, frames.frame_shape, components, energy=energy, tolerance=tolerance, mean=shaped, rank=rank
    )


def _spanned(
    frames: Frames,
    components: int | None,
    energy: float | None,
    mean: Array | None,
    tolerance: float | None,
) -> SubspaceBasis:
    """Q_il = X_in b_nl (eq 4C11), from a_mn = X_im X_in (eq 4C5)."""
    count = frames.count
    a, at = np.zeros((count, count)), 0
    for block in _blocks(frames, mean):
        then = 0
        for other in _blocks(frames, mean):
            if then > at:
                break
            product = block @ other.T
            a[at : at + len(block), then : then + len(other)] = product
            a[then : then + len(other), at : at + len(block)] = product.T
            then += len(other)
        at += len(block)
    total = float(np.trace(a))
    if energy is not None:
        pairs = holding(a, (count,), count, energy * total, tolerance, SMALL)
    else:
        pairs = strongest(a, (count,), min(components or count, count), tolerance, SMALL)
    pairs = pairs.first(max(1, pairs.rank()))
    shaped = _shaped(mean, frames)
    if pairs.values[0] <= 0:  # frames without energy: any one direction represents them
        unit = np.eye(prod(frames.frame_shape), 1)
        return SubspaceBasis(frames.frame_shape, unit, pairs.values, total, shaped, pairs.residuals)
    b = pairs.vectors / np.sqrt(pairs.values)  # b_nl = U_nm Sigma^-1_ml  (eq 4C12)
    columns, at = np.zeros((prod(frames.frame_shape), b.shape[1])), 0
    for block in _blocks(frames, mean):
        columns += block.T @ b[at : at + len(block)]
        at += len(block)
    q, r = np.linalg.qr(columns)
    q = fix_signs(np.ascontiguousarray(q * np.where(np.diag(r) < 0, -1.0, 1.0)))
    image = np.zeros_like(q)
    for block in _blocks(frames, mean):
        image += block.T @ (block @ q)
    residuals = np.linalg.norm(image - q * pairs.values, axis=0)
    check_residual(Eigenpairs(pairs.values, q, residuals), tolerance)
    return SubspaceBasis(frames.frame_shape, q, pairs.values, total, shaped, residuals)


def _modes(frames: Frames, mean: Array | None) -> list[Array]:
    """A^k of every mode  (eq 4B4)."""
    shape = frames.frame_shape
    matrices = [np.zeros((side, side)) for side in shape]
    for block in _blocks(frames, mean):
        tensors = block.reshape(-1, *shape)
        for k, matrix in enumerate(matrices):
            unfolded = np.moveaxis(tensors, k + 1, -1).reshape(-1, len(matrix))  # (b L / I_k, I_k)
            matrix += unfolded.T @ unfolded
    return matrices


def _mean(frames: Frames) -> Array:
    total = np.zeros(prod(frames.frame_shape))
    for block in _blocks(frames, None):
        total += block.sum(axis=0)
    return total / max(1, frames.count)


def _shaped(mean: Array | None, frames: Frames) -> Array | None:
    return None if mean is None else mean.reshape(frames.frame_shape)


def _blocks(frames: Frames, mean: Array | None) -> Iterator[Array]:
    """The frames as rows (b, L) in float64, less the mean."""
    size = prod(frames.frame_shape)
    for block in frames.blocks(max(1, BLOCK_VALUES // size)):
        rows: Array = np.array(block, np.float64).reshape(len(block), size)
        yield rows if mean is None else rows - mean
