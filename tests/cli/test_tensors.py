"""Tensors of any order from the command line: arrays, pages, slices, floats; and a given operator."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import tpca
from PIL import Image

import tpca_cli
from tpca_cli import Archive
from tpca_cli.encode import plain_items
from tpca_cli.errors import Interrupted
from tpca_cli.scores.project import Projector

COUNT, M = 12, 4
KINDS = {
    "volume float32": ((6, 9, 10), np.float32),
    "volume float64": ((6, 9, 10), np.float64),
    "volume uint16": ((6, 9, 10), np.uint16),
    "clip uint8": ((3, 8, 10, 3), np.uint8),
    "bands float32": ((8, 9, 7), np.float32),
    "order 1": ((40,), np.float64),
    "order 5": ((2, 3, 4, 3, 2), np.uint8),
}


def tensor(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    """Shading along every mode, and a little noise; floats also below zero."""
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*[np.linspace(-1, 1, side) for side in shape], indexing="ij")
    slopes, phases = rng.normal(size=(2, len(shape)))
    values = sum(a * np.sin(2 * x + p) for a, x, p in zip(slopes, axes, phases, strict=True))
    values = values / 3 + rng.normal(size=shape) * 0.02
    if np.issubdtype(dtype, np.floating):
        return (values * 37.5).astype(dtype)
    return np.clip((values + 1) / 2 * np.iinfo(dtype).max, 0, np.iinfo(dtype).max).astype(dtype)


def arrays(folder: Path, kind: str) -> list[Any]:
    folder.mkdir()
    found = [tensor(*KINDS[kind], seed) for seed in range(COUNT)]
    for k, each in enumerate(found):
        np.save(folder / f"{k:02d}.npy", each)
    return found


def principal(rows: Any, count: int) -> Any:
    """The best `count` directions, from the definition alone."""
    return np.linalg.svd(rows.T, full_matrices=False)[0][:, :count]


@pytest.mark.parametrize("method", ["operator", "subspace", "rank1"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_basis_is_that_of_the_definition(kind: str, method: str, tmp_path: Path) -> None:
    found = arrays(tmp_path / "in", kind)
    truncation = ("--truncation", "svd") if method == "rank1" else ()
    facts = tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", "--method", method, *truncation,
                 "--components", M, "--json").json  # fmt: skip
    rows = np.stack(found).reshape(COUNT, -1).astype(np.float64)
    basis = tpca_cli.Basis(tmp_path / "b.h5")
    assert basis.frame_shape == KINDS[kind][0] and tuple(facts["frame_shape"]) == KINDS[kind][0]
    assert facts["sums"] == ("float64" if np.issubdtype(KINDS[kind][1], np.floating) else "exact")
    columns = basis.eigentensors.reshape(M, -1).T
    best = principal(rows, M)
    assert np.linalg.norm(columns - best @ (best.T @ columns)) <= 1e-6
    values = np.linalg.svd(rows, compute_uv=False)[:M] ** 2
    assert np.allclose(basis.eigenvalues, values, rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_rank_1_tensors_are_those_of_the_modes(kind: str, tmp_path: Path) -> None:
    found = arrays(tmp_path / "in", kind)
    tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", "--method", "rank1", "--components", M)
    stack = np.stack(found).astype(np.float64)
    modes = []
    for k in range(1, stack.ndim):
        unfolded = np.moveaxis(stack, k, 0).reshape(stack.shape[k], -1)
        modes.append(np.linalg.eigh(unfolded @ unfolded.T)[1])
    coefficients = stack
    for mode in modes:
        coefficients = np.moveaxis(np.tensordot(coefficients, mode, axes=(1, 0)), -1, -1)
    energies = np.sort((coefficients.reshape(COUNT, -1) ** 2).sum(axis=0))[::-1]
    assert np.allclose(tpca_cli.Basis(tmp_path / "b.h5").eigenvalues, energies[:M], rtol=1e-8)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_round_trip_is_the_truncation(kind: str, center: bool, tmp_path: Path) -> None:
    found = arrays(tmp_path / "in", kind)
    options = ("--center",) if center else ()
    tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", "--components", M, *options)
    facts = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--basis", tmp_path / "b.h5",
                 "--components", M, "--json").json  # fmt: skip
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out")
    rows = np.stack(found).reshape(COUNT, -1).astype(np.float64)
    mean = rows.mean(axis=0) if center else np.zeros(rows.shape[1])
    best = principal(rows - mean, M)
    lost = float((((rows - mean) - (rows - mean) @ best @ best.T) ** 2).sum())
    back = [np.load(tmp_path / "out" / f"{k:02d}.npy") for k in range(COUNT)]
    assert all(b.dtype == f.dtype and b.shape == f.shape for b, f in zip(back, found, strict=True))
    away = np.stack(back).reshape(COUNT, -1).astype(np.float64) - rows
    rounding = away.size * (max(facts["grid_step"], float(facts["item"]["dtype"] in ("u1", "u2"))) ** 2)
    assert (away**2).sum() <= lost * 10**0.005 + rounding
    assert facts["rms_error"] == pytest.approx(np.sqrt((away**2).mean()))
    assert facts["max_error"] == pytest.approx(np.abs(away).max())
    with Archive(tmp_path / "a.h5") as archive:
        assert np.array_equal(archive["03.npy"], back[3])
    tpca("verify", tmp_path / "a.h5")
    tpca("inspect", tmp_path / "a.h5")
    tpca("inspect", tmp_path / "b.h5")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_mean_between_whole_samples_costs_nothing(dtype: Any, tmp_path: Path) -> None:
    """Rounded to whole samples, the mean alone would add 1/12 to a squared error below 1."""
    rng = np.random.default_rng(5)
    mean, waves = rng.uniform(100, 150, 240), rng.normal(size=(2, 240))
    rows = np.rint(mean + 8 * rng.normal(size=(40, 2)) @ waves + rng.normal(0, 0.8, (40, 240)))  # (n, L)
    (tmp_path / "in").mkdir()
    for k, row in enumerate(rows.astype(dtype)):
        np.save(tmp_path / "in" / f"{k:02d}.npy", row.reshape(6, 8, 5))
    tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", "--components", 2, "--center")
    words = ("--basis", tmp_path / "b.h5", "--components", 2, "--json")
    found = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", *words).json["rms_error"]
    away = rows - rows.mean(axis=0)
    best = principal(away, 2)
    truncated = np.rint(rows.mean(axis=0) + away @ best @ best.T)
    assert found**2 <= ((truncated - rows) ** 2).mean() * 10**0.005


@pytest.mark.parametrize("method", ["operator", "subspace", "rank1"])
def test_encode_fits_a_basis_itself(method: str, tmp_path: Path) -> None:
    arrays(tmp_path / "in", "volume float32")
    options = ("--method", method, "--components", M)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "one.h5", *options)
    tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", *options)
    tpca(
        "encode", tmp_path / "in", "-o", tmp_path / "two.h5", "--basis", tmp_path / "b.h5", "--components", M
    )
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()


@pytest.mark.parametrize("method", ["operator", "subspace", "rank1"])
@pytest.mark.parametrize("unit", [1e-310, 1e-170, 1e-100, 1e-58, 1e56, 1e100, 1e160, 1e300])
def test_any_magnitude_is_either_right_or_refused(unit: float, method: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(3).normal(size=(12, 20)) * np.arange(1, 21)
    (tmp_path / "in").mkdir()
    for k, row in enumerate(rows * unit):
        np.save(tmp_path / "in" / f"{k:02d}.npy", row.reshape(4, 5))
    out, how = ("-o", tmp_path / "a.h5"), ("--components", M, "--method", method)
    if not 1e-60 <= unit * np.abs(rows).max() <= 1e60:
        for command in ("encode", "fit-basis"):
            outcome = tpca(command, tmp_path / "in", *out, *how, code=1)
            assert "scale them" in outcome.err and "Warning" not in outcome.err
        return
    facts = tpca("encode", tmp_path / "in", *out, *how, "--json").json
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out")
    back = np.stack([np.load(tmp_path / "out" / f"{k:02d}.npy").ravel() for k in range(12)]) / unit
    assert facts["rms_error"] / unit == pytest.approx(np.sqrt(((back - rows) ** 2).mean()))
    best = principal(rows, M)
    if method != "rank1":
        assert np.sum((back - rows) ** 2) <= np.sum((rows - rows @ best @ best.T) ** 2) * 10**0.005


def stacks(root: Path, form: str, depth: Any = np.uint8) -> list[Any]:
    """Volumes as TIFF of several pages, or as folders of slices whose numbers have no leading zeros."""
    found = [tensor((11, 9, 10), depth, seed) for seed in range(6)]
    for k, volume in enumerate(found):
        pages = [Image.fromarray(page) for page in volume]
        if form == "tiff":
            root.mkdir(exist_ok=True)
            pages[0].save(root / f"{k}.tif", save_all=True, append_images=pages[1:])
        else:
            (root / f"case{k}").mkdir(parents=True)
            for z, page in enumerate(pages):
                page.save(root / f"case{k}" / f"z{z}.png")
    return found


@pytest.mark.parametrize(
    ("form", "depth"),
    [
        ("tiff", np.uint8),
        ("tiff", np.uint16),
        ("tiff", np.float32),
        ("slices", np.uint8),
        ("slices", np.uint16),
    ],
)
def test_pages_and_slices_come_back_as_such(form: str, depth: Any, tmp_path: Path) -> None:
    found = stacks(tmp_path / "in", form, depth)
    options = ("--stack", "--method", "subspace", "--components", 6, "--step", 0.02)
    facts = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", *options, "--json").json
    assert facts["item"]["shape"] == [11, 9, 10]
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out")
    for k, volume in enumerate(found):
        if form == "tiff":
            with Image.open(tmp_path / "out" / f"{k}.tif") as image:
                pages = []
                for z in range(11):
                    image.seek(z)
                    pages.append(np.asarray(image))
        else:
            pages = [np.asarray(Image.open(tmp_path / "out" / f"case{k}" / f"z{z}.png")) for z in range(11)]
        step = 1 if depth is not np.float32 else facts["grid_step"]
        assert np.abs(np.stack(pages).astype(float) - volume).max() <= 2 * step  # all components: all samples


def test_members_of_npz_are_items(tmp_path: Path) -> None:
    found = {f"v{k}": tensor((6, 9, 10), np.float32, k) for k in range(6)}
    np.savez_compressed(tmp_path / "all.npz", **found)
    tpca("encode", tmp_path / "all.npz", "-o", tmp_path / "a.h5", "--components", 6, "--step", 0.5)
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out")
    for name, each in found.items():
        assert np.abs(np.load(tmp_path / "out" / "all" / f"{name}.npy") - each).max() < 0.01


def test_fortran_and_big_endian_arrays_are_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    found = [tensor((6, 9, 10), np.uint16, k) for k in range(5)]
    for k, each in enumerate(found):
        np.save(tmp_path / "in" / f"{k}.npy", np.asfortranarray(each.astype(">u2") if k % 2 else each))
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--components", 5, "--step", 0.1)
    with Archive(tmp_path / "a.h5") as archive:
        for k, each in enumerate(found):
            assert np.abs(archive[f"{k}.npy"].astype(int) - each).max() <= 1


def given_operator(shape: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(0)
    size = int(np.prod(shape))
    root = rng.normal(size=(size, size))
    return (root @ root.T + np.eye(size)).reshape(*shape, *shape)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (2, 2, 3, 2), (2, 2, 2, 2, 2)])
def test_a_given_operator_is_solved(shape: tuple[int, ...], dtype: Any, tmp_path: Path) -> None:
    operator = np.rint(100 * given_operator(shape)).astype(dtype)
    np.save(tmp_path / "A.npy", operator)
    tpca("fit-basis", "--operator", tmp_path / "A.npy", "-o", tmp_path / "b.h5", "--all")
    basis = tpca_cli.Basis(tmp_path / "b.h5")
    d = len(shape)
    for value, u in zip(basis.eigenvalues, basis.eigentensors, strict=True):
        applied = np.tensordot(operator, u, axes=(range(d, 2 * d), range(d)))
        assert np.allclose(applied, value * u, atol=1e-9 * basis.eigenvalues[0])
    assert basis.frame_shape == shape and basis.components == np.prod(shape)


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        (np.triu(np.ones((4, 4))), "not self-adjoint"),
        (np.ones((4, 3)), "2d modes"),
        (np.ones((2, 3, 2)), "2d modes"),
        (np.full((3, 3), np.nan), "not a number"),
        (np.ones((3, 3), np.complex128), "float64"),
        (np.ones((3, 3), object), "damaged, or not a .npy file"),
        (np.ones((2, 0, 2, 0)), "0 entries"),
        (np.ones((1,) * 18), "1 to 8 modes"),
        (np.diag([5, 3, 1, -0.5, -2, -7]).reshape(2, 3, 2, 3), "negative eigenvalues, down to -7 "),
        (-np.eye(3), "negative eigenvalues, down to -1 "),
        (1e-160 * np.eye(3), "up to 1e-160 in magnitude"),
        (1e300 * np.eye(3), "up to 1e+300 in magnitude"),
    ],
    ids=str,
)
def test_other_operators_are_refused(operator: Any, why: str, tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", operator)
    outcome = tpca("fit-basis", "--operator", tmp_path / "A.npy", "-o", tmp_path / "b.h5", code=1)
    assert why in outcome.err and not (tmp_path / "b.h5").exists()


def test_the_limits_of_an_item_are_for_half_the_modes_of_an_operator(tmp_path: Path) -> None:
    """All modes but the last of this operator have 65,536 combinations, those of its frames 128."""
    values = np.arange(512.0, 0, -1)
    np.save(tmp_path / "A.npy", np.diag(values).reshape(128, 4, 128, 4))
    tpca("fit-basis", "--operator", tmp_path / "A.npy", "-o", tmp_path / "b.h5", "--components", 3)
    basis = tpca_cli.Basis(tmp_path / "b.h5")
    assert np.allclose(basis.eigenvalues, values[:3]) and basis.frame_shape == (128, 4)


@pytest.mark.parametrize("rank", [1, 5, 12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_does_not_make_energies_negative(rank: int, dtype: Any, tmp_path: Path) -> None:
    """Operators X'X of few frames have eigenvalues that are zero, and rounded to either side of it."""
    frames = np.random.default_rng(rank).normal(size=(rank, 60)).astype(dtype)
    np.save(tmp_path / "A.npy", frames.T @ frames)
    tpca("fit-basis", "--operator", tmp_path / "A.npy", "-o", tmp_path / "b.h5", "--all")
    values = np.linalg.svd(frames.astype(np.float64), compute_uv=False) ** 2
    found = tpca_cli.Basis(tmp_path / "b.h5").eigenvalues
    assert np.allclose(found[:rank], values, rtol=1e-5) and found[rank:].max() <= 1e-5 * values[0]


