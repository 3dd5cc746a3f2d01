"""The pictures of a file, whatever groups it has."""

from __future__ import annotations

from pathlib import Path

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
