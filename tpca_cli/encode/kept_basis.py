"""What an archive stores of a basis: how many components, how many bits, coded or as plain integers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tpca_cli.archive.writer import basis_digest
from tpca_cli.rate import Target
from tpca_cli.sources.probe import Kind
from tpca_cli.tensor_pca.basis import TensorBasis
from tpca_cli.tensor_pca.fixed_basis import FixedBasis, Floats, integer_basis


@dataclass(frozen=True)
class KeptBasis:
    """The integers of a basis, and the energies by which a dense one may be coded in fewer bytes."""

    fixed: FixedBasis
    energies: Floats | None  # (M,) over the fitted frames; None: plain integers
    fitted: int

    def weights(self, frames: int) -> Floats | None:
        """sqrt(lambda_l) over so many frames of a group, from those that the basis was fitted to."""
        if self.energies is None:
            return None
        return np.asarray(np.sqrt(np.maximum(self.energies, 0) * (frames / max(self.fitted, 1))), np.float64)


def kept_basis(basis: TensorBasis, kind: Kind, target: Target, fitted: int) -> KeptBasis:
    """The components that are asked for; fine, and then not coded, if every pixel is to come back."""
    if target.components is not None:
        basis = basis.truncate(target.components)
    dropped = (1 - basis.energy()) * basis.total / max(1, fitted) / math.prod(basis.frame_shape)
    fine = target.near_exact(kind.peak, dropped)
    fixed = integer_basis(basis, kind.dtype, fine=fine)
    return KeptBasis(fixed, None if fine or fixed.indices is not None else basis.energies, fitted)


def given_basis(basis: TensorBasis, kind: Kind, target: Target, fitted: int, *, link: bool) -> KeptBasis:
    """The same of a basis from a file, remembered by its digest; a link is to the whole of it."""
    whole = integer_basis(basis, kind.dtype, short=True)
    if link:
        return KeptBasis(whole, None, fitted)
    kept, source = kept_basis(basis, kind, target, fitted), basis_digest(whole)
    if basis_digest(kept.fixed) == source:
        return kept
    return replace(kept, fixed=replace(kept.fixed, source=source))
