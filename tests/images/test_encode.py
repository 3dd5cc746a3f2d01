"""Written files give the pixels back, whatever EXIF says; what a format cannot hold is known beforehand."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import natural, noise
from PIL import Image

from tpca_cli import images
from tpca_cli.errors import UsageError

MODES = {
    "L": (1, np.uint8),
    "LA": (2, np.uint8),
    "RGB": (3, np.uint8),
    "RGBA": (4, np.uint8),
    "I;16": (1, np.uint16),
}
STRUCTURAL = (
    254,
    255,
    256,
    257,
    258,
    259,
    262,
    273,
    277,
    278,
    279,
    284,
    317,
    322,
    323,
    324,
    325,
    330,
    338,
    339,
)


def exif_block(entries: list[tuple[int, int, int, bytes]], order: str = "<") -> bytes:
    """An EXIF block with these (tag, type, count, value) in IFD0; values over 4 bytes follow the list."""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    table, after = b"", 8 + 2 + 12 * len(entries) + 4
    tail = b""
    for tag, kind, count, value in sorted(entries):
        if len(value) > 4:
            table += struct.pack(order + "HHII", tag, kind, count, after + len(tail))
            tail += value + b"\0" * (len(value) % 2)
        else:
            table += struct.pack(order + "HHI", tag, kind, count) + value.ljust(4, b"\0")
    return head + struct.pack(order + "H", len(entries)) + table + struct.pack(order + "I", 0) + tail


def back(data: bytes) -> tuple[np.ndarray, Image.Image]:
    """Pixels as stored (a reader that turns them upright is told not to), and the open file."""
    file = Image.open(io.BytesIO(data))
    file.load()
    return np.asarray(file), file


def camera_exif(order: str) -> bytes:
    """What a camera writes into IFD0: facts about the camera, and about another picture's storage."""
    short = order + "H"
    entries = [(tag, 3, 1, struct.pack(short, 7)) for tag in STRUCTURAL]
    entries += [
        (271, 2, 6, b"Camera"[:5] + b"\0"),
        (305, 2, 8, b"Softwar\0"),
        (282, 5, 1, struct.pack(order + "II", 300, 1)),
        (283, 5, 1, struct.pack(order + "II", 300, 1)),
        (296, 3, 1, struct.pack(short, 2)),
        (50341, 7, 8, b"PrintIM\0"),
    ]
    return exif_block(entries, order)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("mode", MODES)
def test_tiff_holds_the_pixels_whatever_exif_says(mode, order) -> None:
    channels, dtype = MODES[mode]
    pixels = natural(37, 53, channels, seed=3, dtype=dtype)
    data = images.encode_file(
        pixels, mode, format="tiff", extras=images.Extras(camera_exif(order), b"profile" * 5)
    )
    found, file = back(data)
    assert np.array_equal(found.reshape(pixels.shape), pixels)
    assert file.mode in (mode, mode + "B") and file.n_frames == 1
    assert file.tag_v2[271] == "Camer" and file.tag_v2[282] == 300
    assert file.info["icc_profile"] == b"profile" * 5
    assert not {254, 255, 330, 322, 323, 324, 325} & set(file.tag_v2)


def test_tiff_keeps_maker_notes_where_their_offsets_lead() -> None:
    """The EXIF block stands in the file as it is, so that offsets inside opaque parts stay right."""
    exif = Image.Exif()
    exif[271] = "Maker"
    exif.get_ifd(34665)[37500] = b"note" * 50
    exif.get_ifd(34853)[1] = "N"
    block = exif.tobytes().removeprefix(b"Exif\0\0")
    data = images.encode_file(noise(8, 9), "RGB", format="tiff", extras=images.Extras(block))
    assert data[8 : len(block)] == block[8:]
    got = Image.open(io.BytesIO(data)).getexif()
    assert got.get_ifd(34665)[37500] == b"note" * 50 and got.get_ifd(34853)[1] == "N"


def test_metadata_without_a_place_are_named() -> None:
    exif = exif_block([(271, 2, 4, b"abc\0")])
    assert images.left_out("bmp", images.Extras(exif, b"x")) == ("EXIF", "ICC profile")
    assert (
        images.left_out("tiff", images.Extras(exif, b"x"))
        == images.left_out("png", images.Extras(b"junk"))
        == ()
    )
    assert images.left_out("tiff", images.Extras(b"junk")) == ("EXIF that is damaged",)


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.one_of(
                st.integers(0, 65535), st.sampled_from([*STRUCTURAL, 274, 282, 296, 34665, 34853, 700])
            ),
            st.integers(0, 20),
            st.one_of(st.integers(0, 9), st.integers(0, 2**32 - 1)),
            st.binary(max_size=20),
        ),
        max_size=12,
    ),
    st.sampled_from("<>"),
    st.integers(0, 200),
)
def test_no_exif_block_changes_a_tiff(entries, order, cut) -> None:
    block = exif_block(entries, order)
    pixels = noise(6, 11, 3, seed=cut)
    for exif in (block, block[: max(1, len(block) - cut)]):
        data = images.encode_file(pixels, "RGB", format="tiff", extras=images.Extras(exif))
        file = Image.open(io.BytesIO(data))
        turned = file.getexif().get(274, 1)
        assert file.n_frames == 1
        if turned in range(2, 9):
            continue  # the reader turns it; encode_file itself compares what is stored
        assert np.array_equal(np.asarray(file), pixels)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_kept_and_pixels_are_as_stored(orientation, tmp_path) -> None:
    exif = exif_block([(274, 3, 1, struct.pack("<H", orientation))])
    pixels = natural(20, 31, seed=4)
    for format in ("tiff", "png", "webp"):
        path = tmp_path / f"{orientation}.{format}"
        path.write_bytes(images.encode_file(pixels, "RGB", format=format, extras=images.Extras(exif)))
        assert np.array_equal(images.read(bytes(path)).pixels, pixels)
        assert Image.open(path).getexif()[274] == orientation


@pytest.mark.parametrize(
    ("format", "mode", "shape", "extras", "word"),
    [
        ("jpeg", "RGBA", (4, 4), {}, "alpha"),
        ("jpeg", "I;16", (4, 4), {}, "16"),
        ("bmp", "LA", (4, 4), {}, "alpha"),
        ("bmp", "I;16", (4, 4), {}, "16"),
        ("webp", "I;16", (4, 4), {}, "16"),
        ("webp", "RGB", (16384, 4), {}, "16383"),
        ("jpeg", "RGB", (65501, 4), {}, "65500"),
        ("jpeg", "RGB", (4, 4), {"exif": b"x" * 65536}, "EXIF"),
    ],
)
def test_what_a_format_cannot_hold_is_known_before(format, mode, shape, extras, word) -> None:
    reason = images.obstacle(format, mode, *shape, images.Extras(**extras))
    assert reason is not None and word in reason
    assert images.obstacle("png", mode, *shape, images.Extras(**extras)) is None
    channels, dtype = MODES[mode]
    with pytest.raises(UsageError, match=word):
        images.encode_file(
            np.zeros((*shape, channels), dtype), mode, format=format, extras=images.Extras(**extras)
        )


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_jpeg_adds_less_error_than_allowed(mode) -> None:
    pixels = noise(64, 48, MODES[mode][0], seed=9)
    for allowed in (40.0, 4.0, 1.0):
        data = images.encode_jpeg(pixels, mode, allowed)
        assert data is not None
        found, _ = back(data)
        assert np.mean((found.reshape(pixels.shape) - pixels.astype(float)) ** 2) < allowed
    assert images.encode_jpeg(pixels, mode, 1e-3) is None
