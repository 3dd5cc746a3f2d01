"""Small archives that ask for much are refused when they are opened: exit 4, quickly, in little memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bombs import BOMBS, Bomb
from commands import check_failed, forked

SECONDS = 2.0
MEMORY = 300_000  # kilobytes resident


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_54_bombs_are_refused(tmp_path: Path, bomb: Bomb) -> None:
    path = tmp_path / "x.h5"
    bomb.make(path)
    assert path.stat().st_size < 400_000
    for words in (("inspect", path), ("verify", path, "--decode"), ("decode", path, "-o", tmp_path / "out")):
        ended = forked(*words, memory=2 << 30)
        check_failed(ended, 4)
        assert re.search(bomb.reason, ended.err), ended.err
        assert ended.seconds < SECONDS and ended.peak < MEMORY, ended
    assert not (tmp_path / "out").exists()
