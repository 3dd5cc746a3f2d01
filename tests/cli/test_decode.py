"""`tpca decode` restores names, modes, times and metadata, and writes nowhere else."""

from __future__ import annotations

import os

import numpy as np
import pytest
from command import tpca
from pictures import natural, save
from PIL import Image


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = tmp_path_factory.mktemp("source")
    names = [
        b"plain.png",
        b"sub/deep/x.png",
        b"\xff\xfe.png",
        b"new\nline.png",
        b"-dash.png",
        b" space.png",
        b"n" * 251 + b".png",
    ]
    for seed, name in enumerate(names):
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Image.fromarray(natural(16, 24, seed=seed)).save(os.fsdecode(path))
        os.utime(path, ns=(0, 1_500_000_000_000_000_000 + seed * 1_000_000_007_000))
    exif = Image.Exif()
    exif[0x0112] = 6
    save(
        root / "rotated.jpg",
        natural(16, 24, seed=50),
        exif=exif.tobytes(),
        icc_profile=b"profile" * 9,
        quality=95,
    )
    save(root / "twin.jpg", natural(16, 24, seed=51))
    save(root / "twin.png", natural(16, 24, seed=52))
    return root


@pytest.fixture(scope="module")
def archive(source, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "a.h5"
    tpca("encode", source, "-o", path, "--step", 1, "--force")
    return path


def files(root) -> dict[bytes, os.stat_result]:
    base = os.fsencode(root)
    found = {}
    for folder, _, names in os.walk(base):
        for name in names:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, base)] = os.stat(path)
    return found


def test_names_and_times_come_back(source, archive, tmp_path) -> None:
    tpca("decode", archive, "-o", tmp_path / "out")
    back = files(tmp_path / "out")
    wanted = files(source)
    assert len(back) == len(wanted)
    for name, stat in wanted.items():
        if name.endswith(b".png") and b"twin" not in name:
            assert back[name].st_mtime_ns // 1000 == stat.st_mtime_ns // 1000
    assert {b"rotated.png", b"twin.png", b"twin.png.png"} <= set(back)


def test_exif_and_icc_come_back_and_pixels_are_not_rotated(archive, tmp_path) -> None:
    tpca("decode", archive, "-o", tmp_path / "out", "--select", "rotated*")
    image = Image.open(tmp_path / "out" / "rotated.png")
    assert image.size == (24, 16) and image.getexif()[0x0112] == 6
    assert image.info["icc_profile"] == b"profile" * 9


def test_selected_names_are_those_of_a_full_restore(archive, tmp_path) -> None:
    tpca("decode", archive, "-o", tmp_path / "out", "--select", "twin.png")
    assert set(files(tmp_path / "out")) == {b"twin.png.png"}
    assert (
        "no image matches" in tpca("decode", archive, "-o", tmp_path / "x", "--select", "nothing", code=1).err
    )


def test_fewer_components_are_blurrier(source, archive, tmp_path) -> None:
    errors = []
    original = np.asarray(Image.open(source / "plain.png"), float)
    for components in (1, 4, 16, 200):
        out = tmp_path / str(components)
        tpca("decode", archive, "-o", out, "--components", components, "--select", "plain.png")
        errors.append(((np.asarray(Image.open(out / "plain.png"), float) - original) ** 2).sum())
    assert errors == sorted(errors, reverse=True) and errors[0] > 4 * errors[-1]


@pytest.mark.parametrize("format", ["webp", "tiff", "bmp"])
def test_other_formats_hold_the_same_pixels(archive, tmp_path, format) -> None:
    tpca("decode", archive, "-o", tmp_path / "png", "--select", "plain*")
    tpca("decode", archive, "-o", tmp_path / format, "--format", format, "--select", "plain*")
    one, two = next((tmp_path / "png").iterdir()), next((tmp_path / format).iterdir())
    assert np.array_equal(np.asarray(Image.open(one)), np.asarray(Image.open(two)))


def test_existing_files_are_kept_unless_forced(archive, tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "twin.png").write_bytes(b"mine")
    tpca("decode", archive, "-o", out, code=6)
    assert list(out.iterdir()) == [out / "twin.png"] and (out / "twin.png").read_bytes() == b"mine"
    tpca("decode", archive, "-o", out, "--force")
    assert Image.open(out / "twin.png").size == (24, 16)


@pytest.mark.parametrize("force", [False, True])
def test_planted_links_leave_their_victims_alone(archive, tmp_path, force) -> None:
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    out.mkdir()
    victim = outside / "x.png"
    victim.write_bytes(b"precious")
    options = ["--force"] if force else []
    (out / "sub").mkdir()
    (out / "sub" / "deep").symlink_to(outside)
    tpca("decode", archive, "-o", out, *options, code=6)
    assert victim.read_bytes() == b"precious" and os.listdir(outside) == ["x.png"]
    (tmp_path / "link").symlink_to(outside)
    tpca("decode", archive, "-o", tmp_path / "link", *options, code=6)
    assert os.listdir(outside) == ["x.png"]


def test_forced_restore_replaces_links_not_their_targets(archive, tmp_path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    out = tmp_path / "out"
    out.mkdir()
    (out / "plain.png").symlink_to(victim)
    os.link(victim, out / "rotated.png")
    tpca("decode", archive, "-o", out, "--force")
    assert victim.read_bytes() == b"precious"
    assert Image.open(out / "plain.png").size == Image.open(out / "rotated.png").size == (24, 16)


def test_an_archive_is_opened_once(archive, tmp_path, monkeypatch) -> None:
    """Behind an address every opening costs requests."""
    from tpca_cli.store import read

    opened, genuine = [], read.open_bytes
    monkeypatch.setattr(read, "open_bytes", lambda path: opened.append(path) or genuine(path))
    tpca("decode", archive, "-o", tmp_path / "out", "--workers", 1)
    assert len(opened) == 1


def test_a_folder_without_a_name_is_refused(archive, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("decode", "export"):
        assert "'.' is the current folder" in tpca(command, archive, "-o", "", code=2).err
    assert not list(tmp_path.iterdir())
    tpca("decode", archive, "-o", ".")
    assert list(tmp_path.iterdir())
