"""Pictures for tests: arrays with natural statistics, and files of every kind that a folder may hold."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[Any]


def natural(
    height: int = 24, width: int = 32, channels: int = 3, seed: int = 0, dtype: Any = np.uint8
) -> Pixels:
    """Shading, one edge and some grain, (h, w, c) over the whole range of the dtype."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)  # (h, w)
    planes = []
    for _ in range(channels):
        a, b, c, d = rng.uniform(-1, 1, 4)
        plane = a * x + b * y + 0.5 * np.sin(6 * (c * x + d * y)) + 0.4 * (x * d > y * c)
        planes.append(plane + rng.normal(0, 0.02, plane.shape))
    stack = np.stack(planes, axis=-1)  # (h, w, c)
    low, high = stack.min(), stack.max()
    scaled: Pixels = ((stack - low) / max(high - low, 1e-9) * np.iinfo(dtype).max).astype(dtype)
    return scaled


def noise(height: int, width: int, channels: int = 3, seed: int = 0, dtype: Any = np.uint8) -> Pixels:
    """Independent uniform samples, (h, w, c): nothing to predict, every value used."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, np.iinfo(dtype).max, (height, width, channels), dtype=dtype, endpoint=True)


def save(path: Path, pixels: Pixels, **options: Any) -> Path:
    """Write (h, w, c) pixels in the format of the suffix; channels and dtype give the mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    image.save(path, **options)
    return path


def folder(
    root: Path,
    count: int,
    *,
    sizes: Sequence[tuple[int, int]] = ((24, 32),),
    channels: Sequence[int] = (3,),
    suffix: str = ".png",
    seed: int = 0,
    dtype: Any = np.uint8,
) -> list[Path]:
    """A folder of `count` pictures that take the given sizes and channel counts in turn."""
    paths = []
    for i in range(count):
        height, width = sizes[i % len(sizes)]
        pixels = natural(height, width, channels[i % len(channels)], seed + i, dtype)
        paths.append(save(root / f"image_{i:04d}{suffix}", pixels))
    return paths


def save_mode(path: Path, mode: str, height: int = 9, width: int = 13, seed: int = 0, **options: Any) -> Path:
    """Write a picture of any of Pillow's modes, by converting an RGB one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(noise(height, width, 3, seed))
    if mode in ("I", "F"):
        image = image.convert("L").convert(mode)
    elif mode == "LAB":
        from PIL import ImageCms

        profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
        converted = ImageCms.profileToProfile(image, *profiles, outputMode="LAB")
        assert converted is not None
        image = converted
    else:
        image = image.convert(mode)
    image.save(path, **options)
    return path


def save_frames(path: Path, frames: Sequence[Pixels], **options: Any) -> Path:
    """Write several frames into one GIF, PNG, WebP or TIFF."""
    first, *rest = [Image.fromarray(frame) for frame in frames]
    first.save(path, save_all=True, append_images=rest, **options)
    return path


def png_bytes(
    height: int,
    width: int,
    depth: int,
    color: int,
    rows: bytes = b"",
    extra: Sequence[tuple[bytes, bytes]] = (),
) -> bytes:
    """A PNG put together by hand: any header, the raw filtered rows, chunks before the pixels."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    chunks = [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def save_png16_rgb(path: Path, height: int = 4, width: int = 5) -> Path:
    """A 16-bit RGB PNG, which Pillow can read (as 8 bits) but not write."""
    rows = b"".join(b"\0" + bytes(range(6 * width)) for _ in range(height))
    path.write_bytes(png_bytes(height, width, 16, 2, rows))
    return path


def png16(pixels: Pixels, **more: Any) -> bytes:
    """A PNG of (h, w, 2 to 4) samples with 16 bits, put together by hand."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + line.astype(">u2").tobytes() for line in pixels)
    return png_bytes(height, width, 16, {2: 4, 3: 2, 4: 6}[channels], rows, **more)


def oddities(root: Path) -> dict[str, Path]:
    """A folder with one of each: pictures of every kind, and files that no decoder reads; by name."""
    for seed in range(3):
        save(root / "photos" / f"p{seed}.jpg", natural(40 + seed, 56, seed=seed), quality=80)
        save(root / f"n{seed}.png", natural(30, 40, seed=seed))
    save(root / "progressive.JPG", natural(90, 70), progressive=True)
    save(root / "gray.jpg", natural(33, 44, 1))
    save(root / "alpha.png", natural(20, 30, 4))
    save(root / "deep.png", natural(20, 30, 1, dtype=np.uint16))
    save(root / "plain.bmp", natural(25, 35))
    save(root / "lossy.webp", natural(25, 35), quality=40)
    save(root / "page.tif", natural(25, 35))
    for channels, name in ((2, "deep gray.png"), (3, "deep color.png"), (4, "deep alpha.png")):
        (root / name).write_bytes(png16(natural(21, 30, channels, dtype=np.uint16)))
    for mode, name in (("P", "palette.png"), ("1", "bits.png"), ("CMYK", "print.jpg"), ("F", "float.tif")):
        save_mode(root / name, mode)
    save_frames(root / "film.gif", [natural(seed=k) for k in range(3)], duration=40)
    whole = (root / "gray.jpg").read_bytes()
    (root / "cut.jpg").write_bytes(whole[:-300])
    (root / "trailing.jpg").write_bytes(whole + b"more")
    (root / "misnamed.jpg").write_bytes((root / "n0.png").read_bytes())
    (root / "page.png").write_bytes(b"<html>")
    (root / "bomb.png").write_bytes(png_bytes(65000, 65000, 8, 2))
    (root / "drawing.svg").write_bytes(b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    return {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
