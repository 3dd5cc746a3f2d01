"""What every command does about sources that are not there, and files that are not taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command import tpca
from media import FOREIGN
from pictures import folder, natural
from PIL import Image

COMMANDS = {
    "encode": ["encode", "SOURCE", "-o", "new.h5"],
    "encode, planned": ["encode", "SOURCE", "-o", "new.h5", "--dry-run"],
    "append": ["encode", "SOURCE", "-o", "a.h5", "--append"],
    "append, planned": ["encode", "SOURCE", "-o", "a.h5", "--append", "--dry-run"],
    "fit-basis": ["fit-basis", "SOURCE", "-o", "new.h5"],
    "fit-basis, planned": ["fit-basis", "SOURCE", "-o", "new.h5", "--dry-run"],
    "verify": ["verify", "a.h5", "--against", "SOURCE"],
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some photos and their archive, in the folder where we are."""
    monkeypatch.chdir(tmp_path)
    folder(Path("photos"), 6)
    tpca("encode", "photos", "-o", "a.h5", "--step", 8, "--force")
    return tmp_path


def words(command: str, source: str) -> list[str]:
    return [source if word == "SOURCE" else word for word in COMMANDS[command]]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_images_is_an_error(place: Path, command: str) -> None:
    Path("empty").mkdir()
    before = Path("a.h5").read_bytes()
    outcome = tpca(*words(command, "empty"), code=1)
    assert "no image in empty" in outcome.err and "nothing ignored" in outcome.err
    assert Path("a.h5").read_bytes() == before and not Path("new.h5").exists()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("source", ["gone", "gone/*.jpg", "@gone.txt"])
def test_a_source_that_does_not_exist_is_a_usage_error(place: Path, command: str, source: str) -> None:
    outcome = tpca(*words(command, source), code=2)
    assert "gone" in outcome.err
    assert not Path("new.h5").exists()


@pytest.mark.parametrize("command", [name for name in COMMANDS if "planned" not in name])
def test_media_that_are_not_read_are_named_and_other_files_counted(place: Path, command: str) -> None:
    for name in ("cr3", "mp4", "orf", "svg"):
        Path("photos", f"x.{name}").write_bytes(FOREIGN[name])
    Path("photos", "notes.txt").write_text("hello")
    Path("photos", ".hidden.jpg").write_text("hello")
    extra = [] if command == "verify" else ["--force"]
    told = tpca(*words(command, "photos"), *extra, code=3)
    for name in ("cr3", "mp4", "orf", "svg"):
        assert f"photos/x.{name}: " in told.err
    assert "1 other file and 1 hidden file or folder ignored" in told.out + told.err
    data = tpca(*words(command, "photos"), *extra, "--json", code=3).json
    facts = data["against"] if command == "verify" else data
    assert len(facts["failed" if command == "verify" else "skipped"]) == 4
    assert (facts["ignored"], facts["ignored_hidden"]) == (2, 1)
    assert facts["ignored_examples"] == ["photos/notes.txt"]


def test_a_fit_counts_a_file_once_whatever_leads_to_it(place: Path) -> None:
    tpca("fit-basis", "photos", "-o", "once.h5")
    os.link("photos/image_0000.png", "photos/zz.png")
    Path("photos", "link.png").symlink_to("image_0001.png")
    outcome = tpca("fit-basis", "photos", "-o", "links.h5", "--json")
    assert (outcome.json["added"], outcome.json["duplicates"]) == (6, 2)
    assert Path("once.h5").read_bytes() == Path("links.h5").read_bytes()
    tpca("fit-basis", "photos", "photos/image_0003.png", "-o", "twice.h5")
    assert Path("once.h5").read_bytes() == Path("twice.h5").read_bytes()


def test_avif_is_read_and_kept_whole(place: Path) -> None:
    Image.fromarray(natural(24, 32)).save("photos/one.avif", quality=90)
    data = tpca("encode", "photos", "-o", "b.h5", "--step", 8, "--force", "--json").json
    assert (data["images"], data["partial"]) == (7, 0)
    assert tpca("verify", "b.h5", "--against", "photos", "--json").json["against"]["safe"] == 7


@pytest.mark.parametrize("command", [("encode",), ("fit-basis", "--size", "8x8")])
def test_names_that_are_not_text_are_exact_in_the_json_of_an_error(tmp_path, command) -> None:
    folder = os.fsencode(tmp_path / "in")
    os.mkdir(folder)
    name = os.path.join(folder, b"caf\xe9.jpg")
    Path(os.fsdecode(name)).write_bytes(b"\xff\xd8\xff\xe0 no picture")
    first, *more = command
    told = tpca(first, tmp_path / "in", *more, "-o", tmp_path / "a.h5", "--json", code=1).json
    (item,) = told["skipped"]
    assert bytes.fromhex(item["path_bytes"]) == name and item["path"].endswith("caf\\xe9.jpg")
    assert "caf\\xe9.jpg" in tpca(first, tmp_path / "in", *more, "-o", tmp_path / "a.h5", code=1).err


@pytest.mark.parametrize(
    "target", [["--psnr", 34], ["--exact"], ["--plain", "--basis"], ["--psnr", 34, "--append"]]
)
def test_no_source_is_overwritten_by_its_archive(tmp_path, target) -> None:
    folder(tmp_path / "in", 3)
    if "--basis" in target:
        tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", "--tile", 8)
        target = [*target, tmp_path / "b.h5"]
    source = tmp_path / "in" / "image_0001.png"
    before, code = source.read_bytes(), 4 if "--append" in target else 2
    for output in (source, tmp_path / "other" / ".." / "in" / source.name):
        (tmp_path / "other").mkdir(exist_ok=True)
        told = tpca("encode", tmp_path / "in", "-o", output, "--force", *target, code=code).err
        assert "image_0001.png" in told and source.read_bytes() == before
    assert sorted(os.listdir(tmp_path / "in")) == [f"image_{k:04d}.png" for k in range(3)]
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--force", *target)
    # an archive among its sources is none of them
    (tmp_path / "a.h5").rename(tmp_path / "in" / "a.h5")
    tpca("encode", tmp_path / "in", "-o", tmp_path / "in" / "a.h5", "--force", *target)
