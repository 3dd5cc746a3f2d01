"""Are targets kept? Measured from the files that come back, with nothing of this package.

    python tests/benchmarks/targets.py FOLDER [--counts 1 10 120 1500] [--psnr 32] [--bytes 0.5]

For each count so many images, evenly spaced over the folder, are encoded with `--psnr`, decoded to PNG, and
compared with what Pillow reads from the sources; then once more with `--max-bytes`, this part of the first
archive.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

TPCA = [sys.executable, "-m", "tpca_cli"]


def tpca(*arguments: object) -> None:
    subprocess.run([*TPCA, *map(str, arguments), "--quiet", "--force"], check=True)


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image).astype(np.int64)


def pooled_psnr(sources: Sequence[Path], root: Path, out: Path) -> float:
    error = samples = 0
    for path in sources:
        back = pixels((out / path.relative_to(root)).with_suffix(".png"))
        difference = pixels(path) - back
        error += int((difference**2).sum())
        samples += difference.size
    return 10 * math.log10(255**2 * samples / error) if error else math.inf


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 10, 120, 1500])
    parser.add_argument("--psnr", type=float, default=32.0)
    parser.add_argument("--bytes", type=float, default=0.5)
    given = parser.parse_args()
    files = sorted(p for p in given.folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    print(f"{'images':>7}{'asked dB':>10}{'found dB':>10}{'bytes':>10}{'budget':>10}{'used':>8}", flush=True)
    for count in given.counts:
        chosen = [files[k] for k in np.unique(np.linspace(0, len(files) - 1, count).astype(int))]
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            root = work / "in"
            for path in chosen:
                link = root / path.relative_to(given.folder)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.write_bytes(path.read_bytes())
            tpca("encode", root, "-o", work / "a.h5", "--psnr", given.psnr)
            tpca("decode", work / "a.h5", "-o", work / "out")
            sources = [root / path.relative_to(given.folder) for path in chosen]
            found, size = pooled_psnr(sources, root, work / "out"), (work / "a.h5").stat().st_size
            budget = int(given.bytes * size)
            tpca("encode", root, "-o", work / "b.h5", "--max-bytes", budget)
            used = (work / "b.h5").stat().st_size / budget
        print(f"{len(chosen):7}{given.psnr:10.2f}{found:10.3f}{size:10}{budget:10}{used:8.1%}", flush=True)


if __name__ == "__main__":
    main()
