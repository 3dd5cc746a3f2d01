"""Scores of tensors: numbers that keep what they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import tpca
from PIL import Image

import tpca_cli


@pytest.mark.parametrize("scale", [1e50, 1e-50])
def test_coefficients_that_float32_cannot_hold_are_refused(tmp_path: Path, scale: float) -> None:
    """They would become infinite, or zeros; float64 holds them, and a file of float32 takes no more."""
    rng = np.random.default_rng(0)
    for name, factor in (("far", scale), ("near", 1.0)):
        (tmp_path / name).mkdir()
        for number in range(4):
            np.save(tmp_path / name / f"{number}.npy", factor * rng.normal(size=(3, 4, 5)))
        fit = ("-o", tmp_path / f"{name}.h5", "--method", "subspace", "--components", 2)
        tpca("fit-basis", tmp_path / name, *fit)
    plain = ("--plain", "--basis", tmp_path / "far.h5")
    refused = tpca("encode", tmp_path / "far", "-o", tmp_path / "s.h5", *plain, code=1)
    assert "--dtype float64" in refused.err and not (tmp_path / "s.h5").exists()
    tpca("encode", tmp_path / "far", "-o", tmp_path / "s.h5", *plain, "--dtype", "float64")
    with tpca_cli.Scores(tmp_path / "s.h5") as scores:
        assert np.isfinite(scores.rows(0, 4)).all() and scores.rows(0, 4).all()
    near = ("-o", tmp_path / "near_s.h5", "--plain", "--basis", tmp_path / "near.h5")
    tpca("encode", tmp_path / "near", *near)
    before = (tmp_path / "near_s.h5").read_bytes()
    assert "--dtype float64" in tpca("encode", tmp_path / "far", *near, "--append", code=1).err
    assert (tmp_path / "near_s.h5").read_bytes() == before


@pytest.mark.parametrize("pages", [1, 3])
def test_pages_after_the_first_are_not_left_out_without_a_word(tmp_path: Path, pages: int) -> None:
    """An image is its first page: a stack is one tensor only where that is asked for."""
    root = tmp_path / "in"
    root.mkdir()
    rng = np.random.default_rng(0)
    for number in range(4):
        stack = [Image.fromarray(rng.integers(0, 60000, (12, 16), np.uint16)) for _ in range(pages)]
        stack[0].save(root / f"{number}.tif", save_all=True, append_images=stack[1:])
    fit = ("fit-basis", root, "-o", tmp_path / "b.h5", "--method", "subspace", "--components", 2)
    plain = ("encode", root, "-o", tmp_path / "s.h5", "--basis", tmp_path / "b.h5", "--plain")
    for command in (fit, plain):
        assert ("only the first is read: --stack" in tpca(*command).err) == (pages > 1)
    assert "only the first" not in tpca(*fit, "--stack", "--force").err
