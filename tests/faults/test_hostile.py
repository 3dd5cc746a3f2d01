"""Files made to do harm are refused for the right reason, quickly, in little memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import store_job
from harness import in_child
from hostile import FILTERS, INSIDE, OUTSIDE, SECRET, SIZES, TYPES, Attack, craft

from tpca_cli.errors import FileRefused

SECONDS = 2.0
MEMORY = 300_000  # kilobytes resident


def refuse(path: Path, reason: str) -> None:
    """Reading must fail, and say why without telling anything of the secret."""
    try:
        store_job.fingerprint(str(path))
    except FileRefused as error:
        assert re.search(reason, str(error)), error
        assert "content of a file" not in str(error)
        assert str(path) in str(error)
        raise


@pytest.mark.parametrize("attack", OUTSIDE + INSIDE + TYPES + FILTERS + SIZES, ids=lambda attack: attack.name)
def test_34_to_39_refused(tmp_path: Path, attack: Attack) -> None:
    path = craft(attack, tmp_path)
    ended, seconds, memory = in_child(lambda: refuse(path, attack.reason))
    assert ended == 4
    assert seconds < SECONDS
    assert memory < MEMORY
    assert (tmp_path / "secret").read_bytes() == SECRET


@pytest.mark.parametrize("attack", SIZES, ids=lambda attack: attack.name)
def test_37_within_a_memory_limit(tmp_path: Path, attack: Attack) -> None:
    """The same under a hard limit of address space: nothing even tries to allocate what a file says."""
    path = craft(attack, tmp_path)
    ended, _, _ = in_child(lambda: refuse(path, attack.reason), memory=2 << 30)
    assert ended == 4
