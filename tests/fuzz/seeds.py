"""Makes the inputs that the fuzzers start from: `python tests/fuzz/seeds.py` writes `corpus/`."""

from __future__ import annotations

import io
import json
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from pictures import folder, natural

from tpca_cli.archive.reader import Archive
from tpca_cli.archive.writer import exact_group
from tpca_cli.cli.main import main
from tpca_cli.exact.coders import FileCoder, JpegCoder, PixelCoder
from tpca_cli.store.columns import join_blobs, join_bundle, join_bytes

HERE = Path(__file__).resolve().parent
ARCHIVES = {
    "tiles": ((3,), ("--tile", "8", "--method", "rank1", "--step", "20"), [(20, 24), (9, 9)]),
    "tuned": (
        (3,),
        ("--tile", "8", "--method", "rank1", "--step", "12", "--tune", "visual"),
        [(40, 48), (33, 20)],
    ),
    "fast": (
        (3,),
        ("--tile", "8", "--coding", "fast", "--tune", "visual", "--step", "9"),
        [(40, 48), (33, 20)],
    ),
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
        parts = [arrays[part].tobytes() for part in ("images", "blocks", "folded")]
        blobs = [json.dumps(archive.meta).encode(), *parts, b"\x03\0\0\0abc", b'[["x", "y"]]']
        put(f"index/{name}-folded", join_blobs([*blobs, b""]).tobytes())
        blobs[3] = join_bytes(list(archive.index.names)).tobytes()
        put(f"index/{name}", join_blobs(blobs).tobytes())
        put(f"bundle/{name}", bundled(join_bundle(json.dumps(archive.meta), arrays).tobytes()))
        group = archive.groups[0]
        assert group.basis is not None
        shapes = bytes(side - 1 for shape in archive.index.block_shapes(0) for side in shape)
        described = json.dumps(dict(group.meta)).encode()
        tables = [described, group.basis.tobytes(), group.tables.tobytes()]
        put(f"block/{name}", join_blobs([*tables, shapes, archive.block_bytes(0)]).tobytes())


def bundled(raw: bytes) -> bytes:
    """The list of a bundle, inflated, and each of its datasets."""
    at = 4 + int.from_bytes(raw[:4], "little")
    head, parts = zlib.decompress(raw[4:at], -15), []
    for line in head.decode().split("\n")[1:]:
        size = int(line.split(" ")[2])
        parts.append(raw[at : at + size])
        at += size
    return join_blobs([head, *parts]).tobytes()


def exact_seeds() -> None:
    """A block of each kind that comes back exactly, by the models of today and the first ones."""
    pixels = natural(12, 20)
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "JPEG", quality=60, progressive=True)
    sparse = pixels[..., :1].astype(np.uint16) * 257
    for model in (1, 2):
        jpeg = JpegCoder(JpegCoder.train([held.getvalue()]).templates, model)
        files, deep = [held.getvalue()] * 2, PixelCoder(1, 65535, 0, model)
        shapes = [pixels.shape[:2]] * 2
        blocks = {
            "jpeg": (jpeg, 3, "u1", jpeg.encode_files(files, shapes)[0]),
            "pixels": (
                PixelCoder(3, 255, 0, model),
                3,
                "u1",
                PixelCoder(3, 255, 0, model).encode([pixels] * 2)[0],
            ),
            "near": (
                PixelCoder(3, 255, 2, model),
                3,
                "u1",
                PixelCoder(3, 255, 2, model).encode([pixels] * 2)[0],
            ),
            "deep": (deep, 1, "u2", deep.encode([sparse] * 2)[0]),
        }
        if model == 2:
            blocks["files"] = FileCoder(), 3, "u1", FileCoder().encode_files(files, shapes)[0]
        for name, (coder, channels, dtype, block) in blocks.items():
            group = exact_group(coder, dtype, channels, 255 if dtype == "u1" else 65535)
            described = json.dumps(dict(group.meta)).encode()
            sides = bytes(side - 1 for shape in shapes for side in shape)
            put(
                f"exact/{name}-{model}",
                join_blobs([described, group.tables.tobytes(), sides, block]).tobytes(),
            )


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
    exact_seeds()
    image_seeds()
