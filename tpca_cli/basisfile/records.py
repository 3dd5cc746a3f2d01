"""The table of a basis file and the records that it is read into."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli import store
from tpca_cli.bases import Basis
from tpca_cli.framing import Framing

AnyPath = str | bytes | os.PathLike[str]

BASIS_SCHEMA = store.Schema(
    "tpca-basis",
    1,
    {
        "basis/energies": store.Field("<f8", (None,), optional=True),
        "basis/residuals": store.Field("<f8", (None,), optional=True),
        "basis/mean": store.Field("<f8", (None, None, None), optional=True),
        "basis/matrix": store.Field("<f8", (None, None), optional=True),
        "basis/modes/*": store.Field("<f8", (None, None), optional=True),
        "basis/mode_values/*": store.Field("<f8", (None,), optional=True),
        "basis/indices": store.Field("<i4", (None, None), optional=True),
        "basis/rotation": store.Field("<f8", (None, None), optional=True),
        "operator/sums": store.Field("<i8", (None, None, None), optional=True),
        "operator/modes/*": store.Field("<i8", (None, None), optional=True),
        "operator/lower": store.Field("<i8", (None,), bulk=True, optional=True),
        "operator/lower_digests": store.Field("u1", (None, 8), optional=True),
        "images/digests": store.Field("u1", (None, 8)),
    },
)


@dataclass(frozen=True)
class Origin:
    """Where a basis comes from: what was counted, and how it was asked for."""

    method: str
    framing: Framing
    dtype: str  # "u1" or "u2"
    frames: int
    digests: npt.NDArray[np.uint8]  # (images, 8), sorted
    size: tuple[int, int] | None = None
    center: bool = False
    solver: str = "exact"
    choice: Mapping[str, Any] | None = None  # {"components": M}, {"energy": E}, {"all": True} or None


@dataclass(frozen=True)
class StoredBasis:
    """A basis file without its operator."""

    origin: Origin
    basis: Basis | None
    operator_kind: str | None  # "modes", "tensor" or None
    digest: str
    identity: store.Identity

    @property
    def framing(self) -> Framing:
        return self.origin.framing

    @property
    def dtype(self) -> str:
        return self.origin.dtype


@dataclass(frozen=True)
class FittedBasis(StoredBasis):
    """A basis file that holds a basis."""

    basis: Basis
