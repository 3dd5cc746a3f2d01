"""The facts of a tensor cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tpca_cli.errors import printable
from tpca_cli.frames.tensor_file import TENSOR_SCHEMA
from tpca_cli.report.model import Facts, Section, counted, human, shape_text
from tpca_cli.store import open_checked


def describe(path: Path) -> Facts:
    """The facts of a tensor file; its frames are not read."""
    with open_checked(path, TENSOR_SCHEMA, skim=True) as file:
        field = "frames16" if file.has("frames16") else "frames8"
        shape, framing = file.shape(field), file.meta["framing"]
        stored, blocks = file.stored_bytes(field), file.shape("block_rows")[0]
        data: dict[str, Any] = {
            "format": file.schema.format,
            "images": file.shape("kept")[0],
            "frames": shape[0],
            "frame_shape": list(shape[1:]),
            "dtype": "uint16" if field == "frames16" else "uint8",
            "framing": f"{framing['kind']} {framing['height']}x{framing['width']}",
            "frame_bytes": stored,
            "file_bytes": os.stat(path).st_size,
            "blocks": blocks,
            "digest": file.digest,
        }
    headline = (
        f"tensor cache of {counted(data['images'], 'image')}, {counted(data['frames'], 'frame')}, "
        f"{human(data['file_bytes'])}"
    )
    rows = (
        ("framing", data["framing"]),
        ("tensor", f"{shape_text(shape)} of {data['dtype']}"),
        ("blocks", f"{blocks:,}, each with its digest"),
        ("digest", data["digest"]),
    )
    parts = (("frames", stored), ("index", data["file_bytes"] - stored))
    return Facts("tensor", printable(path.name), headline, (Section("tensor", rows),), parts, data=data)
