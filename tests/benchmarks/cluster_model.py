"""The cost of a fit and of an encoding, stage by stage, as a function of images and workers.

Arithmetic only: constants come from `cluster_measure`, and `cluster` holds the result to real runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from cluster_measure import Constants

from tpca_cli.cluster.paths import SHARD_BYTES
from tpca_cli.encode.remote import SHARD_PIXELS

ENDING = 7  # short shards per worker


@dataclass(frozen=True)
class Folder:
    """Images of one size."""

    name: str
    images: int
    pixels: int  # of one image

    @property
    def values(self) -> int:
        """Samples of all images, three channels."""
        return 3 * self.images * self.pixels


@dataclass(frozen=True)
class Operator:
    """What is added up: `size` is L of an L x L operator, 0 for the mode operators of tiles."""

    name: str
    size: int = 0

    @property
    def state(self) -> int:
        """Bytes that travel: the lower triangle in int64, or three small matrices."""
        return 4 * self.size * (self.size + 1) if self.size else 8 * (192 + 64 + 64 + 9)


def shards_of(folder: Folder, operator: Operator, workers: int) -> int:
    """About as many as `abroad.shards_of` cuts; each worker has some short ones at the end."""
    shards = folder.values // SHARD_BYTES + ENDING * workers
    if operator.size:
        shards = min(shards, max(workers, folder.values // operator.size**2))
    return max(1, min(shards, folder.images // 16))


def fit(c: Constants, folder: Folder, operator: Operator, workers: int) -> dict[str, float]:
    """Seconds by stage; what is divided by `workers` happens there, the rest on one machine.

    Images of one size need no pass over their headers.
    """
    n, pixels, w = folder.images, folder.pixels, workers
    shards = shards_of(folder, operator, w)
    added = operator.size * c.tensor_flop * 3 if operator.size else c.modes_pixel  # per pixel
    levels = ceil(log2(w)) if w > 1 else 0
    at_home = max(0, ceil(shards / w) - 1)  # sums of a worker's own shards move nothing: an addition each
    return {
        "list": n * (c.scan_image + c.send_image),
        "decode": n * (c.read_image + pixels * c.decode_pixel) / w,
        "accumulate": n * pixels * added / w,
        "schedule": 2 * shards * c.task,
        "reduce": (levels * c.reduce_byte + at_home * c.reduce_byte / 3) * operator.state,
    }


def encode(c: Constants, folder: Folder, workers: int, passes: int = 1) -> dict[str, float]:
    """Seconds by stage of coding with a basis that is there; a target takes two or three passes."""
    n, pixels, w = folder.images, folder.pixels, workers
    return {
        "list": n * (c.scan_image + c.send_image),
        "headers": n * c.probe_image / w,
        "train": c.train,
        "project and code": passes * n * (c.code_image + pixels * c.code_pixel) / w,
        "schedule": passes * ceil(n * pixels / SHARD_PIXELS) * c.task,
        "assemble": passes * n * c.keep_image,
    }


def even_workers(c: Constants, frames: float) -> float:
    """Workers for which adding up an L x L operator takes as long as reducing it: no L in it.

    frames L^2 flop / w = log2(w) 4 L^2 byte
    """
    low, high = 2.0, 1e9
    while high / low > 1.001:
        w = (low * high) ** 0.5
        if frames * c.tensor_flop / w > 4 * log2(w) * c.reduce_byte:
            low = w
        else:
            high = w
    return low


def span(seconds: float) -> str:
    """A time for people."""
    for limit, unit, name in ((100, 1, "s"), (6000, 60, "min"), (100 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.1f} {name}" if seconds / unit < 10 else f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.1f} d"


def table(rows: dict[int, dict[str, float]]) -> str:
    """Stages down, workers across, with the sum."""
    workers = list(rows)
    stages = list(rows[workers[0]])
    lines = [
        "| stage | " + " | ".join(f"{w} worker{'s' * (w > 1)}" for w in workers) + " |",
        "|---|" + "---|" * len(workers),
    ]
    lines += [f"| {stage} | " + " | ".join(span(rows[w][stage]) for w in workers) + " |" for stage in stages]
    lines.append("| **sum** | " + " | ".join(f"**{span(sum(rows[w].values()))}**" for w in workers) + " |")
    return "\n".join(lines)
