"""Scores files: the numbers are X U, the file is what h5py, pandas and xarray expect, and damage is found."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas
import pytest
import xarray
from command import tpca
from numpy.typing import NDArray
from pictures import folder, natural, save

from tpca_cli import Archive, Basis, FileRefused, Scores
from tpca_cli.images import read, widen

METHODS = {
    "operator": ("--method", "operator", "--components", 12),
    "rank1": ("--method", "rank1", "--components", 12),
    "subspace": ("--method", "subspace", "--components", 6),
    "centered": ("--method", "operator", "--components", 9, "--center"),
    "singular": ("--method", "rank1", "--components", 7, "--truncation", "svd"),
}
KINDS: dict[str, dict[str, Any]] = {
    "gray": {"channels": (1,)},
    "color": {"channels": (3,)},
    "alpha": {"channels": (4,)},
    "16 bits": {"channels": (1,), "dtype": np.uint16},
}


def pixels(source: Path, names: list[str], framing: Any) -> NDArray[np.float64]:
    """All frames as rows, read by themselves."""
    found = [widen(read(source / name).pixels, framing.channels) for name in names]
    frames = np.concatenate([framing.split(each) for each in found])
    return frames.reshape(len(frames), -1).astype(np.float64)


def made(root: Path, *fit: Any, kind: str = "color", sizes: Any = ((12, 16),), count: int = 9) -> Path:
    """A folder of two classes and a basis of it."""
    for seed, label in ((0, "cats"), (100, "dogs")):
        folder(root / "in" / label, count, sizes=sizes, seed=seed, **KINDS[kind])
    tpca("fit-basis", root / "in", "-o", root / "basis.h5", *fit)
    return root / "in"


def projected(root: Path, *options: Any, code: int = 0) -> Path:
    tpca(
        "encode",
        root / "in",
        "-o",
        root / "s.h5",
        "--basis",
        root / "basis.h5",
        "--plain",
        *options,
        code=code,
    )
    return root / "s.h5"


def check_is_the_product(root: Path, path: Path, tolerance: float) -> None:
    """d = U'x (eq 4.1.2), relative to the length of the frames."""
    basis = Basis(root / "basis.h5")
    with Scores(path) as scores:
        x = pixels(root / "in", scores.names, scores.framing)
        if basis.mean is not None:
            x = x - basis.mean.reshape(-1)
        u = basis.eigentensors.reshape(basis.components, -1).T  # (L, M)
        found = scores.rows(0, scores.frames)
    error = np.abs(found - x @ u).max(axis=1) / np.linalg.norm(x, axis=1)
    assert error.max() <= tolerance


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_scores_are_the_product_of_frames_and_basis(tmp_path: Path, method: str, kind: str) -> None:
    made(tmp_path, *METHODS[method], kind=kind)
    check_is_the_product(tmp_path, projected(tmp_path, "--dtype", "float64"), 1e-12)
    check_is_the_product(tmp_path, projected(tmp_path, "--force"), 1e-6)


def test_scores_of_tiles_have_a_row_for_each_frame(tmp_path: Path) -> None:
    made(tmp_path, "--tile", 5, sizes=((12, 16), (7, 9), (5, 5)))
    path = projected(tmp_path, "--dtype", "float64")
    check_is_the_product(tmp_path, path, 1e-12)
    with Scores(path) as scores, h5py.File(path) as file:
        assert file["coefficients"].dims[0].keys() == ["frame"]
        of = file["image_of_frame"][:]
        for image in range(len(scores)):
            rows = file["coefficients"][of == image]
            np.testing.assert_array_equal(rows, scores.coefficients(image))


@pytest.mark.parametrize("sizes", [((12, 16),), ((12, 16), (7, 9))])
def test_all_components_give_the_images_back(tmp_path: Path, sizes: Any) -> None:
    source = made(tmp_path, "--tile", 4, "--all", sizes=sizes)
    path = projected(tmp_path)
    tpca("decode", path, "-o", tmp_path / "out")
    for original in sorted(source.rglob("*.png")):
        restored = tmp_path / "out" / original.relative_to(source)
        np.testing.assert_array_equal(read(restored).pixels, read(original).pixels)


