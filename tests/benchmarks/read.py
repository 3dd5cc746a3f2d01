"""How many images a second a training loop gets: from an archive, and from files.

    python tests/benchmarks/read.py FOLDER [--limit N] [--psnr 36] [--workers 1 2] [--turns 3]

The images are taken as RGB and written to an archive of each `--coding`, to JPEG and WebP files of about
the same PSNR, and to JPEG XL where its plugin is installed; JPEG files that the folder has are read as they
are, too. Every reader gives arrays (h, w, 3) to one loop that only counts them. With several workers, an
archive is read by `Archive.prefetch`, which has threads; files by threads or processes in batches,
whichever is faster: threads of Pillow wait for one another, and take more than twice the CPU time for
thumbnails. CPU time is that of the whole process tree, elapsed time is what counts for several workers on a
machine that is not busy; of several turns, interleaved, the fastest counts. Ratios within one run are what
to compare.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from tpca_cli import Archive
from tpca_cli.training import epoch_order

ENDINGS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp")
TUNED = 16  # images on which the quality of a codec is found
BATCH = 64  # files that a worker is given at once
QUALITIES = {"jpeg": (5, 98), "webp": (1, 100), "jxl": (5, 99)}

Reader = Callable[[], Iterator[int]]


def pillow(path: str) -> np.ndarray[Any, Any]:
    """The pixels of any file."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def simple(path: str) -> np.ndarray[Any, Any]:
    """The pixels of a JPEG file, without Pillow."""
    return simplejpeg.decode_jpeg(Path(path).read_bytes())


def batch(read: Callable[[str], np.ndarray[Any, Any]], paths: Sequence[str]) -> list[np.ndarray[Any, Any]]:
    """What a worker does."""
    return [read(path) for path in paths]


