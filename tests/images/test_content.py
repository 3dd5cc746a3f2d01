"""Nothing is called kept that is not: files with something besides their picture, made byte by byte."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pytest
from command import tpca
from hypothesis import given, settings
from hypothesis import strategies as st
from images.containers import avif, bmp32, gif, jpeg, png, resource, rgb, saved, tiff, webp
from pictures import folder

from tpca_cli import images
from tpca_cli.archive.reader import Archive
from tpca_cli.images.content_formats import content_of

XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF/></x:xmpmeta>'
XMP_SEGMENT = (0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP)
GAIN_MAP = b'<x:xmpmeta xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" hdrgm:Version="1.0"/>'
IPTC = b"\x1c\x02\x05\x00\x05title"
VIDEO = struct.pack(">I", 24) + b"ftypmp42" + bytes(12) + b"moov"
MORE = np.dstack([rgb(), rgb(1)[:, :, :1]])
FIVE = np.dstack([rgb(), rgb(1)[:, :, :2]])
FULL = {256: (4, 100), 257: (4, 100), 254: (4, 0)}
XMP_GIF = b"\x21\xff\x0bXMP DataXMP" + XMP + b"\x01" + bytes(range(255, -1, -1)) + b"\0"

PATHS = b"Photoshop 3.0\0" + resource(2000, b"path") + resource(0x404, IPTC)
NO_IPTC = b"Photoshop 3.0\0" + resource(0x404, b"") + resource(0x425, bytes(16))
IPTC_ONLY = b"Photoshop 3.0\0" + resource(0x404, IPTC) + resource(0x425, bytes(16))
EXIF = b"II*\0\x08\0\0\0\0\0\0\0\0\0"

# file name, content, a word of the reason
TRAPS = {
    "raw.kdc.tif": (tiff({254: (4, 1), 271: (2, b"Kodak\0")}, inner={330: FULL}), "SubIFDs"),
    "raw.dng.tif": (tiff({254: (4, 1), 50706: (1, b"\1\4\0\0")}, inner={330: FULL}), "raw data"),
    "raw.nef.tif": (tiff({254: (4, 1), 271: (2, b"NIKON\0")}, inner={330: FULL}), "reduced version"),
    "cfa.tif": (tiff({33422: (1, b"\0\1\1\2")}), "raw data"),
    "sub.tif": (tiff(inner={330: FULL}), "SubIFDs"),
    "pages.tif": (tiff(page=True), "pages"),
    "four.tif": (tiff(samples=MORE), "bands"),
    "five.tif": (tiff(samples=FIVE), "bands"),
    "associated.tif": (tiff({338: (3, 1)}, samples=MORE), "alpha"),
    "layers.tif": (tiff({37724: (7, b"Adobe Photoshop Document Data Block\0")}), "layers"),
    "geo.tif": (tiff({33550: (12, [1.0, 1.0, 0.0]), 34735: (3, [1, 1, 0, 0])}), "GeoTIFF"),
    "private.tif": (tiff({65000: (4, 7)}), "65000"),
    "signed.tif": (tiff({339: (3, 2)}, samples=rgb()[:, :, :1]), "unsigned"),
    "maker.tif": (tiff(inner={34665: {37500: (7, b"Nikon\0secret")}}), "camera maker"),
    "after.tif": (tiff(after=b"something"), "after the end"),
    "two.ppm": (saved("PPM") + saved("PPM"), "further pictures"),
    "tail.ppm": (saved("PPM") + b"\0\0tail", "after the end"),
    "plain.ppm": (b"P2 2 2 255 1 2 3 4 P2 2 2 255 1 2 3 4", "after the end"),
    "range.pgm": (b"P5 2 2 4095 " + bytes(8), "largest value"),
    "hdr.jpg": (jpeg((0xE1, XMP_SEGMENT[1][:29] + GAIN_MAP), after=jpeg()), "gain map"),
    "mpf.jpg": (jpeg((0xE2, b"MPF\0II*\0\x08\0\0\0" + bytes(6))), "MPF"),
    "iso.jpg": (jpeg((0xE2, b"urn:iso:std:iso:ts:21496:-1\0" + bytes(4))), "APP2"),
    "motion.jpg": (jpeg(XMP_SEGMENT, after=VIDEO), "video"),
    "after.jpg": (jpeg(after=b"PK\x03\x04 a whole archive"), "after the end"),
    "flir.jpg": (jpeg((0xE1, b"FLIR\0\1\0\0" + bytes(40))), "FLIR"),
    "extended.jpg": (jpeg((0xE1, b"http://ns.adobe.com/xmp/extension/\0" + bytes(50))), "extended XMP"),
    "paths.jpg": (jpeg((0xED, PATHS)), "Photoshop"),
    "no-iptc.jpg": (jpeg((0xED, NO_IPTC)), "empty block of IPTC"),
    "ducky.jpg": (jpeg((0xEC, b"Ducky\0\1\0\4\0\0\0\x50\0\0")), "Ducky"),
    "thumb.jpg": (jpeg((0xE0, b"JFXX\0\x10" + bytes(10))), "JFXX"),
    "after.png": (png(after=b"tail"), "after the end"),
    "private.png": (png((b"prVt", b"secret")), "prVt"),
    "late.png": (png((b"vpAg", b"secret"), late=True), "vpAg"),
    "nul.png": (png((b"zTXt", b"Exif\0\0" + zlib.compress(b"one\0two"))), "no text"),
    "anim.png": (png((b"acTL", struct.pack(">II", 2, 0))), "frames"),
    "scale.png": (png((b"pCAL", b"x")), "pCAL"),
    "fourth.bmp": (bmp32(rgb(3)[:, :, 0]), "besides the colors"),
    "after.bmp": (bmp32(np.zeros((24, 32)), after=b"profile"), "after the end"),
    "frames.gif": (gif(frames=3), "frames"),
    "words.gif": (gif(b"\x21\x01\x0c" + bytes(12) + b"\x02hi\0"), "extension"),
    "after.gif": (gif(after=b"tail"), "after the end"),
    "chunk.webp": (webp((b"PRVT", b"secret")), "PRVT"),
    "after.webp": (webp(after=b"tail"), "after the end"),
    "box.avif": (avif((b"uuid", bytes(16) + b"secret")), "box uuid"),
    "padding.avif": (avif((b"free", b"not only zeros")), "box free"),
    "unused.avif": (avif((b"mdat", b"a second picture")), "no item"),
    "after.avif": (avif() + b"tail", "cannot be followed"),
    "frames.avif": (avif(frames=3), "frames"),
    "item.avif": (avif(exif=EXIF).replace(b"ExifExif", b"depmExif"), "items (depm)"),
    "property.avif": (avif().replace(b"pixi", b"clli"), "property clli"),
    "colors.avif": (avif().replace(b"nclx\0\1\0\x0d", b"nclx\0\x09\0\x10"), "description of its colors"),
    "gain.avif": (avif(mode="RGBA").replace(b"systems:auxiliary:alpha", b"systems:auxiliary:depth"), "auxC"),
}  # fmt: skip

TIME = struct.pack(">HBBBBB", 2020, 1, 2, 3, 4, 5)
DENSITY = struct.pack(">IIB", 11811, 11811, 1)


def text(*items: list[str]) -> bytes:
    return json.dumps(list(items), ensure_ascii=False).encode()


# file name, content, what must be kept
WHOLE = {
    "plain.jpg": (jpeg(), {}),
    "padded.jpg": (jpeg(after=bytes(64)), {}),
    "progressive.jpg": (jpeg(progressive=True), {}),
    "xmp.jpg": (jpeg(XMP_SEGMENT), {"xmp": XMP}),
    "iptc.jpg": (jpeg((0xED, IPTC_ONLY)), {"iptc": IPTC}),
    "comment.jpg": (jpeg((0xFE, "Grüße".encode())), {"text": text(["Comment", "Grüße"])}),
    "density.jpg": (jpeg(dpi=(300, 200)), {"density": b'[300, 200, "inch"]'}),
    "plain.png": (png(), {}),
    "xmp.png": (png((b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP)), {"xmp": XMP}),
    "text.png": (
        png((b"tEXt", b"Title\0one"), (b"zTXt", b"Other\0\0" + zlib.compress(b"two")),
            (b"iTXt", b"Third\0\1\0de\0Drei\0" + zlib.compress("drü".encode())), late=True),
        {"text": text(["Title", "one"], ["Other", "two"], ["Third", "drü", "de", "Drei"])},
    ),
    "density.png": (png((b"pHYs", DENSITY)), {"density": b'[11811, 11811, "meter"]'}),
    "colors.png": (
        png((b"gAMA", b"\0\0\xb1\x8f"), (b"cICP", b"\x09\x10\0\1"), (b"tIME", TIME), (b"sBIT", b"\5\6\5")),
        {"png": b"gAMA\0\0\0\4\0\0\xb1\x8f" + b"cICP\0\0\0\4\x09\x10\0\1" + b"tIME\0\0\0\7" + TIME
         + b"sBIT\0\0\0\3\5\6\5"},
    ),
    "late.png": (png((b"eXIf", EXIF), late=True), {"exif": EXIF}),
    "plain.tif": (tiff(), {}),
    "unsigned.tif": (tiff({339: (3, [1, 1, 1])}), {}),
    "xmp.tif": (tiff({700: (1, XMP), 33723: (7, IPTC)}), {"xmp": XMP, "iptc": IPTC}),
    "alpha.tif": (tiff({338: (3, 2)}, samples=MORE), {}),
    "deflate.tif": (saved("TIFF", compression="tiff_adobe_deflate"), {}),
    "plain.ppm": (saved("PPM"), {}),
    "comment.ppm": (b"P6\n# hello\n2 2\n255\n" + bytes(range(12)), {"text": text(["Comment", "hello"])}),
    "ascii.pgm": (b"P2 2 2 255\n1 2\n3 4\n", {}),
    "plain.bmp": (saved("BMP"), {"density": b'[3780, 3780, "meter"]'}),
    "zero.bmp": (bmp32(np.zeros((24, 32))), {}),
    "opaque.bmp": (bmp32(np.full((24, 32), 255), density=2835), {"density": b'[2835, 2835, "meter"]'}),
    "plain.gif": (gif(), {}),
    "comment.gif": (gif(b"\x21\xfe\x02hi\0"), {"text": text(["Comment", "hi"])}),
    "xmp.gif": (gif(XMP_GIF), {"xmp": XMP}),
    "plain.webp": (saved("WEBP", lossless=True), {}),
    "plain.avif": (avif(), {}),
    "alpha.avif": (avif(mode="RGBA"), {}),
    "gray.avif": (avif(mode="L"), {}),
    "padded.avif": (avif((b"free", bytes(40))), {}),
    "all.avif": (avif(xmp=XMP, exif=b"Exif\0\0" + EXIF, icc_profile=bytes(200)), {"xmp": XMP, "exif": EXIF}),
    "xmp.webp": (saved("WEBP", lossless=True, xmp=XMP), {"xmp": XMP}),
}  # fmt: skip


def read(tmp_path, name, data) -> images.Picture:
    path = tmp_path / name
    path.write_bytes(data)
    return images.read(bytes(path), content=True)


@pytest.mark.parametrize("name", TRAPS)
def test_what_is_not_kept_is_named(tmp_path, name) -> None:
    data, word = TRAPS[name]
    assert any(word in reason for reason in read(tmp_path, name, data).reasons)


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_kept_whole_gives_no_reason(tmp_path, name) -> None:
    data, kept = WHOLE[name]
    picture = read(tmp_path, name, data)
    assert picture.reasons == ()
    exif = {"exif": picture.exif} if "exif" in kept else {}
    assert {**picture.metadata, **exif} == kept


def test_safe_to_delete_are_those_that_are_kept_whole(tmp_path) -> None:
    """The traps beside ordinary files: by the archive, by `encode`, `inspect` and `verify`."""
    root = tmp_path / "in"
    folder(root, 4)
    for name, (data, _) in TRAPS.items():
        (root / f"trap-{name}").write_bytes(data)
    for name, (data, _) in WHOLE.items():
        (root / f"whole-{name}").write_bytes(data)
    archive = tmp_path / "a.h5"
    told = tpca("encode", root, "-o", archive, "--step", 1, "--force")
    assert f"{len(TRAPS)} images are archived in part" in told.err and "after the end" in told.err
    facts = tpca("verify", archive, "--against", root, "--decode", "--json", code=3).json["against"]
    failed = {item["path"].split("/")[-1]: item["reason"] for item in facts["failed"]}
    assert set(failed) == {f"trap-{name}" for name in TRAPS} and facts["safe"] == 4 + len(WHOLE)
    assert all(word in failed[f"trap-{name}"] for name, (_, word) in TRAPS.items())
    listed = tpca("inspect", archive, "--list", "--json").json["list"]
    assert {image["name"] for image in listed if image["without"]} == set(failed)
    assert "in part, without: " in tpca("inspect", archive, "--list").out
    with Archive(archive) as opened:
        for position, name in enumerate(opened.names_bytes):
            kept = WHOLE.get(name.decode().removeprefix("whole-"), (b"", {}))[1]
            assert kept.items() <= opened.metadata(position).items()


def test_an_archive_of_version_1_is_not_called_whole_for_what_it_cannot_hold(tmp_path) -> None:
    """XMP that is appended to one is not kept, and a new look at the file says so."""
    import shutil

    from golden.make import HOME_V1

    target = tmp_path / "old.h5"
    shutil.copy(HOME_V1 / "tile16.h5", target)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "xmp.jpg").write_bytes(jpeg(XMP_SEGMENT))
    tpca("encode", tmp_path / "in", "-o", target, "--append", "--force")
    failed = tpca("verify", target, "--against", tmp_path / "in", "--json", code=3).json["against"]["failed"]
    assert "XMP" in failed[0]["reason"]


def test_stripped_metadata_is_gone_and_told(tmp_path) -> None:
    from PIL import Image

    root, exif = tmp_path / "in", Image.Exif()
    exif[274], exif[271] = 6, "Make"
    root.mkdir()
    (root / "a.jpg").write_bytes(jpeg(XMP_SEGMENT, exif=exif, dpi=(300, 300)))
    (root / "b.png").write_bytes(png((b"gAMA", b"\0\0\xb1\x8f"), (b"tEXt", b"Author\0me")))
    (root / "c.png").write_bytes(png())
    tpca("encode", root, "-o", tmp_path / "a.h5", "--step", 1, "--strip-metadata", "--force")
    with Archive(tmp_path / "a.h5") as archive:
        kept = [archive.metadata(k) for k in range(3)]
    orientation = Image.Exif()
    orientation.load(b"Exif\0\0" + kept[0].pop("exif"))
    assert dict(orientation) == {274: 6}
    assert kept == [{}, {"png": b"gAMA\0\0\0\4\0\0\xb1\x8f"}, {}]
    failed = tpca("verify", tmp_path / "a.h5", "--against", root, "--json", code=3).json["against"]["failed"]
    assert [item["path"].split("/")[-1] for item in failed] == ["a.jpg", "b.png"]
    assert "--strip-metadata" in failed[0]["reason"]


@settings(max_examples=300)
@given(st.sampled_from(sorted({**TRAPS, **WHOLE})), st.data())
def test_no_change_of_a_file_upsets_a_parser(name, data) -> None:
    """Cut or changed anywhere, a file gives a list of reasons, and never an error."""
    content = bytearray({**TRAPS, **WHOLE}[name][0])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(1, len(content))) :]
    found = content_of(bytes(content), data.draw(st.sampled_from(["L", "LA", "RGB", "RGBA", "I;16"])))
    assert all(reason.isprintable() and len(reason) < 200 for reason in found.reasons)


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_a_file_without_its_end_is_not_whole(name) -> None:
    data = WHOLE[name][0].rstrip(b"\0")
    cut = data[: len(data) - 13]
    assert content_of(cut, "RGB").reasons or name.split(".")[1] in ("pgm", "ppm")


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n" + (struct.pack(">I", 0) + b"prVt" + bytes(4)) * 200_000,
        b"\xff\xd8" + b"\xff\xfe\0\2" * 200_000,
        b"GIF89a" + bytes(7) + b"\x21\xfe\0" * 200_000,
        b"RIFF\xff\xff\x1f\0WEBP" + b"XXXX\0\0\0\0" * 262_144,
        png((b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 26)))),
        b"II*\0\x08\0\0\0\xff\xff" + bytes(100),
    ],
    ids=["png", "jpeg", "gif", "webp", "text", "tiff"],
)
def test_many_parts_take_little_time(data) -> None:
    import time

    start = time.process_time()
    assert content_of(data, "RGB").reasons
    assert time.process_time() - start < 2
