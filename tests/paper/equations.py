"""The paper's equations in plain numpy, one line each. Nothing of the package is used here."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def flat(frames: NDArray[Any], center: bool) -> Floats:
    """X_in as rows n, minus their mean if asked for."""
    x: Floats = frames.reshape(len(frames), -1).astype(np.float64)
    return x - x.mean(axis=0) if center else x


def operator_eigenvalues(frames: NDArray[Any], center: bool) -> Floats:
    """All eigenvalues of A_ij = X_in X_jn, falling (eq 4A4)."""
    x = flat(frames, center)
    return np.maximum(np.linalg.eigvalsh(x.T @ x)[::-1], 0.0)


def eigentensors(frames: NDArray[Any], center: bool, components: int) -> Floats:
    """The strongest eigenvectors of A, (L, M) (eq 4A4)."""
    x = flat(frames, center)
    return np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :components]


def mode_matrix(frames: NDArray[Any], center: bool, k: int) -> Floats:
    """A^k(i_k, j_k): contraction of all indices but those of mode k (eq 4B4)."""
    x = flat(frames, center).reshape(frames.shape)
    unfolded = np.moveaxis(x, k + 1, 0).reshape(frames.shape[k + 1], -1)
    return np.asarray(unfolded @ unfolded.T)


def rank1_coefficients(frames: NDArray[Any], center: bool) -> Floats:
    """D_nm = X_in U_im with U_im the outer products of all mode eigenvectors (eq 4B2, 4B9), (n, L)."""
    basis = np.ones((1, 1))
    for k in range(frames.ndim - 1):
        basis = np.kron(basis, np.linalg.eigh(mode_matrix(frames, center, k))[1])
    return flat(frames, center) @ basis


def rank1_error(frames: NDArray[Any], center: bool, components: int) -> float:
    """The error of keeping the rank-1 tensors with the largest d_nm d_nm (eq 4B15, 4B16)."""
    energies = np.sort((rank1_coefficients(frames, center) ** 2).sum(axis=0))[::-1]
    return float(energies[components:].sum())


def svd_error(frames: NDArray[Any], center: bool, components: int) -> float:
    """sigma_l sigma_l, l = M + 1 .. r, of D = Y Sigma Z' (eq 4B17)."""
    sigma = np.linalg.svd(rank1_coefficients(frames, center), compute_uv=False)
    return float((sigma[components:] ** 2).sum())


def gram_eigenvalues(frames: NDArray[Any], center: bool) -> Floats:
    """The eigenvalues of X_im X_in, N x N, falling (eq 4C5)."""
    x = flat(frames, center)
    return np.maximum(np.linalg.eigvalsh(x @ x.T)[::-1], 0.0)


def truncation_error(frames: NDArray[Any], tensors: NDArray[Any], center: bool) -> float:
    """|X - U U'X|^2 for eigentensors U, (M, I_1, .., I_d), by taking the difference (eq 4.1.1, 4.1.2)."""
    x, u = flat(frames, center), tensors.reshape(len(tensors), -1).T
    return float(((x - (x @ u) @ u.T) ** 2).sum())


def sine(one: Floats, other: Floats) -> float:
    """The largest sine of an angle between two spaces, given by orthonormal columns."""
    return float(np.linalg.norm(one - other @ (other.T @ one), 2))


def images(count: int, shape: tuple[int, ...], dtype: Any = np.uint8, seed: int = 0) -> NDArray[Any]:
    """Bright, smooth frames with an eigenvalue spectrum that falls over many decades."""
    rng = np.random.default_rng(seed)
    size = prod(shape)
    peak = np.iinfo(dtype).max
    x = rng.standard_normal((count, *shape))
    for k, side in enumerate(shape):
        decay = np.exp(-np.arange(side) * 5.0 / max(side, 1))
        wave = np.cos(np.pi * np.outer(np.arange(side) + 0.5, np.arange(side)) / side) * decay
        x = np.moveaxis(np.tensordot(x, wave, axes=(k + 1, 1)), -1, k + 1)
    x *= 0.12 * peak / x.std()
    x = np.clip(0.6 * peak + x, 0, peak)
    assert x.size == count * size
    return np.rint(x).astype(dtype)
