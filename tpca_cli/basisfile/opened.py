"""A basis for Python code: open a file, project frames, reconstruct them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.basisfile import read_basis


class Basis:
    """The basis of a file: `project` gives coefficients, `reconstruct` gives frames back.

    basis = Basis("basis.h5")
    coefficients = basis.project(frames)              # (n, M)
    frames = basis.reconstruct(coefficients[:, :50])  # (n, h, w, c), from the first 50 components
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        stored = read_basis(path)
        self._basis = stored.basis
        self.framing = stored.framing
        self.digest = stored.digest
        self.method: str = stored.basis.method
        self.frame_shape: tuple[int, ...] = stored.basis.frame_shape
        self.eigenvalues: npt.NDArray[np.float64] = stored.basis.energies

    @property
    def components(self) -> int:
        """M, the number of components."""
        return self._basis.components

    def project(self, frames: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Coefficients (n, M) of frames (n, h, w, c); `framing.split` makes frames of an image."""
        return self._basis.project(frames)

    def reconstruct(self, coefficients: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Frames (n, h, w, c) of coefficients; fewer columns use the first components."""
        return self._basis.reconstruct(coefficients)
