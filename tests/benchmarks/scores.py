"""What `tpca encode --plain` costs beside decoding and one product of BLAS: `python scores.py FOLDER`.

All of it is CPU time of processes of their own, since the machine may be busy; ratios within one run count.
Only decoding is what `tpca` does to read the files; the product is X @ U of the same shape in float64, in
blocks, on pixels that are in memory. Both without the start of a process that imports numpy and the decoders,
which is shown beside them. They have one thread each: two workers may share a core, where a second of CPU
time does less. Modules are compiled beforehand, as they are where `tpca` is installed. With
numkong, on a processor that has instructions for products of 8 bits, `tpca` multiplies slices of U.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tpca_cli.basisfile import read_basis
from tpca_cli.tensor_pca.slices import slices_for

DECODE = """
import sys
from tpca_cli.images import read
with open(sys.argv[1]) as listed:
    for line in listed:
        read(line.rstrip("\\n"))
"""
PRODUCT = """
import sys, numpy as np
from threadpoolctl import threadpool_limits
n, l, m = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
u = rng.normal(size=(l, m))
x = rng.integers(0, 256, (min(n, 512), l)).astype(np.float64)
with threadpool_limits(1):
    for start in range(0, n, 512):
        x[: n - start] @ u
"""


def measured(*command: object) -> tuple[float, float]:
    """CPU seconds of a command with its processes, and the peak memory of the largest of them in MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [str(word) for word in command]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=dict(os.environ, **compiled()))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, usage.ru_maxrss / 1000


@functools.lru_cache(maxsize=1)
def compiled() -> dict[str, str]:
    """Where processes find and leave compiled modules."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": tempfile.mkdtemp()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", default="64x64")
    parser.add_argument("--components", type=int, default=500)
    parser.add_argument("--limit", type=int, default=10_000)
    asked = parser.parse_args()
    files = sorted(
        path for path in asked.folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png")
    )
    files = files[: asked.limit]
    tpca = (sys.executable, "-m", "tpca_cli")
    with tempfile.TemporaryDirectory() as scratch:
        listed, basis, out = (Path(scratch, name) for name in ("files.txt", "basis.h5", "scores.h5"))
        listed.write_text("".join(f"{path.resolve()}\n" for path in files))
        fit = ("fit-basis", f"@{listed}", "-o", basis, "--method", "operator", "--size", asked.size)
        measured(*tpca, *fit, "--components", asked.components, "--solver", "fast", "--quiet")
        few = listed.with_name("few.txt")
        few.write_text("".join(listed.read_text().splitlines(True)[:4]))
        project = ("encode", f"@{few}", "-o", out, "--basis", basis, "--size", asked.size, "--plain")
        for _ in range(2):  # the second finds all modules compiled
            start = measured(sys.executable, "-c", "import numpy, tpca_cli.images")[0]
            least = measured(*tpca, *project, "--force", "--quiet")[0]
        decoding = measured(sys.executable, "-c", DECODE, listed)[0] - start
        height, width = map(int, asked.size.split("x"))
        shape = (len(files), height * width * 3, asked.components)
        product = measured(sys.executable, "-c", PRODUCT, *shape)[0] - start
        print(f"{len(files)} files, {asked.size}, M = {asked.components}: CPU seconds, peak of a process")
        print(
            f"| start of Python with numpy | {start:.2f} |\n| tpca encode --plain of 4 files | {least:.2f} |"
        )
        print(f"| only decoding | {decoding:.2f} |\n| one product in float64 | {product:.2f} |")
        bar = 2 * decoding + product
        matrix = read_basis(basis).basis
        for dtype in ("float32", "float64"):
            how = f"{slices_for(matrix, np.dtype(dtype).itemsize) or 'no'} slices"
            encode = ("encode", f"@{listed}", "-o", out, "--basis", basis, "--size", asked.size, "--plain")
            for workers in (1, 2):
                settings = ("--dtype", dtype, "--workers", workers, "--force", "--quiet")
                seconds, peak = measured(*tpca, *encode, *settings)
                shown = (
                    f"{seconds:.2f} | {peak:.0f} MB | {seconds / bar:.2f} of 2 x decoding plus one product"
                )
                print(f"| --plain, {dtype}, {how}, workers: {workers} | {shown} |", flush=True)
        check(out, basis, listed)


def check(scores: Path, basis: Path, listed: Path) -> None:
    """The largest distance of the last scores from X @ U in float64, relative to the length of a row of X."""
    from tpca_cli import Basis, Scores
    from tpca_cli.images import read
    from tpca_cli.images.modes import widen

    of = Basis(basis)
    u = of.eigentensors.reshape(of.components, -1).T
    paths = {Path(line).name: line for line in listed.read_text().splitlines()}
    worst = 0.0
    with Scores(scores) as found:
        for position in range(0, len(found), max(1, len(found) // 200)):
            pixels = read(paths[Path(found.names[position]).name]).pixels
            x = widen(pixels, 3).reshape(-1).astype(np.float64)
            if len(x) != len(u):
                continue  # resized: not compared
            away = np.abs(found.coefficients(position)[0] - x @ u).max() / np.linalg.norm(x)
            worst = max(worst, float(away))
    print(f"largest distance from X @ U of 200 images: {worst:.1e} of the length of X")


if __name__ == "__main__":
    main()
