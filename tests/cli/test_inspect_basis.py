"""`tpca inspect` of basis and operator files: the fields, the page, the pictures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import folder
from PIL import Image

from tpca_cli import basisfile, images
from tpca_cli.framing import Framing
from tpca_cli.tensor_pca.algorithm1 import TensorOperator, solve_operator
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, solve_modes

FIELDS = {
    *(
        "method",
        "frame_shape",
        "frames",
        "components",
        "eigenvalues",
        "energy",
        "residual",
        "centered",
        "digest",
    ),
}
FRAMING = Framing("tile", 8, 8, 3)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source")
    folder(root, 5, sizes=((24, 32), (17, 40)))
    return root


@pytest.fixture(scope="module")
def files(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A basis of each shape, and an operator alone."""
    root = tmp_path_factory.mktemp("bases")
    pictures = [images.read(str(path).encode(), digest_bytes=8) for path in sorted(source.iterdir())]
    frames = np.concatenate([FRAMING.split(picture.pixels) for picture in pictures])
    digests = np.frombuffer(b"".join(sorted(p.digest for p in pictures)), np.uint8).reshape(-1, 8)
    modes, tensor = ModeOperators(FRAMING.frame_shape), TensorOperator(FRAMING.frame_shape)
    modes.add(frames)
    tensor.add(frames)
    contents = {
        "rank1": ("rank1", solve_modes(modes), None),
        "operator": ("operator", solve_operator(tensor, 60), tensor),
        "centered": ("operator", solve_operator(tensor, 30, center=True), None),
        "alone": ("operator", None, tensor),
    }
    for name, (method, basis, operator) in contents.items():
        origin = basisfile.Origin(method, FRAMING, "u1", len(frames), digests, center=name == "centered")
        basisfile.write(root / f"{name}.h5", origin, basis, operator)
    return {name: root / f"{name}.h5" for name in contents}


@pytest.mark.parametrize("name", ["rank1", "operator", "centered"])
def test_json_of_a_basis_has_its_fields(files: dict[str, Path], name: str) -> None:
    data = tpca("inspect", files[name], "--json").json
    assert set(data) >= FIELDS
    assert data["frame_shape"] == [8, 8, 3] and data["images"] == 5
    assert (
        data["components"] == len(data["eigenvalues"]) == {"rank1": 192, "operator": 60, "centered": 30}[name]
    )
    assert data["eigenvalues"] == sorted(data["eigenvalues"], reverse=True)
    assert 0.9 < data["energy"] <= 1.0 and data["residual"] < 1e-6
    assert data["centered"] == (name == "centered")


def test_page_names_the_method_and_the_energy(files: dict[str, Path]) -> None:
    page = tpca("inspect", files["operator"]).out
    for words in ("operator (Algorithm 1)", "60 of 192", "% in 10", "% in 50", "kept: the lower triangle"):
        assert words in " ".join(page.split())
    assert "not measured" in tpca("inspect", files["rank1"]).out


def test_operator_alone_has_a_page_and_no_pictures(files: dict[str, Path], tmp_path: Path) -> None:
    data = tpca("inspect", files["alone"], "--json").json
    assert (data["components"], data["eigenvalues"], data["operator"]) == (0, [], "tensor")
    assert "operator without a basis" in tpca("inspect", files["alone"]).out
    refused = tpca("inspect", files["alone"], "--basis-grid", tmp_path / "b.png", code=4).err
    assert "tpca merge" in refused and not (tmp_path / "b.png").exists()


@pytest.mark.parametrize("name", ["rank1", "operator", "centered"])
def test_pictures_of_a_basis(files: dict[str, Path], source: Path, tmp_path: Path, name: str) -> None:
    grid, gallery = tmp_path / "b.png", tmp_path / "g.jpg"
    tpca("inspect", files[name], "--basis-grid", grid, "--gallery", source, gallery, "--images", 3)
    for path, kind in ((grid, "PNG"), (gallery, "JPEG")):
        with Image.open(path) as image:
            assert image.format == kind and np.asarray(image).std() > 5
    tpca("inspect", files[name], "--report", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<h2>Basis</h2>" in page and 'id="compare"' not in page  # no source, nothing to compare


def test_linked_archive_shows_pictures_with_its_basis(
    files: dict[str, Path], source: Path, tmp_path: Path
) -> None:
    archive, grid = tmp_path / "a.h5", tmp_path / "b.png"
    tpca("encode", source, "-o", archive, "--basis", files["rank1"], "--link-basis", "--step", 20, "--force")
    assert "linked" in tpca("inspect", archive).out
    assert "--basis" in tpca("inspect", archive, "--basis-grid", grid, code=4).err
    tpca("inspect", archive, "--basis-grid", grid, "--basis", files["rank1"])
    assert np.asarray(Image.open(grid)).std() > 5


def test_page_of_a_basis_imports_nothing_heavy(files: dict[str, Path]) -> None:
    script = (
        "import sys; from tpca_cli.cli.main import _run; code = _run(['inspect', sys.argv[1]]);"
        "heavy = {'scipy', 'PIL', 'tqdm', 'dask', 'sklearn'} & set(sys.modules);"
        "sys.exit(code or (f'imported {heavy}' if heavy else 0))"
    )
    command = [sys.executable, "-c", script, str(files["operator"])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
