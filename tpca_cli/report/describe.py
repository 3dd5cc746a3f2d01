"""What a tpca file says of itself, as `Facts`: archives, basis and operator files, tensor caches.

Only what a page shows is read: no image is decoded, no basis, operator or frame is loaded, so that the text
page of a file of any size takes the time of a few small reads. For the same reason each kind of file imports
what it needs when one is met.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tpca_cli.errors import FileRefused, counted, human, printable
from tpca_cli.names import matching
from tpca_cli.report.facts import (
    ALGORITHMS,
    Facts,
    Section,
    energy_text,
    samples_text,
    shape_text,
)
from tpca_cli.store import Reader, open_as_it_is, open_checked

if TYPE_CHECKING:
    from tpca_cli.archive.reader import Archive

Floats = npt.NDArray[np.float64]
Rows = tuple[tuple[str, str], ...]

TARGETS: dict[str, Callable[[float], str]] = {
    "psnr": lambda value: f"PSNR of {value:g} dB",
    "quality": lambda value: f"quality (SSIMULACRA 2) of {value:g}",
    "energy": lambda value: f"{100 * value:g} % of the energy",
    "max_bytes": lambda value: f"at most {human(value)}",
    "ratio": lambda value: f"raw pixels / {value:g}",
    "step": lambda value: f"step {value:g}",
    "components": lambda value: f"at most {value:g} components",
    "visual": lambda _: "tuned to what people see",
    "max_error": lambda value: f"every sample within {value:g}" if value else "exactly what was there",
    "detail": lambda _: "more for images of little contrast",
}
OPERATORS = {
    None: "not kept (--keep-operator keeps it)",
    "modes": "kept: one matrix per mode",
    "tensor": "kept: the lower triangle of A",
}


def describe(path: Path) -> Facts:
    """Everything that the page of a file shows; FileRefused when it is not one of ours."""
    try:
        return open_as_it_is(path, _KINDS)
    except (KeyError, TypeError, ValueError, IndexError) as error:  # whole, but not as we write it
        raise FileRefused(
            f"{printable(path)} was refused: its description is incomplete ({error})"
        ) from error


def _archive_file(path: Path) -> Facts:
    """An archive; no image is decoded."""
    from tpca_cli.archive.reader import Archive

    with Archive(path, skim=True) as archive:
        return archive_facts(archive)


def archive_facts(archive: Archive) -> Facts:
    """The facts of an archive that is already open."""
    data = {"format": "tpca-archive", **archive.info()}
    size = data["archive_bytes"]
    raw = f"{_compared(data['ratio_raw'])} the raw pixels, " if data["raw_bytes"] else ""  # or files only
    headline = (
        f"archive of {counted(data['images'], 'image')}, {human(size)}: {raw}"
        f"{_compared(data['ratio_source'])} the source files"
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
        values=_mean_sizes(archive),
        values_name=f"mean size of the coefficients{_of_group(archive)}",
        data=data,
    )


def _of_group(archive: Archive) -> str:
    """Which group the chart shows, where there are several."""
    if len(archive.groups) < 2 or not len(archive.index.blocks["group"]):
        return ""
    meta = archive.groups[int(np.bincount(archive.index.blocks["group"]).argmax())].meta
    return f", {samples_text(meta['dtype'], int(meta['channels']))}"


def _mean_sizes(archive: Archive) -> Floats | None:
    """What the tables of the largest group know of each component: the mean |d|, in eighths of an octave."""
    from tpca_cli.store.columns import split_arrays
    from tpca_cli.tensor_pca.fixed_basis import SCALE

    groups = archive.index.blocks["group"]
    if not len(groups):
        return None
    largest = int(np.bincount(groups).argmax())
    scales = split_arrays(archive.groups[largest].tables).get("scales")
    if scales is None:  # a coder may keep none
        return None
    return np.asarray(np.sort(2.0 ** (np.asarray(scales, np.float64) / 8.0) / SCALE)[::-1])


def _compared(ratio: float) -> str:
    return f"{ratio:.1f} x smaller than" if ratio >= 1 else f"{1 / max(ratio, 1e-9):.1f} x LARGER than"


def _image_rows(archive: Archive, data: Mapping[str, Any]) -> Rows:
    from tpca_cli.archive.format import MODES

    index = archive.index
    alive = index.alive
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
    if data["partial"]:
        rows.append(("kept in part", f"{counted(data['partial'], 'image')} (with reasons in --list)"))
    if data["replaced"]:
        rows.append(("replaced", f"{counted(data['replaced'], 'image')} (`tpca repack` removes them)"))
    return tuple(rows)


def _quality_rows(data: Mapping[str, Any]) -> Rows:
    asked = [text(data["target"][kind]) for kind, text in TARGETS.items() if kind in data["target"]]
    return (
        ("asked for", ", ".join(asked) or "nothing"),
        ("measured", f"{_decibels(data['psnr'])} over all samples"),
        ("worst image", _decibels(data["psnr_min"])),
        *_seen_rows(data),
    )


def _seen_rows(data: Mapping[str, Any]) -> Rows:
    """What people see, where it was measured."""
    if data["quality"] is None:
        return ()
    worst = f"{data['quality_min']:.2f} ({data['quality_worst']})"
    return (("quality (SSIMULACRA 2)", f"{data['quality']:.2f} on average"), ("worst quality", worst))


def _decibels(value: float) -> str:
    return "identical" if value == float("inf") else f"{value:.2f} dB"


EXACT = {
    "jpeg": "JPEG files, bit for bit",
    "files": "files as they are, bit for bit",
    "pixels": "pixels, by prediction",
}


CODINGS = {"small": "predictions that learn", "fast": "tables, quick to read"}


def _group_rows(group: Mapping[str, Any]) -> Rows:
    if group["method"] in EXACT:
        return (("images", _kind(group["kind"])), ("kept as", EXACT[group["method"]]))
    return (
        ("images", _kind(group["kind"])),
        ("range", f"0 to {group['peak']:,}"),
        ("method", ALGORITHMS.get(group["method"], group["method"])),
        ("framing", group["framing"]),
        ("components", f"{group['components']:,} per frame"),
        ("step", f"{group['step']:g}"),
        ("coding", f"{group['coding']}: {CODINGS[group['coding']]}"),
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


def ordered(images: list[dict[str, Any]], order: str) -> list[dict[str, Any]]:
    """The images by name, psnr, quality, bytes or pixels, falling after a minus; as they are if it is empty.

    Images whose quality was not measured stand last.
    """
    key = order.removeprefix("-")
    if key == "quality":
        known = [item for item in images if item[key] is not None]
        others = [item for item in images if item[key] is None]
        return sorted(known, key=lambda item: item[key], reverse=order != key) + others
    if key == "pixels":
        return sorted(images, key=lambda item: item["height"] * item["width"], reverse=order != key)
    return sorted(images, key=lambda item: item[key], reverse=order != key) if key else images


def image_list(archive: Archive, globs: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The images of an archive that match, with their measured quality and their bytes."""
    from tpca_cli.archive.facts import image_psnr, image_quality

    index = archive.index
    wanted = set(matching(archive.names_bytes, globs)) if globs else range(len(archive))
    sizes = _image_bytes(archive)
    rows = zip(index.alive.tolist(), image_psnr(index), image_quality(index), strict=True)
    return [
        {
            "name": index.names[image],
            "height": index.shape(image)[0],
            "width": index.shape(image)[1],
            "mode": index.mode(image),
            "psnr": decibels,
            "quality": quality,
            "bytes": sizes[image],
            "source_bytes": int(index.images["source_size"][image]),
            "without": index.missing_reasons(image),
        }
        for position, (image, decibels, quality) in enumerate(rows)
        if position in wanted
    ]


