"""A page to look at: crops of an archive beside AVIF, JPEG XL, WebP and the originals, at equal bytes.

    python tests/benchmarks/look.py FOLDER [-o build/look.html] [--quality 60] [--limit 6] [--crop 160]

All pictures go into one archive at the quality. Each codec then gets for each picture the setting whose file
is nearest to that picture's share of the archive. Shown are, of each picture, the quietest, the busiest and
the most colorful place, each pixel twice as large, with bytes and SSIMULACRA 2 of the whole picture below.
"""

from __future__ import annotations

import argparse
import base64
import html
import io
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from curves import CONTESTANTS
from rd import load
from rd_codecs import Codec, Pixels, compress, expand, mode_of, to_image

from tpca_cli import Archive
from tpca_cli.visual import score

SHOWN = {"avif420": "AVIF", "jxl": "JPEG XL", "webp": "WebP"}
STYLE = (
    "body{font:14px sans-serif;margin:1em;background:#777;color:#000}figure{display:inline-block;margin:2px}"
    "img{image-rendering:pixelated;display:block}h2{margin:1em 0 0}figcaption{background:#eee;padding:2px}"
)


def places(picture: Pixels, side: int) -> list[tuple[int, int]]:
    """Corners of the quietest, the busiest and the most colorful crop, of a grid of half a crop."""
    h, w = picture.shape[:2]
    planes = picture[..., :3].astype(np.float64)
    bright = planes.mean(axis=2)
    corners = [
        (row, column)
        for row in range(0, max(h - side, 0) + 1, max(side // 2, 1))
        for column in range(0, max(w - side, 0) + 1, max(side // 2, 1))
    ]

    def crops(values: Pixels) -> list[Pixels]:
        return [values[row : row + side, column : column + side] for row, column in corners]

    busy = [float(np.abs(np.diff(part, axis=1)).mean()) for part in crops(bright)]
    color = [float((part.max(axis=2) - part.min(axis=2)).mean()) for part in crops(planes)]
    chosen = [int(np.argmin(busy)), int(np.argmax(busy)), int(np.argmax(color))]
    return [corners[k] for k in dict.fromkeys(chosen)]


def nearest(codec: Codec, picture: Pixels, wanted: float) -> tuple[int, Pixels]:
    """The file of a codec whose size is nearest to the wanted one, and what comes back from it."""
    low, high = codec.low, codec.high
    while high - low > 1:
        middle = (low + high) // 2
        if len(compress(codec, middle, picture)) < wanted:
            low = middle
        else:
            high = middle
    files = [compress(codec, quality, picture) for quality in (low, high)]
    data = min(files, key=lambda file: abs(len(file) - wanted))
    return len(data), expand(data, picture)


def shares(archive: Archive) -> list[float]:
    """The bytes of each image: its part of the blocks, and an equal part of all else."""
    from tpca_cli.report.describe import image_list

    own = [float(image["bytes"]) for image in image_list(archive)]
    rest = archive.info()["archive_bytes"] - sum(own)
    return [size + rest / len(own) for size in own]


def figure(picture: Pixels, corner: tuple[int, int], side: int, caption: str) -> str:
    """A crop as part of the page."""
    row, column = corner
    crop = to_image(np.ascontiguousarray(picture[row : row + side, column : column + side]))
    buffer = io.BytesIO()
    crop.save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    size = f'width="{2 * crop.width}" height="{2 * crop.height}"'
    text = html.escape(caption)
    image = f'<img {size} alt="{text}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def page(pictures: Sequence[Pixels], quality: float, side: int) -> str:
    """The whole page."""
    parts = [f"<!doctype html><meta charset=utf-8><title>Crops at equal bytes</title><style>{STYLE}</style>"]
    parts.append(f"<h1>Crops at equal bytes, tpca at a quality of {quality:g}</h1>")
    codecs = [codec for codec, _ in CONTESTANTS if codec.name in SHOWN]
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "in", Path(folder) / "a.h5"
        source.mkdir()
        for k, picture in enumerate(pictures):
            to_image(picture).save(source / f"{k:06d}.png")
        command = ["encode", str(source), "-o", str(path), "--quality", str(quality), "--force", "--quiet"]
        subprocess.run([sys.executable, "-m", "tpca_cli", *command], check=False)  # 3: some lost detail
        with Archive(path) as archive:
            decoded = [archive[f"{k:06d}.png"] for k in range(len(pictures))]
            sizes = shares(archive)
    for k, (picture, back, size) in enumerate(zip(pictures, decoded, sizes, strict=True)):
        columns = [("original", picture), (f"tpca, {size:,.0f} B, {score(picture, back):.1f}", back)]
        for codec in codecs:
            if mode_of(picture) in codec.modes:
                taken, theirs = nearest(codec, picture, size)
                name = f"{SHOWN[codec.name]}, {taken:,} B, {score(picture, theirs):.1f}"
                columns.append((name, theirs))
        parts.append(f"<h2>picture {k + 1}</h2>")
        for corner in places(picture, side):
            shown = "".join(figure(pixels, corner, side, caption) for caption, pixels in columns)
            parts.append(f"<div>{shown}</div>")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/look.html"))
    parser.add_argument("--quality", type=float, default=60)
    parser.add_argument("--limit", type=int, default=6)
    parser.add_argument("--crop", type=int, default=160)
    asked = parser.parse_args()
    pictures = load(asked.folder, None, asked.limit)
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    asked.output.write_text(page(pictures, asked.quality, asked.crop))
    print(f"{len(pictures)} pictures: {asked.output}")


if __name__ == "__main__":
    main()
