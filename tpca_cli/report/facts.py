"""What a tpca file says of itself: one function per kind of file, found by the format that it claims.

Only what a page shows is read, and a kind of file is imported when one is met: the text page of a file of any
size takes the time of a few small reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca_cli.errors import FileRefused, printable
from tpca_cli.report.model import Facts, Section, counted, energies, human, percent
from tpca_cli.store.peek import format_of

if TYPE_CHECKING:
    from tpca_cli.archive import Archive

ALGORITHMS = {
    "operator": "operator (Algorithm 1)",
    "rank1": "rank1 (Algorithm 2)",
    "subspace": "subspace (Algorithm 3)",
}
SAMPLES = {
    "u1 x 1": "8-bit gray",
    "u1 x 2": "8-bit gray and alpha",
    "u1 x 3": "8-bit color",
    "u1 x 4": "8-bit color and alpha",
    "u2 x 1": "16-bit gray",
}
TARGETS: dict[str, Callable[[float], str]] = {
    "psnr": lambda value: f"PSNR of {value:g} dB",
    "energy": lambda value: f"{100 * value:g} % of the energy",
    "max_bytes": lambda value: f"at most {human(value)}",
    "ratio": lambda value: f"raw pixels / {value:g}",
    "step": lambda value: f"step {value:g}",
    "components": lambda value: f"at most {value:g} components",
}


def describe(path: Path) -> Facts:
    """Everything that the page of a file shows; FileRefused when it is not one of ours."""
    kind = format_of(path)
    if kind not in KINDS:
        raise FileRefused(f"{printable(path)} was refused: format {kind[:40]!r} is none that tpca writes")
    return KINDS[kind](path)


def _archive(path: Path) -> Facts:
    from tpca_cli.archive import Archive

    with Archive(path) as archive:
        return archive_facts(archive)


def archive_facts(archive: Archive) -> Facts:
    """The facts of an archive that is already open."""
    from tpca_cli.archive.facts import facts

    data = {"format": "tpca-archive", **facts(archive)}
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
        _name(archive.path),
        headline,
        tuple(sections),
        _archive_parts(data),
        values=_magnitudes(archive),
        values_name="mean size of the coefficients, by component",
        data=data,
    )


def _magnitudes(archive: Archive) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """What the tables of the largest group know of each component: the mean |d|, in eighths of an octave."""
    from tpca_cli.fixed import SCALE

    groups = archive.index.blocks["group"]
    if not len(groups):
        return None
    largest = int(np.bincount(groups).argmax())
    if archive.groups[largest].basis is None:
        return None  # the basis is in another file
    scales = np.asarray(archive.coder(largest).scales, np.float64)
    return np.asarray(np.sort(2.0 ** (scales / 8.0) / SCALE)[::-1])


def _against(ratio: float) -> str:
    return f"{ratio:.1f} x smaller than" if ratio >= 1 else f"{1 / max(ratio, 1e-9):.1f} x LARGER than"


def _image_rows(archive: Archive, data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    from tpca_cli.archive import MODES

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
        ("images", SAMPLES.get(group["kind"], group["kind"])),
        ("method", ALGORITHMS.get(group["method"], group["method"])),
        ("framing", group["framing"]),
        ("components", f"{group['components']:,} per frame"),
        ("step", f"{group['step']:g}"),
        ("stored", f"{group['basis']}, {group['basis_digest']}"),
    )


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
    from tpca_cli.archive import image_psnr

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


def _tensor(path: Path) -> Facts:
    from tpca_cli.store import open_checked
    from tpca_cli.tensors import TENSOR_SCHEMA

    with open_checked(path, TENSOR_SCHEMA) as file:
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
        ("tensor", f"{_shape(shape)} of {data['dtype']}"),
        ("blocks", f"{blocks:,}, each with its digest"),
        ("digest", data["digest"]),
    )
    parts = (("frames", stored), ("index", data["file_bytes"] - stored))
    return Facts("tensor", _name(path), headline, (Section("tensor", rows),), parts, data=data)


def _shape(sizes: Sequence[int]) -> str:
    return " x ".join(f"{size:,}" for size in sizes)


def _name(path: Path) -> str:
    return printable(path.name)


def energy_text(values: np.ndarray[Any, np.dtype[np.float64]], total: float) -> str:
    """The energy at the landmarks, in words."""
    return ", ".join(f"{percent(share, 1.0)} in {count:,}" for count, share in energies(values, total))


KINDS: dict[str, Callable[[Path], Facts]] = {
    "tpca-archive": _archive,
    "tpca-tensor": _tensor,
}
