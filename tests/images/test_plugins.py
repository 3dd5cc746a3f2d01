"""Laws of AVIF, HEIC and JPEG XL: read like Pillow reads them, bounded before decoding."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import natural
from PIL import Image

from tpca_cli import images
from tpca_cli.errors import ImageRefused
from tpca_cli.images import plugins

KINDS = {"AVIF": "one.avif", "HEIF": "one.heic", "JXL": "one.jxl"}


def written(path: Path, kind: str, image: Image.Image, **options: Any) -> bytes:
    """Save an image by a plugin; the path as bytes."""
    assert not plugins.unavailable(kind)
    image.save(path, kind, **options)
    return os.fsencode(path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("height", "width", "channels"), [(24, 32, 3), (33, 17, 4), (264, 16, 3)])
def test_pixels_are_those_of_pillow(
    tmp_path: Path, kind: str, height: int, width: int, channels: int
) -> None:
    path = written(tmp_path / KINDS[kind], kind, Image.fromarray(natural(height, width, channels)))
    header, picture = images.probe(path), images.read(path)
    assert (header.height, header.width, header.channels) == picture.pixels.shape == (height, width, channels)
    with Image.open(os.fsdecode(path), formats=[kind]) as expected:
        assert np.array_equal(picture.pixels, np.asarray(expected))
    assert picture.warnings == (() if kind == "AVIF" else (plugins.beside(kind),))


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_pixels_are_refused(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path / KINDS[kind], kind, Image.fromarray(natural(24, 32)))
    for reading in (images.probe, images.read):
        with pytest.raises(ImageRefused, match="--max-pixels"):
            reading(path, max_pixels=24 * 32 - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_stumps_are_refused(tmp_path: Path, kind: str) -> None:
    data = Path(
        os.fsdecode(written(tmp_path / KINDS[kind], kind, Image.fromarray(natural(24, 32))))
    ).read_bytes()
    for size in (13, 20, 40, 100, len(data) // 2):
        (tmp_path / "stump").write_bytes(data[:size])
        with pytest.raises(ImageRefused):
            images.read(os.fsencode(tmp_path / "stump"))


@pytest.mark.parametrize("package", ["pillow_heif", "pillow_jxl"])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    kind = {"pillow_heif": "HEIF", "pillow_jxl": "JXL"}[package]
    path = written(tmp_path / KINDS[kind], kind, Image.fromarray(natural(8, 8)))
    monkeypatch.setitem(sys.modules, package, None)
    plugins.unavailable.cache_clear()
    try:
        with pytest.raises(ImageRefused, match=r"pip install 'tpca-cli\[(heif|jxl)\]'"):
            images.read(path)
    finally:
        plugins.unavailable.cache_clear()


def test_16_bit_gray_jpeg_xl_is_kept_whole(tmp_path: Path) -> None:
    pixels = natural(24, 32, 1, dtype=np.uint16)
    path = written(tmp_path / "one.jxl", "JXL", Image.fromarray(pixels[:, :, 0]), lossless=True)
    assert np.array_equal(images.read(path).pixels, pixels)


def test_deep_colors_are_refused_before_they_are_cut(tmp_path: Path) -> None:
    plugins.unavailable("HEIF")
    import pillow_heif

    deep = natural(24, 32, dtype=np.uint16)
    pillow_heif.encode("RGB;16", (32, 24), deep.tobytes(), str(tmp_path / "deep.heic"), quality=90)
    with pytest.raises(ImageRefused, match="more than 8 bits"):
        images.read(os.fsencode(tmp_path / "deep.heic"))
    data = io.BytesIO()
    Image.fromarray(natural(24, 32)).save(data, "AVIF")
    head = bytearray(data.getvalue())
    head[head.index(b"av1C") + 6] |= 0x40
    with pytest.raises(ImageRefused, match="more than 8 bits"):
        plugins.check_announced("AVIF", bytes(head))


def bits(*fields: tuple[int, int]) -> bytes:
    """Fields of so many bits, lowest first, with zeros after them."""
    whole, at = 0, 0
    for value, count in fields:
        whole |= value << at
        at += count
    return whole.to_bytes(at // 8 + 9, "little")


def test_the_header_of_jpeg_xl_is_read_before_its_decoder() -> None:
    mark = b"\xff\x0a"
    usual = mark + bits((1, 1), (31, 5), (1, 3), (1, 1))  # 256 rows, square, everything else as usual
    assert plugins.jxl_header(usual) == (256, 256, 8)
    huge = mark + bits((0, 1), (3, 2), (2**30 - 1, 30), (7, 3), (1, 1))
    assert plugins.jxl_header(huge) == (2**30, 2**31, 8)
    deep = mark + bits((0, 1), (0, 2), (299, 9), (0, 3), (1, 2), (4999, 13), (0, 1), (0, 1), (0, 1), (1, 2))
    assert plugins.jxl_header(deep) == (300, 5000, 10)
    box = b"\0\0\0\x0cJXL \r\n\x87\n" + b"\0\0\0\x14ftypjxl \0\0\0\0jxl " + b"\0\0\0\x40jxlp\0\0\0\0" + usual
    assert plugins.jxl_header(box) == (256, 256, 8)
    with pytest.raises(ImageRefused):
        plugins.jxl_header(mark)
    with pytest.raises(ImageRefused):
        plugins.jxl_header(box[:30])


def test_much_metadata_may_stand_before_the_picture(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E] = "x" * 9000
    path = written(tmp_path / "one.jxl", "JXL", Image.fromarray(natural(24, 32)), exif=exif.tobytes())
    assert images.probe(path).height == 24 and len(images.read(path).exif) > 9000
