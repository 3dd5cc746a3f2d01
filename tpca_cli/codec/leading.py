"""How far colors follow brightness, which leads them in the third model (`kernel/led.h`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.contexts import SHARE, SHARED, ContextModel, row_sums, shares_of
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.kernel_job import DECIDE
from tpca_cli.codec.kernel_run import run_encoder
from tpca_cli.codec.scan_order import Ints

Floats = NDArray[np.float64]

LEAST_LEFT = 0.02
"""Of the energy of a color, whatever brightness says of it."""


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
        fit[order] += job.arrays["fit"].reshape(-1, 2)
        energy += row_sums(np.square, planes)
    sums = np.zeros((len(trial.scan.lowest), SHARED, 2))
    np.add.at(sums, (indices[:, 2], np.minimum(indices[:, 0] + indices[:, 1], SHARED - 1)), fit)
    found = sums[1:, :, 0] / np.maximum(sums[1:, :, 1], 1.0)  # (channels - 1, SHARED)
    shares = np.clip(np.rint(SHARE * found), 0, SHARE).astype(np.int64)
    taken = np.asarray(shares_of(shares, indices)) / SHARE
    left = np.clip(1 - taken * (2 * fit[:, 0] - taken * fit[:, 1]) / energy, LEAST_LEFT, 1.0)
    return shares, -np.rint(4 * np.log2(left)).astype(np.int64)  # eighths of an octave
