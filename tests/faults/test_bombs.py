"""Small archives that ask for much are refused when they are opened: exit 4, quickly, in little memory."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest
from bombs import BOMBS, Bomb, zeros_as_file
from commands import check_failed, forked

SECONDS = 2.0
MEMORY = 300_000  # kilobytes resident


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_54_bombs_are_refused(tmp_path: Path, bomb: Bomb) -> None:
    path = tmp_path / "x.h5"
    bomb.make(path)
    assert path.stat().st_size < 400_000
    for words in (("verify", path, "--decode"), ("decode", path, "-o", tmp_path / "out"), ("inspect", path)):
        before = children_seconds()
        ended = forked(*words, memory=2 << 30)
        if words[0] != "inspect" or ended.code:  # a page about what is claimed takes nothing of it
            check_failed(ended, 4)
            assert re.search(bomb.reason, ended.err), ended.err
        assert children_seconds() - before < SECONDS and ended.peak < MEMORY, ended
    assert not (tmp_path / "out").exists()


def test_a_file_of_zeros_is_not_inflated(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    zeros_as_file(path)
    assert path.stat().st_size < 400_000
    for words in (("verify", path, "--decode"), ("decode", path, "-o", tmp_path / "out")):
        ended = forked(*words, memory=2 << 30)
        check_failed(ended, 4)
        assert ended.peak < MEMORY, ended
    assert not [found for found in (tmp_path / "out").rglob("*") if found.is_file()]


def children_seconds() -> float:
    """Seconds of work, not of waiting, of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
