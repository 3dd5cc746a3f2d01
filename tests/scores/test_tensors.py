"""Scores of tensors: numbers that keep what they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import tpca

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
