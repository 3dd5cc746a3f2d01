"""Bytes at equal PSNR, SSIM, SSIMULACRA 2 and color: an archive beside JPEG, WebP, AVIF and JPEG XL.

    python tests/benchmarks/curves.py FOLDER [--size 64x64|native] [--limit N] [--tune visual,psnr]

Every codec, and an archive of all pictures at some steps, gives a curve of bytes and quality of the whole
folder: PSNR pooled over all samples, or over Cb and Cr (`color`), SSIM and SSIMULACRA 2 as means over
pictures. Where two curves overlap
their bytes are compared at equal quality (log bytes, straight lines between points); what is printed is the
geometric mean of our bytes divided by theirs, and over which qualities it was taken. Files of codecs are
whole files, the archive is the file on disk.

AVIF comes as `tune=ssim`, which is better in PSNR and SSIM, and as Pillow's default (`tune=iq`), which is
better in SSIMULACRA 2. What codecs gave is kept in `.bench/`, by the digest of a picture.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rd import load, ssim
from rd_codecs import Codec, Pixels, avif, compress, expand, mode_of, psnr, squared_error, to_image

from tpca_cli import Archive
from tpca_cli.parallel import busy_map
from tpca_cli.visual import score

CACHE = Path(".bench")
METRICS = ("psnr", "color", "ssim", "ssimulacra2")
Measured = tuple[int, float, float, float]  # squared error, SSIM, SSIMULACRA 2, squared error of color
STEPS = (4.0, 7.0, 12.0, 20.0, 34.0, 56.0)
EIGHT = ("L", "RGB")


MOST = (*EIGHT, "RGBA")
CONTESTANTS: tuple[tuple[Codec, tuple[int, ...]], ...] = (
    (Codec("jpeg", "JPEG", lambda q: {"quality": q, "optimize": True}, 1, 98, EIGHT), (15, 35, 60, 80, 92)),
    (Codec("webp", "WEBP", lambda q: {"quality": q, "method": 6}, 0, 100, MOST), (5, 30, 60, 82, 94)),
    (Codec("jxl", "JXL", lambda q: {"quality": q, "effort": 7}, 1, 98, MOST), (25, 50, 70, 85, 93)),
    (Codec("avif420-ssim", "AVIF", avif("4:2:0", "ssim"), 0, 98, MOST), (20, 38, 55, 72, 86)),
    (Codec("avif444-ssim", "AVIF", avif("4:4:4", "ssim"), 0, 98, MOST), (20, 38, 55, 72, 86)),
    (Codec("avif420", "AVIF", avif("4:2:0", None), 0, 98, MOST), (20, 38, 55, 72, 86)),
    (Codec("avif444", "AVIF", avif("4:4:4", None), 0, 98, MOST), (20, 38, 55, 72, 86)),
)


@dataclass(frozen=True)
class Curve:
    """Bytes of all pictures and their quality, coarse to fine."""

    bytes: tuple[float, ...]
    quality: dict[str, tuple[float, ...]]  # by metric


def curve_of(pictures: Sequence[Pixels], points: Sequence[tuple[int, Sequence[Measured]]]) -> Curve:
    """From the bytes of each point and what was measured of each picture there."""
    points = sorted(points, key=lambda point: point[0])
    samples = 2 * sum(picture.shape[0] * picture.shape[1] for picture in pictures)
    quality = {
        "psnr": tuple(psnr(sum(found[0] for found in each), pictures) for _, each in points),
        "color": tuple(
            10 * math.log10(255**2 * samples / max(sum(found[3] for found in each), 1)) for _, each in points
        ),
        "ssim": tuple(float(np.mean([found[1] for found in each])) for _, each in points),
        "ssimulacra2": tuple(float(np.mean([found[2] for found in each])) for _, each in points),
    }
    return Curve(tuple(float(size) for size, _ in points), quality)


def ratio(ours: Curve, theirs: Curve, metric: str) -> tuple[float, float, float] | None:
    """The geometric mean of our bytes over theirs, and from which to which quality."""
    curves = [(_spread(c.quality[metric], metric), np.log(c.bytes)) for c in (ours, theirs)]
    low, high = (max(q[0] for q, _ in curves), min(q[-1] for q, _ in curves))
    if metric == "ssimulacra2":
        low = max(low, 20.0)
    if low >= high or any((np.diff(q) <= 0).any() for q, _ in curves):
        return None
    at = np.linspace(low, high, 65)
    mine, other = (np.interp(at, q, size) for q, size in curves)
    ends = [_gathered(value, metric) for value in (low, high)]
    return math.exp(float((mine - other).mean())), ends[0], ends[1]


def _spread(quality: Sequence[float], metric: str) -> np.ndarray[Any, Any]:
    """SSIM on a scale where equal steps are equal factors of what is missing."""
    values = np.array(quality)
    return -10 * np.log10(1 - values) if metric == "ssim" else values


def _gathered(value: float, metric: str) -> float:
    return 1 - 10 ** (-value / 10) if metric == "ssim" else value


def measured(original: Pixels, decoded: Pixels) -> Measured:
    """Squared error, SSIM, SSIMULACRA 2 and the squared error of color."""
    similar, seen = ssim(original, decoded), score(original, decoded)
    return squared_error(original, decoded), similar, seen, color_error(original, decoded)


def color_error(original: Pixels, decoded: Pixels) -> float:
    """The squared error of Cb and Cr; gray pictures have none."""
    if original.shape[2] < 3:
        return 0.0
    red, green, blue = np.moveaxis(original[..., :3].astype(np.float64) - decoded[..., :3], 2, 0)
    bright = 0.299 * red + 0.587 * green + 0.114 * blue
    return float((((blue - bright) / 1.772) ** 2 + ((red - bright) / 1.402) ** 2).sum())


def codec_curve(codec: Codec, qualities: Sequence[int], pictures: Sequence[Pixels], workers: int) -> Curve:
    """What a codec gives, from the cache where it is known."""
    CACHE.mkdir(exist_ok=True)

    def one(job: tuple[int, Pixels]) -> list[float]:
        quality, picture = job
        name = f"{codec.name} {quality} {picture.shape}".encode()
        path = CACHE / hashlib.blake2b(name + picture.tobytes(), digest_size=12).hexdigest()
        found: list[float] = json.loads(path.read_text()) if path.exists() else []
        if len(found) < 1 + len(METRICS):
            data = compress(codec, quality, picture)
            found = [len(data), *measured(picture, expand(data, picture))]
            path.write_text(json.dumps(found))
        return found

    points = []
    for quality in qualities:
        found = list(busy_map(one, [(quality, picture) for picture in pictures], workers))
        points.append((int(sum(f[0] for f in found)), [(int(f[1]), f[2], f[3], f[4]) for f in found]))
    return curve_of(pictures, points)


def our_curve(
    pictures: Sequence[Pixels], source: Path, steps: Sequence[float], options: Sequence[str], workers: int
) -> Curve:
    """Archives of all pictures, and what comes back from them."""
    points = []
    for step in steps:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.h5"
            command = ["encode", str(source), "-o", str(path), "--step", str(step), "--force", *options]
            subprocess.run(
                [sys.executable, "-m", "tpca_cli", *command, "--workers", str(workers), "--quiet"],
                check=False,  # 3: some images lost detail
            )
            with Archive(path) as archive:
                names = [f"{k:06d}.png" for k in range(len(pictures))]
                found = [measured(p, archive[n]) for p, n in zip(pictures, names, strict=True)]
            points.append((path.stat().st_size, found))
    return curve_of(pictures, points)


def table(ours: dict[str, Curve], theirs: dict[str, Curve]) -> str:
    """Ratios of bytes, one line for each tune and metric."""
    lines = ["  ".join([f"{'at equal':24}", *(f"{name:>13}" for name in theirs)])]
    for tune, mine in ours.items():
        for metric in METRICS:
            cells = []
            for other in theirs.values():
                found = ratio(mine, other, metric)
                cells.append(f"{found[0]:13.3f}" if found else f"{'-':>13}")
            lines.append("  ".join([f"{metric + ', --tune ' + tune:24}", *cells]))
    for name, curve in (ours | theirs).items():
        for metric in METRICS:
            low, high = curve.quality[metric][0], curve.quality[metric][-1]
            lines.append(f"  {name:13} {metric:12} {low:.4g} .. {high:.4g}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--size", default="native")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--part", default="0/1", help="K/N: only every N-th picture, from the K-th")
    parser.add_argument("--tune", default="visual,psnr")
    parser.add_argument("--steps", default=",".join(map(str, STEPS)))
    parser.add_argument("--codecs", default=",".join(codec.name for codec, _ in CONTESTANTS))
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    size = None if asked.size in ("native", "") else tuple(int(side) for side in asked.size.split("x"))
    pictures = load(asked.folder, size, asked.limit)  # type: ignore[arg-type]
    first, every = map(int, asked.part.split("/"))
    pictures = pictures[first::every]
    theirs = {
        codec.name: codec_curve(codec, qualities, pictures, asked.workers)
        for codec, qualities in CONTESTANTS
        if codec.name in asked.codecs.split(",") and mode_of(pictures[0]) in codec.modes
    }
    ours = {}
    with tempfile.TemporaryDirectory() as folder:
        for k, picture in enumerate(pictures):
            to_image(picture).save(Path(folder) / f"{k:06d}.png")
        for tune in asked.tune.split(","):
            steps = [float(step) for step in asked.steps.split(",")]
            options = ["--tune", tune] if tune else []
            ours[tune] = our_curve(pictures, Path(folder), steps, options, asked.workers)
    print(f"{len(pictures)} pictures of {asked.folder}, {asked.size}: our bytes / theirs")
    print(table(ours, theirs))


if __name__ == "__main__":
    main()