def _image_bytes(archive: Archive) -> list[int]:
    """The bytes of each image; those of a block are shared by its images by their samples, or their files."""
    index = archive.index
    sizes = np.zeros(len(index), np.int64)
    samples, files, blocks = index.samples, index.images["source_size"], index.blocks
    for block, (first, count, size) in enumerate(
        zip(blocks["first"], blocks["count"], blocks["size"], strict=True)
    ):
        inside = slice(int(first), int(first) + int(count))
        parts = (files if archive.holds_files(block) else samples)[inside]
        ends = np.rint(int(size) * np.cumsum(parts) / max(1, int(parts.sum())))
        sizes[inside] += np.diff(ends, prepend=0).astype(np.int64)
    return [int(size) for size in sizes]


def _basis_file(path: Path) -> Facts:
    """A basis or operator file; neither the basis nor the operator is read."""
    from tpca_cli.basisfile import BASIS_SCHEMA

    with open_checked(path, BASIS_SCHEMA, skim=True) as file:
        data = _basis_data(file) | {"file_bytes": file.size}
        stored = dict(file.stored)
        size, rotated = file.meta["size"], "basis/rotation" in file.shapes
    values, images = data["eigenvalues"], counted(data["images"], "image")
    what = f"basis of {counted(len(values), 'component')}" if len(values) else "operator without a basis,"
    return Facts(
        kind="basis" if len(values) else "operator",
        name=printable(path.name),
        headline=f"{what} from {images}, {human(data['file_bytes'])}",
        sections=(Section("made from", _made_from(data, size)), Section("basis", _basis_rows(data, rotated))),
        parts=_basis_parts(stored, data["file_bytes"]),
        values=values if len(values) else None,
        values_name="eigenvalues" if data["measured"] else "products of mode eigenvalues",
        total=data["total"],
        data=data,
    )


