"""Files that the tests of several modules read."""

from __future__ import annotations

from pathlib import Path

import pytest

from .samples import write_long


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of the format `LONG` with ten chunks of bulk data."""
    write_long(tmp_path / "x.h5")
    return tmp_path / "x.h5"