def test_gray_images_on_a_color_basis_come_back_gray(tmp_path: Path) -> None:
    made(tmp_path, "--all", "--tile", 4)
    save(tmp_path / "in" / "gray.png", natural(12, 16, 1))
    path = projected(tmp_path)
    with Scores(path) as scores:
        np.testing.assert_array_equal(scores["gray.png"], read(tmp_path / "in" / "gray.png").pixels)


def test_fewer_components_lose_what_was_dropped(tmp_path: Path) -> None:
    """|x - U d|^2 = |x|^2 - |d|^2 for an orthonormal basis, for any number of components."""
    made(tmp_path, "--method", "operator", "--components", 10)
    with Scores(projected(tmp_path, "--dtype", "float64")) as scores:
        x = pixels(tmp_path / "in", scores.names, scores.framing)
        rows = scores.rows(0, scores.frames)
        for components in (1, 4, 10):
            back = scores.of.basis.reconstruct(rows[:, :components]).reshape(len(x), -1)
            lost = (x**2).sum(axis=1) - (rows[:, :components] ** 2).sum(axis=1)
            error = np.abs(((x - back) ** 2).sum(axis=1) - lost)
            assert (error <= 1e-12 * (x**2).sum(axis=1)).all()
        blurred, sharp = scores.read(0, components=1), scores.read(0)
        assert blurred.shape == sharp.shape and not np.array_equal(blurred, sharp)


