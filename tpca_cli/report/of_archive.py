"""The facts of an archive: counts, quality, bytes by part, all without decoding an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.archive.format import MODES
from tpca_cli.archive.reader import Archive, image_psnr
from tpca_cli.errors import printable
from tpca_cli.report.model import ALGORITHMS, Facts, Section, counted, human, samples_text
from tpca_cli.store.columns import split_arrays
from tpca_cli.tensor_pca.fixed_basis import SCALE

Floats = npt.NDArray[np.float64]

TARGETS: dict[str, Callable[[float], str]] = {
    "psnr": lambda value: f"PSNR of {value:g} dB",
    "energy": lambda value: f"{100 * value:g} % of the energy",
    "max_bytes": lambda value: f"at most {human(value)}",
    "ratio": lambda value: f"raw pixels / {value:g}",
    "step": lambda value: f"step {value:g}",
    "components": lambda value: f"at most {value:g} components",
}


def describe(path: Path) -> Facts:
    """The facts of an archive file."""
    with Archive(path, skim=True) as archive:
        return archive_facts(archive)


def archive_facts(archive: Archive) -> Facts:
    """The facts of an archive that is already open."""
    data = {"format": "tpca-archive", **archive.info()}
    size = data["archive_bytes"]
    headline = (
        f"archive of {counted(data['images'], 'image')}, {human(size)}: {_against(data['ratio_raw'])} "
        f"the raw pixels, {_against(data['ratio_source'])} the source files"
    )
    sections = [
        Section("images", _image_rows(archive, data)),
        Section("quality", _quality_rows(data)),
    ]
    for number, group in enumerate(data["groups"]):
        title = "basis" if len(data["groups"]) == 1 else f"basis {number + 1}"
        sections.append(Section(title, _group_rows(group)))
    blocks = f"{data['blocks']:,}, each decoded without the others"
    sections.append(Section("file", (("blocks", blocks), ("digest", data["digest"]))))
    return Facts(
        "archive",
        printable(archive.path.name),
        headline,
        tuple(sections),
        _archive_parts(data),
        values=_magnitudes(archive),
        values_name="mean size of the coefficients, by component",
        data=data,
    )


def _magnitudes(archive: Archive) -> Floats | None:
    """What the tables of the largest group know of each component: the mean |d|, in eighths of an octave."""
    groups = archive.index.blocks["group"]
    if not len(groups):
        return None
    largest = int(np.bincount(groups).argmax())
    scales = split_arrays(archive.groups[largest].tables).get("scales")
    if scales is None:  # a coder may keep none
        return None
    return np.asarray(np.sort(2.0 ** (np.asarray(scales, np.float64) / 8.0) / SCALE)[::-1])


def _against(ratio: float) -> str:
    return f"{ratio:.1f} x smaller than" if ratio >= 1 else f"{1 / max(ratio, 1e-9):.1f} x LARGER than"


def _image_rows(archive: Archive, data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    index = archive.index
    alive = index.alive()
    counts = np.bincount(index.images["mode"][alive])
    modes = sorted(((int(counts[mode]), MODES[mode]) for mode in np.flatnonzero(counts)), reverse=True)
    heights, widths = index.images["height"][alive], index.images["width"][alive]
    sizes = ""
    if len(alive):
        smallest, largest = (at(heights * widths) for at in (np.argmin, np.argmax))
        ends = [f"{heights[k]} x {widths[k]}" for k in (smallest, largest)]
        sizes = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} (height x width)"
    rows = [
        ("modes", ", ".join(f"{count:,} {mode}" for count, mode in modes)),
        ("sizes", sizes),
        ("raw pixels", human(data["raw_bytes"])),
        ("source files", human(data["source_bytes"])),
    ]
    if data["skipped"]:
        rows.append(("left out", f"{counted(len(data['skipped']), 'file')} (with reasons in --json)"))
    if data["replaced"]:
        rows.append(("replaced", f"{counted(data['replaced'], 'image')} (`tpca repack` removes them)"))
    return tuple(rows)


def _quality_rows(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    asked = [TARGETS[kind](value) for kind, value in data["target"].items() if kind in TARGETS]
    return (
        ("asked for", ", ".join(asked) or "nothing"),
        ("measured", f"{_decibels(data['psnr'])} over all samples"),
        ("worst image", _decibels(data["psnr_min"])),
    )


def _decibels(value: float) -> str:
    return "identical" if value == float("inf") else f"{value:.2f} dB"


def _group_rows(group: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return (
        ("images", _kind(group["kind"])),
        ("method", ALGORITHMS.get(group["method"], group["method"])),
        ("framing", group["framing"]),
        ("components", f"{group['components']:,} per frame"),
        ("step", f"{group['step']:g}"),
        ("stored", f"{group['basis']}, {group['basis_digest']}"),
    )


def _kind(kind: str) -> str:
    dtype, channels = kind.split(" x ")
    return samples_text(dtype, int(channels))


def _archive_parts(data: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    names = {
        "coefficients": "coefficient_bytes",
        "basis": "basis_bytes",
        "tables": "table_bytes",
        "index": "index_bytes",
        "EXIF and ICC": "metadata_bytes",
    }
    parts = [(label, int(data[key])) for label, key in names.items() if data[key]]
    rest = data["archive_bytes"] - sum(size for _, size in parts)
    return (*parts, ("HDF5", rest))


def image_list(archive: Archive) -> list[dict[str, Any]]:
    """Every image of an archive with its measured quality."""
    index = archive.index
    rows = zip(index.alive().tolist(), image_psnr(index), strict=True)
    return [
        {
            "name": printable(index.names[image]),
            "height": index.shape(image)[0],
            "width": index.shape(image)[1],
            "mode": index.mode(image),
            "psnr": quality,
        }
        for image, quality in rows
    ]
