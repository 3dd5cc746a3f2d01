"""Nothing planted in an output folder leads outside, and no name does."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpca_cli.errors import FileRefused, OutputExists
from tpca_cli.tree import OutputTree, check_names, name_problem

UNSAFE = [
    b"",
    b"/x",
    b"../x",
    b"a/../../x",
    b"a//b",
    b".",
    b"a/.",
    b"a/",
    b"x\0y",
    b"n" * 256,
    b"d/" * 2100 + b"x",
]
LEGAL = [b"a", b"a/b.png", b"A", b"new\nline", b"\x1b[31mred", b"\xff\xfe", b"-rf", b" x", b"...", b"n" * 255]


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_names_refuse_the_whole_list(name, tmp_path) -> None:
    with pytest.raises(FileRefused):
        OutputTree(tmp_path / "out").check([b"good", name])


def test_legal_names_are_written_byte_for_byte(tmp_path) -> None:
    tree = OutputTree(tmp_path / "out")
    names = [b"sub/" + name if b"/" not in name else name for name in LEGAL if name != b"a"]
    tree.check(names)
    for name in names:
        tree.write(name, name, mtime_ns=1_600_000_000_123_456_789)
    for name in names:
        path = os.path.join(os.fsencode(tmp_path), b"out", name)
        with open(path, "rb") as file:
            assert file.read() == name
        assert os.stat(path).st_mtime_ns // 1000 == 1_600_000_000_123_456


@given(st.lists(st.sampled_from([b"a", b"a/b", b"b", b"a/b/c", b"c/d"]), max_size=4))
def test_a_list_is_refused_exactly_when_two_names_collide(names) -> None:
    clash = len(set(names)) < len(names) or any(
        one != two and two.startswith(one + b"/") for one in names for two in names
    )
    if clash:
        with pytest.raises(FileRefused):
            check_names(names)
    else:
        check_names(names)


@given(st.binary(max_size=30))
def test_a_name_without_problem_stays_inside(name) -> None:
    if name_problem(name) is None:
        inside = os.path.normpath(os.path.join(b"/root", name))
        assert inside.startswith(b"/root/") and inside == b"/root/" + name


@pytest.mark.parametrize("force", [False, True])
def test_planted_links_leave_their_victims_alone(tmp_path, force) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = outside / "victim"
    victim.write_bytes(b"precious")
    out = tmp_path / "out"
    tree = OutputTree(out, force=force)

    (out / "soft").symlink_to(victim)
    (out / "dir").symlink_to(outside)
    os.link(victim, out / "hard")
    for name in (b"soft", b"hard"):
        if force:
            tree.write(name, b"new")
        else:
            with pytest.raises(OutputExists):
                tree.write(name, b"new")
    with pytest.raises(OutputExists):
        tree.write(b"dir/victim", b"new")
    assert victim.read_bytes() == b"precious"
    assert os.listdir(outside) == ["victim"]
    assert not [name for name in os.listdir(out) if name.endswith(".tmp")]


def test_an_output_folder_that_is_a_link_is_refused(tmp_path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OutputExists):
        OutputTree(tmp_path / "link")


def test_existing_files_are_found_before_anything_is_written(tmp_path) -> None:
    tree = OutputTree(tmp_path)
    tree.write(b"b", b"1")
    with pytest.raises(OutputExists, match="--force"):
        tree.check([b"a", b"b"])
    OutputTree(tmp_path, force=True).check([b"a", b"b"])