def test_the_bytes_do_not_depend_on_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on their number nor on whether they are processes or threads, for products with many."""
    monkeypatch.setattr("tpca_cli.scores.project.RUN_VALUES", 4 * 12 * 16 * 3)  # several runs
    made(tmp_path, "--method", "operator", "--components", 8)
    files = [projected(tmp_path, "--workers", n, "--force").read_bytes() for n in (1, 2, 3)]
    monkeypatch.setattr("tpca_cli.encode.plain.MANY", 1)
    files.append(projected(tmp_path, "--workers", 3, "--force").read_bytes())
    assert all(data == files[0] for data in files)


def test_a_fit_writes_the_scores_of_its_own_images(tmp_path: Path) -> None:
    source = made(tmp_path)
    for method in ("subspace", "rank1", "operator"):
        options = ("--method", method, "--components", 6, "--scores", tmp_path / "own.h5", "--force")
        tpca("fit-basis", source, "-o", tmp_path / "basis.h5", *options)
        assert projected(tmp_path, "--force").read_bytes() == (tmp_path / "own.h5").read_bytes()


def test_scores_of_a_subspace_are_u_sigma(tmp_path: Path) -> None:
    """D = U Sigma (eq 4C14): columns orthogonal, their lengths the square roots of the eigenvalues."""
    source = made(tmp_path)
    options = ("--method", "subspace", "--scores", tmp_path / "own.h5", "--dtype", "float64", "--force")
    tpca("fit-basis", source, "-o", tmp_path / "basis.h5", *options)
    with Scores(tmp_path / "own.h5") as scores:
        d = scores.rows(0, scores.frames)
        np.testing.assert_allclose(d.T @ d, np.diag(scores.eigenvalues), atol=1e-9 * scores.eigenvalues[0])


def test_other_programs_find_axes_names_and_labels(tmp_path: Path) -> None:
    made(tmp_path, "--method", "operator", "--components", 5)
    path = projected(tmp_path)
    with h5py.File(path) as file:
        names, labels = file["name"].asstr()[:], file["label"].asstr()[:]
        assert [dim.keys() for dim in file["coefficients"].dims] == [["image"], ["component"]]
        frame = pandas.DataFrame(file["coefficients"][:], index=names)
        assert list(frame.groupby(labels).size()) == [9, 9]
        np.testing.assert_array_equal(file["eigenvalue"][:], Basis(tmp_path / "basis.h5").eigenvalues)
    data = xarray.open_dataset(path, engine="h5netcdf")
    assert data.coefficients.dims == ("image", "component") and data.label.dims == ("image",)
    assert data.coefficients.sel(component=slice(0, 1)).shape == (18, 2)


def test_names_that_are_no_text_survive(tmp_path: Path) -> None:
    made(tmp_path, "--all", "--tile", 4)
    odd = bytes(tmp_path / "in") + b"/d\xe9j\xe0 \xff.png"
    Path(tmp_path / "in" / "cats" / "image_0000.png").rename(odd.decode("utf-8", "surrogateescape"))
    path = projected(tmp_path)
    tpca("decode", path, "-o", tmp_path / "out")
    with Scores(path) as scores:
        assert b"d\xe9j\xe0 \xff.png" in scores.names_bytes
    assert (tmp_path / "out" / "d\udce9j\udce0 \udcff.png").exists()


def test_scores_travel_to_other_processes(tmp_path: Path) -> None:
    made(tmp_path, "--all", "--tile", 4)
    with Scores(projected(tmp_path)) as scores, pickle.loads(pickle.dumps(scores)) as other:
        np.testing.assert_array_equal(scores[3], other[3])
        np.testing.assert_array_equal(other[scores.names[3]], other[3])
        for wrong in (18, -19):
            with pytest.raises(IndexError):
                scores[wrong]
        with pytest.raises(KeyError):
            scores["nothing.png"]


def test_a_linked_basis_must_be_named_and_be_the_one(tmp_path: Path) -> None:
    made(tmp_path, "--method", "operator", "--components", 5)
    embedded = projected(tmp_path)
    linked = tmp_path / "linked.h5"
    tpca("encode", tmp_path / "in", "-o", linked, "--basis", tmp_path / "basis.h5", "--plain", "--link-basis")
    assert linked.stat().st_size < embedded.stat().st_size
    tpca("verify", linked)
    assert "--basis" in tpca("decode", linked, "-o", tmp_path / "out", code=4).err
    tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "other.h5", "--components", 4)
    wrong = tpca("decode", linked, "-o", tmp_path / "out", "--basis", tmp_path / "other.h5", code=4)
    assert "was made with basis" in wrong.err
    tpca("decode", linked, "-o", tmp_path / "out", "--basis", tmp_path / "basis.h5")
    with Scores(linked, basis=tmp_path / "basis.h5") as one, Scores(embedded) as other:
        np.testing.assert_array_equal(one[0], other[0])


def test_damage_is_found_wherever_it_is(tmp_path: Path) -> None:
    made(tmp_path, "--method", "operator", "--components", 5)
    path = projected(tmp_path)
    whole = path.read_bytes()
    with Scores(path) as scores:
        at = whole.index(scores.rows(0, 1).tobytes())
    for place in [at + 9, *range(0, len(whole), 997)]:
        spoiled = bytearray(whole)
        spoiled[place] ^= 0x10
        path.write_bytes(spoiled)
        outcome = tpca("verify", path, "--json", code=None)
        if outcome.code == 0:  # only what nobody reads may differ: the file then says the same as before
            with Scores(path) as scores, h5py.File(path) as file:
                np.testing.assert_array_equal(file["coefficients"][:], scores.rows(0, scores.frames))
            assert place != at + 9
        else:
            assert outcome.code == 4, place


def test_verify_names_the_images_of_a_damaged_piece(tmp_path: Path) -> None:
    made(tmp_path, "--method", "operator", "--components", 5)
    path = projected(tmp_path)
    spoiled = bytearray(path.read_bytes())
    with Scores(path) as scores:
        spoiled[bytes(spoiled).index(scores.rows(2, 3).tobytes())] ^= 1
    path.write_bytes(spoiled)
    found = tpca("verify", path, "--json", code=4).json
    assert not found["intact"] and len(found["damaged"][0]["images"]) == 18
    with Scores(path) as scores, pytest.raises(FileRefused):
        scores.rows(0, 1)
    tpca("decode", path, "-o", tmp_path / "out", code=4)


@pytest.mark.parametrize("method", ["rank1", "operator", "subspace"])
def test_an_archive_gives_its_own_coefficients(tmp_path: Path, method: str) -> None:
    """They rebuild what the archive stores: with no quantization left, X U of the integer basis."""
    folder(tmp_path / "in", 6, sizes=((16, 24),))
    options = ("--method", method, "--components", 6, "--step", 1 / 16, "--force")
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", *options, code=None)
    with Archive(tmp_path / "a.h5") as archive:
        coder = archive.coder(0)
        found = archive.coefficients(2)
        frames = coder.framing.split(read(tmp_path / "in" / archive.names[2]).pixels)
        expected = coder.basis.project(frames)[:, : coder.components] / 64
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 0.1
