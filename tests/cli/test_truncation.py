"""`--truncation`: the three truncations of Algorithm 2 from the command line, stored, encoded and decoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import folder
from PIL import Image

import tpca_cli

M = 12


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    folder(root, 30, sizes=((12, 10),))
    return root


def pixels(root: Path) -> np.ndarray:
    return np.stack([np.asarray(Image.open(path)) for path in sorted(root.iterdir())])


def error(path: Path, x: np.ndarray) -> float:
    basis = tpca_cli.Basis(path)
    return float(((x - basis.reconstruct(basis.project(x))) ** 2).sum())


@pytest.mark.parametrize("center", [(), ("--center",)])
def test_svd_is_the_other_two_methods(photos: Path, center: tuple[str, ...], tmp_path: Path) -> None:
    x = pixels(photos).astype(float)
    errors = {}
    for name, args in {
        "svd": ("--method", "rank1", "--truncation", "svd"),
        "operator": ("--method", "operator", "--solver", "exact"),
        "subspace": ("--method", "subspace"),
        "indices": ("--method", "rank1"),
        "products": ("--method", "rank1", "--truncation", "products"),
    }.items():
        path = tmp_path / f"{name}.h5"
        facts = tpca("fit-basis", photos, "-o", path, *args, *center, "--components", M, "--json").json
        seen = tpca("inspect", path, "--json").json
        errors[name] = error(path, x)
        assert facts["components"] == seen["components"] == M
        total = float(((x - (x.mean(axis=0) if center else 0)) ** 2).sum())
        if name == "products":
            assert facts["energy"] is None and seen["energy"] is None
        else:
            assert facts["energy"] == pytest.approx(1 - errors[name] / total, abs=1e-9)
            assert seen["energy"] == pytest.approx(facts["energy"], abs=1e-12)
            assert facts["residual"] <= 1e-9 and seen["residual"] == pytest.approx(
                facts["residual"], rel=1e-9
            )
    assert errors["svd"] == pytest.approx(errors["operator"], rel=1e-9)
    assert errors["svd"] == pytest.approx(errors["subspace"], rel=1e-9)
    assert errors["svd"] < errors["indices"] <= errors["products"]


@pytest.mark.parametrize("truncation", ["svd", "indices", "products"])
def test_every_truncation_is_encoded_and_decoded(truncation: str, photos: Path, tmp_path: Path) -> None:
    args = ("--method", "rank1", "--truncation", truncation, "--components", M, "--center")
    tpca("fit-basis", photos, "-o", tmp_path / "b.h5", *args)
    encode = ("--basis", tmp_path / "b.h5", "--step", 0.25, "--force")
    tpca(
        "encode", photos, "-o", tmp_path / "a.h5", *encode, code=3
    )  # the error is a large share of small images
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out")
    x = pixels(photos).astype(float)
    basis = tpca_cli.Basis(tmp_path / "b.h5")
    truncated = np.rint(np.clip(basis.reconstruct(basis.project(x)), 0, 255))
    decoded = pixels(tmp_path / "out")
    assert ((x - decoded) ** 2).sum() <= 1.01 * ((x - truncated) ** 2).sum()
    tpca("verify", tmp_path / "a.h5")


def test_all_singular_vectors_by_default(photos: Path, tmp_path: Path) -> None:
    facts = tpca("fit-basis", photos, "-o", tmp_path / "b.h5", "--truncation", "svd", "--json").json
    assert facts["method"] == "rank1" and facts["components"] == 30
    x = pixels(photos)
    basis = tpca_cli.Basis(tmp_path / "b.h5")
    assert np.array_equal(np.rint(basis.reconstruct(basis.project(x))), x)


def test_what_needs_pixels_says_so(photos: Path, tmp_path: Path) -> None:
    refused = tpca(
        "fit-basis", photos, "-o", tmp_path / "x.h5", "--method", "operator", "--truncation", "svd", code=2
    )
    assert "rank1" in refused.err
    tpca("fit-basis", photos, "-o", tmp_path / "b.h5", "--method", "rank1", "--components", M)
    other = tmp_path / "more"
    folder(other, 5, sizes=((12, 10),), seed=900)
    update = ("fit-basis", other, "--update", tmp_path / "b.h5", "-o", tmp_path / "c.h5")
    assert "not at hand" in tpca(*update, "--truncation", "svd", code=2).err
    assert "products of mode eigenvalues" in tpca(*update).out
    merged = tpca("merge", tmp_path / "b.h5", "-o", tmp_path / "d.h5")
    assert "products of mode eigenvalues" in merged.out
    energy = ("--method", "rank1", "--energy", 0.9, "--truncation", "products")
    assert "measured" in tpca("fit-basis", photos, "-o", tmp_path / "e.h5", *energy, code=2).err


def test_black_images_print_sense(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(3):
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "in" / f"{i}.png")
    for method in ("operator", "subspace", "rank1"):
        args = ("--method", method, "--components", 2, "--force")
        done = tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", *args)
        assert "carry energy" not in done.err and "nan" not in done.out
        assert "no energy" in done.out and "residual" not in done.out
