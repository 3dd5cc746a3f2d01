"""Eigenpairs of self-adjoint operators: all of them or the strongest, always with measured residuals.

`solve_dense` hands a matrix to LAPACK; `solve_top` needs only something that multiplies, be it a matrix
or a pass over a file. Arrays in, arrays out: who accumulated the operator and what its eigentensors are
for is the caller's business.
"""

from tpca_cli.eigen.dense import solve_dense
from tpca_cli.eigen.krylov import Product, refine, solve_top
from tpca_cli.eigen.pairs import Eigenpairs, fix_signs, orthonormalize

__all__ = ["Eigenpairs", "Product", "fix_signs", "orthonormalize", "refine", "solve_dense", "solve_top"]
