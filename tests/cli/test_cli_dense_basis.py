"""Archives with a dense basis: small, the truncation within 0.05 dB, and open to more images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import natural, save

import tpca_cli
from tpca_cli import Archive

COUNT, M = 60, 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dense")
    for k in range(COUNT):
        save(root / "in" / f"{k}.png", natural(32, 40, 3, k))
    tpca("fit-basis", root / "in", "-o", root / "b.h5", "--method", "operator", "--size", "32x40",
         "--components", M)  # fmt: skip
    return root


def truncation_error(folder: Path) -> float:
    """What keeping M components costs in pixels, from the float basis alone."""
    basis = tpca_cli.Basis(folder / "b.h5")
    frames = np.stack([natural(32, 40, 3, k) for k in range(COUNT)])
    back = np.clip(np.rint(basis.reconstruct(basis.project(frames))), 0, 255)
    return float(((frames - back) ** 2).mean())


def encoded_error(path: Path) -> float:
    with Archive(path) as archive:
        found = [archive[f"{k}.png"].astype(float) for k in range(COUNT)]
    return float(np.mean([((natural(32, 40, 3, k) - pixels) ** 2).mean() for k, pixels in enumerate(found)]))


def test_the_paper_s_truncation_with_a_coded_basis(folder: Path, tmp_path: Path) -> None:
    made = tpca("encode", folder / "in", "-o", tmp_path / "a.h5", "--basis", folder / "b.h5", "--components",
                M, "--force", "--json").json  # fmt: skip
    with Archive(tmp_path / "a.h5") as archive:
        group = archive.groups[0].meta
        assert group["features"] == ["coded-basis", "model-3"]
        plain = archive.coder(0).basis.factors[0]
        assert group["coder"]["basis"]["coded"]["source"]
    assert made["basis_bytes"] < 0.4 * 2 * plain.size
    assert encoded_error(tmp_path / "a.h5") <= truncation_error(folder) * 10**0.005
    tpca("verify", tmp_path / "a.h5")


def test_more_images_join_with_the_same_basis(folder: Path, tmp_path: Path) -> None:
    options = ("--basis", folder / "b.h5", "--components", M)
    tpca("encode", folder / "in", "-o", tmp_path / "a.h5", *options, "--force")
    save(tmp_path / "more" / "new.png", natural(32, 40, 3, 5))
    tpca("encode", tmp_path / "more", "-o", tmp_path / "a.h5", "--append", *options, "--force")
    with Archive(tmp_path / "a.h5") as archive:
        assert len(archive) == COUNT + 1 and len(archive.groups) == 1
        assert archive["new.png"].shape == (32, 40, 3)


def test_a_linked_basis_stays_plain(folder: Path, tmp_path: Path) -> None:
    options = ("--basis", folder / "b.h5", "--components", M, "--link-basis", "--force")
    tpca("encode", folder / "in", "-o", tmp_path / "a.h5", *options)
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out", "--basis", folder / "b.h5")
    assert len(list((tmp_path / "out").iterdir())) == COUNT


def test_the_same_bytes_with_any_number_of_workers(folder: Path, tmp_path: Path) -> None:
    options = ("--basis", folder / "b.h5", "--components", M, "--force")
    for workers in (1, 3):
        tpca("encode", folder / "in", "-o", tmp_path / f"{workers}.h5", *options, "--workers", workers)
    assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "3.h5").read_bytes()
