"""The pictures of a file, whatever groups it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import tpca
from pictures import folder, natural, save


def test_exact_images_do_not_keep_lossy_ones_from_being_drawn(tmp_path: Path) -> None:
    """What comes back exactly has no basis: curves are those of the groups that have one."""
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    folder(root, 2, sizes=[(32, 40)])
    tpca("encode", root, "-o", archive, "--exact", "--force")
    for seed in range(2):
        save(root / f"lossy{seed}.png", natural(32, 40, seed=10 + seed))
    tpca("encode", root, "-o", archive, "--append", "--psnr", 33, "--force")
    tpca("inspect", archive, "--rd", root, tmp_path / "rd.png")
    tpca("inspect", archive, "--report", tmp_path / "r.html", "--source", root)
    assert (tmp_path / "rd.png").stat().st_size and (tmp_path / "r.html").stat().st_size


def test_curves_are_of_gray_images_where_color_comes_back_exactly(tmp_path: Path) -> None:
    """And the other way round."""
    for exact, lossy in ((3, 1), (1, 3)):
        root, archive = tmp_path / f"{exact}", tmp_path / f"{exact}.h5"
        for channels in (exact, lossy):
            for seed in range(2):
                save(root / f"{channels}_{seed}.png", natural(32, 40, channels, seed=seed))
        tpca("encode", *sorted(root.glob(f"{exact}_*")), "-o", archive, "--exact")
        tpca("encode", *sorted(root.glob(f"{lossy}_*")), "-o", archive, "--append", "--step", 9)
        tpca("inspect", archive, "--rd", root, tmp_path / f"{exact}.png")
        tpca("inspect", archive, "--report", tmp_path / f"{exact}.html", "--source", root)
        assert "WebP" in (tmp_path / f"{exact}.html").read_text()


@pytest.mark.parametrize(("channels", "dtype"), [(1, np.uint16), (4, np.uint8)])
def test_a_report_without_curves_is_still_one(tmp_path: Path, channels: int, dtype: Any) -> None:
    """JPEG and WebP have nothing to compare with 16 bits or alpha; the originals are there all the same."""
    root, archive, page = tmp_path / "in", tmp_path / "a.h5", tmp_path / "r.html"
    folder(root, 2, sizes=[(32, 40)], channels=[channels], dtype=dtype)
    tpca("encode", root, "-o", archive, "--step", 9)
    assert "8-bit gray or color" in tpca("inspect", archive, "--rd", root, tmp_path / "rd.png", code=2).err
    tpca("inspect", archive, "--report", page, "--source", root)
    assert "original" in page.read_text() and "WebP" not in page.read_text()


def test_a_report_on_scores_compares_with_originals(tmp_path: Path) -> None:
    root, page = tmp_path / "in", tmp_path / "r.html"
    folder(root, 4, sizes=[(32, 40)])
    tpca("fit-basis", root, "-o", tmp_path / "b.h5", "--components", 3, "--scores", tmp_path / "s.h5")
    assert "scores file" in tpca("inspect", tmp_path / "s.h5", "--rd", root, tmp_path / "rd.png", code=2).err
    tpca("inspect", tmp_path / "s.h5", "--report", page, "--source", root)
    assert "original" in page.read_text()
