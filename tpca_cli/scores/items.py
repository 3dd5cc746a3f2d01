"""Scores of tensors that are no images: their kind in the file, and how they are rebuilt."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.archive.format import PEAK
from tpca_cli.errors import FileRefused, UsageError, printable
from tpca_cli.framing import Framing
from tpca_cli.scores.writer import ScoresBasis
from tpca_cli.tensors import Item

Rows = npt.NDArray[Any]
FORMS = {b".npy": "npy", b".npz": "npy", b".tif": "tiff", b".tiff": "tiff"}


def item_of(meta: Mapping[str, Any], framing: Framing) -> Item | None:
    """The kind of the tensors of a file, None for images; an error where the frames are others."""
    if meta.get("item") is None:
        return None
    item = Item.from_dict(meta["item"])
    if framing != Framing("whole", *item.picture) or item.problem():
        raise ValueError(f"tensors {item} in frames {framing.frame_shape}")
    return item


def tensor_of(of: ScoresBasis, rows: Rows) -> Rows:
    """X_in = U_il d_nl (eq 4.1.1) of one tensor, in its own type."""
    assert of.item is not None
    if not np.isfinite(rows).all():
        raise FileRefused("coefficients that are no numbers")
    tensor = of.basis.reconstruct(rows).reshape(of.item.shape)
    if not of.item.floating:
        tensor = np.rint(tensor).clip(0, PEAK[of.item.dtype])
    return tensor.astype(of.item.dtype)


def about_tensor(item: Item | None, name: bytes) -> dict[str, Any]:
    """Shape, type and form of a tensor; the form follows from its name, and slices get numbers."""
    if item is None:
        raise UsageError(f"{printable(name)} is an image")
    form = FORMS.get(os.path.splitext(name)[1].lower(), "slices")
    stacked = item.order in (3, 4) and (item.order == 3 or item.shape[-1] in (2, 3, 4))
    if form != "npy" and (not stacked or (form == "slices" and item.floating)):
        raise FileRefused(f"a tensor of {item} cannot be {form}")
    return {**item.to_dict(), "form": form, "slices": []}
