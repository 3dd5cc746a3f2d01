"""Exact archives beside what else gives the same back: `make bench-exact DATA=folder`.

JPEG files: the archive beside JPEG XL's transcoding, Lepton, and all files as one tar under Zstandard -19.
With --size, or where files are not JPEG: pixels, beside PNG (optimised), WebP lossless and JPEG XL lossless,
in bits per pixel. Everything that a file needs is counted, the archive with its index. Speeds are of CPU time
of one core, both ways.
"""

from __future__ import annotations

import argparse
import io
import os
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

Row = tuple[str, int, float, float]  # name, bytes, seconds of CPU to encode and to decode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=200, help="so many files, evenly spaced")
    parser.add_argument("--size", help="HxW: pixels of this size instead of files")
    parser.add_argument("--max-error", type=int, default=0, help="also every sample within this")
    arguments = parser.parse_args()
    paths = sorted(p for p in arguments.folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    paths = paths[:: max(len(paths) // arguments.limit, 1)][: arguments.limit]
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "in"
        source.mkdir()
        if arguments.size or paths[0].suffix.lower() == ".png":
            pictures = write_pixels(paths, source, arguments.size)
            show_pixels(pictures, [archive(source, Path(work), "tpca"), *pixel_codecs(pictures)])
            if arguments.max_error:
                show_pixels(pictures, near(source, Path(work), pictures, arguments.max_error))
        else:
            for number, path in enumerate(paths):
                (source / f"{number:05}.jpg").write_bytes(path.read_bytes())
            files = [path.read_bytes() for path in sorted(source.iterdir())]
            show_files(files, [archive(source, Path(work), "tpca"), *file_codecs(files, source)])


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


def near(source: Path, work: Path, pictures: list[np.ndarray], most: int) -> list[Row]:
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
    for effort in (7, 9):
        found.append(
            coded(
                f"JPEG XL e{effort}",
                pictures,
                lambda p, effort=effort: imagecodecs.jpegxl_encode(p, lossless=True, effort=effort),
                imagecodecs.jpegxl_decode,
            )
        )
    return found


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
