"""A table names every dataset once, and knows which ones a file lacks."""

from __future__ import annotations

import pytest

from tpca_cli.store import Field, Schema

from .samples import SMALL

REQUIRED = {"a", "deep/b", "bulk"}


def test_a_star_stands_for_numbers_in_their_one_spelling() -> None:
    assert SMALL.field("many/0/x") == SMALL.field("many/120/x") == SMALL.fields["many/*/x"]
    for path in ("many/01/x", "many/-1/x", "many/one/x", "many/x", "many/1/z", "A"):
        assert SMALL.field(path) is None


def test_a_numbered_group_requires_its_datasets_once_it_is_begun() -> None:
    assert SMALL.missing(frozenset(REQUIRED)) is None
    assert SMALL.missing(frozenset(REQUIRED | {"many/3/y"})) == "many/3/x"
    assert SMALL.missing(frozenset(REQUIRED | {"many/3/x"})) is None
    for path in REQUIRED:
        assert SMALL.missing(frozenset(REQUIRED - {path})) == path


def test_a_group_knows_what_may_stand_in_it() -> None:
    assert SMALL.children("") == {"a", "deep", "many", "bulk"}
    assert SMALL.children("many") == {"*"}
    assert SMALL.children("many/*") == {"x", "y"}


@pytest.mark.parametrize("dtype", ["O", "U5", "S-1", "", "<f4 O", ">u2", "f2x", "c8", "u3", "M8"])
def test_only_little_endian_numbers_are_types(dtype: str) -> None:
    with pytest.raises(ValueError, match="not a little-endian number"):
        Field(dtype, ())


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "..", "a b", "0"])
def test_odd_paths_are_not_accepted_into_a_table(path: str) -> None:
    with pytest.raises(ValueError, match="bad path"):
        Schema("tpca-odd", 1, {path: Field("u1", ())})
