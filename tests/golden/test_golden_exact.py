"""Exact archives that were written once give the same files and pixels for ever."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command import tpca
from golden.make_exact import FIRST, HOME, digests, fill

RECORDED = {home: json.loads((home / "digests.json").read_text()) for home in (FIRST, HOME)}
ARCHIVES = [home / name for home, recorded in RECORDED.items() for name in recorded]


@pytest.mark.parametrize("home", RECORDED, ids=lambda home: home.name)
def test_the_list_of_archives_is_complete(home: Path) -> None:
    assert {path.name for path in home.glob("*.h5")} == set(RECORDED[home])
    kinds = {kind for archive in RECORDED[home].values() for _, kind, _ in archive}
    assert kinds == {"file", "pixels"}


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_files_and_pixels_are_what_they_were(path: Path) -> None:
    assert digests(path) == RECORDED[path.parent][path.name]


def test_an_archive_of_the_first_models_can_be_appended_to_and_repacked(tmp_path: Path) -> None:
    """Images are added and replaced, blocks that lose one are coded anew, and all stay what they were."""
    fill(tmp_path / "in")
    recorded = {name: rest for name, *rest in RECORDED[FIRST]["exact.h5"]}
    shutil.copyfile(FIRST / "exact.h5", tmp_path / "a.h5")
    same = {"1.jpg": "2.jpg", "p1.png": "p2.png", "more.jpg": "3.jpg", "more.png": "p0.png"}
    for name, other in same.items():  # two are replaced, two are new
        shutil.copyfile(tmp_path / "in" / other, tmp_path / "in" / name)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--append", "--exact", code=None)
    tpca("repack", tmp_path / "a.h5", "-o", tmp_path / "b.h5")
    for path in (tmp_path / "a.h5", tmp_path / "b.h5"):
        found = {name: rest for name, *rest in digests(path)}
        assert found == {name: recorded[same.get(str(name), name)] for name in {*recorded, *same}}
