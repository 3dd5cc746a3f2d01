"""What a hostile file points at is never opened. Needs strace: without it these tests fail and say so."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from harness import CASES, Case, check_clean_failure, strace
from hostile import FILTERS, INSIDE, OUTSIDE, Attack, craft

OPENING = "trace=open,openat,openat2,creat,rename,renameat,unlink,unlinkat,truncate"


def look(case: Case, path: Path, log: Path) -> str:
    """Read under strace; the names of all files that were opened."""
    check_clean_failure(strace(OPENING, command=case.reading(path), log=log), 4)
    opened = log.read_text()
    assert str(path) in opened, "the trace sees nothing"
    return opened


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("attack", OUTSIDE + INSIDE[:4], ids=lambda attack: attack.name)
def test_34_35_36_nothing_outside_is_opened(tmp_path: Path, case: Case, attack: Attack) -> None:
    path = craft(attack, tmp_path)
    assert str(tmp_path / "secret") not in look(case, path, tmp_path / "log")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_38_no_plugin_is_loaded(tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of libraries, offered by the environment: not one of them is opened, nor is the folder."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    library = next(Path(sys.prefix).rglob("*.so"))
    shutil.copy(library, plugins / "libh5any.so")
    monkeypatch.setenv("HDF5_PLUGIN_PATH", str(plugins))
    monkeypatch.setenv("HDF5_PLUGIN_PRELOAD", str(plugins))
    (plugin,) = (attack for attack in FILTERS if attack.name == "plugin")
    path = craft(plugin, tmp_path)
    assert os.environ["HDF5_PLUGIN_PATH"] == str(plugins)
    assert str(plugins) not in look(case, path, tmp_path / "log")
