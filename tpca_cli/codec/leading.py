"""What the third model predicts from: brightness leads colors, and borders of tiles lead signs.

The prediction itself is `kernel/led.h`; here is what it needs to know of a basis, and the fit of its shares.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.contexts import NO_BORDERS, Borders, ContextModel
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.kernel_job import DECIDE
from tpca_cli.codec.kernel_run import run_encoder
from tpca_cli.codec.scan_order import Ints
from tpca_cli.tensor_pca.fixed_basis import FixedBasis

Floats = NDArray[np.float64]

SHARE, SHARED = 64, 16
"""How far colors follow brightness: in 1/64, for so many diagonals; the last stands for all beyond."""
LEAST_LEFT = 0.02
"""Of the energy of a color, whatever brightness says of it."""
BORDER_BITS = 8
"""Samples along the borders of tiles count in 1/256."""


def borders_of(basis: FixedBasis, none: bool) -> Borders:
    """The samples of each rank-1 component along the borders of a tile, if they count."""
    if basis.indices is None or none:
        return NO_BORDERS
    i, j = basis.indices[:, :2].astype(np.int64).T
    (height, width), (down, across) = basis.frame_shape[:2], basis.factors[:2]
    at = np.stack([j, width + j, 2 * width + i, 2 * width + height + i], axis=1)
    samples = np.stack([down[0, i], down[-1, i], across[0, j], across[-1, j]], axis=1).astype(np.int64)
    shift = basis.bits - BORDER_BITS
    weights = samples << -shift if shift <= 0 else (samples + (1 << (shift - 1))) >> shift
    return Borders(2 * (height + width), at, weights)


def shares_of(shares: Ints | None, indices: Ints | None) -> Ints | None:
    """How far each component follows brightness, (M,), from shares by color and diagonal, if any."""
    if shares is None or indices is None:
        return None
    i, j, c = indices.astype(np.int64).T
    found: Ints = np.where(c > 0, shares[c - 1, np.minimum(i + j, SHARED - 1)], 0)
    return found


def fit_shares(
    trial: ContextModel, indices: Ints, blocks: Sequence[tuple[Grid, Floats]]
) -> tuple[Ints, Ints]:
    """Shares by color and diagonal that suit two blocks (M, tiles), and what scale codes (M,) lose by them.

    `trial` is a model with some share everywhere: how far colors go with what brightness says of them does
    not depend on it.
    """
    order, kept = trial.scan.order, len(indices)
    fit = np.zeros((kept, 2))  # products with what brightness says, and the squares of that
    energy = np.ones(kept)  # own squares
    for grid, planes in blocks[:: max(-(-len(blocks) // 2), 1)]:
        _, job = run_encoder(trial, grid, DECIDE, {"data": planes[order], "grade": 0})
        fit[order] += job["fit"].reshape(-1, 2)
        energy += (planes**2).sum(axis=1)
    sums = np.zeros((len(trial.scan.lowest), SHARED, 2))
    np.add.at(sums, (indices[:, 2], np.minimum(indices[:, 0] + indices[:, 1], SHARED - 1)), fit)
    found = sums[1:, :, 0] / np.maximum(sums[1:, :, 1], 1.0)  # (channels - 1, SHARED)
    shares = np.clip(np.rint(SHARE * found), 0, SHARE).astype(np.int64)
    taken = np.asarray(shares_of(shares, indices)) / SHARE
    left = np.clip(1 - taken * (2 * fit[:, 0] - taken * fit[:, 1]) / energy, LEAST_LEFT, 1.0)
    return shares, -np.rint(4 * np.log2(left)).astype(np.int64)  # eighths of an octave
