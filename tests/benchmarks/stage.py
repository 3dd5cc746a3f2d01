"""Staging a folder against a bare loop of two processes that only decode the same files with Pillow.

    python tests/benchmarks/stage.py FOLDER [--size HxW] [--repeat N] [--workers N]

Prints images per second of both, measured in turns in one run, the best of each, and their ratio; then the
peak memory of staging the first fifth of the folder and all of it. Both are given the list of files (the time
to make it is printed too). The bare loop's processes are already running and keep nothing; the staging starts
its own and ends with a committed, verified tensor file.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from PIL import Image

from tpca_cli.frames.stage import stage
from tpca_cli.sources.scan import ImageRef, scan

BATCH = 64
Size = tuple[int, int] | None


def decode_only(paths: list[bytes]) -> int:
    for path in paths:
        with Image.open(path.decode()) as image:
            image.load()
    return len(paths)


def decode_and_resize(paths: list[bytes], size: tuple[int, int]) -> int:
    for path in paths:
        with Image.open(path.decode()) as image:
            image.draft(None, size[::-1])
            image.resize(size[::-1], Image.Resampling.LANCZOS)
    return len(paths)


def two_processes(refs: Sequence[ImageRef], size: Size) -> float:
    """Seconds of the loop alone."""
    paths = [ref.path for ref in refs]
    batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        list(pool.map(decode_only, batches[:4]))
        start = time.perf_counter()
        if size is None:
            done = sum(pool.map(decode_only, batches))
        else:
            done = sum(pool.map(decode_and_resize, batches, [size] * len(batches)))
        seconds = time.perf_counter() - start
    assert done == len(paths)
    return seconds


def staging(refs: Sequence[ImageRef], size: Size, workers: int) -> float:
    """Seconds from the list of files to a tensor file on disk."""
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        start = time.perf_counter()
        with stage(refs, size=size, memory=0, cache=Path(scratch) / "t.h5", workers=workers) as staged:
            seconds = time.perf_counter() - start
            assert len(staged.refs) == len(refs)
    return seconds


def _peak(folder: str, size: Size, workers: int, part: int, answer: multiprocessing.SimpleQueue[int]) -> None:
    refs = scan([folder]).refs
    with (
        tempfile.TemporaryDirectory(dir=".") as scratch,
        stage(refs[:part], size=size, memory=0, beside=f"{scratch}/t.h5", workers=workers) as staged,
    ):
        for _ in staged.frames.blocks(256):
            pass
    answer.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def peak_memory(folder: str, size: Size, workers: int, part: int) -> int:
    """Kilobytes that a fresh process needs at most to stage and read back `part` images."""
    context = multiprocessing.get_context("spawn")
    answer = context.SimpleQueue()
    process = context.Process(target=_peak, args=(folder, size, workers, part, answer))
    process.start()
    peak = answer.get()
    process.join()
    return int(peak)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--size", help="resize to HxW; the bare loop is then timed with and without resizing")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    size: Size = None
    if options.size:
        height, width = options.size.split("x")
        size = int(height), int(width)
    start = time.perf_counter()
    refs = scan([options.folder]).refs
    listing, count = time.perf_counter() - start, len(refs)
    runs: dict[str, Callable[[], float]] = {
        "two processes, Pillow decodes": lambda: two_processes(refs, None),
        "tpca staging": lambda: staging(refs, size, options.workers),
    }
    if size is not None:
        runs["two processes, Pillow drafts and resizes"] = lambda: two_processes(refs, size)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.repeat):
        for name, run in runs.items():
            times[name].append(run())
    ours = times["tpca staging"]
    print(f"{count} images, {options.repeat} turns, {options.workers} workers; listing took {listing:.2f} s")
    print(f"{'':44}{'images/s':>10}{'speed of staging':>20}")
    for name, seconds in times.items():
        print(f"{name:44}{count / min(seconds):10.0f}{min(seconds) / min(ours):19.2f}x")
    few, all_of_them = (peak_memory(options.folder, size, options.workers, n) for n in (count // 5, count))
    print(
        f"peak memory: {count // 5} images {few / 1e3:.0f} MB, {count} images {all_of_them / 1e3:.0f} MB,",
        end=" ",
    )
    print(f"ratio {all_of_them / few:.3f}")


if __name__ == "__main__":
    main()
