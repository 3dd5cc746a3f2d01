"""The facts of a basis or an operator file; neither the basis nor the operator is read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.basisfile import BASIS_SCHEMA
from tpca_cli.errors import printable
from tpca_cli.report.model import (
    ALGORITHMS,
    Facts,
    Section,
    counted,
    energy_text,
    human,
    samples_text,
    shape_text,
)
from tpca_cli.store import Reader, open_checked

Floats = npt.NDArray[np.float64]

OPERATORS = {
    None: "not kept (--keep-operator keeps it)",
    "modes": "kept: one matrix per mode",
    "tensor": "kept: the lower triangle of A",
}


def describe(path: Path) -> Facts:
    """The facts of a basis file."""
    with open_checked(path, BASIS_SCHEMA, skim=True) as file:
        data = _data(file) | {"file_bytes": os.stat(path).st_size}
        stored = {name: file.stored_bytes(name) for name in file.names()}
        size, rotated = file.meta["size"], file.has("basis/rotation")
    values, images = data["eigenvalues"], counted(data["images"], "image")
    what = f"basis of {counted(len(values), 'component')}" if len(values) else "operator without a basis,"
    return Facts(
        kind="basis" if len(values) else "operator",
        name=printable(path.name),
        headline=f"{what} from {images}, {human(data['file_bytes'])}",
        sections=(Section("made from", _made_from(data, size)), Section("basis", _basis_rows(data, rotated))),
        parts=_parts(stored, data["file_bytes"]),
        values=values if len(values) else None,
        values_name="eigenvalues" if data["measured"] else "products of mode eigenvalues",
        total=data["total"],
        data=data,
    )


def _data(file: Reader) -> dict[str, Any]:
    """The fields of `inspect --json`."""
    meta, framing = file.meta, file.meta["framing"]
    values = file.array("basis/energies") if file.has("basis/energies") else np.zeros(0)
    shape = [int(framing[side]) for side in ("height", "width", "channels")]
    return {
        "format": file.schema.format,
        "method": str(meta["method"]),
        "framing": f"{framing['kind']} {framing['height']}x{framing['width']}",
        "frame_shape": shape,
        "dtype": str(meta["dtype"]),
        "images": file.shape("images/digests")[0],
        "frames": int(meta["frames"]),
        "components": len(values),
        "eigenvalues": values,
        "energy": _energy(meta, values, math.prod(shape)),
        "total": float(meta["total"] or 0.0),
        "measured": bool(meta["measured"]),
        "residual": _residual(file, values),
        "centered": bool(meta["center"]),
        "solver": str(meta["solver"]),
        "operator": "modes"
        if file.has("operator/modes/0")
        else "tensor"
        if file.has("operator/lower")
        else None,
        "digest": file.digest,
    }


def _energy(meta: Mapping[str, Any], values: Floats, size: int) -> float | None:
    """The share of the energy that is kept, where it was measured or cannot be other than all."""
    if len(values) == size:
        return 1.0
    total = float(meta["total"] or 0.0)
    return min(1.0, float(values.sum()) / total) if meta["measured"] and total > 0 else None


def _residual(file: Reader, values: Floats) -> float | None:
    """The largest residual as a share of the largest eigenvalue: of A, or of each A^k by itself."""
    if not file.has("basis/residuals"):
        return None
    residuals = file.array("basis/residuals")
    if file.has("basis/mode_values/0"):
        tops = [float(file.array(f"basis/mode_values/{k}")[0]) for k in range(len(residuals))]
    else:
        tops = [float(values[0])] * len(residuals)
    return max((float(r) / (top or 1.0) for r, top in zip(residuals, tops, strict=True)), default=0.0)


def _made_from(data: Mapping[str, Any], size: Sequence[int] | None) -> tuple[tuple[str, str], ...]:
    shape = data["frame_shape"]
    rows = [
        ("images", f"{data['images']:,}, {samples_text(data['dtype'], shape[2])}"),
        ("frames", f"{data['frames']:,} of {shape_text(shape)}"),
        ("framing", data["framing"]),
    ]
    if size:
        rows.append(("resized to", f"{size[0]} x {size[1]} (height x width)"))
    return tuple(rows)


def _basis_rows(data: Mapping[str, Any], rotated: bool) -> tuple[tuple[str, str], ...]:
    rows = [("method", ALGORITHMS.get(data["method"], data["method"]))]
    if data["components"]:
        form = ", in singular-value form" if rotated else ""
        note = "" if data["measured"] else " (by mode eigenvalues, not measured)"
        rows += [
            ("components", f"{data['components']:,} of {math.prod(data['frame_shape']):,}{form}"),
            ("energy", energy_text(data["eigenvalues"], data["total"]) + note),
            ("residual", f"{data['residual']:.1e} of the largest eigenvalue"),
        ]
    return (
        *rows,
        ("centered", "yes, the mean is stored" if data["centered"] else "no"),
        ("solver", data["solver"]),
        ("operator", OPERATORS[data["operator"]]),
        ("digest", data["digest"]),
    )


def _parts(stored: Mapping[str, int], size: int) -> tuple[tuple[str, int], ...]:
    sums = {
        label: sum(count for name, count in stored.items() if name.startswith(folder))
        for folder, label in (("basis/", "basis"), ("operator/", "operator"), ("images/", "image digests"))
    }
    parts = [(label, count) for label, count in sums.items() if count]
    return (*parts, ("HDF5", size - sum(sums.values())))
