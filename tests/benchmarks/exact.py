"""Exact archives beside what else gives the same back: `make bench-exact DATA=folder`.

The folder is a set of images, or holds several. Sets of JPEG files: the archive beside JPEG XL's transcoding,
Lepton, and all files as one tar under Zstandard -19; then their pixels at 64x64. Sets of PNG files: pixels,
beside PNG (optimised), WebP lossless and JPEG XL lossless, in bits per pixel, and within 2 beside JPEG-LS.
Any other set, and damaged JPEG files made from the last one: what comes back of each file. Everything that a
file needs is counted, the archive with its index. Speeds are of CPU time of one core, both ways, without the
start of the program; encoding decodes everything again to compare it.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import resource
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import imagecodecs
import lepton_jpeg_python as lepton
import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from command import tpca

SMALL = 1 << 13
"""Bytes of a file of which there are ten times as many."""
Row = tuple[str, int, float, float]  # name, bytes, seconds of CPU to encode and to decode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=200, help="so many files of a set, evenly spaced")
    parser.add_argument("--size", help="HxW: pixels of this size instead of files")
    parser.add_argument("--mutated", type=int, default=1000, help="so many damaged JPEG files")
    arguments = parser.parse_args()
    start()
    if arguments.size:
        pixel_set(arguments.folder, arguments.limit, arguments.size)
        return
    jpegs = []
    for folder in sets_of(arguments.folder):
        files = images_of(folder)
        kinds = {path.suffix.lower() for path in files}
        print(f"\n## {folder.name}\n", flush=True)
        if kinds <= {".jpg", ".jpeg"}:
            jpegs.append(folder)
            file_set(folder, arguments.limit)
            pixel_set(folder, arguments.limit, "64x64")
        elif kinds == {".png"} and not any(path.is_dir() for path in folder.iterdir()):
            pixel_set(folder, arguments.limit, None, near=2)
        else:
            whole_folder(folder)
            deep = [path for path in files if is_depth_map(path)]
            if deep:
                pixel_set(deep, arguments.limit, None)
    print("\n## microscopy of 12 bits in 16, synthetic\n")
    with tempfile.TemporaryDirectory() as work:
        pixel_set(microscopy(Path(work)), 8, None)
    if jpegs:
        print(f"\n## {arguments.mutated} damaged JPEG files\n")
        with tempfile.TemporaryDirectory() as work:
            whole_folder(mutated(jpegs[-1], arguments.mutated, Path(work) / "in"))


def start() -> None:
    """Load and compile everything once, on two small pictures: no part of what speeds are of."""
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "in"
        source.mkdir()
        for name in ("a.jpg", "b.png"):
            Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(source / name)
        archive(source, Path(work), "tpca")
    print(f"start of the program: {time.process_time() - begun:.1f} s of CPU", flush=True)


def sets_of(folder: Path) -> list[Path]:
    """The folder, or those in it where it holds several sets and no images of its own."""
    inside = sorted(path for path in folder.iterdir() if path.is_dir())
    several = len(inside) > 1 and not any(path.is_file() and is_image(path) for path in folder.iterdir())
    deeper = any(path.is_dir() for each in inside for path in each.iterdir())
    return inside if several and deeper else [folder]


def is_image(path: Path) -> bool:
    return path.suffix.lower() in (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".gif", ".webp")


def is_depth_map(path: Path) -> bool:
    """A PNG of gray with 16 bits, larger than an icon."""
    head = path.read_bytes()[:26]
    return head[:4] == b"\x89PNG" and head[24:] == b"\x10\0" and path.stat().st_size > 1 << 15


def images_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and is_image(path))


def spread(paths: list[Path], limit: int) -> list[Path]:
    """Evenly spaced over a list; an odd stride meets files that a training on every second one left out."""
    stride = max(len(paths) // limit, 1)
    return paths[1 :: stride + (stride % 2 == 0)][:limit] if stride > 1 else paths[:limit]


def file_set(folder: Path, limit: int) -> None:
    """JPEG files, beside what gives the same files back."""
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "in"
        source.mkdir()
        paths = images_of(folder)
        if sum(path.stat().st_size for path in paths[:64]) < 64 * SMALL:  # many share an index
            limit *= 10
        for number, path in enumerate(spread(paths, limit)):
            (source / f"{number:05}.jpg").write_bytes(path.read_bytes())
        files = [path.read_bytes() for path in sorted(source.iterdir())]
        rows = [archive(source, Path(work), "tpca"), *file_codecs(files, source)]
        show_files(files, rows)
        back = [path.read_bytes() for path in sorted((Path(work) / "tpca-out").iterdir())]
        print(f"{sum(a == b for a, b in zip(files, back, strict=True))} of {len(files)} byte-identical")


def pixel_set(folder: Path | list[Path], limit: int, size: str | None, near: int = 0) -> None:
    """Pixels, beside what holds the same; with `near`, also every sample within this."""
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "in"
        source.mkdir()
        paths = folder if isinstance(folder, list) else images_of(folder)
        pictures = write_pixels(spread(paths, limit), source, size)
        if size:
            print(f"\nat {size}:")
        show_pixels(pictures, [archive(source, Path(work), "tpca"), *pixel_codecs(pictures)])
        out = [np.asarray(Image.open(path)) for path in sorted((Path(work) / "tpca-out").iterdir())]
        same = sum(np.array_equal(a, b) for a, b in zip(pictures, out, strict=True))
        print(f"{same} of {len(pictures)} pixel-identical\n")
        if near:
            show_pixels(pictures, near_lossless(source, Path(work), pictures, near))


def whole_folder(folder: Path) -> None:
    """A folder as it is: what comes back of each file, and what is kept as it was."""
    with tempfile.TemporaryDirectory() as work:
        target = Path(work) / "a.h5"
        made = tpca("encode", folder, "-o", target, "--exact", "--json", code=None).json
        found = tpca("verify", target, "--against", folder, "--decode", "--json", code=None).json["against"]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"{found['sources']} files: {found['identical_files']} byte-identical ({len(made['raw'])} of "
            f"them kept raw and listed), {found['identical_pixels']} pixel-identical, "
            f"{len(found['failed'])} not safe, {len(made['skipped'])} skipped; "
            f"{made['archive_bytes'] / made['source_bytes']:.4f} of the "
            f"files; peak of this process {peak >> 10} MB\n"
        )


def microscopy(folder: Path) -> Path:
    """Cells on a dark ground under shot noise, as a camera of 12 bits sees them."""
    rng = np.random.default_rng(5)
    y, x = np.mgrid[0:256, 0:256]
    for number in range(8):
        light = np.full((256, 256), 90.0)
        for _ in range(40):
            at, width, height = rng.uniform(0, 256, 2), rng.uniform(3, 12), rng.gamma(2, 150)
            light += height * np.exp(-((y - at[0]) ** 2 + (x - at[1]) ** 2) / (2 * width**2))
        counts = rng.poisson(light) + rng.normal(0, 4, light.shape)
        Image.fromarray(np.clip(counts, 0, 4095).astype(np.uint16)).save(folder / f"{number}.png")
    return folder


def mutated(folder: Path, count: int, out: Path) -> Path:
    """JPEG files with a few bytes changed, cut or put in, anywhere."""
    out.mkdir()
    rng = np.random.default_rng(7)
    for number, path in enumerate(itertools.islice(itertools.cycle(images_of(folder)), count)):
        data = bytearray(path.read_bytes())
        for _ in range(int(rng.integers(1, 5))):
            at, kind = int(rng.integers(2, len(data))), int(rng.integers(0, 4))
            if kind < 2:
                data[at] = int(rng.integers(0, 256))
            elif kind == 2:
                del data[at : at + int(rng.integers(1, 40))]
            else:
                data[at:at] = rng.bytes(int(rng.integers(1, 8)))
        (out / f"{number:05}.jpg").write_bytes(data)
    return out


def write_pixels(paths: list[Path], folder: Path, size: str | None) -> list[np.ndarray]:
    """The images as PNG, resized if asked for."""
    pictures = []
    for number, path in enumerate(paths):
        image = Image.open(path)
        image = image if image.mode.startswith("I") else image.convert("RGB")
        if size:
            height, width = map(int, size.split("x"))
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        image.save(folder / f"{number:05}.png")
        pictures.append(np.asarray(image))
    return pictures


def archive(source: Path, work: Path, name: str, *options: object) -> Row:
    """The commands, with one worker."""
    target, out = work / f"{name}.h5", work / f"{name}-out"
    start = time.process_time()
    tpca("encode", source, "-o", target, *(options or ("--exact",)), "--workers", 1)
    middle = time.process_time()
    tpca("decode", target, "-o", out, "--workers", 1)
    return name, os.stat(target).st_size, middle - start, time.process_time() - middle


def near_lossless(source: Path, work: Path, pictures: list[np.ndarray], most: int) -> list[Row]:
    """Every sample within `most`, held to it by Pillow and numpy alone."""
    row = archive(source, work, f"tpca --max-error {most}", "--max-error", most)
    worst = 0
    for path, picture in zip(sorted(source.iterdir()), pictures, strict=True):
        back = np.asarray(Image.open(work / f"{row[0]}-out" / path.name)).astype(int)
        worst = max(worst, int(np.abs(back - picture).max()))
    print(f"\nlargest error of a sample: {worst}")
    return [
        row,
        coded(
            f"JPEG-LS {most}",
            pictures,
            lambda p: imagecodecs.jpegls_encode(p, level=most),
            imagecodecs.jpegls_decode,
        ),
    ]


def coded(name: str, items: list, encode: Callable, decode: Callable) -> Row:
    """One item after another."""
    start = time.process_time()
    data = [bytes(encode(item)) for item in items]
    middle = time.process_time()
    for each in data:
        decode(each)
    return name, sum(map(len, data)), middle - start, time.process_time() - middle


def pixel_codecs(pictures: list[np.ndarray]) -> list[Row]:
    """What holds the same pixels."""
    found = [coded("PNG", pictures, png, imagecodecs.png_decode)]
    if pictures[0].dtype == np.uint8 and pictures[0].ndim == 3:
        found.append(
            coded(
                "WebP", pictures, lambda p: imagecodecs.webp_encode(p, lossless=True), imagecodecs.webp_decode
            )
        )
    return [
        *found,
        coded(
            "JPEG XL e7",
            pictures,
            lambda p: imagecodecs.jpegxl_encode(p, lossless=True, effort=7),
            imagecodecs.jpegxl_decode,
        ),
        coded(
            "pixels, zstd -19",
            [b"".join(picture.tobytes() for picture in pictures)],
            lambda f: imagecodecs.zstd_encode(f, level=19),
            imagecodecs.zstd_decode,
        ),
    ]


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", optimize=True)
    return out.getvalue()


def file_codecs(files: list[bytes], source: Path) -> list[Row]:
    """What gives the same files back."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(source, arcname="in")
    return [
        coded("Lepton", files, lepton.compress_bytes, lepton.decompress_bytes),
        coded(
            "JPEG XL", files, lambda f: imagecodecs.jpegxl_encode_jpeg(f, usecontainer=True), lambda _: b""
        ),
        coded(
            "tar, zstd -19",
            [packed.getvalue()],
            lambda f: imagecodecs.zstd_encode(f, level=19),
            imagecodecs.zstd_decode,
        ),
    ]


def show_files(files: list[bytes], rows: list[Row]) -> None:
    total = sum(map(len, files))
    print(f"{len(files)} JPEG files, {total:,} bytes\n")
    print(f"{'':22} {'of the files':>12} {'encode':>10} {'decode':>10}")
    for name, size, encode, decode in rows:
        back = f"{total / 1e6 / decode:5.1f} MB/s" if decode > 1e-3 else ""
        print(f"{name:22} {size / total:12.4f} {total / 1e6 / encode:5.1f} MB/s {back:>10}")


def show_pixels(pictures: list[np.ndarray], rows: list[Row]) -> None:
    pixels, total = sum(p.shape[0] * p.shape[1] for p in pictures), sum(p.nbytes for p in pictures)
    print(f"{len(pictures)} images, {total:,} bytes\n")
    print(f"{'':22} {'bits a pixel':>12} {'encode':>10} {'decode':>10}")
    for name, size, encode, decode in rows:
        speeds = " ".join(f"{total / 1e6 / seconds:5.1f} MB/s" for seconds in (encode, decode))
        print(f"{name:22} {8 * size / pixels:12.4f} {speeds}")


if __name__ == "__main__":
    main()
