"""An archive that the tests of reading share."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import tpca
from pictures import folder, natural, save


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty small images in a few blocks, then one that is cut into bands."""
    root = tmp_path_factory.mktemp("data")
    folder(root / "in", 40, sizes=[(96, 128), (64, 64)])
    save(root / "in" / "large.png", natural(750, 800, seed=77))
    tpca("encode", root / "in", "-o", root / "a.h5", "--psnr", 36, "--tile", 8)
    return root / "a.h5"
