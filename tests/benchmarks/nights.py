"""Sixty nightly appends of drifting content: quality, growth and time per night (docs/RELIABILITY.md).

    python tests/benchmarks/nights.py FOLDER [NIGHTS]

Each night brings six pictures whose grain and contrast are a little different from those of the night before.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from command import tpca
from pictures import natural, save

from tpca_cli.archive.reader import Archive
from tpca_cli.quality import psnr


def bring(folder: Path, night: int) -> bytes:
    """The pictures of a night; returns what their names begin with."""
    grain = 2 + 6 * (1 - np.cos(2 * np.pi * night / 40)) + night / 20
    for k in range(6):
        rng = np.random.default_rng(1000 * night + k)
        scene = natural(64, 80, 3, 100 * night + k) * (1 - night / 200)
        pixels = np.clip(scene + rng.normal(0, grain, scene.shape), 0, 255).astype(np.uint8)
        save(folder / f"night{night:02}_{k}.png", pixels)
    return b"night%02d" % night


def quality(path: Path, prefix: bytes) -> float:
    """The measured PSNR of the images whose names begin so."""
    with Archive(path, ready=False) as archive:
        chosen = archive.alive[[name.startswith(prefix) for name in archive.names_bytes]]
        error, samples = archive.index.images["error"][chosen].sum(), archive.index.samples[chosen].sum()
    return psnr(float(error), float(samples), 255)


def main(root: Path, nights: int) -> None:
    """Print one row per night."""
    before = 0
    print(
        "| night | exit | new, dB | all, dB | archive, bytes | grown by | besides pixels | groups | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    coded = 0
    for night in range(nights):
        prefix = bring(root / "in", night)
        started = time.monotonic()
        ended = tpca(
            "encode", root / "in", "-o", root / "a.h5", "--append", "--psnr", 36, "--json", code=None
        )
        facts, seconds = ended.json, time.monotonic() - started
        size, pixels = facts["archive_bytes"], facts["coefficient_bytes"]
        grown = size - before
        new, whole = quality(root / "a.h5", prefix), facts["psnr"]
        row = (night + 1, ended.code, f"{new:.2f}", f"{whole:.2f}", size, grown, grown - (pixels - coded))
        print("|", " | ".join(map(str, (*row, len(facts["groups"]), f"{seconds:.1f}"))), "|", flush=True)
        before, coded = size, pixels


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the images and the archive are made")
    parser.add_argument("nights", type=int, nargs="?", default=60)
    given = parser.parse_args()
    main(given.folder, given.nights)
