"""Names and links that try to leave the output folder, and files that are already there.

Cases 41 to 43 of the table.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from commands import QUICK, archived, check_failed, forked, sha, tree
from forge import forged, renamed

UNSAFE = {
    "parent": b"../x",
    "absolute": b"/tmp/tpca-escape",
    "hidden parent": b"a/../../x",
    "empty part": b"a//b",
    "dot": b".",
    "dotdot": b"..",
    "trailing slash": b"a/",
    "empty": b"",
    "long part": b"n" * 256,
    "long name": b"d/" * 2100 + b"x",
}
LEGAL = [
    b"case.png",
    b"CASE.png",
    b"new\nline.png",
    b"\x1b[31mred.png",
    b"\xff\xfe.png",
    b"-rf.png",
    b" x.png",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("names")
    archived(root, 8, *QUICK)
    return root


@pytest.mark.parametrize("kind", UNSAFE)
def test_41_an_unsafe_name_refuses_the_whole_archive(place: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "deep" / "out"
    out.parent.mkdir()
    forged(place / "a.h5", tmp_path / "x.h5", index=renamed(UNSAFE[kind]))
    for words in (
        ("decode", tmp_path / "x.h5", "-o", out, "--force"),
        ("verify", tmp_path / "x.h5"),
        ("inspect", tmp_path / "x.h5"),
        ("encode", place / "in", "-o", tmp_path / "x.h5", "--append"),
    ):
        check_failed(forked(*words), 4)
    assert sorted(os.listdir(tmp_path)) == ["deep", "x.h5"]
    assert not out.exists() and not os.path.exists("/tmp/tpca-escape")


@pytest.mark.parametrize(
    "names", [(b"same.png", b"same.png"), (b"a", b"a/b.png")], ids=["twice", "file and folder"]
)
def test_41_names_that_collide(place: Path, tmp_path: Path, names: tuple[bytes, ...]) -> None:
    forged(place / "a.h5", tmp_path / "x.h5", index=renamed(*names))
    check_failed(forked("decode", tmp_path / "x.h5", "-o", tmp_path / "out"), 4)
    assert not (tmp_path / "out").exists()


def test_41_odd_names_are_written_as_they_are_and_escaped_in_messages(place: Path, tmp_path: Path) -> None:
    forged(place / "a.h5", tmp_path / "x.h5", index=renamed(*LEGAL))
    assert forked("decode", tmp_path / "x.h5", "-o", tmp_path / "out").code == 0
    assert set(LEGAL) < set(os.listdir(os.fsencode(tmp_path / "out")))
    listing = forked("inspect", tmp_path / "x.h5", "--list")
    assert listing.code == 0 and "\x1b" not in listing.out and "new\nline" not in listing.out
    again = forked("decode", tmp_path / "x.h5", "-o", tmp_path / "out")
    check_failed(again, 6)
    assert "\x1b" not in again.err


@pytest.mark.parametrize("force", [False, True])
def test_42_planted_links_leave_their_victims_alone(place: Path, tmp_path: Path, force: bool) -> None:
    names = (b"plain.png", b"sub/deep/x.png", b"hard.png")
    archive = forged(place / "a.h5", tmp_path / "x.h5", index=renamed(*names))
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = outside / "x.png"
    victim.write_bytes(b"precious")
    options = ["--force"] if force else []

    planted = tmp_path / "parent"
    (planted / "sub").mkdir(parents=True)
    (planted / "sub" / "deep").symlink_to(outside)
    check_failed(forked("decode", archive, "-o", planted, *options), 4, 6)

    (tmp_path / "output").symlink_to(outside)
    check_failed(forked("decode", archive, "-o", tmp_path / "output", *options), 4, 6)

    files = tmp_path / "files"
    files.mkdir()
    (files / "plain.png").symlink_to(victim)
    os.link(victim, files / "hard.png")
    ended = forked("decode", archive, "-o", files, *options)
    assert ended.code == (0 if force else 6)
    assert victim.read_bytes() == b"precious" and os.listdir(outside) == ["x.png"]


def test_42_an_archive_is_never_written_through_a_link(place: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "a.h5").symlink_to(victim)
    check_failed(forked("encode", place / "in", "-o", tmp_path / "a.h5", *QUICK), 6)
    assert forked("encode", place / "in", "-o", tmp_path / "a.h5", *QUICK, "--force").code == 0
    assert victim.read_bytes() == b"precious" and not (tmp_path / "a.h5").is_symlink()
    (tmp_path / "b.h5.lock").symlink_to(victim)
    check_failed(forked("encode", place / "in", "-o", tmp_path / "b.h5", *QUICK), 5)
    assert victim.read_bytes() == b"precious"


def test_43_files_that_exist_are_kept_unless_forced(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "image_0003.png").write_bytes(b"mine")
    check_failed(forked("decode", place / "a.h5", "-o", out), 6)
    assert tree(out) == {"image_0003.png": b"mine"}
    assert forked("decode", place / "a.h5", "-o", out, "--force").code == 0
    before = tree(out)
    assert len(before) == 8 and forked("decode", place / "a.h5", "-o", out, "--force").code == 0
    assert tree(out) == before
    archive = sha(place / "a.h5")
    check_failed(forked("encode", place / "in", "-o", place / "a.h5", *QUICK), 6)
    assert sha(place / "a.h5") == archive
