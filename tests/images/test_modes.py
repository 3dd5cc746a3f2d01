"""Which modes come in, as what, and that gray survives a journey through color."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import noise, png_bytes, save, save_frames, save_mode, save_png16_rgb
from PIL import Image

from tpca_cli import images
from tpca_cli.errors import ImageRefused


def read(path: Path, **options: Any) -> images.Picture:
    """Read, and hold `probe` to the same answer."""
    picture = images.read(os.fsencode(path), **options)
    if not options:
        header = images.probe(os.fsencode(path))
        assert (header.height, header.width, header.channels) == picture.pixels.shape
        assert (header.mode, np.dtype(header.dtype)) == (picture.mode, picture.pixels.dtype)
    return picture


def refused(path: Path) -> str:
    with pytest.raises(ImageRefused) as caught:
        images.read(os.fsencode(path))
    return str(caught.value)


LOSSLESS = {".png": (1, 2, 3, 4), ".tiff": (1, 2, 3, 4), ".webp": (3, 4), ".bmp": (1, 3), ".ppm": (1, 3)}


@pytest.mark.parametrize(("suffix", "channels"), [(s, c) for s, held in LOSSLESS.items() for c in held])
def test_lossless_files_give_their_pixels_back(tmp_path: Path, suffix: str, channels: int) -> None:
    pixels = noise(9, 13, channels)
    lossless = {"lossless": True, "exact": True} if suffix == ".webp" else {}
    picture = read(save(tmp_path / f"x{suffix}", pixels, **lossless))
    assert picture.mode == {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels]
    np.testing.assert_array_equal(picture.pixels, pixels)
    assert picture.warnings == ()


@pytest.mark.parametrize("suffix", [".png", ".tiff", ".pgm"])
def test_sixteen_bit_gray_loses_nothing(tmp_path: Path, suffix: str) -> None:
    pixels = noise(9, 13, 1, dtype=np.uint16)
    pixels[0, :2, 0] = 0, 65535
    picture = read(save(tmp_path / f"x{suffix}", pixels))
    assert picture.mode == "I;16"
    assert picture.pixels.dtype == np.uint16
    np.testing.assert_array_equal(picture.pixels, pixels)


def test_sixteen_bit_big_endian_tiff(tmp_path: Path) -> None:
    pixels = noise(9, 13, 1, dtype=np.uint16)
    Image.frombytes("I;16B", (13, 9), pixels.astype(">u2").tobytes()).save(tmp_path / "x.tif")
    picture = read(tmp_path / "x.tif")
    assert picture.pixels.dtype.isnative
    np.testing.assert_array_equal(picture.pixels, pixels)


def test_bilevel_becomes_gray(tmp_path: Path) -> None:
    for suffix in (".png", ".tif", ".bmp", ".pbm"):
        path = save_mode(tmp_path / f"x{suffix}", "1")
        picture = read(path)
        assert picture.mode == "L"
        assert set(np.unique(picture.pixels)) == {0, 255}
        np.testing.assert_array_equal(picture.pixels[..., 0], np.asarray(Image.open(path).convert("L")))


def test_palette_becomes_color_with_alpha_where_it_is_transparent(tmp_path: Path) -> None:
    for suffix in (".png", ".gif", ".tif", ".bmp"):
        path = save_mode(tmp_path / f"plain{suffix}", "P")
        assert read(path).mode == "RGB"
        np.testing.assert_array_equal(read(path).pixels, np.asarray(Image.open(path).convert("RGB")))
    for suffix in (".png", ".gif"):
        used = int(np.asarray(Image.open(tmp_path / "plain.png"))[0, 0])
        path = save_mode(tmp_path / f"clear{suffix}", "P", transparency=used, optimize=False)
        picture = read(path)
        assert picture.mode == "RGBA"
        np.testing.assert_array_equal(picture.pixels, np.asarray(Image.open(path).convert("RGBA")))


@pytest.mark.parametrize(("depth", "step"), [(1, 255), (2, 85), (4, 17), (8, 1)])
def test_a_transparent_gray_becomes_alpha(tmp_path: Path, depth: int, step: int) -> None:
    rows = b"\0" + bytes([0b00011011])  # one row of 8 / depth samples
    path = tmp_path / "x.png"
    path.write_bytes(png_bytes(1, 8 // depth, depth, 0, rows, [(b"tRNS", b"\0\1")]))
    picture = read(path)
    assert picture.mode == "LA"
    gray, alpha = picture.pixels[0, :, 0], picture.pixels[0, :, 1]
    np.testing.assert_array_equal(alpha, np.where(gray == step, 0, 255))
    samples = [0b00011011 >> (8 - depth * (i + 1)) & ((1 << depth) - 1) for i in range(8 // depth)]
    np.testing.assert_array_equal(gray, np.array(samples) * step)


def test_a_transparent_color_becomes_alpha(tmp_path: Path) -> None:
    pixels = noise(3, 4, 3)
    path = save(tmp_path / "x.png", pixels, transparency=tuple(int(v) for v in pixels[1, 2]))
    picture = read(path)
    assert picture.mode == "RGBA"
    assert picture.pixels[1, 2, 3] == 0
    assert (picture.pixels[..., 3] == 0).sum() == 1


@pytest.mark.parametrize("suffix", [".jpg", ".tif"])
def test_cmyk_becomes_rgb_without_its_profile(tmp_path: Path, suffix: str) -> None:
    path = save_mode(tmp_path / f"x{suffix}", "CMYK", icc_profile=b"c" * 200)
    picture = read(path)
    assert picture.mode == "RGB"
    assert picture.icc == b""
    assert any("profile" in warning for warning in picture.warnings)
    np.testing.assert_array_equal(picture.pixels, np.asarray(Image.open(path).convert("RGB")))


@pytest.mark.parametrize("suffix", [".gif", ".png", ".webp", ".tif"])
def test_the_first_of_several_frames_is_taken_with_a_warning(tmp_path: Path, suffix: str) -> None:
    frames = [np.full((5, 6, 3), value, np.uint8) for value in (10, 200)]
    lossless = {"lossless": True} if suffix == ".webp" else {}
    picture = read(save_frames(tmp_path / f"x{suffix}", frames, **lossless))
    np.testing.assert_array_equal(images.narrow(picture.pixels, "L"), frames[0][..., :1])
    assert any("first" in warning for warning in picture.warnings)


def test_deep_color_is_refused_and_not_reduced(tmp_path: Path) -> None:
    assert "16 bits" in refused(save_png16_rgb(tmp_path / "x.png"))
    for color, samples in ((4, 2), (6, 4)):
        path = tmp_path / f"color{color}.png"
        path.write_bytes(png_bytes(1, 1, 16, color, b"\0" + bytes(2 * samples)))
        assert "16 bits" in refused(path)
    path = tmp_path / "x.ppm"
    path.write_bytes(b"P6\n# a comment 9 9 9\n2 1\n65535\n" + bytes(12))
    assert "16 bits" in refused(path)
    path.write_bytes(b"P6 2 1 255\n" + bytes(6))
    assert read(path).pixels.shape == (1, 2, 3)


@pytest.mark.parametrize(("mode", "word"), [("F", "floating"), ("I", "32-bit"), ("LAB", "LAB")])
def test_samples_that_fit_nowhere_are_refused(tmp_path: Path, mode: str, word: str) -> None:
    assert word in refused(save_mode(tmp_path / "x.tif", mode))


def test_sixteen_bits_with_a_transparent_value_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(png_bytes(1, 1, 16, 0, b"\0\1\2", [(b"tRNS", b"\1\2")]))
    assert "transparent" in refused(path)


@given(st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 3, 4]), st.booleans(), st.integers(0, 99))
def test_widening_is_undone_by_narrowing(have: int, want: int, deep: bool, seed: int) -> None:
    pixels = noise(3, 4, have, seed, np.uint16 if deep else np.uint8)
    mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[have]
    if want < have or (have, want) == (2, 3):
        with pytest.raises(ImageRefused, match="without loss"):
            images.widen(pixels, want)
        return
    wide = images.widen(pixels, want)
    assert wide.shape == (3, 4, want)
    assert wide.dtype == pixels.dtype
    if want in (2, 4) and have in (1, 3):
        assert (wide[..., -1] == np.iinfo(pixels.dtype).max).all()
    np.testing.assert_array_equal(images.narrow(wide, mode), pixels)


@given(st.sets(st.sampled_from([1, 2, 3, 4]), min_size=1))
def test_the_common_channels_are_the_fewest_that_hold_all(channels: set[int]) -> None:
    def holds(wide: int) -> bool:
        return all(have <= wide and (have, wide) != (2, 3) for have in channels)

    assert images.common_channels(channels) == min(filter(holds, (1, 2, 3, 4)))


def test_read_widens_on_request_and_remembers_the_mode(tmp_path: Path) -> None:
    pixels = noise(4, 5, 1)
    picture = read(save(tmp_path / "x.png", pixels), channels=3)
    assert picture.mode == "L"
    np.testing.assert_array_equal(picture.pixels, np.repeat(pixels, 3, axis=2))
    with pytest.raises(ImageRefused, match="RGB does not fit into gray"):
        read(save(tmp_path / "y.png", noise(4, 5, 3)), channels=1)
