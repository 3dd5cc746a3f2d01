"""What an archive says of tensors: the kind of a group, the form of an item, held to what is possible."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tpca_cli.errors import FileRefused, UsageError
from tpca_cli.tensors import Grid, Item

FORMS = ("npy", "npz", "tiff", "slices")


def group_item(meta: Mapping[str, Any]) -> tuple[Item, Grid] | None:
    """The kind of the tensors of a group and the grid of their samples; None for a group of images."""
    found = meta.get("item")
    if found is None:
        return None
    try:
        item, grid = Item.from_dict(found), Grid.from_dict(found)
        framing = meta["coder"]["framing"]
        sides = tuple(framing[name] for name in ("height", "width", "channels"))
    except (KeyError, TypeError, ValueError) as error:
        raise FileRefused(f"a group of tensors is described wrongly ({error})") from None
    if framing["kind"] != "whole" or sides != item.picture:
        raise FileRefused(f"tensors of {item} in frames of {sides}")
    return item, grid


def about_item(blob: bytes, item: Item) -> dict[str, Any]:
    """The form of a tensor and its measured error, from its metadata."""
    try:
        about = json.loads(blob)
        form, slices = about["form"], about["slices"]
        if form not in FORMS or not isinstance(slices, list) or not all(isinstance(s, str) for s in slices):
            raise ValueError("an impossible form")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileRefused(f"a tensor is described wrongly ({error})") from None
    stacked = item.order in (3, 4) and (item.order == 3 or item.shape[-1] in (2, 3, 4))
    if (form == "slices" and (not stacked or item.floating)) or (form == "tiff" and not stacked):
        raise FileRefused(f"a tensor of {item} cannot be {form}")
    return {**item.to_dict(), "form": form, "slices": slices}


def require_pictures(path: str, tensors: bool) -> None:
    """UsageError if an archive holds tensors: files are neither compared with these nor added to them."""
    if tensors:
        raise UsageError(
            f"{path} holds tensors, and only images are compared with files or added: "
            "`tpca decode` it to compare arrays, and encode images into another file"
        )
