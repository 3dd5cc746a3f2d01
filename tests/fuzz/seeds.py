"""Makes the inputs that the fuzzers start from: `python tests/fuzz/seeds.py` writes `corpus/`."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from pictures import folder, natural

from tpca_cli.archive.reader import Archive
from tpca_cli.cli.main import main
from tpca_cli.store.columns import join_blobs

HERE = Path(__file__).resolve().parent
ARCHIVES = {
    "tiles": ((3,), ("--tile", "8", "--method", "rank1", "--step", "20"), [(20, 24), (9, 9)]),
    "gray": ((1,), ("--tile", "4", "--method", "rank1", "--step", "8"), [(8, 8), (5, 13)]),
    "dense": ((1,), ("--tile", "4", "--method", "operator", "--step", "8"), [(8, 8)]),
    "whole": ((3,), ("--size", "6x6", "--method", "rank1", "--step", "8"), [(6, 6)]),
}
FORMATS = {
    "png": ("PNG", {}),
    "jpg": ("JPEG", {"quality": 60}),
    "progressive.jpg": ("JPEG", {"quality": 60, "progressive": True}),
    "webp": ("WEBP", {}),
    "lossless.webp": ("WEBP", {"lossless": True}),
    "gif": ("GIF", {}),
    "bmp": ("BMP", {}),
    "tif": ("TIFF", {}),
    "lzw.tif": ("TIFF", {"compression": "tiff_lzw"}),
    "ppm": ("PPM", {}),
}


def put(name: str, data: bytes) -> None:
    """One input of the corpus."""
    path = HERE / "corpus" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def archive_seeds(place: Path, name: str) -> None:
    """The index of an archive, and its first block with all that decodes it."""
    channels, options, sizes = ARCHIVES[name]
    folder(place / "in", 3, sizes=sizes, channels=channels)
    try:
        main(["encode", str(place / "in"), "-o", str(place / "a.h5"), "--quiet", *options])
    except SystemExit as ended:
        assert not ended.code, ended
    with Archive(place / "a.h5") as archive:
        arrays = archive.index.to_arrays()
        parts = [arrays[part].tobytes() for part in ("images", "blocks", "names")]
        blobs = [json.dumps(archive.meta).encode(), *parts, b"\x03\0\0\0abc", b'[["x", "y"]]']
        put(f"index/{name}", join_blobs(blobs).tobytes())
        group = archive.groups[0]
        assert group.basis is not None
        shapes = bytes(side - 1 for shape in archive.index.block_shapes(0) for side in shape)
        described = json.dumps(dict(group.meta)).encode()
        tables = [described, group.basis.tobytes(), group.tables.tobytes()]
        put(f"block/{name}", join_blobs([*tables, shapes, archive.block_bytes(0)]).tobytes())


def image_seeds() -> None:
    """A small picture in every format and mode."""
    pixels = natural(10, 12)
    for name, (kind, options) in FORMATS.items():
        for mode in ("RGB", "L", "RGBA", "P", "1", "I;16", "CMYK"):
            held = io.BytesIO()
            try:
                image = Image.fromarray(pixels)
                if mode == "I;16":
                    image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
                else:
                    image = image.convert(mode)
                image.save(held, kind, **options)
            except (OSError, ValueError, KeyError):
                continue  # this format has no such mode
            put(f"image/{mode.replace(';', '')}.{name}", held.getvalue())


if __name__ == "__main__":
    for each in ARCHIVES:
        with tempfile.TemporaryDirectory() as made:
            archive_seeds(Path(made), each)
    image_seeds()
