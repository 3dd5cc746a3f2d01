"""No name that passes leads outside the folder it is written to."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpca_cli.errors import FileRefused
from tpca_cli.names import check_names, name_problem, restored_names

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
def test_unsafe_names_refuse_the_whole_list(name) -> None:
    with pytest.raises(FileRefused):
        check_names([b"good", name])


@pytest.mark.parametrize("name", LEGAL)
def test_odd_but_legal_names_pass(name) -> None:
    assert name_problem(name) is None


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


def test_a_restored_file_never_takes_the_name_of_a_folder() -> None:
    names = [b"a.jpg", b"a.png/b.jpg", b"c/a.jpg"]
    restored = restored_names(names, b".png")
    assert restored == [b"a.jpg.png", b"a.png/b.png", b"c/a.png"]
    check_names(restored)
