"""Make the golden archives of this version of the format: `python tests/golden/make.py`.

They are made once and decoded by every later version. A file that exists is never written again, and the
folder of a frozen version (v1) only ever gains files; v2 is made anew until it is frozen. Images are made by
integer arithmetic; the archives themselves depend on the solver of the machine that made them, which is why
they are kept and not made anew by the tests.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

from command import tpca
from golden.scenes import noise, picture, tinted
from pictures import save

from tpca_cli import Archive, store
from tpca_cli.archive.index import BlockRecord, Entry, Index
from tpca_cli.archive.writer import Group, write_archive
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.contexts import LED, TABLED
from tpca_cli.codec.priors import shipped
from tpca_cli.codec.token_tables import fit_tables

HOME_V1 = Path(__file__).parent / "v1"
HOME = Path(__file__).parent / "v2"
PRIORS = (
    "WEIGHTS", "EXPECTED", "TABLES", "FLAG_TABLES", "FLAG_WEIGHTS", "OFFSETS", "POSITION", "ADJUST",
    "LOWEST_WEIGHTS"
)  # fmt: skip
PARTIAL = {"tile8.h5": 20, "whole.h5": 100, "dense.h5": 7, "coded.h5": 3, "turned.h5": 2, "fast.h5": 20}
"""Archives that are also decoded with fewer components."""


def fill(root: Path, pictures: list[Any], **options: Any) -> Path:
    for number, pixels in enumerate(pictures):
        path = save(root / f"{number}.png", pixels, **options)
        path.chmod(0o640)
        os.utime(path, ns=(10**18, 10**18))
    return root


def trained(
    work: Path,
    sample: list[Any],
    tile: int,
    lapped: bool,
    tune: str = "psnr",
    predictor: int = LED,
) -> Coder:
    """A coder with a restoring filter, which takes a sample of some size."""
    options = ("--step", 14, "--tile", tile, "--method", "rank1", "--force")
    tpca("encode", fill(work / "sample", sample), "-o", work / "sample.h5", *options)
    group = Archive(work / "sample.h5").coder(0)
    coder = Coder.train(
        sample, group.framing, group.basis, 14.0, lapped=lapped, tune=tune, predictor=predictor
    )
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
        Entry(b"%d.png" % k, b"\0" * 16, 10**18, 0, p.shape[0], p.shape[1], mode, 0)
        for k, p in enumerate(pictures)
    ]
    index = Index.build(entries, blocks)
    write_archive(target, index, [Group.of(coder, "rank1")], parts, target_asked={"step": 14.0})


def tile8(work: Path, target: Path) -> None:
    """Lapped and restored; two blocks of whole images and a picture cut into bands."""
    coder = trained(work, [picture(192, 184, 3, seed) for seed in (1, 2)], 8, lapped=True)
    pictures = [picture(24, 40, 3, 3), picture(24, 40, 3, 4), picture(17, 9, 3, 5), picture(40, 21, 3, 6)]
    write(target, coder, pictures, [(0, 2, 0, 0), (2, 1, 0, 0), (3, 1, 0, 16), (3, 1, 16, 24)])


def regions(work: Path, target: Path) -> None:
    """Steps by component and region: blocks of whole images of odd sizes, one cut into bands."""
    coder = trained(work, [picture(192, 184, 3, seed) for seed in (1, 2)], 8, lapped=True, tune="visual")
    flat, busy = picture(40, 56, 3, 8) // 64 + 90, noise(24, 24, 3, 3)
    pictures = [flat, busy, picture(41, 57, 3, 5), picture(40, 21, 3, 6)]
    for some in pictures[:2]:
        some[8:24, 4:20] = picture(16, 16, 3, 4)
    write(target, coder, pictures, [(0, 3, 0, 0), (3, 1, 0, 16), (3, 1, 16, 24)])


def of_jpeg(seed: int, h: int = 192, w: int = 184) -> Any:
    """A picture that was a JPEG file."""
    file = io.BytesIO()
    Image.fromarray(picture(h, w, 3, seed)).save(file, "JPEG", quality=75, subsampling=0)
    return np.asarray(Image.open(file))


def grains(work: Path, target: Path) -> None:
    """The steps, tiles and colors of JPEG files, with steps by region."""
    sample = [of_jpeg(seed) for seed in (1, 2)]
    coder = replace(trained(work, sample, 8, lapped=False, tune="visual"), whole=0)
    assert coder.basis.oblique and coder.grains is not None and 20 < np.count_nonzero(coder.grains) < 192
    write(target, coder, [of_jpeg(3, 40, 56), picture(24, 17, 3, 4)], [(0, 1, 0, 0), (1, 1, 0, 0)])


def whole_grains(work: Path, target: Path) -> None:
    """The same with values that are whole multiples of those steps, in regions where they are steps."""
    sample = [of_jpeg(seed) for seed in (1, 2)]
    coder = replace(trained(work, sample, 8, lapped=False, tune="visual"), whole=4)
    assert len(np.unique(coder.model.whole.sum(axis=1))) > 1  # grades differ in them
    write(target, coder, [of_jpeg(3, 40, 56), picture(24, 17, 3, 4)], [(0, 1, 0, 0), (1, 1, 0, 0)])


def second_model(work: Path, target: Path) -> None:
    """Values predicted from more: by grade and by component, with some that few components have."""
    sample = [picture(192, 184, 3, seed) for seed in (1, 2)]
    coder = trained(work, sample, 8, lapped=True, tune="visual", predictor=2)
    pictures = [picture(40, 56, 3, 8), noise(24, 24, 3, 3), picture(41, 33, 3, 5)]
    pictures[0][:24, :24] //= 16
    write(target, coder, pictures, [(0, 2, 0, 0), (2, 1, 0, 0)])


def third_model(work: Path, target: Path) -> None:
    """Color that follows brightness: lapped, with regions, a block of two and one cut into bands."""
    sample = [tinted(192, 184, seed) for seed in (1, 2)]
    coder = trained(work, sample, 8, lapped=True, tune="visual", predictor=3)
    assert coder.shares is not None and coder.shares.min(axis=0).any()
    pictures = [tinted(40, 56, 8), noise(24, 24, 3, 3), tinted(41, 33, 5)]
    pictures[0][:24, :24] //= 16
    write(target, coder, pictures, [(0, 2, 0, 0), (2, 1, 0, 16), (2, 1, 16, 25)])


def third_model_plain(work: Path, target: Path) -> None:
    """The same without lapping, so signs follow borders, with steps small enough for escapes."""
    sample = [tinted(192, 184, seed) for seed in (1, 2)]
    coder = trained(work, sample, 8, lapped=False, predictor=3).with_step(3.0)
    assert coder.shares is not None and coder.shares.any()
    write(target, coder, [tinted(31, 40, 4), noise(16, 9, 3, 2)], [(0, 2, 0, 0)])


def fast(work: Path, target: Path) -> None:
    """Nothing is learned: lapped, with regions and tables of tokens, a block of two and one cut in bands."""
    sample = [tinted(192, 184, seed) for seed in (1, 2)]
    coder = trained(work, sample, 8, lapped=True, tune="visual", predictor=TABLED)
    tables = fit_tables(coder.count_tokens(sample), coder.token_families, shipped())
    assert tables is not None and len(tables.moves) > 3
    pictures = [tinted(32, 40, 8), noise(8, 16, 3, 3), tinted(25, 17, 5)]
    pictures[0][:24, :24] //= 16
    write(target, replace(coder, tokens=tables), pictures, [(0, 2, 0, 0), (2, 1, 0, 16), (2, 1, 16, 9)])


def fast_plain(work: Path, target: Path) -> None:
    """The same for gray pictures too few for tables, with values that escape, and then others by append."""
    source = fill(work / "in", [picture(20, 24, 1, seed) for seed in range(2)])
    options = ("--coding", "fast", "--step", 0.25, "--tile", 8, "--method", "rank1", "--force")
    tpca("encode", source, "-o", target, *options)
    save(source / "2.png", noise(16, 9, 1, 1))
    tpca("encode", source, "-o", target, "--append", "--force")
    with Archive(target) as archive:
        assert archive.groups[0].meta["features"] == ["model-4"]


def colors(work: Path, target: Path) -> None:
    """As tile8, with channels that correct one another."""
    coder = trained(work, [picture(192, 184, 3, seed) for seed in (11, 12)], 8, lapped=True)
    assert coder.restorer is not None and coder.restorer.mixing.any()
    write(target, coder, [picture(33, 42, 3, 13), picture(7, 3, 3, 14)], [(0, 2, 0, 0)])


def bounded_filter(work: Path, target: Path) -> None:
    """The same with differences within a bound, of pictures with edges."""
    pictures = [picture(192, 184, 3, seed) // 128 * 90 + picture(192, 184, 3, seed) // 3 for seed in (15, 16)]
    coder = trained(work, pictures, 8, lapped=True)
    assert coder.restorer is not None and coder.restorer.bound and coder.restorer.weights[:, 6:].any()
    write(target, coder, [pictures[0][:33, :42], pictures[1][:7, :3]], [(0, 2, 0, 0)])


def learned_filter(work: Path, target: Path) -> None:
    """The same after a network, with regions; sides are odd."""
    pictures = [picture(192, 184, 3, seed) for seed in (17, 18)]
    coder = trained(work, pictures, 8, lapped=True, tune="visual")
    assert coder.restorer is not None
    coder = replace(coder, restorer=replace(coder.restorer, network=17))
    write(target, coder, [pictures[0][:33, :43], pictures[1][:7, :3]], [(0, 2, 0, 0)])


def deeper_filter(work: Path, target: Path) -> None:
    """The same after a network with three inner layers."""
    pictures = [picture(192, 184, 3, seed) for seed in (19, 20)]
    coder = trained(work, pictures, 8, lapped=True)
    assert coder.restorer is not None
    coder = replace(coder, restorer=replace(coder.restorer, network=26))
    write(target, coder, [pictures[0][:25, :31]], [(0, 1, 0, 0)])


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


def fine(work: Path, target: Path) -> None:
    """A basis of so many bits that every pixel comes back, and a mean with a fraction."""
    source = fill(work / "in", [picture(12, 16, 1, seed, 65535) for seed in range(7)])
    tpca("fit-basis", source, "-o", work / "b.h5", "--method", "subspace", "--size", "12x16", "--center")
    tpca("encode", source, "-o", target, "--step", 0.0625, "--basis", work / "b.h5", "--force")


def coded(work: Path, target: Path) -> None:
    """Eigentensors that are coded as pictures are."""
    source = fill(work / "in", [picture(20, 24, 3, seed) for seed in range(9)])
    tpca("fit-basis", source, "-o", work / "b.h5", "--method", "subspace", "--size", "20x24", "--all")
    tpca("encode", source, "-o", target, "--components", 7, "--basis", work / "b.h5", "--force")
    with Archive(target) as archive:
        assert archive.groups[0].meta["features"] == ["coded-basis", "model-3"]


def turned(work: Path, target: Path) -> None:
    """Eigentensors that are turned first: each image has its grain in a place of its own."""
    pictures = [np.full((16, 24, 3), 90 + 9 * k, np.uint8) for k in range(6)]
    for k, pixels in enumerate(pictures):
        pixels[8 * (k // 3) :, 8 * (k % 3) :][:8, :8] = picture(8, 8, 3, k)
    source = fill(work / "in", pictures)
    tpca("fit-basis", source, "-o", work / "b.h5", "--method", "subspace", "--size", "16x24", "--all")
    options = ("--components", 5, "--step", 6, "--basis", work / "b.h5", "--force")
    tpca("encode", source, "-o", target, *options, code=3)  # a sixth has no component of its own
    with Archive(target) as archive:
        coded = archive.coder(0).basis.coded
        assert coded is not None and "rotation" in coded.arrays


def tensors(work: Path, target: Path) -> None:
    """Volumes of floats below and above zero, on their grid."""
    (work / "in").mkdir()
    for seed in range(6):
        volume = picture(12, 15, 4, seed).astype(np.float32) / 16 - 5
        np.save(work / "in" / f"{seed}.npy", np.moveaxis(volume, -1, 0))
        (work / "in" / f"{seed}.npy").chmod(0o640)
        os.utime(work / "in" / f"{seed}.npy", ns=(10**18, 10**18))
    tpca("encode", work / "in", "-o", target, "--method", "rank1", "--components", 9, "--force")


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


def records(work: Path, target: Path) -> None:
    """Metadata of every kind, reasons, permissions, and a range of samples below 16 bits."""
    source = fill(work / "in", [picture(24, 24, 1, seed, 65535) // 16 for seed in range(4)])
    tpca("encode", source, "-o", work / "a.h5", "--step", 1, "--tile", 8, "--method", "rank1", "--force")
    kept: list[dict[str, bytes]] = [
        {"xmp": b"<x:xmpmeta/>", "density": b'[300, 300, "inch"]'},
        {"text": b'[["Title", "one"]]', "density": b'[300, 300, "inch"]'},
        {"iptc": b"\x1c\x02\x05\x00\x01a", "png": b"gAMA\0\0\0\4\0\0\xb1\x8f"},
        {},
    ]
    reasons = [(), ("a second picture",), ("a second picture", "a private tag"), ()]
    with Archive(work / "a.h5") as archive:
        old = archive.index
        numbers = ("size", "group", "first", "count", "row", "rows")
        blocks = [
            BlockRecord(*(int(old.blocks[name][k]) for name in numbers), old.blocks["digest"][k].tobytes())
            for k in range(len(old.blocks["size"]))
        ]
        entries = [
            Entry(
                old.names[k], bytes(range(k, k + 16)), 10**18, 1000, 24, 24, "I;16",
                int(old.images["error"][k]),
                exif=b"II*\0", metadata=kept[k], reasons=reasons[k], mode_bits=0o600 + k, peak=4095,
            )
            for k in range(4)
        ]  # fmt: skip
        group = replace(archive.groups[0], meta={**archive.groups[0].meta, "peak": 4095})
        payload = [archive.block_bytes(block) for block in range(len(blocks))]
        write_archive(target, Index.build(entries, blocks), [group], payload, target_asked={"step": 1.0})


ARCHIVES = (
    tile8,
    regions,
    second_model,
    grains,
    whole_grains,
    third_model,
    third_model_plain,
    fast,
    fast_plain,
    bounded_filter,
    learned_filter,
    deeper_filter,
    whole,
    dense,
    coded,
    turned,
    tensors,
    depth16,
    rgba,
    gray_in_color,
    appended,
    records,
    fine,
)
"""Those of version 2; the decoding of pixels is that of version 1, which has more of them."""


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


def described(path: Path) -> list[list[Any]]:
    """What the records say of each image: metadata, reasons, permissions, range of the samples."""
    with Archive(path) as archive:
        index = archive.index
        return [
            [
                {kind: blob.hex() for kind, blob in archive.metadata(k).items()},
                list(index.missing_reasons(k)),
                index.mode_bits(k),
                int(index.images["peak"][k]),
            ]
            for k in range(len(archive))
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
        if make is records:
            pixels[target.name]["records"] = described(target)
        print(target.name, target.stat().st_size, "bytes")
    record.write_text(json.dumps(pixels, indent=1) + "\n")


if __name__ == "__main__":
    main()
