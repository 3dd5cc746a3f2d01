"""Basis files: what is written is read back, bit for bit, and what cannot be a basis is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tpca_cli import basisfile, store
from tpca_cli.basisfile import BASIS_SCHEMA, Basis, Origin
from tpca_cli.errors import FileRefused, OutputExists
from tpca_cli.frames.arrays import ArrayFrames
from tpca_cli.framing import Framing
from tpca_cli.tensor_pca.algorithm1 import TensorOperator, solve_operator
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, measured_rank1, singular_rank1, solve_modes
from tpca_cli.tensor_pca.algorithm3 import GramOperator, solve_subspace
from tpca_cli.tensor_pca.basis import TensorBasis

SHAPE = (6, 6, 3)
FRAMES = np.random.default_rng(4).integers(0, 256, (40, *SHAPE), dtype=np.uint8)
DIGESTS = np.sort(np.random.default_rng(5).integers(0, 256, (7, 8), dtype=np.uint8), axis=0)
METHODS = ("operator", "rank1", "subspace")


def modes(frames: np.ndarray = FRAMES) -> ModeOperators:
    operators = ModeOperators(frames.shape[1:])
    operators.add(frames)
    return operators


def tensor(frames: np.ndarray = FRAMES) -> TensorOperator:
    operator = TensorOperator(frames.shape[1:], frames.dtype)
    operator.add(frames)
    return operator


def basis_of(method: str, center: bool = True) -> TensorBasis:
    if method == "rank1":
        return solve_modes(modes(), 30, center=center)
    if method == "operator":
        return solve_operator(tensor(), 12, center=center)
    return solve_subspace(ArrayFrames(FRAMES), GramOperator.of(ArrayFrames(FRAMES)), 12, center=center)


def origin_of(method: str) -> Origin:
    return Origin(
        method, Framing("tile", 6, 6, 3), "u1", len(FRAMES), DIGESTS, center=True, choice={"components": 12}
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_basis_comes_back(method: str, tmp_path: Path) -> None:
    basis, origin = basis_of(method), origin_of(method)
    basisfile.write(tmp_path / "b.h5", origin, basis, None)
    stored = basisfile.read_basis(tmp_path / "b.h5")
    assert replace(stored.origin, digests=DIGESTS) == replace(origin, digests=DIGESTS)
    assert np.array_equal(stored.origin.digests, DIGESTS)
    assert (stored.framing, stored.dtype, stored.operator_kind) == (origin.framing, "u1", None)
    back = stored.basis.to_arrays()
    for name, array in basis.to_arrays().items():
        assert np.array_equal(back[name], array), name
    assert stored.digest == store.identity(tmp_path / "b.h5").digest


@pytest.mark.parametrize("method", METHODS)
def test_the_same_content_has_the_same_bytes(method: str, tmp_path: Path) -> None:
    for name in ("a.h5", "b.h5"):
        basisfile.write(tmp_path / name, origin_of(method), basis_of(method), None)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_operators_come_back_and_add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpca_cli.basisfile.PIECE", 100)
    half = FRAMES[:15]
    basisfile.write(tmp_path / "t.h5", replace(origin_of("operator"), frames=15), None, tensor(half))
    total = tensor(FRAMES[15:])
    basisfile.add_operator(tmp_path / "t.h5", total)
    assert np.array_equal(total.integers(), tensor().integers())
    assert (total.n, total.sums.tolist()) == (40, tensor().sums.tolist())

    basisfile.write(tmp_path / "m.h5", replace(origin_of("rank1"), frames=15), None, modes(half))
    sums = modes(FRAMES[15:])
    basisfile.add_operator(tmp_path / "m.h5", sums)
    assert all(np.array_equal(a, b) for a, b in zip(sums.matrices, modes().matrices, strict=True))
    assert basisfile.read(tmp_path / "m.h5").operator_kind == "modes"
    assert basisfile.read(tmp_path / "t.h5").operator_kind == "tensor"


def test_an_operator_alone_is_no_basis(tmp_path: Path) -> None:
    basisfile.write(tmp_path / "t.h5", origin_of("operator"), None, tensor())
    assert basisfile.read(tmp_path / "t.h5").basis is None
    with pytest.raises(FileRefused, match="tpca merge"):
        basisfile.read_basis(tmp_path / "t.h5")
    basisfile.write(tmp_path / "b.h5", origin_of("operator"), basis_of("operator"), None)
    with pytest.raises(FileRefused, match="no operator"):
        basisfile.add_operator(tmp_path / "b.h5", tensor())
    with pytest.raises(FileRefused, match="frames"):
        basisfile.add_operator(tmp_path / "t.h5", TensorOperator((5, 6, 3)))
    with pytest.raises(FileRefused):
        basisfile.add_operator(tmp_path / "t.h5", ModeOperators(SHAPE))


def test_a_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    basisfile.write(tmp_path / "b.h5", origin_of("rank1"), basis_of("rank1"), None)
    with pytest.raises(OutputExists):
        basisfile.write(tmp_path / "b.h5", origin_of("rank1"), basis_of("rank1"), None)
    basisfile.write(tmp_path / "b.h5", origin_of("rank1"), basis_of("rank1"), None, force=True)


ODD = {
    "matrix": ("operator", "matrix", lambda a: a[:-1]),
    "nan": ("operator", "matrix", lambda a: a * np.nan),
    "residuals": ("operator", "residuals", lambda a: a[:-1]),
    "mean": ("operator", "mean", lambda a: a[:-1]),
    "indices": ("rank1", "indices", lambda a: a + 5),
    "negative": ("rank1", "indices", lambda a: a - 1),
    "few": ("rank1", "indices", lambda a: a[:-1]),
    "modes": ("rank1", "modes/1", lambda a: a[:, :-1]),
    "infinite": ("rank1", "energies", lambda a: a + np.inf),
}


@pytest.mark.parametrize("case", ODD)
def test_what_cannot_be_a_basis_is_refused(case: str, tmp_path: Path) -> None:
    """A whole file with the right digest, and numbers that make no basis."""
    method, changed, change = ODD[case]
    path, odd = tmp_path / "b.h5", tmp_path / "odd.h5"
    basisfile.write(path, origin_of(method), basis_of(method), None)
    with store.open_checked(path, BASIS_SCHEMA) as reader, store.create(odd, BASIS_SCHEMA) as writer:
        writer.meta(reader.meta)
        for name in reader.stored:
            array = reader.array(name)
            writer.put(name, change(array) if name == f"basis/{changed}" else array)
    with pytest.raises(FileRefused, match=r"odd\.h5"):
        basisfile.read(odd)


@pytest.mark.parametrize("key", ["method", "framing", "frames", "dtype", "size"])
def test_odd_metadata_is_refused(key: str, tmp_path: Path) -> None:
    path, odd = tmp_path / "b.h5", tmp_path / "odd.h5"
    basisfile.write(path, origin_of("rank1"), basis_of("rank1"), modes())
    with store.open_checked(path, BASIS_SCHEMA) as reader, store.create(odd, BASIS_SCHEMA) as writer:
        writer.meta({**reader.meta, key: "x" if key != "frames" else -1})
        for name in reader.stored:
            writer.put(name, reader.array(name))
    with pytest.raises(FileRefused):
        basisfile.read(odd)


def test_a_damaged_operator_is_found_when_it_is_used(tmp_path: Path) -> None:
    path, odd = tmp_path / "t.h5", tmp_path / "odd.h5"
    basisfile.write(path, origin_of("operator"), None, tensor())
    with store.open_checked(path, BASIS_SCHEMA) as reader, store.create(odd, BASIS_SCHEMA) as writer:
        writer.meta(reader.meta)
        for name in reader.stored:
            array = reader.array(name)
            if name == "operator/lower":
                array[3] += 1
            writer.put(name, array)
    with pytest.raises(FileRefused, match="damaged"):
        basisfile.add_operator(odd, TensorOperator(SHAPE))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("method", [*METHODS, "svd"])
def test_a_basis_is_arrays(method: str, center: bool, tmp_path: Path) -> None:
    """A u = lambda u, with the eigentensors, the mean and the residuals that the file gives."""
    if method == "svd":
        basis: TensorBasis = singular_rank1(solve_modes(modes(), center=center), basis_of("operator", center))
    elif method == "rank1":
        basis = measured_rank1(solve_modes(modes(), center=center), ArrayFrames(FRAMES), 30)
    else:
        basis = basis_of(method, center)
    origin = replace(origin_of("rank1" if method == "svd" else method), center=center)
    basisfile.write(tmp_path / "b.h5", origin, basis, None)
    read = Basis(tmp_path / "b.h5")
    u = read.eigentensors
    assert u.shape == (read.components, *SHAPE) and u.dtype == np.float64
    assert np.allclose(np.einsum("lhwc,mhwc->lm", u, u), np.eye(len(u)), atol=1e-12)
    assert (read.mean is None) is not center
    x = FRAMES - (FRAMES.mean(axis=0) if center else 0.0)
    if center:
        assert read.mean is not None and np.allclose(read.mean, FRAMES.mean(axis=0))
    d = np.einsum("nhwc,lhwc->nl", x, u)
    assert np.allclose(read.project(FRAMES), d, atol=1e-8)
    assert read.measured and read.total == pytest.approx((x**2).sum())
    assert np.allclose((d**2).sum(axis=0), read.eigenvalues, rtol=1e-9)
    if method != "rank1":
        left = np.einsum("nhwc,nl->lhwc", x, d) - read.eigenvalues[:, None, None, None] * u
        norms = np.sqrt((left**2).sum(axis=(1, 2, 3)))
        assert read.residuals.shape == (12,)
        assert np.abs(norms - read.residuals).max() <= 1e-12 * read.eigenvalues[0]
    else:
        assert read.residuals.shape == (3,)


@pytest.mark.parametrize("components", [1, 5])
@pytest.mark.parametrize("method", METHODS)
def test_what_a_basis_gives_may_be_changed(method: str, components: int, tmp_path: Path) -> None:
    """No array that it hands out is the memory that it computes with."""
    basisfile.write(tmp_path / "b.h5", origin_of(method), basis_of(method).truncate(components), None)
    read = Basis(tmp_path / "b.h5")
    right = read.project(FRAMES)
    assert read.mean is not None
    for given in (read.eigentensors, read.eigenvalues, read.residuals, read.mean):
        given[:] = 0
    np.testing.assert_array_equal(read.project(FRAMES), right)


@pytest.mark.parametrize("method", METHODS)
def test_a_basis_takes_frames_and_coefficients_of_its_own_shape_only(method: str, tmp_path: Path) -> None:
    basisfile.write(tmp_path / "b.h5", origin_of(method), basis_of(method), None)
    read = Basis(tmp_path / "b.h5")
    d = read.project(FRAMES)
    np.testing.assert_array_equal(read.project(FRAMES.tolist()), d)
    np.testing.assert_array_equal(read.reconstruct(d.tolist()), read.reconstruct(d))
    for wrong in (FRAMES[0], np.moveaxis(FRAMES, 3, 1), FRAMES.reshape(len(FRAMES), -1), 7):
        with pytest.raises(ValueError, match=r"frames of shape .* expected"):
            read.project(wrong)
    for odd in (d[0], np.zeros((2, read.components + 1)), d[None], 7):
        with pytest.raises(ValueError, match=r"coefficients of shape .* expected"):
            read.reconstruct(odd)


def test_residuals_of_nothing_are_no_share(tmp_path: Path) -> None:
    """All pairs of few frames: those without energy have no relative residual."""
    few = tensor(FRAMES[:9])
    facts = basisfile.write(tmp_path / "b.h5", origin_of("operator"), solve_operator(few), None)
    assert facts["components"] == 108 and facts["residual_relative"] <= 1e-9


def test_the_documented_layout_is_the_table() -> None:
    page = (Path(__file__).parent.parent / "docs" / "BASIS.md").read_text()
    rows = re.findall(r"^\| `([a-z_/K]+)` \| ([fiu][148]) \| \((.*?)\) \|", page, re.M)
    documented = {path.replace("K", "*"): dtype for path, dtype, _ in rows}
    for path, field in BASIS_SCHEMA.fields.items():
        assert documented[path] == field.dtype.lstrip("<"), path
    assert set(documented) == set(BASIS_SCHEMA.fields)


def test_the_documented_reader_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent / "docs" / "BASIS.md").read_text()
    basisfile.write(tmp_path / "basis.h5", origin_of("rank1"), basis_of("rank1"), None)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    exec(compile(code, "BASIS.md", "exec"), {})
