"""Eigenpairs of self-adjoint operators: all of them or the strongest, always with measured residuals.

`solve_dense` hands a matrix to LAPACK. Arrays (or something that multiplies) in, arrays out; who
accumulated the operator and what its eigentensors are for is the caller's business.
"""

from tpca_cli.eigen.dense import solve_dense
from tpca_cli.eigen.pairs import Eigenpairs, fix_signs

__all__ = ["Eigenpairs", "fix_signs", "solve_dense"]
