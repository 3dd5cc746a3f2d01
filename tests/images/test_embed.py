"""Metadata come back in every format that has a place for them, and never touch the pixels."""

from __future__ import annotations

import io
import json
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import natural
from PIL import Image, IptcImagePlugin

from tpca_cli import images

XMP = b"<x:xmpmeta xmlns:x='adobe:ns:meta/'>" + b"z" * 300 + b"</x:xmpmeta>"
IPTC = b"\x1c\x02\x00\x00\x02\x00\x04" + b"\x1c\x02\x78\x00\x05hello"
TEXT = json.dumps([["Title", "one"], ["Author", "\u0416"], ["Note", "text", "de", "Notiz"]]).encode()
COMMENT = json.dumps([["Comment", "made by hand \u00e4"]]).encode()
GAMMA = b"gAMA" + struct.pack(">II", 4, 45455)


def written(format: str, mode: str = "RGB", **metadata: bytes) -> tuple[bytes, Image.Image]:
    channels = images.CHANNELS[mode]
    pixels = natural(24, 31, channels, seed=8)
    data = images.encode_file(pixels, mode, format=format, extras=images.Extras(metadata=metadata))
    file = Image.open(io.BytesIO(data))
    file.load()
    if format != "jpeg":
        assert np.array_equal(np.asarray(file).reshape(pixels.shape), pixels)
    return data, file


def density(x: int, y: int, unit: str | None) -> bytes:
    return json.dumps([x, y, unit]).encode()


def chunks(data: bytes) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    at = 8
    while at < len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(name + body)
        found.setdefault(name, []).append(body)
        at += 12 + length
    return found


def test_png_holds_all_of_it() -> None:
    data, file = written(
        "png", xmp=XMP, iptc=IPTC, text=TEXT, density=density(11811, 5000, "meter"), png=GAMMA
    )
    assert file.info["xmp"] == XMP and file.info["gamma"] == pytest.approx(0.45455)
    assert file.text["Title"] == "one" and file.text["Author"] == "\u0416"
    note = file.text["Note"]
    assert (note, note.lang, note.tkey) == ("text", "de", "Notiz")
    found = chunks(data)
    assert found[b"pHYs"] == [struct.pack(">IIB", 11811, 5000, 1)]
    kind, length, digits = file.text["Raw profile type iptc"].split(maxsplit=2)
    assert (kind, int(length), bytes.fromhex(digits)) == ("iptc", len(IPTC), IPTC)
    ratio = written("png", density=density(2, 1, None))[0]
    assert chunks(ratio)[b"pHYs"] == [struct.pack(">IIB", 2, 1, 0)]


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize(
    ("stored", "dpi"), [((300, 200, "inch"), (300, 200)), ((11811, 11811, "meter"), (300, 300))]
)
def test_jpeg_holds_xmp_iptc_comment_and_density(mode, stored, dpi) -> None:
    _, file = written("jpeg", mode, xmp=XMP, iptc=IPTC, text=COMMENT, density=density(*stored))
    assert file.info["xmp"] == XMP and file.info["comment"] == "made by hand \u00e4".encode()
    assert file.info["dpi"] == dpi
    records = IptcImagePlugin.getiptcinfo(file)
    assert records is not None and records[(2, 120)] == b"hello"
    assert written("jpeg", mode, density=density(40, 41, "cm"))[1].info["jfif_density"] == (40, 41)
    assert written("jpeg", mode, density=density(4, 3, None))[1].info["jfif_unit"] == 0


def test_long_iptc_spans_segments() -> None:
    records = b"".join(b"\x1c\x02\x78" + struct.pack(">H", 20000) + bytes([65 + k]) * 20000 for k in range(6))
    data, file = written("jpeg", iptc=records)
    assert data.count(b"Photoshop 3.0\0") == 2
    assert file.info["photoshop"]


def test_tiff_holds_xmp_iptc_and_density() -> None:
    _, file = written("tiff", xmp=XMP, iptc=IPTC, density=density(300, 150, "inch"))
    assert file.tag_v2[700] == XMP and file.tag_v2[33723] == IPTC
    assert file.info["dpi"] == (300, 150)
    _, file = written("tiff", density=density(11811, 11811, "meter"))
    assert (float(file.tag_v2[282]), file.tag_v2[296]) == (pytest.approx(118.11), 3)
    exif = Image.Exif()
    exif[282], exif[283], exif[296] = 72.0, 72.0, 2
    extras = images.Extras(exif.tobytes()[6:], metadata={"density": density(300, 300, "inch")})
    data = images.encode_file(natural(9, 9), "RGB", format="tiff", extras=extras)
    assert Image.open(io.BytesIO(data)).info["dpi"] == (72, 72)


def test_webp_bmp_and_ppm_hold_what_they_can() -> None:
    assert written("webp", xmp=XMP)[1].info["xmp"] == XMP
    assert written("bmp", density=density(3780, 3780, "meter"))[1].info["dpi"] == pytest.approx(
        (96, 96), 0.01
    )
    assert b"# made by hand \xc3\xa4\n" in written("ppm", text=COMMENT)[0]


@pytest.mark.parametrize(
    ("format", "metadata", "names"),
    [
        ("png", {"xmp": XMP, "iptc": IPTC, "text": TEXT, "png": GAMMA}, ()),
        ("jpeg", {"text": TEXT, "png": GAMMA}, ("texts", "PNG color chunks")),
        ("jpeg", {"xmp": b"x" * 65520}, ("XMP",)),
        ("jpeg", {"density": density(70000, 70000, "cm")}, ("density",)),
        ("tiff", {"text": COMMENT}, ("texts",)),
        ("webp", {"iptc": IPTC, "density": density(72, 72, "inch")}, ("IPTC", "density")),
        ("ppm", {"text": json.dumps([["Comment", "a\nb"]]).encode()}, ("texts",)),
        ("png", {"png": b"IDAT" + struct.pack(">I", 1) + b"x"}, ("PNG color chunks",)),
        ("png", {"text": b"no list"}, ("texts",)),
        ("png", {"text": b'[["Title", "\\ud800"]]'}, ("texts",)),
        ("png", {"novel": b"?"}, ("novel",)),
    ],
)
def test_what_has_no_place_is_named_and_left_out(format, metadata, names) -> None:
    assert images.left_out(format, images.Extras(metadata=metadata)) == names
    written(format, **metadata)


@settings(max_examples=100)
@given(
    st.sampled_from(["png", "tiff", "webp", "bmp", "ppm"]),
    st.dictionaries(
        st.sampled_from(["xmp", "iptc", "text", "density"]), st.binary(min_size=1, max_size=60), max_size=4
    ),
    st.lists(st.lists(st.text(max_size=90), min_size=2, max_size=4), max_size=3),
)
def test_no_metadata_change_the_pixels(format, metadata, texts) -> None:
    written(format, **metadata)
    written(format, **{**metadata, "text": json.dumps(texts).encode()})
