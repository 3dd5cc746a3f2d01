"""Self-adjoint operators accumulated from integer frames, exact to the last bit.

`TensorOperator` is A of Algorithm 1 (L x L), `ModeOperators` the d matrices A^k of Algorithm 2 in one
pass, `GramOperator` the N x N matrix of Algorithm 3; `Moments` is what is left when A is too large to
form. Arrays in, arrays out: who reads the pixels and where the sums are kept is the caller's business.
The result depends on the frames alone, never on the block size, their order, the number of threads or
the machine.
"""

from tpca_cli.operators.fold import FAN, add, fold, join, run_length, tree
from tpca_cli.operators.gram import Frames, GramOperator
from tpca_cli.operators.modes import ModeOperators, partial_trace
from tpca_cli.operators.moments import Moments
from tpca_cli.operators.tensor import TensorOperator

__all__ = [
    "FAN",
    "Frames",
    "GramOperator",
    "ModeOperators",
    "Moments",
    "TensorOperator",
    "add",
    "fold",
    "join",
    "partial_trace",
    "run_length",
    "tree",
]
