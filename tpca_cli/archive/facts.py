"""What an archive can say about itself without decoding anything: counts, bytes by part, quality."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca_cli.archive.index import Index
from tpca_cli.quality import psnr

if TYPE_CHECKING:
    from tpca_cli.archive.reader import Archive


def pooled_error(index: Index) -> float:
    """The squared error of all images, each relative to its own peak."""
    alive = index.alive()
    peaks = index.peaks()[alive].astype(np.float64)
    return float((index.images["error"][alive] / peaks**2).sum())


def pooled_psnr(index: Index) -> float:
    """PSNR over all returned samples of all images."""
    return psnr(pooled_error(index), float(index.samples().sum()))


def image_psnr(index: Index) -> list[float]:
    """PSNR of each image that is not replaced, in order; infinite where nothing was lost."""
    alive = index.alive()
    columns = zip(index.images["error"][alive], index.samples()[alive], index.peaks()[alive], strict=True)
    return [psnr(float(error), float(samples), float(peak)) for error, samples, peak in columns]


def facts(archive: Archive) -> dict[str, Any]:
    """The numbers that `encode --json` and `inspect --json` give."""
    index = archive.index
    alive = index.alive()
    widths = np.where(index.peaks()[alive] > 255, 2, 1)
    raw = int((index.samples()[alive] * widths).sum())
    source = int(index.images["source_size"][alive].sum())
    size = os.stat(archive.path).st_size
    groups = [group.meta for group in archive.groups]
    numbers = range(len(groups))
    return {
        "images": len(alive),
        "skipped": [{"path": path, "reason": reason} for path, reason in index.skipped],
        "raw_bytes": raw,
        "source_bytes": source,
        "archive_bytes": size,
        "basis_bytes": sum(archive.stored_bytes(f"groups/{k}/basis") for k in numbers),
        "table_bytes": sum(archive.stored_bytes(f"groups/{k}/tables") for k in numbers),
        "coefficient_bytes": int(index.offsets[-1]),
        "index_bytes": sum(archive.stored_bytes(name) for name in ("names", "images", "blocks", "skipped")),
        "metadata_bytes": archive.stored_bytes("extras"),
        "psnr": pooled_psnr(index),
        "psnr_min": min(image_psnr(index), default=float("inf")),
        "components": max((int(group["coder"]["components"]) for group in groups), default=0),
        "step": min((float(group["step"]) for group in groups), default=0.0),
        "method": _one_or_all([group["method"] for group in groups]),
        "framing": _one_or_all([_framing(group["coder"]["framing"]) for group in groups]),
        "ratio_raw": raw / size,
        "ratio_source": source / size,
        "target": archive.target,
        "blocks": len(index.blocks["size"]),
        "replaced": len(index) - len(alive),
        "partial": int((index.images["flags"][alive] > 0).sum()),
        "groups": [
            {
                "kind": f"{group['dtype']} x {group['channels']}",
                "method": group["method"],
                "framing": _framing(group["coder"]["framing"]),
                "step": group["step"],
                "components": group["coder"]["components"],
                "basis_digest": group["basis_digest"],
                "basis": "embedded" if archive.stored_bytes(f"groups/{k}/basis") else "linked",
            }
            for k, group in enumerate(groups)
        ],
        "digest": archive.digest,
    }


def _framing(framing: dict[str, Any]) -> str:
    return f"{framing['kind']} {framing['height']}x{framing['width']}"


def _one_or_all(values: list[str]) -> str:
    return ", ".join(dict.fromkeys(values))
