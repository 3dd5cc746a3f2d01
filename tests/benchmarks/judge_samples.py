"""Is anything called safe to delete that loses something? Sample files, judged by ExifTool and by pixels.

    python tests/benchmarks/judge_samples.py FOLDER [--work build/samples]

Encodes the folder, asks `tpca verify --against --decode` which files are safe, restores everything as PNG,
and compares every safe file with what came back: its size, channels and pixels as Pillow reads them, and
every tag that ExifTool finds. How a file was stored (docs/RELIABILITY.md) does not count. Needs `exiftool`;
sample files are those of Pillow (Tests/images) and ExifTool (t/images). What is lost is printed, with exit 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from tpca_cli import Archive
from tpca_cli.decode.plan import plan

FLOOR = 20.0  # dB below which a picture is another one

# Families of tags that say how a file was stored, or what ExifTool concludes.
STORED = {"System", "File", "ExifTool", "Composite", "BMP", "GIF", "ICC-header", "PPM", "PCX", "TGA", "JFIF"}
STORED |= {"RIFF", "Adobe", "QuickTime", "Meta", "Track1"}
# Tags of the container and of the codec; those of a PNG say what it has itself.
STRUCTURE = {
    "ImageWidth", "ImageHeight", "ImageLength", "BitDepth", "BitsPerSample", "ColorType", "Compression",
    "Filter", "Interlace", "Palette", "Transparency", "PhotometricInterpretation", "SamplesPerPixel",
    "RowsPerStrip",
    "StripOffsets", "StripByteCounts", "TileOffsets", "TileByteCounts", "TileWidth", "TileLength",
    "PlanarConfiguration", "Predictor", "FillOrder", "ExtraSamples", "SubfileType", "ColorMap", "JPEGTables",
    "YCbCrSubSampling", "YCbCrPositioning", "YCbCrCoefficients", "ReferenceBlackWhite", "SampleFormat",
    "Orientation", "ProfileName", "BackgroundColor", "SignificantBits", "ThumbnailOffset",
    "ThumbnailLength", "PreviewImageStart", "ExifByteOrder", "XMPToolkit", "T4Options", "T6Options",
    "PageNumber", "IPTCDigest",
}  # fmt: skip

# What video codecs say of colors: sRGB, and what is not said, come back as sRGB.
COLORS = {"ColorPrimaries": ("1", "2"), "TransferCharacteristics": ("1", "2", "6", "13")}

DENSITY = ("PixelsPerUnitX", "PixelsPerUnitY", "PixelUnits")  # without a unit they say: square pixels


def tpca(*words: object, codes: tuple[int, ...] = (0, 3)) -> bytes:
    """What a command prints."""
    done = subprocess.run([sys.executable, "-m", "tpca_cli", *map(str, words)], stdout=subprocess.PIPE)
    if done.returncode not in codes:
        raise SystemExit(f"tpca {words[0]} ended with {done.returncode}")
    return done.stdout


def tags(files: list[Path], work: Path) -> dict[Path, dict[str, Any]]:
    """Every tag of every file, by `Group:Name`."""
    listing = work / "files.txt"
    listing.write_bytes(b"\n".join(os.fsencode(file.resolve()) for file in files) + b"\n")
    words = ["exiftool", "-j", "-G1", "-a", "-u", "-n", "-charset", "filename=utf8", "-@", str(listing)]
    found = json.loads(subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    return {Path(each["SourceFile"]): each for each in found}


def meaning(found: dict[str, Any]) -> Counter[tuple[str, str]]:
    """Tags with their values, without what says how a file was stored; families of texts count as one."""
    kept: Counter[tuple[str, str]] = Counter()
    x, y, unit = (found.get(f"PNG-pHYs:{tag}") for tag in DENSITY)
    square = x == y and unit == 0
    for name, value in found.items():
        family, _, tag = name.rpartition(":")
        if tag in COLORS and str(value) not in COLORS[tag]:
            kept[tag, str(value)] += 1
        if square and tag in DENSITY:
            continue
        if family in STORED or tag in STRUCTURE or tag in COLORS or not family:
            continue
        text = json.dumps(value) if isinstance(value, (list, dict)) else str(value).strip("\0 \t\r\n")
        kept[tag, text] += 1
    return kept


def picture(path: Path) -> Any:
    """The first picture upright, as Pillow reads it, with its own channels."""
    with Image.open(path) as opened:
        try:
            upright = ImageOps.exif_transpose(opened)
        except Exception:  # EXIF that Pillow does not understand turns nothing
            upright = opened
        mode = upright.mode
        if mode in ("P", "PA") or "transparency" in upright.info:
            clear = mode == "PA" or "transparency" in upright.info
            gray = mode in ("1", "L", "LA")
            upright = upright.convert(("LA" if gray else "RGBA") if clear else "RGB")
        elif mode in ("1", "CMYK", "YCbCr", "LAB", "HSV", "RGBX"):
            upright = upright.convert("L" if mode == "1" else "RGB")
        return np.atleast_3d(np.asarray(upright)).astype(np.float64)


def pixels_lost(source: Path, restored: Path) -> str:
    """What is different about the pictures, if anything is."""
    try:
        one = picture(source)
    except Exception as error:  # Pillow's own plugins raise anything
        return f"Pillow cannot read it: {type(error).__name__}"
    other = picture(restored)
    if one.shape[:2] != other.shape[:2]:
        return f"{one.shape} came back as {other.shape}"
    if one.shape[2] > other.shape[2] and np.ptp(one[..., -1]) == 0 and one.shape[2] in (2, 4):
        one = one[..., :-1]  # alpha that is the same everywhere
    if one.shape[2] != other.shape[2]:
        means = one.mean(axis=2, keepdims=True), other.mean(axis=2, keepdims=True)
        if np.abs(one - means[0]).max() + np.abs(other - means[1]).max() > 0:
            return f"{one.shape[2]} channels came back as {other.shape[2]}"
        one, other = means
    peak = max(float(one.max()), 255.0)
    error = float(((one - other) ** 2).mean())
    reached = 10 * np.log10(peak**2 / error) if error else np.inf
    return "" if reached >= FLOOR else f"{reached:.1f} dB"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=Path, default=Path("build/samples"))
    given = parser.parse_args()
    work, archive = given.work, given.work / "a.h5"
    work.mkdir(parents=True, exist_ok=True)
    if not archive.exists():
        tpca("encode", given.folder, "-o", archive)
    listed = tpca("verify", archive, "--against", given.folder, "--decode", "--print0-verified")
    safe = {Path(os.fsdecode(name)).resolve() for name in listed.split(b"\0") if name}
    tpca("decode", archive, "-o", work / "out", "--force")
    with Archive(archive) as opened:
        count = len(opened)
        restored = {
            (given.folder / os.fsdecode(opened.names_bytes[each.position])).resolve(): work
            / "out"
            / os.fsdecode(each.name)
            for each in plan(opened, range(count), "png")
        }
    missing = safe - set(restored)
    pairs = [(source, restored[source]) for source in sorted(safe - missing)]
    before, after = tags([a for a, _ in pairs], work), tags([b for _, b in pairs], work)
    losses = 0
    for source, back in pairs:
        lost = meaning(before.get(source, {})) - meaning(after.get(back.resolve(), {}))
        reasons = [pixels_lost(source, back)] + [f"{tag} = {value[:60]}" for tag, value in lost]
        reasons = [reason for reason in reasons if reason]
        if reasons:
            losses += 1
            print(source.relative_to(given.folder.resolve()), *reasons, sep="\n    ")
    print(f"{count} images, {len(safe)} called safe, {len(missing)} not found, {losses} to look at")
    return int(bool(losses or missing))


if __name__ == "__main__":
    sys.exit(main())