def of_files(read: Callable[[str], np.ndarray[Any, Any]], paths: Sequence[str], pool: Any) -> Iterator[int]:
    """Sizes of the arrays of all files, in order."""
    size = max(1, min(BATCH, len(paths) // 8))  # so that all workers have some
    parts = [paths[first : first + size] for first in range(0, len(paths), size)]
    for arrays in (map if pool is None else pool.map)(partial(batch, read), parts):
        yield from (array.size for array in arrays)


def of_archive(archive: Archive, order: str, workers: int) -> Iterator[int]:
    """Sizes of the arrays of all images, in some order."""
    archive._cache.clear()
    positions: dict[str, Any] = {
        "in order": range(len(archive)),
        "shuffled": archive.shuffled(seed=1),
        "for training": epoch_order(archive, [1]),
        "random": np.random.default_rng(1).permutation(len(archive)).tolist(),
    }
    for pixels in archive.prefetch(positions[order], workers=workers):
        yield pixels.size


def one_by_one(archive: Archive) -> Iterator[int]:
    """The same by `archive[i]`, in shuffled order."""
    archive._cache.clear()
    for position in archive.shuffled(seed=1):
        yield archive[position].size


def clock() -> tuple[float, float]:
    """Elapsed time, and CPU time with that of workers, which go on running."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    lines = [Path(f"/proc/{worker.pid}/stat").read_text() for worker in multiprocessing.active_children()]
    ticks = sum(int(spent) for line in lines for spent in line.rpartition(")")[2].split()[11:13])
    return time.perf_counter(), used.ru_utime + used.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def encoded(image: Image.Image, codec: str, quality: int) -> bytes:
    """An image in a format of files."""
    out = io.BytesIO()
    image.save(out, codec.upper(), quality=quality, **({"method": 4} if codec == "webp" else {}))
    return out.getvalue()


def quality_for(images: Sequence[Image.Image], codec: str, psnr: float) -> int:
    """The lowest quality at which a few of the images have this PSNR together."""
    low, high = QUALITIES[codec]
    while low < high:
        middle, error, samples = (low + high) // 2, 0.0, 0
        for image in images:
            pixels = np.asarray(image, np.float64)
            back = np.asarray(
                Image.open(io.BytesIO(encoded(image, codec, middle))).convert("RGB"), np.float64
            )
            error, samples = error + float(((pixels - back) ** 2).sum()), samples + pixels.size
        reached = error == 0 or 10 * np.log10(255**2 * samples / error) >= psnr
        low, high = (low, middle) if reached else (middle + 1, high)
    return low


def written(sources: Sequence[str], folder: Path, codec: str, psnr: float) -> list[str]:
    """The images as files of this format, at about this PSNR."""
    every = max(1, len(sources) // TUNED)
    quality = quality_for([Image.open(path).convert("RGB") for path in sources[::every]], codec, psnr)
    paths = []
    for number, source in enumerate(sources):
        path = folder / f"{number:06}.{codec}"
        path.write_bytes(encoded(Image.open(source).convert("RGB"), codec, quality))
        paths.append(str(path))
    return paths


def contestants(sources: Sequence[str], work: Path, psnr: float) -> dict[str, Callable[[Any], Reader]]:
    """Readers of files by name, each of which takes a pool of workers or None."""
    files: dict[str, tuple[Any, list[str]]] = {}
    if all(path.lower().endswith((".jpg", ".jpeg")) for path in sources):
        files["the JPEG files, Pillow"] = (pillow, list(sources))
        files["the JPEG files, simplejpeg"] = (simple, list(sources))
    with suppress(ImportError):
        import pillow_jxl  # noqa: F401  its import makes Pillow read JPEG XL
    codecs = [codec for codec in QUALITIES if codec.upper() in Image.registered_extensions().values()]
    for codec in codecs:
        paths = written(sources, work, codec, psnr)
        files[f"{codec} at {psnr:g} dB, Pillow"] = (pillow, paths)
        if codec == "jpeg":
            files[f"{codec} at {psnr:g} dB, simplejpeg"] = (simple, paths)
    return {name: lambda pool, f=found: partial(of_files, *f, pool) for name, found in files.items()}


def measured(reader: Reader, count: int) -> tuple[float, float]:
    """Elapsed and CPU seconds of one pass over all images."""
    began = clock()
    assert sum(1 for size in reader() if size) == count
    return tuple(b - a for a, b in zip(began, clock(), strict=True))  # type: ignore[return-value]


def pools(workers: int) -> Iterator[tuple[str, Any]]:
    """Ways to read files with so many workers, each with its name."""
    if workers == 1:
        yield "", None
        return
    with ThreadPoolExecutor(workers) as threads:
        yield "threads", threads
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as processes:
        list(processes.map(abs, range(workers)))
        yield "processes", processes


def of_archives(archives: dict[str, Archive], workers: int) -> dict[str, Reader]:
    """Readers of archives by name: in every order, and one image at a time where there is one worker."""
    orders = ("in order", "shuffled", "for training", "random")
    found: dict[str, Reader] = {
        f"{name}, {order}": partial(of_archive, archive, order, workers)
        for name, archive in archives.items()
        for order in orders
    }
    if workers == 1:
        alone = {
            f"{name}, shuffled, one by one": partial(one_by_one, each) for name, each in archives.items()
        }
        found.update(alone)
    return found


def compare(
    archives: dict[str, Archive], files: dict[str, Callable[[Any], Reader]], workers: int, turns: int
) -> None:
    """A table of images a second."""
    count = len(next(iter(archives.values())))
    readers: dict[str, tuple[str, Reader]] = {}
    best: dict[str, tuple[float, float, str]] = {}
    cpus: dict[str, float] = {}
    for _ in range(turns):
        for how, pool in pools(workers):
            readers = {name: (how, make(pool)) for name, make in files.items()}
            if how != "processes":
                readers |= {name: (how, reader) for name, reader in of_archives(archives, workers).items()}
            for name, (way, reader) in readers.items():
                elapsed, cpu = measured(reader, count)
                best[name] = min((elapsed, cpu, way), best.get(name, (9e9, 9e9, "")))
                cpus[name] = min(cpu, cpus.get(name, 9e9))
    against = next(iter(files))
    print(f"\n{count} images, {workers} worker{'s' * (workers > 1)}\n")
    print(f"| | images/s | x {against} | CPU ms an image | by CPU | |\n|---|---|---|---|---|---|")
    for name, (elapsed, _, way) in sorted(best.items(), key=lambda item: item[1][0]):
        spent = f"{1e3 * cpus[name] / count:.3f} | {cpus[against] / cpus[name]:.2f}"
        print(f"| {name} | {count / elapsed:.0f} | {best[against][0] / elapsed:.2f} | {spent} | {way} |")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--psnr", type=float, default=36.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    found = sorted(str(p) for p in given.folder.rglob("*") if p.suffix.lower() in ENDINGS)
    sources = found[:: max(1, len(found) // given.limit)][: given.limit]
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        (work / "list.txt").write_text("\n".join(map(os.path.abspath, sources)))
        archives = {}
        for coding in ("small", "fast"):
            path = work / f"{coding}.h5"
            command = [
                "encode",
                f"@{work / 'list.txt'}",
                "-o",
                path,
                "--psnr",
                given.psnr,
                "--coding",
                coding,
            ]
            done = subprocess.run(
                [sys.executable, "-m", "tpca_cli", *map(str, command), "--quiet", "--force"]
            )
            if done.returncode not in (0, 3):
                raise SystemExit(done.returncode)
            archives[f"archive, {coding}"] = Archive(path, mode="RGB")
            print(f"--coding {coding}: {path.stat().st_size:,} bytes")
            assert len(archives[f"archive, {coding}"]) == len(sources)
        files = contestants(sources, work, given.psnr)
        for workers in given.workers:
            compare(archives, files, workers, given.turns)


if __name__ == "__main__":
    main()
