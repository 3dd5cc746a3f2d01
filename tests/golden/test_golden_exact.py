"""Exact archives that were written once give the same files and pixels for ever."""

from __future__ import annotations

import json

import pytest
from golden.make_exact import HOME, digests

RECORDED = json.loads((HOME / "digests.json").read_text())


def test_the_list_of_archives_is_complete() -> None:
    assert {path.name for path in HOME.glob("*.h5")} == set(RECORDED)
    kinds = {kind for archive in RECORDED.values() for _, kind, _ in archive}
    assert kinds == {"file", "pixels"}


@pytest.mark.parametrize("name", RECORDED)
def test_files_and_pixels_are_what_they_were(name: str) -> None:
    assert digests(HOME / name) == RECORDED[name]
