"""The basis file, format `tpca-basis` version 1: a basis, the operator it came from, what was counted.

| path | type | shape | meaning |
|---|---|---|---|
| basis/energies | f8 | (M,) | energy of each component over the frames (rank1: product of mode eigenvalues) |
| basis/residuals | f8 | (M,) or (d,) | measured norm of A u - lambda u, per component or per mode |
| basis/mean | f8 | frame shape | the mean frame, if centered |
| basis/matrix | f8 | (L, M) | operator, subspace: eigentensors as columns, C order |
| basis/modes/k | f8 | (I_k, I_k) | rank1: U^k |
| basis/mode_values/k | f8 | (I_k,) | rank1: eigenvalues of A^k |
| basis/indices | i4 | (M, d) | rank1: the multi-index of each component |
| basis/rotation | f8 | (R, M) | rank1 in singular-value form: Z |
| operator/sums | i8 | frame shape | the sum of all frames |
| operator/modes/k | i8 | (I_k, I_k) | A^k |
| operator/lower | i8 | (L (L+1) / 2,) | rows of the lower triangle of A |
| operator/lower_digests | u1 | (pieces, 8) | digest of every 2^17 values of it, checked when they are read |
| images/digests | u1 | (images, 8) | digests of the counted source files, sorted |

`meta`: `method`, `framing`, `dtype`, `frames`, `size` (images were resized to it), `center`, `solver`,
`choice` (what the user asked to keep), `total`, `measured`. No path, no time: the same images and options
give the same bytes. A file holds a basis, an operator or both.
"""

from tpca_cli.basisfile.facts import basis_facts
from tpca_cli.basisfile.operators import Operator, add_operator
from tpca_cli.basisfile.records import BASIS_SCHEMA, FittedBasis, Origin, StoredBasis
from tpca_cli.basisfile.whole import read, read_basis, write

__all__ = [
    "BASIS_SCHEMA",
    "FittedBasis",
    "Operator",
    "Origin",
    "StoredBasis",
    "add_operator",
    "basis_facts",
    "read",
    "read_basis",
    "write",
]
