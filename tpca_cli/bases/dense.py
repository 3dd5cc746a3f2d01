"""Bases that are one matrix of eigentensors: Algorithms 1 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Self = TypeVar("Self", bound="DenseBasis")


@dataclass(frozen=True)
class DenseBasis:
    """M orthonormal tensors U_il as the columns of an (L, M) matrix, strongest first.

    `energies` are the eigenvalues: the energy sum_n d_nl^2 of each component over the fitted frames.
    `total` is the energy of those frames (after subtracting `mean`, where there is one). `residuals` are
    the measured |A u_l - lambda_l u_l|.
    """

    method: ClassVar[str] = ""

    frame_shape: tuple[int, ...]
    matrix: Array  # (L, M)
    energies: Array  # (M,)
    total: float
    mean: Array | None = None  # frame_shape
    residuals: Array = field(default_factory=lambda: np.zeros(0))  # (M,)

    @property
    def components(self) -> int:
        """M, the number of components."""
        return len(self.energies)

    def energy(self, components: int | None = None) -> float:
        """The share of the energy that the first `components` hold, 0 to 1."""
        return share(self.energies, self.total, components)

    def truncate(self: Self, components: int) -> Self:
        """The basis of the first `components` alone."""
        return replace(
            self,
            matrix=self.matrix[:, :components],
            energies=self.energies[:components],
            residuals=self.residuals[:components],
        )

    def project(self, frames: npt.NDArray[np.generic]) -> Array:
        """d_nl = X_in U_il  (eq 4.1.2)."""
        rows: Array = frames.reshape(len(frames), prod(self.frame_shape)).astype(np.float64)  # (n, L)
        if self.mean is not None:
            rows -= self.mean.reshape(-1)
        return rows @ self.matrix  # (n, M)

    def reconstruct(self, coefficients: npt.NDArray[np.generic]) -> Array:
        """X_in = U_il d_nl  (eq 4.1.1); fewer columns than M use the first components."""
        kept = self.matrix[:, : coefficients.shape[1]]
        rows: Array = np.asarray(coefficients, np.float64) @ kept.T  # (n, L)
        if self.mean is not None:
            rows += self.mean.reshape(-1)
        return rows.reshape(len(rows), *self.frame_shape)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Everything as plain arrays."""
        arrays: dict[str, npt.NDArray[np.generic]] = {
            "frame_shape": np.array(self.frame_shape, np.int64),
            "matrix": self.matrix,
            "energies": self.energies,
            "total": np.array([self.total], np.float64),
            "residuals": self.residuals,
        }
        return arrays if self.mean is None else {**arrays, "mean": self.mean}

    @classmethod
    def from_arrays(cls: type[Self], arrays: Mapping[str, npt.NDArray[np.generic]]) -> Self:
        """The inverse of `to_arrays`."""
        mean = arrays.get("mean")
        return cls(
            frame_shape=tuple(int(size) for size in arrays["frame_shape"]),
            matrix=np.asarray(arrays["matrix"], np.float64),
            energies=np.asarray(arrays["energies"], np.float64),
            total=float(arrays["total"][0]),
            mean=None if mean is None else np.asarray(mean, np.float64),
            residuals=np.asarray(arrays["residuals"], np.float64),
        )


class OperatorBasis(DenseBasis):
    """The eigentensors of A (Algorithm 1): A_ij U_jl = lambda_l U_il  (eq 4A5)."""

    method: ClassVar[str] = "operator"


class SubspaceBasis(DenseBasis):
    """The basis Q of the space that N < L frames span (Algorithm 3): Q_il = X_in b_nl  (eq 4C11)."""

    method: ClassVar[str] = "subspace"


def share(energies: Array, total: float, components: int | None) -> float:
    """The part of `total` in the first components; a folder without energy is wholly represented."""
    if total <= 0:
        return 1.0
    return min(1.0, float(energies[:components].sum()) / total)


def enough(energies: Array, target: float) -> int:
    """The least number of leading components that together hold `target`; all if they do not."""
    held = np.cumsum(energies)
    return min(len(energies), int(np.searchsorted(held, target * (1 - 1e-12))) + 1)
