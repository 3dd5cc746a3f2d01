"""Files as they come: JPEG by two decoders, metadata, limits, damage, and writing them again."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from pictures import natural, noise, png_bytes, save, save_mode
from PIL import Image

from tpca_cli import images
from tpca_cli.errors import ImageRefused, StorageError, UsageError
from tpca_cli.images import decode, jpeg

EXIF = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"  # orientation 6
ICC = bytes(range(256)) * 600  # three segments of a JPEG


def read(path: Path, **options: object) -> images.Picture:
    return images.read(os.fsencode(path), **options)  # type: ignore[arg-type]


def refused(path: Path, **options: object) -> str:
    with pytest.raises(ImageRefused) as caught:
        read(path, **options)
    return str(caught.value)


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (7, 9), (33, 50), (64, 64)])
def test_quick_jpeg_gives_the_pixels_of_pillow(
    tmp_path: Path, subsampling: int, progressive: bool, height: int, width: int
) -> None:
    for channels in (1, 3):
        path = tmp_path / f"{channels}.jpg"
        save(path, natural(height, width, channels), subsampling=subsampling, progressive=progressive)
        data = path.read_bytes()
        header = jpeg.parse(data)
        assert header is not None
        assert jpeg.decode(data, header) is not None
        expected = np.asarray(Image.open(path)).reshape(height, width, channels)
        np.testing.assert_array_equal(read(path).pixels, expected)


def test_quick_jpeg_scaled_down_gives_the_pixels_of_a_draft(tmp_path: Path) -> None:
    path = save(tmp_path / "x.jpg", natural(133, 201))
    data = path.read_bytes()
    header = jpeg.parse(data)
    assert header is not None
    for scale in (2, 4, 8):
        image = Image.open(path)
        image.draft(None, (201 // scale, 133 // scale))
        np.testing.assert_array_equal(jpeg.decode(data, header, scale), np.asarray(image))


def test_unusual_jpeg_is_left_to_pillow(tmp_path: Path) -> None:
    plain = save(tmp_path / "x.jpg", natural(16, 16)).read_bytes()
    cmyk = save_mode(tmp_path / "cmyk.jpg", "CMYK").read_bytes()
    several = plain[:2] + b"\xff\xe2\x00\x08MPF\0xx" + plain[2:]
    twelve_bits = plain.replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c")
    for data in (cmyk, several, twelve_bits, plain[:100], b"\xff\xd8\xff"):
        assert jpeg.parse(data) is None
    rgb = io.BytesIO()
    Image.fromarray(natural(16, 16)).save(rgb, "JPEG", keep_rgb=True)
    header = jpeg.parse(rgb.getvalue())
    assert header is not None
    assert jpeg.decode(rgb.getvalue(), header) is None
    (tmp_path / "rgb.jpg").write_bytes(rgb.getvalue())
    expected = np.asarray(Image.open(tmp_path / "rgb.jpg"))
    np.testing.assert_array_equal(read(tmp_path / "rgb.jpg").pixels, expected)


def test_progressive_jpeg_of_endless_scans_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "x.jpg", natural(16, 16), progressive=True)
    data = path.read_bytes()
    path.write_bytes(data[:-2] + b"\xff\xda" * 200 + data[-2:])
    assert "scans" in refused(path)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_exif_and_icc_are_kept_byte_for_byte(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path / f"x{suffix}", natural(8, 6), exif=b"Exif\0\0" + EXIF, icc_profile=ICC)
    picture = read(path)
    assert picture.exif == EXIF
    assert picture.icc == ICC
    assert picture.pixels.shape == (8, 6, 3)  # never turned


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("compression", [None, "tiff_deflate"])
def test_tiff_is_not_turned_and_keeps_its_orientation(
    tmp_path: Path, orientation: int, compression: str | None
) -> None:
    pixels = noise(5, 9, 3)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / "x.tif", pixels, exif=exif, compression=compression)
    picture = read(path)
    np.testing.assert_array_equal(picture.pixels, pixels)
    kept = Image.Exif()
    kept.load(b"Exif\0\0" + picture.exif)
    assert kept.get(0x0112) == orientation
    header = images.probe(os.fsencode(path))
    assert (header.height, header.width) == (5, 9)


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "I;16"])
def test_written_files_are_read_back_the_same(tmp_path: Path, mode: str) -> None:
    pixels = noise(7, 5, images.CHANNELS[mode], dtype=np.uint16 if mode == "I;16" else np.uint8)
    for name in ("png", "tiff"):
        path = tmp_path / f"x.{name}"
        path.write_bytes(images.encode_file(pixels, mode, format=name, extras=images.Extras(EXIF, ICC)))
        picture = read(path)
        assert picture.mode == mode
        np.testing.assert_array_equal(picture.pixels, pixels)
        assert picture.icc == ICC
        kept = Image.Exif()
        kept.load(b"Exif\0\0" + picture.exif)
        assert kept.get(0x0112) == 6
        assert (
            images.encode_file(pixels, mode, format=name, extras=images.Extras(EXIF, ICC))
            == path.read_bytes()
        )


@pytest.mark.parametrize(("name", "mode"), [("webp", "RGB"), ("webp", "RGBA"), ("bmp", "L"), ("ppm", "I;16")])
def test_other_formats_keep_the_pixels(tmp_path: Path, name: str, mode: str) -> None:
    pixels = noise(7, 5, images.CHANNELS[mode], dtype=np.uint16 if mode == "I;16" else np.uint8)
    path = tmp_path / f"x.{name}"
    path.write_bytes(images.encode_file(pixels, mode, format=name))
    np.testing.assert_array_equal(read(path).pixels, pixels)


def test_jpeg_quality_is_a_choice_and_what_does_not_fit_is_refused() -> None:
    pixels = natural(32, 32)
    sizes = [len(images.encode_file(pixels, "RGB", format="jpeg", quality=quality)) for quality in (30, 95)]
    assert sizes[0] < sizes[1]
    for name, mode in (("jpeg", "RGBA"), ("bmp", "LA"), ("webp", "I;16"), ("gif", "RGB")):
        with pytest.raises(UsageError, match="choose"):
            images.encode_file(noise(2, 2, images.CHANNELS[mode]), mode, format=name)
    with pytest.raises(ValueError, match="not mode"):
        images.encode_file(pixels, "L")


@pytest.mark.parametrize(
    "build",
    [
        lambda: png_bytes(60000, 60000, 8, 2),
        lambda: png_bytes(12000, 12000, 8, 2),
        lambda: png_bytes(1, 1000000, 8, 0),
        lambda: png_bytes(2, 2, 8, 0, bytes(6), [(b"tEXt", b"k\0" + bytes(20_000_000))]),
        lambda: b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff\xff\0" * 2 + bytes(20),
        lambda: b"BM" + bytes(12) + struct.pack("<IiiHH", 40, 30000, 30000, 1, 24) + bytes(24),
        lambda: b"GIF89a" + struct.pack("<HH", 65535, 65535) + bytes(3) + b"," + bytes(30),
        lambda: b"P5 50000 50000 255\n" + bytes(100),
    ],
    ids=["png", "png12000", "long", "text", "webp", "bmp", "gif", "pgm"],
)
def test_bombs_are_refused_before_decoding(tmp_path: Path, build: object) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(build())  # type: ignore[operator]
    reason = refused(path)
    assert any(word in reason for word in ("pixels", "chunk", "side"))


def test_the_pixel_limit_is_the_callers(tmp_path: Path) -> None:
    path = save(tmp_path / "x.png", natural(10, 20))
    assert "10x20 pixels are more than 199" in refused(path, max_pixels=199)
    assert read(path, max_pixels=200).pixels.shape == (10, 20, 3)
    jpg = save(tmp_path / "x.jpg", natural(10, 20))
    assert "--max-pixels" in refused(jpg, max_pixels=199)
    with pytest.raises(ImageRefused, match="max-pixels"):
        images.probe(os.fsencode(jpg), 199)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".gif", ".tif", ".bmp", ".ppm"])
def test_truncated_files_are_refused(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path / f"x{suffix}", noise(40, 40))
    data = path.read_bytes()
    for part in (len(data) // 2, len(data) * 9 // 10, 40, 12):
        path.write_bytes(data[:part])
        assert refused(path)


def test_what_is_no_image_is_never_parsed(tmp_path: Path) -> None:
    for name, data in {"eps": b"%!PS-Adobe-3.0 EPSF-3.0\n", "psd": b"8BPS\0\1", "html": b"<html>"}.items():
        path = tmp_path / f"{name}.png"
        path.write_bytes(data + bytes(100))
        assert refused(path) == "not an image by content"


def test_only_regular_unchanged_files_are_read(tmp_path: Path) -> None:
    path = save(tmp_path / "x.png", natural(4, 4))
    found = path.stat()
    stamp = images.Stamp(found.st_size, found.st_mtime_ns)
    assert read(path, stamp=stamp).mode == "RGB"
    assert "changed" in refused(path, stamp=images.Stamp(found.st_size, 0))
    assert "changed" in refused(path, stamp=images.Stamp(1, found.st_mtime_ns))
    (tmp_path / "link.png").symlink_to(path)
    assert "no longer" in refused(tmp_path / "link.png")
    assert "no longer" in refused(tmp_path / "gone.png")
    os.mkfifo(tmp_path / "fifo.png")
    assert refused(tmp_path / "fifo.png") == "not a regular file"
    (tmp_path / "empty.png").touch()
    assert refused(tmp_path / "empty.png") == "empty file"


def test_a_failing_disk_is_not_the_fault_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "x.png", natural(4, 4))

    def broken(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(decode.os, "read", broken)
    with pytest.raises(StorageError) as caught:
        read(path)
    assert caught.value.errno == 5
    with pytest.raises(StorageError):
        images.probe(os.fsencode(path))


def test_large_images_are_fetched_in_strips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpca_cli.images.resize._STRIP_PIXELS", 40)
    for channels, dtype in ((1, np.uint8), (4, np.uint8), (1, np.uint16)):
        pixels = noise(23, 17, channels, dtype=dtype)
        np.testing.assert_array_equal(read(save(tmp_path / "x.png", pixels)).pixels, pixels)


def test_the_digest_is_of_the_file(tmp_path: Path) -> None:
    path = save(tmp_path / "x.png", natural(4, 4))
    assert (
        read(path).digest == images.source_digest(path.read_bytes()) == images.file_digest(os.fsencode(path))
    )


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("size", [(8, 6), (50, 70), (1, 1)])
def test_resizing_works_in_every_mode_and_keeps_the_mean(
    tmp_path: Path, mode: str, size: tuple[int, int]
) -> None:
    dtype = np.uint16 if mode == "I;16" else np.uint8
    pixels = natural(40, 30, images.CHANNELS[mode], dtype=dtype)
    if mode in ("LA", "RGBA"):
        pixels[..., -1] = 255
    picture = read(save(tmp_path / "x.png", pixels), size=size)
    assert picture.pixels.shape == (*size, images.CHANNELS[mode])
    assert picture.pixels.dtype == dtype
    assert abs(picture.pixels.mean() - pixels.mean()) < 0.02 * np.iinfo(dtype).max


def test_resizing_jpeg_by_a_draft_stays_close_to_resizing_all_of_it(tmp_path: Path) -> None:
    path = save(tmp_path / "x.jpg", natural(200, 300), quality=95)
    quick = read(path, size=(40, 50)).pixels.astype(float)
    whole = Image.open(path).resize((50, 40), Image.Resampling.BICUBIC)
    assert np.sqrt(np.mean((quick - np.asarray(whole)) ** 2)) < 3
