"""What the paper's experiments measure: a command's time and memory, PSNR, SSIM, and JPEG beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from tpca_cli import images
from tpca_cli.images import lossy_copy
from tpca_cli.parallel import ordered_map
from tpca_cli.quality import psnr
from tpca_cli.sources.scan import ImageRef
from tpca_cli.tensor_pca.basis import Rank1Basis, TensorBasis

Pixels = NDArray[np.uint8]
WORKERS = len(os.sched_getaffinity(0))


# The peak memory of a process starts at that of the one that forked it, even after exec: a small process
# must stand between the command and this one, which holds whole data sets.
LAUNCHER = """
import json, os, sys, time
start = time.perf_counter()
child = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
cpu = usage.ru_utime + usage.ru_stime
print(json.dumps([os.waitstatus_to_exitcode(status), time.perf_counter() - start, cpu, usage.ru_maxrss]))
"""


@dataclass(frozen=True)
class Cost:
    """What a command took, and what it said. CPU time depends less than elapsed time on who else computes."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    data: dict[str, Any]
    key: list[str] = field(default_factory=list)  # changes when the command was run again


def run(*arguments: object, keep: Path | None = None) -> Cost:
    """Run `tpca ... --json` in a process of its own; stop if it fails.

    With `keep`, what it took is written there, and a later run with the same arguments reads it instead:
    the longest fits take half an hour.
    """
    words = list(map(str, arguments))
    if keep is not None and keep.exists():
        known = json.loads(keep.read_text())
        if known["words"] == words:
            key = [*words, str(known["seconds"])]
            return Cost(known["seconds"], known["cpu_seconds"], known["peak_bytes"], known["data"], key)
    print("tpca", *words, file=sys.stderr, flush=True)
    command = [sys.executable, "-c", LAUNCHER, sys.executable, "-m", "tpca_cli", *words, "--json"]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    said, _, took = out.rstrip(b"\n").rpartition(b"\n")
    code, seconds, cpu_seconds, peak = json.loads(took)
    if code not in (0, 3):
        raise SystemExit(f"tpca {words[0]} ended with {code}: {said.decode()}")
    cost = Cost(seconds, cpu_seconds, peak * 1024, json.loads(said), [*words, str(seconds)])
    if keep is not None:
        _write(keep, {"words": words, **asdict(cost)})
    return cost


def kept(path: Path, key: Sequence[object], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `compute` gave for the same key, now or in an earlier run."""
    told = json.loads(json.dumps(list(key)))
    if path.exists():
        known: dict[str, Any] = json.loads(path.read_text())
        if known["key"] == told:
            return dict(known["found"])
    print(path.stem, file=sys.stderr, flush=True)
    found = compute()
    _write(path, {"key": told, "found": found})
    return found


def _write(path: Path, value: dict[str, Any]) -> None:
    """Whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.replace(path)


def evenly(total: int, count: int) -> list[int]:
    """So many of `total` positions, evenly spaced; all where there are no more."""
    count = min(total, count)
    return [total * k // count for k in range(count)]


def load(refs: Sequence[ImageRef], size: tuple[int, int]) -> tuple[Pixels, list[str]]:
    """Images at one size in color, (n, h, w, 3), in the order that `tpca` uses."""
    pixels = ordered_map(lambda ref: images.read(ref.path, size=size, channels=3).pixels, refs, WORKERS)
    frames = np.empty((len(refs), *size, 3), np.uint8)
    for k, picture in enumerate(pixels):
        frames[k] = picture
    return frames, [os.fsdecode(ref.name) for ref in refs]


@dataclass(frozen=True)
class Rebuilt:
    """Frames from their components: squared errors before and after rounding, and samples that differ."""

    error: float
    squared: float
    differing: int


BLOCK = 512


def rebuild(basis: TensorBasis, frames: Pixels, dtype: Any) -> Rebuilt:
    """All frames projected and rebuilt, a block at a time (eq 4.1.1, 4.1.2), in this precision."""
    error, wrong, differing = 0.0, 0, 0
    size = frames[0].size
    u = None if isinstance(basis, Rank1Basis) else basis.matrix.astype(dtype)  # (L, M)
    for start in range(0, len(frames), BLOCK):
        block = frames[start : start + BLOCK]
        if u is None:
            back = basis.reconstruct(basis.project(block))
        else:
            x = block.reshape(len(block), size).astype(dtype)
            back = ((x @ u) @ u.T).reshape(block.shape)
        error += float(np.square(back - block, dtype=np.float64).sum())
        pixels = np.clip(np.rint(back), 0, 255).astype(np.int64)
        difference = pixels - block
        wrong += int((difference * difference).sum())
        differing += int(np.count_nonzero(difference))
        if start // BLOCK % 32 == 0:
            print(f"  {start:,} of {len(frames):,}", file=sys.stderr, flush=True)
    return Rebuilt(error, float(wrong), differing)


def spectrum_of(frames: Pixels) -> NDArray[np.float64]:
    """The squared singular values of the frames, falling, from their inner products."""
    gram = np.zeros((len(frames), len(frames)))
    rows = frames.reshape(len(frames), -1)
    for start in range(0, rows.shape[1], 2048):
        x = rows[:, start : start + 2048].astype(np.float64)
        gram += x @ x.T
    return np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)


def pooled_psnr(error: float, frames: Pixels) -> float:
    return psnr(error, frames.size, 255.0)


def ssim(one: Pixels, other: Pixels) -> float:
    """Mean structural similarity of two blocks (n, h, w, c): Gaussian window of 1.5 pixels, every channel."""

    def smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
        blurred: NDArray[np.float64] = gaussian_filter(values, (0, 1.5, 1.5, 0), truncate=3.5)
        return blurred

    x, y = one.astype(np.float64), other.astype(np.float64)
    mx, my = smooth(x), smooth(y)
    vx, vy, cov = smooth(x * x) - mx * mx, smooth(y * y) - my * my, smooth(x * y) - mx * my
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    score = (2 * mx * my + c1) * (2 * cov + c2) / ((mx * mx + my * my + c1) * (vx + vy + c2))
    return float(score[:, 5:-5, 5:-5].mean())


@dataclass(frozen=True)
class Jpeg:
    """The smallest JPEG files, one quality for all, that reach a pooled PSNR."""

    quality: int
    size: int
    psnr: float
    ssim: float


def jpeg_at(frames: Pixels, target: float) -> Jpeg:
    """Search the quality; JPEG at 100 when even that does not reach the target."""
    low, high = 1, 100
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _jpeg(frames, middle)[1] >= target else (middle + 1, high)
    size, reached, back = _jpeg(frames, low)
    return Jpeg(low, size, reached, mean_ssim(frames, back))


def _jpeg(frames: Pixels, quality: int) -> tuple[int, float, Pixels]:
    results = list(ordered_map(lambda frame: lossy_copy(frame, "JPEG", quality), frames, WORKERS))
    back = np.stack([pixels for _, pixels in results])
    return sum(size for size, _ in results), pooled_psnr(squared(frames, back), frames), back


def squared(one: Pixels, other: Pixels) -> float:
    """The squared error of two blocks, exactly."""
    total = 0
    for start in range(0, len(one), 256):
        difference = one[start : start + 256].astype(np.int64) - other[start : start + 256]
        total += int((difference * difference).sum())
    return float(total)


def mean_ssim(one: Pixels, other: Pixels, block: int = 256) -> float:
    starts = range(0, len(one), block)
    scores = [ssim(one[s : s + block], other[s : s + block]) * len(one[s : s + block]) for s in starts]
    return sum(scores) / len(one)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; everything after the first column is right-aligned."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
