"""What `tpca encode` costs, from files to file, beside WebP and AVIF coding the same files once.

    python tests/benchmarks/encode.py FOLDER [--limit N] [--psnr 36] [--memory 512M] [--only TEXT] [--turns 1]

Every row is a process of its own with its workers: CPU time of the whole tree (user and system), elapsed
time, and the peak of its memory (proportional set sizes of the tree, looked at twenty times a second). The
files are read once before, so that they come from the system's cache for everybody. WebP (`method=6`) and
AVIF (`speed=6`) code each image once, in two processes, at the quality that comes closest to the same PSNR on
a few of the images. Ratios of CPU times within one run are what counts: the machine may be busy.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ENDINGS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp")
CODECS: dict[str, dict[str, Any]] = {"webp": {"method": 6}, "avif": {"speed": 6}}
TUNED = 4  # images on which the quality of a codec is found
LOOKS = 0.05  # seconds between two looks at the memory


@dataclass(frozen=True)
class Run:
    """One process tree: CPU and elapsed seconds, peak memory, and what it printed."""

    cpu: float
    elapsed: float
    peak: float  # MB
    data: dict[str, Any]


def tree_memory(root: int) -> float:
    """Proportional set sizes of a process and its descendants, in MB; shared pages count once."""
    total, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        try:
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
            children: list[int] = []
            for task in os.listdir(f"/proc/{process}/task"):
                children += map(int, Path(f"/proc/{process}/task/{task}/children").read_text().split())
            waiting += [child for child in children if not _same_memory(process, child)]
            total += int(rollup.split("\nPss:")[1].split()[0])
        except (OSError, IndexError):
            continue  # it has just ended
    return total / 1000


def _same_memory(process: int, child: int) -> bool:
    """Whether a child is about to run another program, and has the memory of its parent until it does."""
    if platform.machine() != "x86_64":  # the number of the call is another one
        return False
    kcmp, of_memory = 312, 1
    return ctypes.CDLL(None).syscall(kcmp, process, child, of_memory, 0, 0) == 0


def run(*command: object) -> Run:
    """Run to the end; a failure ends the benchmark with its message."""
    started = time.perf_counter()
    ended = threading.Event()
    peak = 0.0
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([str(part) for part in command], stdout=out)

        def look() -> None:
            nonlocal peak
            while not ended.wait(LOOKS):
                peak = max(peak, tree_memory(process.pid))

        looking = threading.Thread(target=look)
        looking.start()
        _, status, usage = os.wait4(process.pid, 0)
        ended.set()
        looking.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        elapsed = time.perf_counter() - started
        out.seek(0)
        text = out.read()
    if process.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}\n{text}")
    data = json.loads(text) if text.strip() else {}
    return Run(usage.ru_utime + usage.ru_stime, elapsed, peak, data)


def best(turns: int, *command: object) -> Run:
    """The turn with the least CPU time, with the largest memory of all."""
    found = sorted((run(*command) for _ in range(turns)), key=lambda turn: turn.cpu)
    return Run(found[0].cpu, found[0].elapsed, max(turn.peak for turn in found), found[0].data)


def coded(path: str, codec: str, quality: int) -> int:
    """The bytes of one image."""
    with Image.open(path) as source:
        image = source if source.mode in ("L", "RGB", "RGBA") else source.convert("RGB")
        out = io.BytesIO()
        image.save(out, codec.upper(), quality=quality, **CODECS[codec])
    return out.tell()


def quality_for(files: list[str], codec: str, wanted: float) -> int:
    """The lowest quality with this PSNR, pooled over a few of the images."""
    few = [np.asarray(Image.open(path).convert("RGB")) for path in files[:: max(1, len(files) // TUNED)]]
    low, high = 0, 100
    while low < high:
        middle = (low + high) // 2
        error = samples = 0.0
        for pixels in few:
            out = io.BytesIO()
            Image.fromarray(pixels).save(out, codec.upper(), quality=middle, **CODECS[codec])
            back = np.asarray(Image.open(out).convert("RGB")).astype(float)
            error += float(((back - pixels) ** 2).sum())
            samples += pixels.size
        reached = error == 0 or 10 * np.log10(255**2 * samples / error) >= wanted
        low, high = (low, middle) if reached else (middle + 1, high)
    return low


def contestant(codec: str, quality: int, listed: Path) -> None:
    """Code every file once, in two processes, as a user's loop would."""
    files = listed.read_text().splitlines()
    with multiprocessing.Pool(2) as pool:
        sizes = pool.starmap(coded, ((path, codec, quality) for path in files), chunksize=4)
    print(json.dumps({"archive_bytes": sum(sizes)}))


