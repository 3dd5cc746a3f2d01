"""`tpca decode --format`: each format holds the picture, or says so before anything is written."""

from __future__ import annotations

import os

import numpy as np
import pytest
from command import tpca
from pictures import natural, save
from PIL import Image

from tpca_cli.archive.reader import Archive


def camera_exif() -> bytes:
    """EXIF that describes the storage of another picture, as cameras write it."""
    exif = Image.Exif()
    for tag, value in ((256, 4000), (257, 3000), (258, (8, 8, 8)), (259, 6), (262, 6), (273, 9), (279, 99)):
        exif[tag] = value
    exif[271], exif[274] = "Camera", 1
    exif.get_ifd(34665)[37500] = b"maker" * 30
    return exif.tobytes()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = tmp_path_factory.mktemp("source")
    save(root / "photo.jpg", natural(48, 64, seed=1), exif=camera_exif(), quality=92)
    save(root / "gray.jpeg", natural(48, 64, 1, seed=2), quality=90)
    save(root / "sub" / "drawing.png", natural(40, 40, seed=3))
    save(root / "seethrough.png", natural(40, 40, 4, seed=4))
    save(root / "deep.tif", natural(40, 40, 1, seed=5, dtype=np.uint16))
    save(root / "web.webp", natural(40, 56, seed=6), quality=80)
    save(root / "bits.bmp", natural(24, 24, seed=7))
    save(root / "plain.pgm", natural(24, 24, 1, seed=8))
    Image.fromarray(natural(24, 24, seed=9)).convert("P").save(root / "old.gif")
    save(root / "old.png", natural(24, 24, seed=10))
    return root


@pytest.fixture(scope="module")
def archive(source, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "a.h5"
    tpca("encode", source, "-o", path, "--psnr", 38, "--force")
    return path


def decoded(archive) -> dict[str, np.ndarray]:
    with Archive(archive) as opened:
        return {os.fsdecode(name): opened[k] for k, name in enumerate(opened.names)}


def pixels(path) -> np.ndarray:
    found = np.asarray(Image.open(path))
    return found if found.ndim == 3 else found[:, :, None]


def tree(root) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("format", "ending"), [("png", ".png"), ("tiff", ".tif")])
def test_every_image_comes_back_exactly(archive, tmp_path, format, ending) -> None:
    tpca("decode", archive, "-o", tmp_path / "out", "--format", format)
    for name, wanted in decoded(archive).items():
        own = f"{os.path.splitext(name)[0]}{ending}" if name != "old.png" else f"old.png{ending}"
        assert np.array_equal(pixels(tmp_path / "out" / own), wanted), name
    photo = Image.open(tmp_path / "out" / f"photo{ending}").getexif()
    assert photo[271] == "Camera" and photo.get_ifd(34665)[37500] == b"maker" * 30


@pytest.mark.parametrize("format", ["jpeg", "bmp", "webp"])
def test_what_does_not_fit_stops_the_run_before_it_writes(archive, tmp_path, format) -> None:
    failed = tpca("decode", archive, "-o", tmp_path / "out", "--format", format, code=2)
    assert "images cannot be written as" in failed.err and "--format same" in failed.err
    assert not (tmp_path / "out").exists() or tree(tmp_path / "out") == set()
    tpca("decode", archive, "-o", tmp_path / "out", "--format", format, "--select", "photo*")


def test_metadata_that_a_format_cannot_hold_are_named(archive, tmp_path) -> None:
    done = tpca("decode", archive, "-o", tmp_path / "out", "--format", "bmp", "--select", "photo*")
    assert "EXIF" in done.err
    data = tpca(
        "decode", archive, "-o", tmp_path / "x", "--format", "bmp", "--select", "photo*", "--json"
    ).json
    assert data["left_out"] == [{"path": "photo.jpg", "reason": "bmp has no place for its EXIF"}]


def test_each_file_gets_its_own_format_and_name_back(source, archive, tmp_path) -> None:
    done = tpca("decode", archive, "-o", tmp_path / "out", "--format", "same", "--json")
    kept = tree(source) - {"old.gif"}
    assert tree(tmp_path / "out") == kept | {"old.gif.png"}
    assert done.json["converted"] == [{"path": "old.gif", "reason": "GIF is not written: it is a PNG"}]
    exact = decoded(archive)
    with Archive(archive) as opened:
        index = opened.index
        errors = {
            os.fsdecode(opened.names[k]): index.images["error"][image] / index.samples[image]
            for k, image in enumerate(opened.alive)
        }
    for name in sorted(kept):
        with Image.open(source / name) as before, Image.open(tmp_path / "out" / name) as after:
            assert before.format == after.format and before.size == after.size
        found = pixels(tmp_path / "out" / name)
        if name.endswith((".jpg", ".jpeg")):
            assert np.mean((found.astype(float) - exact[name]) ** 2) < errors[name]
        else:
            assert np.array_equal(found, exact[name]), name


def test_what_was_archived_exactly_is_no_jpeg(tmp_path) -> None:
    save(tmp_path / "in" / "black.jpg", np.zeros((16, 16, 3), np.uint8))
    save(tmp_path / "in" / "black.png", np.zeros((16, 16, 3), np.uint8))
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 1, "--force")
    done = tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out", "--format", "same")
    assert tree(tmp_path / "out") == {"black.png", "black.jpg.png"} and "black.jpg" in done.err
    assert not pixels(tmp_path / "out" / "black.jpg.png").any()


def test_the_summary_says_what_png_takes(source, archive, tmp_path) -> None:
    done = tpca("decode", archive, "-o", tmp_path / "out", "--select", "photo*", "--select", "gray*")
    size = sum((source / name).stat().st_size for name in ("photo.jpg", "gray.jpeg"))
    assert "--format same" in done.out and "the sources took" in done.out
    data = tpca(
        "decode", archive, "-o", tmp_path / "x", "--select", "photo*", "--select", "gray*", "--json"
    ).json
    assert data["source_bytes"] == size < data["written_bytes"]


@pytest.mark.parametrize("alias", ["jpg", "JPEG", "tif", "Png"])
def test_formats_go_by_their_common_names(archive, tmp_path, alias) -> None:
    tpca("decode", archive, "-o", tmp_path / "out", "--format", alias, "--select", "photo*")


def test_exif_of_another_kind_does_not_fit_a_jpeg(tmp_path) -> None:
    exif = Image.Exif()
    exif[270] = "x" * 70000
    save(tmp_path / "in" / "much.png", natural(24, 24), exif=exif.tobytes())
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 8, "--force")
    failed = tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out", "--format", "jpeg", code=2)
    assert "EXIF" in failed.err
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out", "--format", "tiff")
    assert Image.open(tmp_path / "out" / "much.tif").getexif()[270] == "x" * 70000
