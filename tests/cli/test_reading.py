"""`ls`, `cat`, `diff`, `decode --select-from`, `--include` and `--exclude`: laws, and what they refuse."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from command import tpca
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pictures import folder, natural, save
from PIL import Image

from tpca_cli.archive.reader import Archive
from tpca_cli.cli import cat
from tpca_cli.cli.main import _run
from tpca_cli.errors import UsageError
from tpca_cli.sources.scan import Patterns, Sources, scan

ODD = b"holiday/caf\xe9\n.png"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos, some in a folder, one with an odd name; their archive."""
    root = tmp_path_factory.mktemp("reading")
    folder(root / "photos", 5, channels=[3, 1], sizes=[(24, 32), (16, 16)])
    folder(root / "photos" / "holiday", 2, sizes=[(24, 32)], seed=9)
    Image.fromarray(natural(16, 24, 3, 77)).save(os.fsdecode(os.fsencode(root / "photos") + b"/" + ODD))
    tpca("encode", root / "photos", "-o", root / "a.h5", "--psnr", 36)
    return root


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def names(place: Path) -> list[bytes]:
    with Archive(place / "a.h5") as archive:
        return list(archive.names_bytes)


def run_raw(capfdbinary, *arguments: object) -> tuple[int, bytes]:
    """A command whose output is no text."""
    import sys

    code = _run([str(argument) for argument in arguments])
    sys.stdout.flush()
    return code, capfdbinary.readouterr().out


def test_ls_lists_every_image_with_size_and_quality(place: Path) -> None:
    lines = tpca("ls", place / "a.h5").out.splitlines()
    assert len(lines) == 1 + len(names(place)) and "16x24  RGB" in lines[1] and " dB " in lines[1]
    listed = [json.loads(line) for line in tpca("ls", place / "a.h5", "--json").out.splitlines()]
    assert listed == tpca("inspect", place / "a.h5", "--list", "--json").json["list"]
    assert bytes.fromhex(next(item for item in listed if "name_bytes" in item)["name_bytes"]) == ODD
    assert len(tpca("ls", place / "a.h5", "--names").out.splitlines()) == len(names(place))


def test_ls_sorts_and_matches(place: Path) -> None:
    listed = [
        json.loads(line) for line in tpca("ls", place / "a.h5", "--json", "--sort", "-psnr").out.splitlines()
    ]
    assert [item["psnr"] for item in listed] == sorted((item["psnr"] for item in listed), reverse=True)
    some = tpca("ls", place / "a.h5", "holiday/*", "--names").out.splitlines()
    assert len(some) == 3 and all(name.startswith("holiday/") for name in some)
    assert "no image matches nothing*" in tpca("ls", place / "a.h5", "nothing*", code=1).err
    assert tpca("ls", place / "a.h5", "nothing*", "--json", code=1).json["code"] == 1


def test_ls_gives_exact_names_to_decode(place: Path, tmp_path: Path, capfdbinary, monkeypatch) -> None:
    """Whatever bytes they have, line ends included."""
    code, out = run_raw(capfdbinary, "ls", place / "a.h5", "holiday/*", "--print0")
    assert code == 0 and set(out.split(b"\0")[:-1]) == {name for name in names(place) if b"holiday/" in name}
    (tmp_path / "list").write_bytes(out)
    done = tpca(
        "decode", place / "a.h5", "-o", tmp_path / "out", "--select-from", tmp_path / "list", "--json"
    )
    assert done.json["images"] == 3 and not done.json["unknown"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(out)))
    done = tpca("decode", place / "a.h5", "-o", tmp_path / "two", "--select-from", "-", "--json")
    assert done.json["images"] == 3


