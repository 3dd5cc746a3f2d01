"""Orthonormal bases of tensor space, behind one small contract.

    project(frames)       d_l = X_i U_il       (eq 4.1.2)
    reconstruct(d)        X_i = U_il d_l       (eq 4.1.1)

`OperatorBasis` (Algorithm 1) and `SubspaceBasis` (Algorithm 3) hold a matrix, `Rank1Basis`
(Algorithm 2) d small ones. Arrays in, arrays out. The linear index m of eq 2.17 is C order here: by
Proposition 1 no eigenvalue or eigentensor depends on that choice.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tpca_cli.bases.dense import DenseBasis, OperatorBasis, SubspaceBasis
from tpca_cli.bases.operator import solve_operator
from tpca_cli.bases.rank1 import Rank1Basis
from tpca_cli.bases.stream import solve_stream
from tpca_cli.bases.subspace import solve_subspace

Basis = OperatorBasis | Rank1Basis | SubspaceBasis

METHODS: dict[str, type[OperatorBasis] | type[Rank1Basis] | type[SubspaceBasis]] = {
    "operator": OperatorBasis,
    "rank1": Rank1Basis,
    "subspace": SubspaceBasis,
}


def from_arrays(method: str, arrays: Mapping[str, npt.NDArray[np.generic]]) -> Basis:
    """The basis that `to_arrays` of the same method wrote down."""
    return METHODS[method].from_arrays(arrays)


__all__ = [
    "METHODS",
    "Basis",
    "DenseBasis",
    "OperatorBasis",
    "Rank1Basis",
    "SubspaceBasis",
    "from_arrays",
    "solve_operator",
    "solve_stream",
    "solve_subspace",
]
