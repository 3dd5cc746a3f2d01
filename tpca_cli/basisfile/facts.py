"""What a basis file holds, as plain numbers for people and programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tpca_cli import store
from tpca_cli.bases import Basis, Rank1Basis
from tpca_cli.basisfile.records import Origin


def basis_facts(path: Path, origin: Origin, basis: Basis | None) -> dict[str, Any]:
    """Counts, energy and measured residuals."""
    facts: dict[str, Any] = {
        "method": origin.method,
        "solver": origin.solver,
        "framing": origin.framing.kind,
        "frame_shape": list(origin.framing.frame_shape),
        "dtype": origin.dtype,
        "images": len(origin.digests),
        "frames": origin.frames,
        "centered": origin.center,
        "components": None,
        "energy": None,
        "residual": None,
        "residual_relative": None,
        "file_bytes": os.stat(path).st_size,
        "digest": store.identity(path).digest,
    }
    return facts if basis is None else {**facts, **_solved(basis)}


def _solved(basis: Basis) -> dict[str, Any]:
    if isinstance(basis, Rank1Basis):
        tops = np.array([values[0] for values in basis.mode_values])
        shares = np.divide(basis.residuals, tops, out=np.zeros_like(tops), where=tops > 0)
        residual = relative = float(shares.max(initial=0.0))
        complete = basis.components == int(np.prod(basis.frame_shape))
        energy = basis.energy() if basis.measured else 1.0 if complete else None
    else:
        top = float(basis.energies[0]) if basis.energies[0] > 0 else 1.0
        residual = float(basis.residuals.max(initial=0.0)) / top
        positive = basis.energies > 0
        relative = float((basis.residuals[positive] / basis.energies[positive]).max(initial=0.0))
        energy = basis.energy()
    return {
        "components": basis.components,
        "energy": energy,
        "residual": residual,
        "residual_relative": relative,
    }
