"""What there is to know of an archive without decoding: counts, bytes by part, measured quality."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca_cli.archive.format import DTYPES, EXACT_METHODS, LOWEST_QUALITY, MODES, PEAK, coding_of
from tpca_cli.archive.index import Index
from tpca_cli.archive.limits import MAX_TEXT
from tpca_cli.errors import one_line, printable
from tpca_cli.quality import psnr

if TYPE_CHECKING:
    from tpca_cli.archive.writer import Contents

INDEX_PARTS = ("names", "folded", "images", "blocks", "reasons", "skipped")
SHOWN_REASONS = 20  # of the most frequent ones


def archive_facts(archive: Contents) -> dict[str, Any]:
    """The numbers that `encode --json` and `inspect --json` give."""
    index, groups, size = archive.index, archive.groups, archive.size

    def stored(name: str) -> int:
        return archive.stored.get(name, 0)

    alive = index.alive
    raw = raw_bytes(index)
    source = int(index.images["source_size"][alive].sum())
    numbers = range(len(groups))
    embedded = {group["basis_digest"] for k, group in enumerate(groups) if stored(f"groups/{k}/basis")}
    return {
        "images": len(alive),
        "skipped": [{"path": one_line(path), "reason": one_line(reason)} for path, reason in index.skipped],
        "raw_bytes": raw,
        "source_bytes": source,
        "archive_bytes": size,
        "basis_bytes": sum(stored(f"groups/{k}/basis") for k in numbers),
        "table_bytes": sum(stored(f"groups/{k}/tables") for k in numbers),
        "coefficient_bytes": int(index.offsets[-1]),
        "index_bytes": sum(stored(name) for name in INDEX_PARTS),
        "metadata_bytes": sum(stored(name) for name in ("extras", "metadata")),
        "psnr": pooled_psnr(index),
        "psnr_min": min(image_psnr(index), default=float("inf")),
        **quality_facts(index),
        "components": max((int(group["coder"]["components"]) for group in groups), default=0),
        "peak": max((int(group.get("peak", PEAK[group["dtype"]])) for group in groups), default=0),
        "step": min((float(group["step"]) for group in groups), default=0.0),
        "method": ", ".join(dict.fromkeys(group["method"] for group in groups)),
        "framing": ", ".join(dict.fromkeys(_framing(group["coder"]["framing"]) for group in groups)),
        "ratio_raw": raw / size,
        "ratio_source": source / size,
        "target": dict(archive.target),
        "blocks": len(index.blocks["size"]),
        "replaced": len(index.names) - len(alive),
        "partial": int((index.images["flags"][alive] > 0).sum()),
        "partial_reasons": dict(list(partial_reasons(index).items())[:SHOWN_REASONS]),
        "format_version": index.version,
        "groups": [
            {
                "kind": f"{group['dtype']} x {group['channels']}",
                "method": group["method"],
                "framing": _framing(group["coder"]["framing"]),
                "step": group["step"],
                "peak": group.get("peak", PEAK[group["dtype"]]),
                "components": group["coder"]["components"],
                "coding": coding_of(group),
                "basis_digest": group["basis_digest"],
                "basis": _where_basis(group, embedded),
            }
            for group in groups
        ],
        "digest": archive.digest,
    }


def _where_basis(group: Mapping[str, Any], embedded: Collection[str]) -> str:
    if group["method"] in EXACT_METHODS:
        return "none"
    return "embedded" if group["basis_digest"] in embedded else "linked"


def _framing(framing: dict[str, Any]) -> str:
    return f"{framing['kind']} {framing['height']}x{framing['width']}"


def raw_bytes(index: Index) -> int:
    """What the samples of all images take without compression."""
    widths = np.array([int(DTYPES[mode][1]) for mode in MODES])[index.images["mode"]]
    return int((index.samples * widths).sum())


def pooled_error(index: Index) -> float:
    """The squared error of all images, each relative to its own peak."""
    alive = index.alive
    peaks = index.images["peak"][alive].astype(np.float64)
    return float((index.images["error"][alive] / peaks**2).sum())


def pooled_psnr(index: Index) -> float:
    """PSNR over all returned samples of all images."""
    return psnr(pooled_error(index), float(index.samples.sum()))


def image_psnr(index: Index) -> list[float]:
    """PSNR of each image that is not replaced, in order; infinite where nothing was lost."""
    alive = index.alive
    columns = zip(
        index.images["error"][alive], index.samples[alive], index.images["peak"][alive], strict=True
    )
    return [psnr(float(error), float(samples), float(peak)) for error, samples, peak in columns]


def image_quality(index: Index) -> list[float | None]:
    """SSIMULACRA 2 of each image that is not replaced, in order; None where it was not measured."""
    codes = index.images["quality"][index.alive].tolist()
    return [None if not code else round(LOWEST_QUALITY + (code - 1) / 100, 2) for code in codes]


def quality_facts(index: Index) -> dict[str, Any]:
    """The mean SSIMULACRA 2 of the images that were measured, the lowest, and whose it is."""
    known = [(score, k) for k, score in enumerate(image_quality(index)) if score is not None]
    if not known:
        return {"quality": None, "quality_min": None, "quality_worst": None}
    least, image = min(known)
    name = index.names[int(index.alive[image])]
    mean = sum(score for score, _ in known) / len(known)
    return {"quality": mean, "quality_min": least, "quality_worst": printable(name)}


def partial_reasons(index: Index) -> dict[str, int]:
    """Why images are kept in part, the most frequent reason first, and how many images each holds for."""
    suspects = np.flatnonzero(index.images["flags"])
    texts = (text for image in suspects for text in index.missing_reasons(int(image)))
    counts = Counter(one_line(text[:MAX_TEXT]) for text in texts)
    return dict(counts.most_common())
