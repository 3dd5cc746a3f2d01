"""Make the golden archives of this version of the format: `python tests/golden/make.py`.

They are made once and decoded by every later version. A file that exists is never written again, and a
released folder only ever gains files. Images are made by integer arithmetic; the archives themselves depend
on the solver of the machine that made them, which is why they are kept and not made anew by the tests.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from command import tpca
from pictures import save

from tpca_cli import Archive, store
from tpca_cli.archive.index import BlockRecord, Entry, Index
from tpca_cli.archive.writer import Group, write_archive
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.priors import shipped

HOME = Path(__file__).parent / "v1"
PRIORS = (
    "WEIGHTS", "EXPECTED", "TABLES", "FLAG_TABLES", "FLAG_WEIGHTS", "OFFSETS", "POSITION", "ADJUST",
    "LOWEST_WEIGHTS"
)  # fmt: skip
PARTIAL = {"tile8.h5": 20, "whole.h5": 100, "dense.h5": 7}
"""Archives that are also decoded with fewer components."""


def picture(h: int, w: int, c: int, seed: int, peak: int = 255) -> Any:
    """Shading, a disk, stripes and grain, from integers alone."""
    y, x = np.mgrid[0:h, 0:w].astype(np.int64)
    planes = []
    for k in range(c):
        shade = (3 + seed % 5) * x + (2 + seed % 3) * y + 40 * k
        disk = 70 * ((y - h // 2) ** 2 + (x - (seed * 7) % w) ** 2 < (5 + seed % 7) ** 2)
        stripes = 25 * (((x * (1 + seed % 2) + y * (seed % 3)) // 3) % 2)
        grain = ((x * 73856093) ^ (y * 19349663) ^ (seed * 83492791 + k)) % 23
        planes.append((30 + shade // 2 + disk + stripes + grain) % 256 if k != 3 else 255 - shade % 64)
    stack = np.stack(planes, axis=-1)  # (h, w, c)
    return (
        stack.astype(np.uint8) if peak == 255 else (stack * 257 + (x * y)[..., None] % 257).astype(np.uint16)
    )


def noise(h: int, w: int, c: int, seed: int) -> Any:
    """Values that no table expects."""
    raw = hashlib.shake_256(str(seed).encode()).digest(h * w * c)
    return (np.frombuffer(raw, np.uint8) // 128 * 255).astype(np.uint8).reshape(h, w, c)


def fill(root: Path, pictures: list[Any]) -> Path:
    for number, pixels in enumerate(pictures):
        path = save(root / f"{number}.png", pixels)
        os.utime(path, ns=(10**18, 10**18))
    return root


def trained(work: Path, sample: list[Any], tile: int, lapped: bool) -> Coder:
    """A coder with a restoring filter, which takes a sample of some size."""
    options = ("--step", 14, "--tile", tile, "--method", "rank1", "--force")
    tpca("encode", fill(work / "sample", sample), "-o", work / "sample.h5", *options)
    group = Archive(work / "sample.h5").coder(0)
    coder = Coder.train(sample, group.framing, group.basis, 14.0, lapped=lapped)
    assert coder.restorer is not None and coder.lapped == lapped
    return coder


def write(target: Path, coder: Coder, pictures: list[Any], jobs: list[tuple[int, int, int, int]]) -> None:
    """Blocks as the jobs say: first picture, count, row, rows."""
    blocks, parts = [], []
    for first, count, row, rows in jobs:
        some = pictures[first : first + count]
        data = coder.encode([p[row : row + rows] if rows else p for p in some]).data
        blocks.append(BlockRecord(len(data), 0, first, count, row, rows, store.digest_of(data)))
        parts.append(data)
    mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[pictures[0].shape[2]]
    entries = [
        Entry(b"%d.png" % k, b"\0" * 8, 10**18, 0, p.shape[0], p.shape[1], mode, 0)
        for k, p in enumerate(pictures)
    ]
    index = Index.build(entries, blocks)
    write_archive(target, index, [Group.of(coder, "rank1")], parts, target_asked={"step": 14.0})


def tile8(work: Path, target: Path) -> None:
    """Lapped and restored; two blocks of whole images and a picture cut into bands."""
    coder = trained(work, [picture(192, 184, 3, seed) for seed in (1, 2)], 8, lapped=True)
    pictures = [picture(24, 40, 3, 3), picture(24, 40, 3, 4), picture(17, 9, 3, 5), picture(40, 21, 3, 6)]
    write(target, coder, pictures, [(0, 2, 0, 0), (2, 1, 0, 0), (3, 1, 0, 16), (3, 1, 16, 24)])


def colors(work: Path, target: Path) -> None:
    """As tile8, with channels that correct one another."""
    coder = trained(work, [picture(192, 184, 3, seed) for seed in (11, 12)], 8, lapped=True)
    assert coder.restorer is not None and coder.restorer.mixing.any()
    write(target, coder, [picture(33, 42, 3, 13), picture(7, 3, 3, 14)], [(0, 2, 0, 0)])


def see_through(work: Path, target: Path) -> None:
    """The same for color with alpha."""
    coder = trained(work, [picture(192, 184, 4, seed) for seed in (11, 12)], 8, lapped=False)
    assert coder.restorer is not None and coder.restorer.mixing.any()
    write(target, coder, [picture(21, 26, 4, 13)], [(0, 1, 0, 0)])


def gray_alpha(work: Path, target: Path) -> None:
    """The same for gray with alpha, with weights that no fit would give."""
    coder = trained(work, [picture(192, 184, 2, seed) for seed in (11, 12)], 16, lapped=True)
    assert coder.restorer is not None
    odd = replace(coder.restorer, mixing=(np.arange(24) * 71 % 61 - 30).reshape(2, 12))
    coder = replace(coder, restorer=odd)
    write(target, coder, [picture(21, 26, 2, 13)], [(0, 1, 0, 0)])


def tile32(work: Path, target: Path) -> None:
    """Restored but not lapped; gray."""
    coder = trained(work, [picture(192, 184, 1, seed) for seed in (1, 2)], 32, lapped=False)
    write(target, coder, [picture(40, 70, 1, 3), picture(9, 33, 1, 4)], [(0, 2, 0, 0)])


def single(work: Path, target: Path) -> None:
    """One gray picture."""
    source = fill(work / "in", [picture(61, 83, 1, 7)])
    tpca("encode", source, "-o", target, "--step", 4, "--tile", 8, "--method", "rank1", "--force")


def tile16(work: Path, target: Path) -> None:
    source = fill(work / "in", [picture(24, 40, 3, seed) for seed in range(3)])
    tpca("encode", source, "-o", target, "--step", 9, "--tile", 16, "--method", "rank1", "--force")


def whole(work: Path, target: Path) -> None:
    source = fill(work / "in", [picture(16, 20, 3, seed) for seed in range(5)])
    tpca("fit-basis", source, "-o", work / "b.h5", "--method", "rank1", "--size", "16x20", "--all")
    tpca("encode", source, "-o", target, "--step", 5, "--basis", work / "b.h5", "--force")


def dense(work: Path, target: Path) -> None:
    """Eigentensors of the operator itself, about a mean."""
    source = fill(work / "in", [picture(12, 16, 1, seed) for seed in range(24)])
    tpca("fit-basis", source, "-o", work / "b.h5", "--method", "operator", "--size", "12x16", "--center",
         "--components", 18)  # fmt: skip
    tpca("encode", source, "-o", target, "--step", 3, "--basis", work / "b.h5", "--force")


def truncated(work: Path, target: Path) -> None:
    source = fill(work / "in", [picture(24, 24, 3, seed) for seed in range(6)])
    tpca("encode", source, "-o", target, "--components", 14, "--tile", 8, "--method", "rank1", "--force")


def depth16(work: Path, target: Path) -> None:
    source = fill(work / "in", [picture(24, 40, 1, seed, 65535) for seed in range(5)])
    tpca("encode", source, "-o", target, "--psnr", 50, "--tile", 8, "--method", "rank1", "--force")


def rgba(work: Path, target: Path) -> None:
    source = fill(work / "in", [picture(16, 24, 4, seed) for seed in range(5)])
    tpca("encode", source, "-o", target, "--step", 8, "--tile", 8, "--method", "rank1", "--force")


def gray_in_color(work: Path, target: Path) -> None:
    colors = fill(work / "color", [picture(24, 24, 3, seed) for seed in range(6)])
    tpca("fit-basis", colors, "-o", work / "b.h5", "--method", "rank1", "--tile", 8, "--all")
    mixed = fill(work / "in", [picture(24, 24, c, seed) for seed, c in enumerate((1, 3, 1, 3))])
    tpca("encode", mixed, "-o", target, "--step", 8, "--basis", work / "b.h5", "--force")


def appended(work: Path, target: Path) -> None:
    """A second block of values that its tables never saw, a replaced image, and a second group."""
    source = fill(work / "in", [picture(16, 24, 3, seed) for seed in range(4)])
    tpca("encode", source, "-o", target, "--step", 0.5, "--tile", 8, "--method", "rank1", "--force")
    save(source / "1.png", picture(17, 23, 3, 9))
    save(source / "4.png", noise(16, 24, 3, 1))
    save(source / "5.png", picture(16, 24, 4, 5))
    tpca("encode", source, "-o", target, "--append", "--force")
    assert len(Archive(target).groups) == 2


ARCHIVES = (
    tile8, tile16, tile32, whole, dense, single, truncated, depth16, rgba, gray_in_color, appended,
    colors, see_through, gray_alpha
)  # fmt: skip


def digests(path: Path, components: int | None = None) -> list[list[Any]]:
    """Name, shape and sha256 of the samples (C order, little-endian) of each image."""
    with Archive(path) as archive:
        found = [archive.read(k, components=components) for k in range(len(archive))]
        return [
            [
                name.decode(),
                list(p.shape),
                hashlib.sha256(p.astype(p.dtype.newbyteorder("<")).tobytes()).hexdigest(),
            ]
            for name, p in zip(archive.names_bytes, found, strict=True)
        ]


def main() -> None:
    HOME.mkdir(exist_ok=True)
    record = HOME / "pixels.json"
    pixels = json.loads(record.read_text()) if record.exists() else {}
    for make in ARCHIVES:
        target = HOME / f"{make.__name__.replace('_', '-')}.h5"
        if target.exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), Path(folder) / target.name)
            os.rename(Path(folder) / target.name, target)
        pixels[target.name] = {"all": digests(target)}
        if target.name in PARTIAL:
            pixels[target.name]["partial"] = digests(target, PARTIAL[target.name])
        print(target.name, target.stat().st_size, "bytes")
    record.write_text(json.dumps(pixels, indent=1) + "\n")
    if not (HOME / "priors.json").exists():
        numbers = {name: getattr(shipped(), name.lower()).astype(np.int64).tolist() for name in PRIORS}
        (HOME / "priors.json").write_text(json.dumps(numbers, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
