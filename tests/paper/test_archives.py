"""Archives against numpy written from the equations: the truncation alone, and every pixel from all."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
import equations as eq
from command import tpca

from tpca_cli.tensor_pca.fixed_basis import FixedBasis

KINDS = {"gray": ((16, 12), np.uint8), "color": ((16, 12, 3), np.uint8), "gray 16": ((16, 12), np.uint16)}
METHODS = (("operator",), ("rank1",), ("rank1", "--truncation", "svd"), ("subspace",))


def folder_of(frames: np.ndarray, folder: Path) -> Path:
    folder.mkdir()
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"{number:03}.png")
    return folder


def decoded(archive: Path, folder: Path) -> np.ndarray:
    tpca("decode", archive, "-o", folder, "--quiet")
    return np.stack([np.asarray(Image.open(path)) for path in sorted(folder.glob("*.png"))])


def psnr(one: np.ndarray, other: np.ndarray, peak: float) -> float:
    return float(10 * np.log10(peak**2 / np.mean((one.astype(float) - other) ** 2)))


@pytest.mark.parametrize(
    ("kind", "method", "center", "frame"),
    [
        *product(KINDS, METHODS, (False, True), (("--size", "16x12"),)),
        *product(KINDS, METHODS[:2], (False, True), (("--tile", 8),)),
    ],
)
def test_all_components_at_a_fine_step_give_every_pixel_back(kind, method, center, frame, tmp_path) -> None:
    shape, dtype = KINDS[kind]
    frames = eq.images(20, shape, dtype)
    frames[0] = np.iinfo(dtype).max
    folder, basis = folder_of(frames, tmp_path / "in"), tmp_path / "basis.h5"
    centered = ["--center"] if center else []
    tpca("fit-basis", folder, "-o", basis, "--method", *method, *frame, "--all", *centered, "--quiet")
    tpca("encode", folder, "-o", tmp_path / "a.h5", "--basis", basis, "--step", 1 / 16, "--force", "--quiet")
    assert np.array_equal(decoded(tmp_path / "a.h5", tmp_path / "out"), frames)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("method", ["dense", "modes"])
def test_large_frames_come_back_from_the_stored_integers(method, dtype, center) -> None:
    """Rounding of a basis grows with the frame: 15 bits of a dense one are off by 3 levels here."""
    frames = eq.images(40, (64, 64, 3), dtype)
    frames[0] = np.iinfo(dtype).max
    mean = frames.mean(axis=0) if center else None
    if method == "dense":
        q = np.linalg.qr(eq.flat(frames, center).T)[0]
        fixed = FixedBasis.from_dense(q, frames.shape[1:], dtype=dtype, mean=mean)
    else:
        modes = [np.linalg.eigh(eq.mode_matrix(frames, center, k))[1] for k in range(3)]
        every = np.stack([axis.ravel() for axis in np.indices(frames.shape[1:])], axis=1)
        fixed = FixedBasis.from_modes(modes, every, dtype=dtype, mean=mean)
    again = FixedBasis.from_arrays(fixed.meta, fixed.to_arrays())
    assert np.array_equal(again.reconstruct(again.project(frames)), frames)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("held", ["as many", "more"])
@pytest.mark.parametrize("method", ["operator", "rank1", "subspace"])
def test_components_alone_are_the_truncation(method, held, center, tmp_path) -> None:
    """The filter after decoding takes back some of the error: not of the paper's representation."""
    m = 6
    frames = eq.images(120, (16, 24, 3))
    folder, basis = folder_of(frames, tmp_path / "in"), tmp_path / "basis.h5"
    options = ["--center"] if center else []
    wanted = ["--components", m] if held == "as many" else ["--components", 2 * m]
    tpca(
        "fit-basis", folder, "-o", basis, "--method", method, "--size", "16x24", *wanted, *options, "--quiet"
    )
    archive = tmp_path / "a.h5"
    words = ("encode", folder, "-o", archive, "--basis", basis, "--components", m, "--force", "--quiet")
    tpca(*words, code=3)  # images lose much of their variance, and are named
    if method == "rank1":
        error = eq.rank1_error(frames, center, m)
    else:
        error = eq.operator_eigenvalues(frames, center)[m:].sum()
    promised = 10 * np.log10(255**2 * frames.size / error)
    # rounding to pixels adds 1/12, and clipping takes a little away
    assert psnr(frames, decoded(archive, tmp_path / "out"), 255) == pytest.approx(promised, abs=0.06)


@pytest.mark.parametrize("m", [4, 12, 40])
def test_components_of_tiles_are_the_strongest_rank_1_tensors(m, tmp_path) -> None:
    """Tiles count turned as well, so that their modes are nearly, not quite, those of the equations."""
    frames = eq.images(60, (16, 24, 3))
    folder = folder_of(frames, tmp_path / "in")
    words = ("--method", "rank1", "--tile", 8, "--components", m, "--force", "--quiet")
    tpca("encode", folder, "-o", tmp_path / "a.h5", *words, code=None)
    tiles = frames.reshape(60, 2, 8, 3, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 8, 8, 3)  # (n, 8, 8, 3)
    lost = eq.rank1_error(tiles, False, m) / frames.size + 1 / 12  # the latter by rounding to pixels
    assert (
        psnr(frames, decoded(tmp_path / "a.h5", tmp_path / "out"), 255) >= 10 * np.log10(255**2 / lost) - 0.1
    )


@pytest.mark.parametrize("method", ["operator", "rank1", "subspace"])
def test_only_the_components_that_are_used_are_stored(method, tmp_path) -> None:
    folder = folder_of(eq.images(60, (16, 24, 3)), tmp_path / "in")
    size = {}
    for held in (5, 50):
        basis, archive = tmp_path / f"{held}.h5", tmp_path / f"a{held}.h5"
        tpca("fit-basis", folder, "-o", basis, "--method", method, "--size", "16x24", "--components", held)
        tpca("encode", folder, "-o", archive, "--basis", basis, "--components", 5, "--force", code=None)
        size[held] = tpca("inspect", archive, "--json").json["basis_bytes"]
        decoded(archive, tmp_path / f"out{held}")
    assert abs(size[50] - size[5]) <= 0.02 * size[5]