def _basis_data(file: Reader) -> dict[str, Any]:
    """The fields of `inspect --json`."""
    meta, framing = file.meta, file.meta["framing"]
    values = file.array("basis/energies") if "basis/energies" in file.shapes else np.zeros(0)
    shape = [int(framing[side]) for side in ("height", "width", "channels")]
    return {
        "format": file.schema.format,
        "method": str(meta["method"]),
        "framing": f"{framing['kind']} {framing['height']}x{framing['width']}",
        "frame_shape": shape,
        "dtype": str(meta["dtype"]),
        "images": file.shapes["images/digests"][0],
        "frames": int(meta["frames"]),
        "components": len(values),
        "eigenvalues": values,
        "energy": _kept_energy(meta, values, math.prod(shape)),
        "total": float(meta["total"] or 0.0),
        "measured": bool(meta["measured"]),
        "residual": _relative_residual(file, values),
        "centered": bool(meta["center"]),
        "solver": str(meta["solver"]),
        "operator": "modes"
        if "operator/modes/0" in file.shapes
        else "tensor"
        if "operator/lower" in file.shapes
        else None,
        "digest": file.digest,
    }


def _kept_energy(meta: Mapping[str, Any], values: Floats, size: int) -> float | None:
    """The share of the energy that is kept, where it was measured or cannot be other than all."""
    if len(values) == size:
        return 1.0
    total = float(meta["total"] or 0.0)
    return min(1.0, float(values.sum()) / total) if meta["measured"] and total > 0 else None


def _relative_residual(file: Reader, values: Floats) -> float | None:
    """The largest residual as a share of the largest eigenvalue: of A, or of each A^k by itself."""
    if "basis/residuals" not in file.shapes:
        return None
    residuals = file.array("basis/residuals")
    if "basis/mode_values/0" in file.shapes and "basis/rotation" not in file.shapes:
        tops = [float(file.array(f"basis/mode_values/{k}")[0]) for k in range(len(residuals))]
    else:
        tops = [float(values[0])] * len(residuals)
    return max((float(r) / (top or 1.0) for r, top in zip(residuals, tops, strict=True)), default=0.0)


def _made_from(data: Mapping[str, Any], size: Sequence[int] | None) -> Rows:
    shape = data["frame_shape"]
    rows = [
        ("images", f"{data['images']:,}, {samples_text(data['dtype'], shape[2])}"),
        ("frames", f"{data['frames']:,} of {shape_text(shape)}"),
        ("framing", data["framing"]),
    ]
    if size:
        rows.append(("resized to", f"{size[0]} x {size[1]} (height x width)"))
    return tuple(rows)


def _basis_rows(data: Mapping[str, Any], rotated: bool) -> Rows:
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


def _basis_parts(stored: Mapping[str, int], size: int) -> tuple[tuple[str, int], ...]:
    sums = {
        label: sum(count for name, count in stored.items() if name.startswith(folder))
        for folder, label in (("basis/", "basis"), ("operator/", "operator"), ("images/", "image digests"))
    }
    parts = [(label, count) for label, count in sums.items() if count]
    return (*parts, ("HDF5", size - sum(sums.values())))


def _tensor_file(path: Path) -> Facts:
    """A tensor cache; its frames are not read."""
    from tpca_cli.frames.tensor_file import TENSOR_SCHEMA

    with open_checked(path, TENSOR_SCHEMA, skim=True) as file:
        field = "frames16" if "frames16" in file.shapes else "frames8"
        shape, framing = file.shapes[field], file.meta["framing"]
        stored, blocks = file.stored[field], file.shapes["block_rows"][0]
        data: dict[str, Any] = {
            "format": file.schema.format,
            "images": file.shapes["kept"][0],
            "frames": shape[0],
            "frame_shape": list(shape[1:]),
            "dtype": "uint16" if field == "frames16" else "uint8",
            "framing": f"{framing['kind']} {framing['height']}x{framing['width']}",
            "frame_bytes": stored,
            "file_bytes": file.size,
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


def _scores_file(path: Path) -> Facts:
    from tpca_cli.report.scores import scores_file

    return scores_file(path)


_KINDS: dict[str, Callable[[Path], Facts]] = {
    "tpca-archive": _archive_file,
    "tpca-basis": _basis_file,
    "tpca-tensor": _tensor_file,
    "tpca-scores": _scores_file,
}
