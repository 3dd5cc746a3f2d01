"""Train the models of exact coding on folders of images: `make priors-exact DATA="folder folder"`.

The JPEG model sees every second JPEG file of the folders, and some of them saved again at other qualities and
samplings of color. The model of pixels sees every second image, reduced so that little of what JPEG did to it
is left, large ones and thumbnails. The files that are left out are for measuring (`make bench-exact`).

Archives need the models that they were made with: once released, raise `MODEL` and keep the old files.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tpca_cli.exact import jpeg, pixels, priors  # noqa: E402
from tpca_cli.interfaces import Pixels  # noqa: E402

TRAINED = ROOT / "tpca_cli" / "exact" / "trained"
MOST_BYTES = 6_000_000  # of JPEG files from one folder
MOST_PIXELS = 3_000_000
QUALITIES, SAMPLINGS = (50, 75, 85, 90, 95), (0, 1, 2)
THUMBNAIL = 64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    folders = parser.parse_args().folders
    rng = random.Random(1)
    files = [data for folder in folders for data in jpeg_files(chosen(folder, rng), rng)]
    rng.shuffle(files)
    write(jpeg.MODEL, jpeg.learned_from(files))
    pictures = [picture for folder in folders for picture in reduced(chosen(folder, rng))]
    rng.shuffle(pictures)
    write(pixels.MODEL, pixels.learned_from(pictures, 255))
    return 0


def chosen(folder: Path, rng: random.Random) -> list[Path]:
    """Every second image of a folder, in random order."""
    endings = (".jpg", ".jpeg", ".png")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in endings)[::2]
    rng.shuffle(found)
    return found


def jpeg_files(paths: list[Path], rng: random.Random) -> Iterator[bytes]:
    """Files as they are, and every sixth again in another quality."""
    left = MOST_BYTES
    for number, path in enumerate(paths):
        data = path.read_bytes()
        if data[:2] != b"\xff\xd8" or left < 0:
            continue
        left -= len(data)
        yield data
        if number % 6 == 0:
            image = Image.open(path)
            mode = rng.choice(["RGB", "RGB", "L"])
            small = image.convert(mode).resize((max(image.width // 2, 8), max(image.height // 2, 8)))
            again = io.BytesIO()
            small.save(again, "JPEG", quality=rng.choice(QUALITIES), subsampling=rng.choice(SAMPLINGS))
            yield again.getvalue()


def reduced(paths: list[Path]) -> Iterator[Pixels]:
    """Images at two thirds of their size, and as thumbnails."""
    left = MOST_PIXELS
    for number, path in enumerate(paths):
        image = Image.open(path).convert("RGB")
        size = (image.width * 2 // 3, image.height * 2 // 3)
        if number % 4 or min(size) < THUMBNAIL:
            size = (min(THUMBNAIL, image.width), min(THUMBNAIL, image.height))
        left -= size[0] * size[1]
        if left < 0:
            return
        yield np.asarray(image.resize(size, Image.Resampling.LANCZOS))


def write(model: priors.Model, state: priors.Bytes) -> None:
    TRAINED.mkdir(exist_ok=True)
    data, moved = model.packed(state), np.count_nonzero(state[1 : 2 * model.counters : 2])
    (TRAINED / f"{model.name}-{priors.MODEL}.xz").write_bytes(data)
    print(f"{model.name}: {len(data):,} bytes, {moved:,} counters moved")


if __name__ == "__main__":
    sys.exit(main())
