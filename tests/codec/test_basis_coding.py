"""Coded dense bases: integers that come back, an error that follows the step, and files that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tpca_cli.codec.basis_coding import (
    arrays_of,
    code_basis,
    coder_from_arrays,
    decode_basis,
    meta_of,
    picture_shape,
)
from tpca_cli.codec.coder import Coder
from tpca_cli.errors import FileRefused
from tpca_cli.framing import Framing
from tpca_cli.tensor_pca.fixed_basis import FixedBasis

SHAPES = {
    "color": (24, 40, 3),
    "gray": (33, 21, 1),
    "a clip": (3, 16, 18, 3),
    "a volume": (9, 11, 13),
    "many bands": (12, 10, 7),
    "order 5": (2, 3, 8, 9, 2),
}
ENERGIES = 1e7 * 0.7 ** np.arange(12)


def smooth(shape: tuple[int, ...], count: int, seed: int = 0) -> Any:
    """Orthonormal columns (L, M) that are smooth along every axis."""
    rng = np.random.default_rng(seed)
    tensors = rng.normal(size=(count, *shape))
    for axis, side in enumerate(shape, 1):
        decay = np.exp(-0.5 * np.arange(side))
        k = np.arange(side)
        modes = np.cos(np.pi * (2 * k[:, None] + 1) * k[None, :] / (2 * side)) * decay
        tensors = np.moveaxis(np.tensordot(tensors, modes, axes=(axis, 1)), -1, axis)
    return np.linalg.qr(tensors.reshape(count, -1).T)[0]


def coded(shape: tuple[int, ...], step: float, dtype: Any = np.uint8, energies: Any = ENERGIES) -> FixedBasis:
    plain = FixedBasis.from_dense(smooth(shape, len(energies)), shape, dtype=dtype)
    found = code_basis(plain, np.sqrt(energies), step)
    assert found.coded is not None
    return found


def form(basis: FixedBasis) -> Any:
    assert basis.coded is not None
    return basis.coded


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_what_is_stored_gives_the_integers_back(name: str, dtype: Any) -> None:
    basis = coded(SHAPES[name], 4.0, dtype)
    found = decode_basis(basis.frame_shape, basis.bits, form(basis).settings, form(basis).arrays)
    assert np.array_equal(found, basis.factors[0])
    assert np.prod(picture_shape(basis.frame_shape)) == np.prod(basis.frame_shape)


@pytest.mark.parametrize("step", [1.0, 4.0, 16.0])
def test_the_error_of_the_data_follows_the_step_for_every_eigentensor(step: float) -> None:
    """lambda_l |dU_l|^2 is at most that of a step in every sample, however strong the eigentensor is."""
    shape = SHAPES["color"]
    basis = coded(shape, step)
    away = basis.factors[0] * 2.0**-basis.bits - smooth(shape, len(ENERGIES))
    cost = ENERGIES * (away**2).sum(axis=0)
    assert cost.max() <= np.prod(shape) * step**2 / 12 * 2
    assert basis.stored_bytes < coded(shape, step / 2).stored_bytes


def test_coefficients_are_the_least_squares_ones() -> None:
    basis = coded(SHAPES["color"], 32.0)
    rng = np.random.default_rng(1)
    coefficients = np.rint(rng.normal(size=(12, 5)) * 2000)
    frames = basis.synthesize(coefficients)
    again = basis.analyze(frames, bits=6)
    assert np.abs(again - coefficients).max() <= 8  # of 2000: rounding, and no cross talk
    planes = np.rint(rng.normal(size=(*basis.frame_shape, 4)) * 100)
    columns = basis.factors[0] * 2.0**-basis.bits
    best = np.linalg.lstsq(columns, planes.reshape(-1, 4), rcond=None)[0] * 64
    assert np.abs(basis.analyze(planes) - best).max() <= 64


def test_blocking_changes_no_bit() -> None:
    basis = coded(SHAPES["color"], 8.0)
    planes = np.random.default_rng(2).integers(0, 256, (*basis.frame_shape, 6)).astype(float)
    alone = [basis.analyze(planes[..., k : k + 1]) for k in range(6)]
    assert np.array_equal(np.concatenate(alone, axis=1), basis.analyze(planes))


def test_what_carries_no_energy_is_zero_and_costs_nothing() -> None:
    energies = np.where(np.arange(12) < 8, ENERGIES, 0)
    basis = coded(SHAPES["color"], 4.0, energies=energies)
    assert not basis.factors[0][:, 8:].any() and basis.factors[0][:, :8].any(axis=0).all()
    frames = np.random.default_rng(0).integers(0, 255, (*basis.frame_shape, 2)).astype(float)
    assert not basis.analyze(frames)[8:].any()


def test_a_fine_step_leaves_plain_integers() -> None:
    """All components at a fine step give every pixel back: nothing may be lost by the basis."""
    plain = FixedBasis.from_dense(smooth((24, 40, 3), 12), (24, 40, 3))
    assert code_basis(plain, np.sqrt(ENERGIES), 1 / 64) is plain
    assert code_basis(plain, np.zeros(12), 1.0) is plain


def test_one_strong_eigentensor_is_coded_more_coarsely() -> None:
    """Over very many frames the first one alone is beyond the range of a picture."""
    energies = np.where(np.arange(40) < 1, 1e10, 1e6 * 0.9 ** np.arange(40))
    basis = coded(SHAPES["color"], 4.0, energies=energies)
    away = basis.factors[0] * 2.0**-basis.bits - smooth(SHAPES["color"], 40)
    assert (energies * (away**2).sum(axis=0)).mean() <= np.prod(SHAPES["color"]) * 4.0**2 / 12 * 2
    assert np.abs(away[:, 0]).max() < 2e-3


def coder(basis: FixedBasis) -> Coder:
    framing = Framing("whole", *basis.frame_shape)
    rng = np.random.default_rng(3)
    frames = [rng.integers(0, 256, basis.frame_shape).astype(np.uint8) for _ in range(3)]
    return Coder.train(frames, framing, basis, 4.0, effort=0)


def test_a_coder_travels_with_its_coded_basis() -> None:
    own = coder(coded(SHAPES["color"], 4.0))
    again = coder_from_arrays(meta_of(own), arrays_of(own))
    assert np.array_equal(again.basis.factors[0], own.basis.factors[0])
    assert meta_of(again) == meta_of(own)
    assert {k: v.tobytes() for k, v in arrays_of(again).items()} == {
        k: v.tobytes() for k, v in arrays_of(own).items()
    }


HOSTILE = {
    "no lengths": {"lengths": None},
    "lengths of two axes": {"lengths": np.ones((12, 1), np.uint32)},
    "more tensors than bytes": {"lengths": np.ones(1 << 20, np.uint32)},
    "none at all": {"lengths": np.ones(0, np.uint32)},
    "long": {"lengths": np.full(12, 2**32 - 1, np.uint32)},
    "lengths that are too large for sums": {"lengths": np.full(12, 2**30 - 1, np.uint32)},
    "sizes": {"sizes": np.array([1, 2, 3], np.uint32)},
    "a size beyond the end": {"sizes": np.array([2**32 - 1], np.uint32)},
    "other bytes": {"payload": np.zeros(500, np.uint8), "sizes": np.array([500], np.uint32)},
    "no bytes": {"payload": np.zeros(0, np.uint8), "sizes": np.array([0], np.uint32)},
    "wide bytes": {"payload": np.zeros(500, np.uint32)},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_forms_are_refused(name: str) -> None:
    own = coder(coded(SHAPES["color"], 4.0))
    arrays = arrays_of(own)
    for key, value in HOSTILE[name].items():
        if value is None:
            del arrays[f"basis_coded_{key}"]
        else:
            arrays[f"basis_coded_{key}"] = value
    with pytest.raises(FileRefused):
        coder_from_arrays(meta_of(own), arrays)


@pytest.mark.parametrize("change", [{"framing": {}}, {"step": 0}, {"components": 10**9}, {"basis": []}])
def test_hostile_settings_are_refused(change: dict[str, Any]) -> None:
    own = coder(coded(SHAPES["color"], 4.0))
    settings = {**meta_of(own)["basis"]["coded"], **change}
    meta = {**meta_of(own), "basis": {**meta_of(own)["basis"], "coded": settings}}
    with pytest.raises(FileRefused):
        coder_from_arrays(meta, arrays_of(own))
    with pytest.raises(FileRefused):
        coder_from_arrays({**meta_of(own), "basis": {**meta_of(own)["basis"], "coded": 7}}, arrays_of(own))


def test_a_rank_1_basis_is_left_alone() -> None:
    modes = FixedBasis.from_modes([np.eye(8), np.eye(8), np.eye(3)], np.zeros((1, 3), np.int64))
    assert code_basis(modes, np.ones(1), 1.0) is modes
    own = coded(SHAPES["color"], 4.0)
    assert code_basis(replace(own), np.sqrt(ENERGIES), 4.0).coded is own.coded


def apart(count: int) -> tuple[Any, Any]:
    """Frames (n, 24, 40, 3) that are sharp in places of their own, and the eigentensors of their span."""
    rng = np.random.default_rng(5)
    frames = np.full((count, 24, 40, 3), 100.0)
    for k, frame in enumerate(frames):
        frame[8 * (k // 5) :, 8 * (k % 5) :][:8, :8] += rng.normal(size=(8, 8, 3)) * 60
    rows = frames.reshape(count, -1)
    columns, sizes, _ = np.linalg.svd(rows.T, full_matrices=False)
    return rows, (columns, sizes)


def test_eigentensors_are_turned_where_that_takes_fewer_bytes() -> None:
    rows, (columns, sizes) = apart(12)
    plain = FixedBasis.from_dense(columns, (24, 40, 3))
    alone = code_basis(plain, sizes, 4.0)
    turned = code_basis(plain, sizes, 4.0, coefficients=lambda: rows @ columns)
    assert "rotation" in form(turned).arrays and "rotation" not in form(alone).arrays
    assert turned.stored_bytes < 0.8 * alone.stored_bytes
    again = decode_basis(turned.frame_shape, turned.bits, form(turned).settings, form(turned).arrays)
    assert np.array_equal(again, turned.factors[0])
    away = turned.factors[0] * 2.0**-turned.bits - columns
    assert (sizes**2 * (away**2).sum(axis=0)).sum() <= 12 * plain.factors[0].shape[0] * 4.0**2 / 12


def test_a_rotation_that_costs_more_than_it_saves_is_not_stored() -> None:
    plain = FixedBasis.from_dense(smooth((24, 40, 3), 12), (24, 40, 3))
    coefficients = np.random.default_rng(0).normal(size=(500, 12))
    assert "rotation" not in form(code_basis(plain, np.sqrt(ENERGIES), 4.0, "", lambda: coefficients)).arrays


@pytest.mark.parametrize(
    "turn", [np.zeros((12, 11), np.int16), np.eye(12), np.full((12, 12), 2**11 + 1, np.int16)]
)
def test_hostile_rotations_are_refused(turn: Any) -> None:
    rows, (columns, sizes) = apart(12)
    basis = FixedBasis.from_dense(columns, (24, 40, 3))
    own = coder(code_basis(basis, sizes, 4.0, coefficients=lambda: rows @ columns))
    with pytest.raises(FileRefused):
        coder_from_arrays(meta_of(own), {**arrays_of(own), "basis_coded_rotation": turn})
