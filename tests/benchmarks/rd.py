"""Bytes at equal PSNR: an archive beside JPEG, WebP, AVIF and JPEG XL, for the same lossless pictures.

    python tests/benchmarks/rd.py FOLDER [--size 64x64|native] [--limit N] [--psnr 26,30,34] [--workers N]

The pictures (resized if asked, then written as PNG) are compressed with `tpca encode --psnr` and restored
with `tpca decode`; size is that of the archive file with everything in it, PSNR and SSIM are measured here
from the restored PNG files. Codecs get the same arrays, the two qualities that bracket the archive's PSNR,
and the sum of their file sizes on the line between; AVIF comes as `tune=ssim`, better in PSNR than by
default. Colors of transparent pixels are black and do not count.
"bare" leaves out of a codec's bytes what blank pictures of the same sizes cost; "montage" is one file with
all pictures, scaled to their number. Times are from arrays to bytes and back with the same number of workers;
those of the archive are at its own step and basis, the search for the target (the whole command) is in its
own column.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rd_codecs import CODECS, Codec, Curve, Pixels, best_time, mode_of, montage, psnr, squared_error, to_image
from scipy.ndimage import gaussian_filter

from tpca_cli import Archive, images
from tpca_cli.codec.kernel_job import prepare
from tpca_cli.parallel import busy_map
from tpca_cli.sources.scan import scan

TPCA = [sys.executable, "-m", "tpca_cli"]


def load(folder: str, size: tuple[int, int] | None, limit: int) -> list[Pixels]:
    """Pictures of the most frequent mode, evenly spaced over the folder; gray among color becomes RGB."""
    refs = scan([folder]).refs
    chosen = np.unique(np.linspace(0, len(refs) - 1, min(limit or len(refs), len(refs))).astype(int))
    found = []
    for k in chosen:
        picture = images.read(refs[k].path, size=size)
        gray = picture.mode == "L"
        found.append(np.repeat(picture.pixels, 3, axis=2) if gray else picture.pixels)
        if picture.mode == "RGBA":  # colors that nobody sees: most codecs drop them
            found[-1] = np.where(found[-1][..., 3:] == 0, 0, found[-1]).astype(np.uint8)
    kinds = [mode_of(p) for p in found]
    usual = max(set(kinds), key=kinds.count)
    return [p for p, kind in zip(found, kinds, strict=True) if kind == usual]


def ssim(one: Pixels, other: Pixels) -> float:
    """Structural similarity of the brightness, Gaussian window of 1.5 pixels."""
    peak = float(np.iinfo(one.dtype).max)
    colors = min(one.shape[2], 3)
    a, b = (p[..., :colors].mean(axis=2) for p in (one, other))

    def blur(x: NDArray[Any]) -> NDArray[Any]:
        return gaussian_filter(x, 1.5, truncate=3.5)

    ma, mb = blur(a), blur(b)
    va, vb, cov = blur(a * a) - ma * ma, blur(b * b) - mb * mb, blur(a * b) - ma * mb
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    return float((((2 * ma * mb + c1) * (2 * cov + c2)) / ((ma * ma + mb * mb + c1) * (va + vb + c2))).mean())


def run(*arguments: str) -> float:
    """Seconds that a `tpca` command takes."""
    started = time.perf_counter()
    done = subprocess.run([*TPCA, *arguments, "--quiet"])
    if done.returncode not in (0, 3):  # 3: some images lose much, which is said and is no failure here
        done.check_returncode()
    return time.perf_counter() - started


class Ours:
    """An archive of the pictures at a target, and what comes back from it."""

    def __init__(self, pictures: Sequence[Pixels], source: Path, target: float, workers: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path, out = Path(folder) / "a.h5", Path(folder) / "out"
            self.search = run(
                "encode", str(source), "-o", str(path), "--psnr", str(target), "--workers", str(workers)
            )
            run("decode", str(path), "-o", str(out), "--workers", str(workers))
            self.bytes = path.stat().st_size
            self.archive = Archive(path)
            back = [self._png(out / f"{k:06d}.png", p) for k, p in enumerate(pictures)]
            error = sum(squared_error(a, b) for a, b in zip(pictures, back, strict=True))
            self.psnr = psnr(error, pictures)
            self.ssim = float(np.mean([ssim(a, b) for a, b in zip(pictures, back, strict=True)]))
            self.encode, self.decode = self._speed(pictures, workers)
            info = self.archive.info()
            self.method, self.framing = info["method"], info["framing"]
            self.archive.close()

    @staticmethod
    def _png(path: Path, like: Pixels) -> Pixels:
        with Image.open(path) as image:
            return np.asarray(image).reshape(like.shape)

    def _speed(self, pictures: Sequence[Pixels], workers: int) -> tuple[float, float]:
        """Seconds from arrays to blocks and from blocks to arrays, as the codecs are timed."""
        archive, index = self.archive, self.archive.index
        coders = {group: archive.coder(group) for group in set(index.blocks["group"].tolist())}
        jobs = []
        for block in range(len(index.blocks["group"])):
            first, top = int(index.blocks["first"][block]), int(index.blocks["row"][block])
            shapes = index.block_shapes(block)
            order = [int(index.names[first + k].split(b".")[0]) for k in range(len(shapes))]
            coder = coders[int(index.blocks["group"][block])]
            pixels = [pictures[k][top : top + h] for k, (h, _) in zip(order, shapes, strict=True)]
            jobs.append((coder, pixels, shapes))
            coder.model  # noqa: B018  (built once, as for any archive)
        prepare()
        pairs = [(coder, coder.encode(pixels).data, shapes) for coder, pixels, shapes in jobs]
        encode = best_time(lambda job: job[0].encode(job[1]).data, jobs, workers)
        return encode, best_time(lambda job: job[0].decode(job[1], job[2]), pairs, workers)


def row(*cells: object) -> None:
    widths = (9, 10, 7, 8, 9, 9, 8, 8, 8)
    print("  ".join(f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=False)), flush=True)


def compare(
    pictures: list[Pixels],
    source: Path,
    target: float,
    workers: int,
    curves: dict[str, Curve],
    montages: dict[str, Curve],
) -> None:
    """Print the table of one target."""
    ours = Ours(pictures, source, target, workers)
    n = len(pictures)
    what = f"{n} pictures at {ours.psnr:.2f} dB (asked {target:g})"
    print(f"\n{what}, {ours.method} {ours.framing}, {workers} workers")
    row("codec", "bytes", "ours/it", "ssim", "bare", "montage", "enc ms", "dec ms", "search")
    each = 1000 / n
    row(
        "tpca",
        ours.bytes,
        "",
        f"{ours.ssim:.4f}",
        "",
        "",
        f"{ours.encode * each:.2f}",
        f"{ours.decode * each:.2f}",
        f"{ours.search * each:.2f}",
    )
    for name, curve in curves.items():
        point = curve.at(ours.psnr)
        if point is None:
            row(name, "not reached")
            continue
        together = montages[name].at(ours.psnr) if name in montages else None
        scale = sum(p.size for p in pictures) / montages[name].pictures[0].size if together else 0
        encode, decode = curve.speed(point.quality)
        similar = _codec_ssim(curve, point.quality)
        row(
            name,
            round(point.bytes),
            f"{ours.bytes / point.bytes:.3f}",
            f"{similar:.4f}",
            round(point.bytes - curve.header(point.quality)),
            round(together.bytes * scale) if together else "-",
            f"{encode * each:.2f}",
            f"{decode * each:.2f}",
            "",
        )


def _codec_ssim(curve: Curve, quality: int) -> float:
    from rd_codecs import compress, expand

    def one(p: Pixels) -> float:
        return ssim(p, expand(compress(curve.codec, quality, p), p))

    return float(np.mean(list(busy_map(one, curve.pictures, curve.workers))))


def usable(codec: Codec, pictures: list[Pixels]) -> bool:
    return mode_of(pictures[0]) in codec.modes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--size", default="native")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--psnr", default="26,30,34")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--codecs", default=",".join(codec.name for codec in CODECS))
    options = parser.parse_args()
    size = None if options.size in ("native", "") else tuple(int(side) for side in options.size.split("x"))
    pictures = load(options.folder, size, options.limit)  # type: ignore[arg-type]
    wanted = [
        codec for codec in CODECS if codec.name in options.codecs.split(",") and usable(codec, pictures)
    ]
    curves = {codec.name: Curve(codec, pictures, options.workers) for codec in wanted}
    together = montage(pictures) if size else None
    montages = {c.name: Curve(c, [together], 1) for c in wanted} if together is not None else {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        for k, picture in enumerate(pictures):
            to_image(picture).save(source / f"{k:06d}.png")
        for target in options.psnr.split(","):
            compare(pictures, source, float(target), options.workers, curves, montages)


if __name__ == "__main__":
    main()