def test_options_that_do_not_belong_are_refused(tmp_path: Path) -> None:
    arrays(tmp_path / "in", "volume float32")
    out = ("-o", tmp_path / "a.h5")
    for words in (("--psnr", 30), ("--tile", 8), ("--append",), ("--components", 3, "--link-basis"), ()):
        tpca("encode", tmp_path / "in", *out, *words, code=2)
    tpca("fit-basis", tmp_path / "in", *out, "--size", "8x8", code=2)
    tpca("fit-basis", *out, code=2)
    np.save(tmp_path / "A.npy", np.eye(4))
    tpca("fit-basis", tmp_path / "in", "--operator", tmp_path / "A.npy", *out, code=2)
    tpca("fit-basis", tmp_path / "in", *out, "--components", 100000, "--memory", "10k", code=2)


def test_tensors_are_not_compared_with_files_and_not_appended_to(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for k in range(3):
        np.save(tmp_path / "in" / f"{k}.npy", np.full((5, 6, 7), 9 * k, np.uint8))
    archive = tmp_path / "a.h5"
    tpca("encode", tmp_path / "in", "-o", archive, "--method", "rank1", "--components", 2, "--force")
    for words in (("verify", archive, "--against", tmp_path / "in"), ("diff", archive, tmp_path / "in")):
        assert "holds tensors" in tpca(*words, code=2).err
    before = archive.read_bytes()
    appended = tpca("encode", tmp_path / "in", "-o", archive, "--append", "--components", 2, code=2)
    assert "--append" in appended.err and "tensors" in appended.err
    Image.new("L", (7, 30)).save(tmp_path / "picture.png")
    assert tpca("encode", tmp_path / "picture.png", "-o", archive, "--append", code=2).err.count("tensors")
    assert archive.read_bytes() == before


@pytest.mark.parametrize("method", ["operator", "subspace", "rank1"])
@pytest.mark.parametrize("kind", ["volume float32", "volume float64", "volume uint16", "order 1", "order 5"])
def test_scores_of_tensors_are_the_product_and_rebuild_them(kind: str, method: str, tmp_path: Path) -> None:
    found = np.stack(arrays(tmp_path / "in", kind))
    more = ("--truncation", "svd") if method == "rank1" else ()
    fit = ("-o", tmp_path / "b.h5", "--method", method, "--components", M, "--center", *more)
    tpca("fit-basis", tmp_path / "in", *fit)
    plain = ("--basis", tmp_path / "b.h5", "--plain", "--dtype", "float64")
    tpca("encode", tmp_path / "in", "-o", tmp_path / "s.h5", *plain)
    basis = tpca_cli.Basis(tmp_path / "b.h5")
    u = basis.eigentensors.reshape(basis.components, -1).T  # (L, M)
    x = found.reshape(COUNT, -1) - basis.mean.reshape(-1)
    with tpca_cli.Scores(tmp_path / "s.h5") as scores:
        d = scores.rows(0, COUNT)
        rebuilt = scores.tensor(3)
    assert np.abs(d - x @ u).max() <= 1e-12 * np.linalg.norm(found.reshape(COUNT, -1), axis=1).max()
    tpca("verify", tmp_path / "s.h5")
    assert "images" in tpca("inspect", tmp_path / "s.h5").out
    tpca("decode", tmp_path / "s.h5", "-o", tmp_path / "out")
    back = np.load(tmp_path / "out" / "03.npy")
    assert back.dtype == found.dtype and back.shape == found.shape[1:] and np.array_equal(back, rebuilt)
    expected = (d[3] @ u.T + basis.mean.reshape(-1)).reshape(back.shape)
    slack = 0.51 if found.dtype.kind == "u" else 1e-5 * np.abs(found).max()
    limits = (0, np.iinfo(found.dtype).max) if found.dtype.kind == "u" else (-np.inf, np.inf)
    assert np.abs(back - np.clip(expected, *limits)).max() <= slack


def test_scores_of_bands_in_a_tiff_of_pages(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for k in range(5):
        bands = tensor((7, 8, 9), np.uint16, k)  # seven bands
        pages = [Image.fromarray(band) for band in bands]
        pages[0].save(tmp_path / "in" / f"{k}.tif", save_all=True, append_images=pages[1:])
    stack = (tmp_path / "in", "--stack")
    tpca("fit-basis", *stack, "-o", tmp_path / "b.h5", "--method", "subspace", "--all")
    tpca("encode", *stack, "-o", tmp_path / "s.h5", "--basis", tmp_path / "b.h5", "--plain")
    tpca("decode", tmp_path / "s.h5", "-o", tmp_path / "out")
    with Image.open(tmp_path / "out" / "2.tif") as back:
        assert back.n_frames == 7
        back.seek(4)
        away = np.abs(np.asarray(back).astype(int) - tensor((7, 8, 9), np.uint16, 2)[4].astype(int))
    assert away.max() <= 1  # all components: coefficients of float32 are the only loss


def projected(folder: Path) -> tuple[object, ...]:
    """Tensors in `in`, a basis of them, and the command that writes their scores."""
    arrays(folder / "in", "order 5")
    tpca("fit-basis", folder / "in", "-o", folder / "b.h5", "--method", "subspace", "--components", 2)
    return ("encode", folder / "in", "--basis", folder / "b.h5", "--plain", "--dtype", "float64", "-o")


def test_scores_of_tensors_grow_by_what_is_new_or_changed(tmp_path: Path) -> None:
    plain, archive = projected(tmp_path), tmp_path / "s.h5"
    later = tmp_path / "later"
    later.mkdir()
    for name in ("03.npy", "05.npy"):
        (tmp_path / "in" / name).rename(later / name)
    tpca(*plain, archive)
    for path in later.iterdir():
        path.rename(tmp_path / "in" / path.name)
    np.save(tmp_path / "in" / "01.npy", np.load(tmp_path / "in" / "01.npy") // 2)
    assert "01.npy differs" in tpca(*plain, archive, "--append", "--on-change", "fail", code=1).err
    kept = tpca(*plain, tmp_path / "s.h5", "--append", "--on-change", "keep", "--json").json
    assert kept["appended"] == {"added": 2, "replaced": 0, "unchanged": COUNT - 3}
    grown = tpca(*plain, archive, "--append", "--json").json
    assert grown["appended"] == {"added": 0, "replaced": 1, "unchanged": COUNT - 1}
    assert tpca(*plain, archive, "--append", "--json").json["appended"]["unchanged"] == COUNT
    tpca(*plain, tmp_path / "anew.h5")
    with tpca_cli.Scores(archive) as scores, tpca_cli.Scores(tmp_path / "anew.h5") as anew:
        assert sorted(scores.names_bytes) == list(anew.names_bytes)
        order = [scores.names_bytes.index(name) for name in anew.names_bytes]
        np.testing.assert_allclose(scores.rows(0, COUNT)[order], anew.rows(0, COUNT), rtol=1e-12)
    tpca("verify", archive)
    Image.new("L", (7, 30)).save(tmp_path / "picture.png")
    assert "basis of tensors" in tpca("encode", tmp_path / "picture.png", *plain[2:], "x.h5", code=2).err


def test_scores_of_tensors_go_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No product is made twice, not even those that were ready before the one that was cut short."""
    plain, real, made = (*projected(tmp_path), tmp_path / "s.h5", "--workers", 2), Projector.coefficients, []
    tpca(*plain[:-3], tmp_path / "whole.h5")
    monkeypatch.setattr(plain_items, "PRODUCT_VALUES", 1)  # a product for each tensor
    calls, another = itertools.count(), threading.Event()

    def counted(*given: Any) -> Any:
        made.append(given)
        another.set()
        return real(*given)

    def killed(*given: Any) -> Any:
        if next(calls) == 0:
            assert another.wait(60)
            raise Interrupted(15)
        return counted(*given)

    monkeypatch.setattr(Projector, "coefficients", killed)
    assert tpca(*plain, code=None).code == 128 + 15
    assert 0 < len(made) < COUNT
    monkeypatch.setattr(Projector, "coefficients", counted)
    tpca(*plain)
    assert len(made) == COUNT and not (tmp_path / "s.h5.partial").exists()
    with tpca_cli.Scores(tmp_path / "s.h5") as scores, tpca_cli.Scores(tmp_path / "whole.h5") as whole:
        np.testing.assert_allclose(scores.rows(0, COUNT), whole.rows(0, COUNT), rtol=1e-12)


@pytest.mark.parametrize("wrong", [("--size", "8x8"), ("--psnr", 30), ("--dry-run",)])
def test_scores_of_tensors_refuse_what_is_for_images(wrong: tuple[object, ...], tmp_path: Path) -> None:
    arrays(tmp_path / "in", "order 1")
    tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", "--method", "subspace", "--components", 2)
    plain = ("encode", tmp_path / "in", "-o", tmp_path / "s.h5", "--basis", tmp_path / "b.h5", "--plain")
    assert str(wrong[0]) in tpca(*plain, *wrong, code=2).err
    assert "has 2" in tpca(*plain, "--components", 3, code=2).err
