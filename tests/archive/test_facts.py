"""What is told of an archive that was just written is what is read from it later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from command import tpca
from pictures import folder
from PIL import Image

from tpca_cli.archive.reader import Archive


def read(path: Path) -> dict[str, Any]:
    with Archive(path) as archive:
        found: dict[str, Any] = json.loads(json.dumps(archive.info()))
    return found


def differing(told: dict[str, Any], known: dict[str, Any]) -> list[str]:
    return [name for name, value in known.items() if told[name] != value]


def test_a_new_archive_and_a_longer_one_are_described_as_they_are_read(tmp_path: Path) -> None:
    folder(tmp_path / "photos", 6, sizes=[(48, 64), (40, 40)], channels=[3, 4, 1])
    deep = np.arange(32 * 40, dtype=np.uint16).reshape(32, 40) * 3
    Image.fromarray(deep).save(tmp_path / "photos" / "depth.png")
    pages = [Image.new("RGB", (24, 24), color) for color in ("red", "blue")]
    pages[0].save(tmp_path / "photos" / "pages.tif", save_all=True, append_images=pages[1:])
    (tmp_path / "photos" / "broken \x1b[2J.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    target = tmp_path / "a.h5"
    given = ("encode", tmp_path / "photos", "-o", target, "--json")
    told = tpca(*given, "--step", 9, code=3).json
    assert told["skipped"] and told["partial"] and len(told["groups"]) > 2
    assert differing(told, read(target)) == []
    folder(tmp_path / "photos" / "more", 2, sizes=[(30, 30)])
    told = tpca(*given, "--append", code=3).json
    assert told["appended"]["added"] == 2
    assert set(differing(told, read(target))) <= {"skipped"}  # there, the paths themselves
