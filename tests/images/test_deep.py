"""Color with 16 bits per channel: read and written with every bit, or refused."""

from __future__ import annotations

import io

import numpy as np
import pytest
from images.containers import tiff
from pictures import natural, noise, png16
from PIL import Image

from tpca_cli import images
from tpca_cli.errors import ImageRefused
from tpca_cli.images import Source
from tpca_cli.images.deep import png_file

MODES = {2: "LA;16", 3: "RGB;16", 4: "RGBA;16"}


def read(data: bytes) -> images.Picture:
    return images.picture_of(Source(data, 0), deep=True, content=True)


@pytest.mark.parametrize("channels", MODES)
@pytest.mark.parametrize("make", [natural, noise])
def test_every_bit_of_a_png_is_read(channels, make):
    pixels = make(17, 23, channels, dtype=np.uint16)
    for data in (png16(pixels), png_file(pixels)):
        picture = read(data)
        assert picture.mode == MODES[channels] and not picture.reasons
        assert picture.pixels.dtype == np.uint16 and np.array_equal(picture.pixels, pixels)


@pytest.mark.parametrize("format", ["png", "tiff", "ppm"])
@pytest.mark.parametrize("channels", MODES)
def test_what_is_written_reads_back(channels, format, tmp_path):
    pixels, mode = noise(19, 14, channels, dtype=np.uint16), MODES[channels]
    if images.obstacle(format, mode, 19, 14) is not None:
        assert (format, channels) in {("tiff", 2), ("ppm", 2), ("ppm", 4)}
        return
    extras = images.Extras(icc=b"profile" * 30) if format != "ppm" else images.Extras()
    data = images.encode_file(pixels, mode, format=format, extras=extras)
    picture = read(data)
    assert np.array_equal(picture.pixels, pixels) and picture.icc == extras.icc
    (tmp_path / "a").write_bytes(data)
    header = images.probe(bytes(tmp_path / "a"), deep=True)
    assert (header.height, header.width, header.mode, header.dtype) == (19, 14, mode, "u2")


def test_pillow_sees_the_high_bytes_of_what_is_written():
    pixels = natural(20, 30, 3, dtype=np.uint16)
    with Image.open(io.BytesIO(png_file(pixels))) as image:
        assert np.array_equal(np.asarray(image), pixels >> 8)


def test_it_has_to_be_asked_for(tmp_path):
    (tmp_path / "a.png").write_bytes(png16(natural(4, 5, 3, dtype=np.uint16)))
    with pytest.raises(ImageRefused, match="--exact"):
        images.probe(bytes(tmp_path / "a.png"))
    with pytest.raises(ImageRefused, match="--exact"):
        images.read(bytes(tmp_path / "a.png"))


def test_what_would_lose_something_is_refused():
    transparent = png16(natural(4, 5, 3, dtype=np.uint16), extra=[(b"tRNS", bytes(6))])
    with pytest.raises(ImageRefused, match="transparent"):
        read(transparent)
    with pytest.raises(ImageRefused, match="up to 1000"):
        read(b"P6 1 1 1000\n" + bytes(6))
    with pytest.raises(ImageRefused, match="ends early"):
        read(b"P6 2 2 65535\n" + bytes(6))


def test_what_pillow_would_cut_to_8_bits_or_turn_around_is_refused():
    pixels = noise(6, 7, 3, dtype=np.uint16)
    planes = [pixels[:, :, c : c + 1].astype("<u2").tobytes() for c in range(3)]
    one, start = len(planes[0]), 8
    planar = tiff(
        {284: (3, 2), 273: (4, [start, start + one, start + 2 * one]), 279: (4, [one] * 3)},
        samples=np.frombuffer(b"".join(planes), "<u2").reshape(pixels.shape),
    )
    text = b"P3 1 1 65535\n6009 0 43678\n"
    negative = tiff({262: (3, 0)}, samples=pixels[:, :, :1])
    for data in (planar, text, negative):
        with pytest.raises(ImageRefused):
            read(data)
    assert np.array_equal(read(tiff(samples=pixels)).pixels, pixels)
    assert np.array_equal(read(tiff(samples=pixels[:, :, :1])).pixels, pixels[:, :, :1])


def test_a_depth_that_is_said_once_for_all_channels_counts_for_each():
    data = tiff({258: (3, 16)}, samples=noise(6, 7, 3, dtype=np.uint16))
    with pytest.raises(ImageRefused, match="--exact"):
        images.picture_of(Source(data, 0))


def test_every_channel_is_resized_by_itself_after_it_was_turned():
    pixels = natural(20, 30, 3, dtype=np.uint16)
    data = tiff({274: (3, 6)}, samples=pixels)
    upright = images.picture_of(Source(data, 0), deep=True)
    small = images.picture_of(Source(data, 0), deep=True, size=(10, 15)).pixels
    for channel in range(3):
        alone = tiff({274: (3, 6)}, samples=pixels[:, :, channel : channel + 1])
        assert np.array_equal(
            images.picture_of(Source(alone, 0), size=(10, 15)).pixels[:, :, 0], small[:, :, channel]
        )
    assert np.array_equal(
        images.picture_of(Source(data, 0), deep=True, size=upright.pixels.shape[:2]).pixels, upright.pixels
    )


def test_a_cut_file_is_refused():
    data = png16(noise(30, 30, 3, dtype=np.uint16))
    with pytest.raises(ImageRefused):
        read(data[: len(data) // 2])