def test_a_list_and_patterns_are_added_and_unknown_names_told(place: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("image_0000.png\nnot there.png\n")
    words = ("decode", place / "a.h5", "-o", tmp_path / "out", "--select", "holiday/*")
    done = tpca(*words, "--select-from", tmp_path / "list", "--json", code=3).json
    assert done["images"] == 4 and done["unknown"] == ["not there.png"]
    assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == 4
    (tmp_path / "none").write_text("not there.png\n")
    told = tpca("decode", place / "a.h5", "-o", tmp_path / "no", "--select-from", tmp_path / "none", code=1)
    assert "no image matches the 1 names of the list" in told.err and not (tmp_path / "no").exists()
    told = tpca("decode", place / "a.h5", "-o", tmp_path / "no", "--select-from", tmp_path / "gone", code=2)
    assert "no such file" in told.err
    tpca("decode", place / "a.h5", "-o", tmp_path / "no", "--select-from", tmp_path, code=5)


@pytest.mark.parametrize("format", ["png", "webp", "tiff", "same"])
def test_cat_gives_the_file_that_decode_writes(place: Path, tmp_path: Path, capfdbinary, format) -> None:
    tpca("decode", place / "a.h5", "-o", tmp_path, "--format", format, "--force")
    written = {path.stem: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for number in range(5):
        words = ("cat", place / "a.h5", f"image_000{number}.png", "--format", format)
        code, out = run_raw(capfdbinary, *words)
        assert (code, out) == (0, written[f"image_000{number}"])


def test_cat_as_json_has_everything(place: Path) -> None:
    name = os.fsdecode(ODD)
    told = tpca("cat", place / "a.h5", name, "--json").json
    assert bytes.fromhex(told["name_bytes"]) == ODD and (told["height"], told["width"]) == (16, 24)
    with Archive(place / "a.h5") as archive, Image.open(io.BytesIO(base64.b64decode(told["data"]))) as image:
        assert np.array_equal(np.asarray(image), archive[ODD])
    assert told["bytes"] == len(base64.b64decode(told["data"]))


def test_cat_refuses_what_is_not_there_and_terminals(place: Path, monkeypatch) -> None:
    assert "no image x.png" in tpca("cat", place / "a.h5", "x.png", code=1).err
    assert tpca("cat", place / "a.h5", "x.png", "--json", code=1).json["code"] == 1
    tpca("cat", place / "gone.h5", "x.png", code=2)
    tpca("cat", place / "photos" / "image_0000.png", "x.png", code=4)
    monkeypatch.setattr("tpca_cli.cli.cat.sys.stdout", Terminal())
    with pytest.raises(UsageError, match="redirect"):
        cat.command.main([str(place / "a.h5"), "image_0000.png"], standalone_mode=False)


def test_diff_of_an_archive_and_its_folder(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "photos", tmp_path / "photos")
    words = ("diff", place / "a.h5", tmp_path / "photos")
    found = tpca(*words, "--json").json
    assert found["equal"] and found["same"] == 8
    os.unlink(tmp_path / "photos" / "image_0000.png")
    save(tmp_path / "photos" / "image_0001.png", natural(8, 8, 3, 5))
    save(tmp_path / "photos" / "new.png", natural(8, 8, 3, 6))
    found = tpca(*words, "--json", code=3).json
    assert (found["only_a"], found["only_b"], found["same"]) == (["image_0000.png"], ["new.png"], 6)
    assert found["changed"] == [{"name": "image_0001.png", "what": ["source file"]}]
    turned = tpca("diff", tmp_path / "photos", place / "a.h5", "--json", code=3).json
    assert (turned["only_a"], turned["only_b"]) == (["new.png"], ["image_0000.png"])
    lines = tpca(*words, code=3).out.splitlines()
    assert lines[:3] == ["- image_0000.png", "+ new.png", "! image_0001.png: source file"]
    assert tpca(*words, "--quiet", code=3).out == ""
    left = tpca(*words, "--json", "--exclude", "new.png", "--exclude", "image_0001.png", code=3).json
    assert (left["only_b"], left["changed"], left["only_a"]) == ([], [], ["image_0000.png"])


def test_diff_of_archives(place: Path, tmp_path: Path) -> None:
    tpca("repack", place / "a.h5", "-o", tmp_path / "copy.h5")
    assert tpca("diff", place / "a.h5", tmp_path / "copy.h5", "--decode", "--json").json["equal"]
    tpca("encode", place / "photos", "-o", tmp_path / "fine.h5", "--psnr", 42)
    found = tpca("diff", place / "a.h5", tmp_path / "fine.h5", "--json", code=3).json
    assert found["same"] == 0 and all("quality" in item["what"][0] for item in found["changed"])
    tpca("encode", place / "photos", "-o", tmp_path / "small.h5", "--psnr", 36, "--size", "8x8")
    found = tpca("diff", place / "a.h5", tmp_path / "small.h5", "--json", code=3).json
    assert all(item["what"][0].startswith("size") for item in found["changed"])


def test_diff_refuses_what_it_cannot_compare(place: Path, tmp_path: Path) -> None:
    archive, photos = place / "a.h5", place / "photos"
    assert "neither" in tpca("diff", photos, photos, code=2).err
    for words in ((archive, tmp_path / "gone"), (tmp_path / "gone", photos)):
        assert "no such file" in tpca("diff", *words, code=2).err
    (tmp_path / "empty").mkdir()
    tpca("diff", archive, tmp_path / "empty", code=1)
    tpca("diff", archive, photos, "--decode", code=2)
    assert tpca("diff", archive, archive, "--include", "holiday", "--json").json["same"] == 3
    data = bytearray(archive.read_bytes())
    data[-200] ^= 1
    (tmp_path / "bad.h5").write_bytes(data[:-100])
    for words in ((tmp_path / "bad.h5", photos), (archive, tmp_path / "bad.h5")):
        assert "truncated" in tpca("diff", *words, code=4).err
    tpca(
        "fit-basis",
        photos,
        "-o",
        tmp_path / "basis.h5",
        "--tile",
        8,
        "--exclude",
        "image_0001.png",
        code=None,
    )
    tpca("diff", archive, tmp_path / "basis.h5", code=4)


def test_a_file_that_cannot_be_read_is_named_by_diff(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "photos", tmp_path / "photos")
    (tmp_path / "photos" / "film.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(40))
    found = tpca("diff", place / "a.h5", tmp_path / "photos", "--json", code=3).json
    assert found["same"] == 8 and "video" in found["skipped"][0]["reason"] and not found["equal"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("--include", "holiday"), 3),
        (("--include", "holiday/*"), 3),
        (("--exclude", "holiday"), 5),
        (("--exclude", "holiday/"), 5),
        (("--include", "image_000[01].png"), 4),  # also those in the folder
        (("--include", "image_0000.png", "--exclude", "holiday"), 1),
        (("--exclude", "*.gif"), 8),
    ],
)
def test_patterns_choose_among_sources(place: Path, tmp_path: Path, patterns, expected) -> None:
    done = tpca("encode", place / "photos", "-o", tmp_path / "a.h5", "--step", 8, *patterns, "--json").json
    assert done["images"] == expected
    against = ("verify", tmp_path / "a.h5", "--against", place / "photos", "--json")
    assert tpca(*against, *patterns).json["against"]["safe"] == expected
    fitted = ("fit-basis", place / "photos", "-o", tmp_path / "b.h5", "--size", "8x8", *patterns)
    assert tpca(*fitted, "--json", code=None).json["images"] in (
        expected,
        expected - 2,
    )  # gray ones widen or not


def test_what_patterns_leave_out_is_counted_and_never_opened(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "photos", tmp_path / "photos")
    (tmp_path / "photos" / "film.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(40))
    os.mkfifo(tmp_path / "photos" / "pipe.png")
    words = ("encode", tmp_path / "photos", "-o", tmp_path / "a.h5", "--step", 8, "--force", "--json")
    assert len(tpca(*words, code=3).json["skipped"]) == 2
    done = tpca(*words, "--exclude", "*.mp4", "--exclude", "pipe.png").json
    assert (done["skipped"], done["excluded"], done["ignored"]) == ([], 2, 0)
    told = tpca(*words[:-1], "--include", "nothing", code=1).err
    assert "no image" in told and "left out by --include or --exclude" in told
    tpca("verify", tmp_path / "a.h5", "--exclude", "x", code=2)
    tpca("inspect", tmp_path / "a.h5", "--exclude", "x", code=2)


def test_inspect_takes_patterns_for_its_sources(place: Path, tmp_path: Path) -> None:
    words = ("inspect", place / "a.h5", "--gallery", place / "photos", tmp_path / "g.png", "--force")
    tpca(*words, "--include", "holiday")
    assert "none of the archive's images" in tpca(*words, "--include", "nothing", code=1).err


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([b"a", b"b", b"thumbs", b"x.gif"]), min_size=1, max_size=4))
def test_a_pattern_without_slash_matches_any_part(parts) -> None:
    name = b"/".join(parts)
    assert Patterns(["thumbs"]).match(name) == (b"thumbs" in parts)
    assert Patterns(["*.gif"]).match(name) == (b"x.gif" in parts)
    assert Patterns([name.decode()]).match(name + b"/below") and not Patterns([]).match(name)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["a*", "*b", "holiday", "image_0001.png", "*"]), max_size=3))
def test_include_and_exclude_split_the_sources(place, patterns) -> None:
    """What is included and what is excluded by the same patterns are all images, each once."""
    everything = {ref.name for ref in scan([str(place / "photos")]).refs}
    taken = {ref.name for ref in scan(Sources([str(place / "photos")], patterns, ())).refs}
    rest = {ref.name for ref in scan(Sources([str(place / "photos")], (), patterns)).refs}
    if patterns:
        assert taken | rest == everything and not taken & rest
    else:
        assert taken == rest == everything
