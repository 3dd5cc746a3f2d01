"""Make the golden archive of exact groups: `python tests/golden/make_exact.py`.

It is made once and read by every later version: files come back bit for bit, pixels exactly.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

from command import tpca
from golden.scenes import noise, picture

from tpca_cli import Archive

HOME = Path(__file__).parent / "exact"
FIRST = Path(__file__).parent / "exact_1"
"""Archives of the first models, which nothing writes any more."""


def fill(root: Path) -> None:
    """JPEG files of several kinds, pictures for prediction, and files that stay what they are."""
    root.mkdir()
    for number, options in enumerate(({}, {"progressive": True}, {"subsampling": 0}, {"optimize": True})):
        Image.fromarray(picture(40, 56, 3, number)).save(root / f"{number}.jpg", quality=80, **options)
    Image.fromarray(picture(33, 20, 1, 5)[:, :, 0]).save(root / "gray.jpg")
    (root / "cut.jpg").write_bytes((root / "0.jpg").read_bytes()[:-60])
    for number in range(3):
        Image.fromarray(picture(24, 30, 3, 10 + number)).save(root / f"p{number}.png")
    Image.fromarray(picture(20, 20, 4, 20)).save(root / "alpha.png")
    Image.fromarray(picture(20, 20, 1, 21, 65535)[:, :, 0]).save(root / "deep.png")
    Image.fromarray(picture(20, 20, 1, 23)[:, :, 0].astype(np.uint16) * 99).save(root / "gaps.png")
    Image.fromarray(noise(8, 8, 3, 22)).save(root / "noise.png")


def digests(path: Path) -> list[list[object]]:
    """Name, what is kept, and the digest of the file or of the pixels."""
    found: list[list[object]] = []
    with Archive(path) as archive:
        for position, name in enumerate(archive.names):
            data = archive.file(position)
            pixels = data if data is not None else np.ascontiguousarray(archive[position]).tobytes()
            found.append([name, "file" if data is not None else "pixels", hashlib.sha256(pixels).hexdigest()])
    return found


def main() -> None:
    HOME.mkdir(exist_ok=True)
    for name, options in (("exact.h5", ("--exact",)), ("near.h5", ("--max-error", 2))):
        if (HOME / name).exists():
            continue
        with tempfile.TemporaryDirectory() as work:
            fill(Path(work) / "in")
            tpca("encode", Path(work) / "in", "-o", HOME / name, *options, "--force", code=None)
    found = {path.name: digests(path) for path in sorted(HOME.glob("*.h5"))}
    out = io.StringIO()
    json.dump(found, out, indent=1)
    (HOME / "digests.json").write_text(out.getvalue() + "\n")


if __name__ == "__main__":
    main()