def rows_for(listed: Path, scratch: Path, given: argparse.Namespace) -> list[tuple[str, tuple[object, ...]]]:
    """The name and the command of every row; the first makes the basis and is followed by those using it."""
    basis = scratch / "basis.h5"
    tpca = (sys.executable, "-m", "tpca_cli")
    quiet = ("--quiet", "--force", "--json")
    memory = ("--memory", given.memory) if given.memory else ()
    encode = (*tpca, "encode", f"@{listed}", "-o", scratch / "out.h5", *quiet, *memory)
    run(*tpca, "fit-basis", f"@{listed}", "-o", basis, "--tile", 8, "--method", "rank1", *quiet)
    first = run(*encode, "--psnr", given.psnr)
    step, size = first.data["step"], int(0.8 * first.data["archive_bytes"])
    own = ("--basis", basis)
    return [
        ("--step --basis", (*encode, "--step", step, *own)),
        ("--step", (*encode, "--step", step)),
        (f"--psnr {given.psnr:g} --basis", (*encode, "--psnr", given.psnr, *own)),
        (f"--psnr {given.psnr:g}", (*encode, "--psnr", given.psnr)),
        ("--max-bytes --basis", (*encode, "--max-bytes", size, *own)),
        ("--max-bytes", (*encode, "--max-bytes", size)),
        ("decode", (*tpca, "decode", scratch / "out.h5", "-o", scratch / "out", *quiet, *memory)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=10**9)
    parser.add_argument("--psnr", type=float, default=36.0)
    parser.add_argument("--memory", default="")
    parser.add_argument("--only", default="", help="rows whose name holds this text, and the first")
    parser.add_argument("--turns", type=int, default=1, help="take the quickest of so many")
    parser.add_argument("--contestant", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contestant:
        contestant(given.contestant[0], int(given.contestant[1]), given.folder)
        return
    files = sorted(str(p) for p in given.folder.resolve().rglob("*") if p.suffix.lower() in ENDINGS)
    files = (
        [files[len(files) * k // given.limit] for k in range(given.limit)]
        if given.limit < len(files)
        else files
    )
    read = sum(len(Path(path).read_bytes()) for path in files)
    print(f"{len(files)} files of {read / 1e6:.1f} MB\n")
    print(f"| {'':22} | CPU s | x first | elapsed s | peak MB |    bytes |   dB |\n|{'---|' * 7}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        listed = scratch / "files.txt"
        listed.write_text("\n".join(files))
        rows = rows_for(listed, scratch, given)
        for codec in CODECS:
            if given.only not in codec:
                continue
            quality = quality_for(files, codec, given.psnr)
            command = (sys.executable, __file__, listed, "--contestant", codec, quality)
            options = " ".join(f"{key}={value}" for key, value in CODECS[codec].items())
            rows.append((f"{codec} {options} q={quality}", command))
        first, costs = None, dict[str, float]()
        for number, (name, command) in enumerate(rows):
            if number and given.only not in name:
                continue
            found = best(given.turns, *command)
            first = first or found
            costs[name] = found.cpu
            size, psnr = found.data.get("archive_bytes", 0), found.data.get("psnr") or 0.0
            print(
                f"| {name:22} | {found.cpu:5.1f} | {found.cpu / first.cpu:7.2f} | {found.elapsed:9.1f} "
                f"| {found.peak:7.0f} | {size:8} | {psnr:5.2f} |",
                flush=True,
            )
        asked = costs.get(f"--psnr {given.psnr:g}")
        for name, cost in costs.items():
            if asked and name.split()[0] in CODECS:
                print(f"--psnr takes {asked / cost:.2f} x the CPU time of {name}")


if __name__ == "__main__":
    main()
