"""Products of 8 bits: exact sums, coefficients as near to U'x as promised, the same bits in any way."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from threadpoolctl import threadpool_limits

from tpca_cli.scores.project import Projector
from tpca_cli.tensor_pca import slices
from tpca_cli.tensor_pca.basis import OperatorBasis
from tpca_cli.tensor_pca.slices import Slices, slices_for

SHAPE, M = (16, 16, 2), 100
FRAMES = np.random.default_rng(1).integers(0, 256, (10, *SHAPE), np.uint8)


@functools.cache
def basis(mean: bool = False, scale: float = 1.0) -> OperatorBasis:
    """Orthonormal tensors, all entries of one order of magnitude."""
    rng = np.random.default_rng(2)
    with threadpool_limits(1):
        matrix = np.linalg.qr(rng.normal(size=(np.prod(SHAPE), M)))[0] * scale
    return OperatorBasis(SHAPE, matrix, np.ones(M), float(M), rng.uniform(0, 255, SHAPE) if mean else None)


def away(found: npt.NDArray[Any], of: OperatorBasis) -> float:
    """The largest distance from U'x in extended precision, by the length of x."""
    x = FRAMES.reshape(len(FRAMES), -1).astype(np.longdouble)
    centered = x if of.mean is None else x - of.mean.reshape(-1)
    true = centered @ of.matrix.astype(np.longdouble)
    return float((np.abs(found - true).max(axis=1) / np.linalg.norm(x.astype(float), axis=1)).max())


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize(("dtype", "count", "most"), [("<f4", 4, 2.0**-24), ("<f8", 5, 1e-12)])
def test_coefficients_are_as_exact_as_their_type_promises(
    dtype: str, count: int, most: float, mean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "_library", lambda quick=False: True)
    assert slices_for(basis(), np.dtype(dtype).itemsize) == count
    monkeypatch.undo()
    found = Projector(basis(mean), "u1", dtype, count).coefficients([FRAMES])
    assert found.dtype == dtype and away(found, basis(mean)) < most
    before_rounding = Projector(basis(mean), "u1", "<f8", count).coefficients([FRAMES])
    assert away(before_rounding, basis(mean)) < slices.TOLERANCE[np.dtype(dtype).itemsize]


def test_the_bits_depend_neither_on_the_library_nor_on_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Projector(basis(True), "u1", "<f8", 5)
    found = whole.coefficients([FRAMES])
    np.testing.assert_array_equal(whole.coefficients([FRAMES[:1], FRAMES[1:7], FRAMES[7:]]), found)
    monkeypatch.setattr("tpca_cli.scores.project.PRODUCT_VALUES", 3 * FRAMES[0].size)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(whole)).coefficients([FRAMES]), found)
    monkeypatch.setattr(slices, "_library", lambda quick=False: None)
    np.testing.assert_array_equal(Projector(basis(True), "u1", "<f8", 5).coefficients([FRAMES]), found)


def test_a_library_that_rounds_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numkong")
    found = Slices(basis(), 4).project((FRAMES ^ 128).view(np.int8).reshape(10, -1))
    real = slices._dots
    monkeypatch.setattr(slices, "_dots", lambda packed, frames: real(packed, frames) // 2 * 2)
    again = Slices(basis(), 4).project((FRAMES ^ 128).view(np.int8).reshape(10, -1))
    np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize("largest", [0.0, 2.0**-9, np.nextafter(0.5, 0), 0.5, np.nextafter(1, 0), 1.0, 3e4])
def test_every_number_fits_its_slices(largest: float) -> None:
    """At powers of two and just below, of either sign, where a carry could leave the upper slice."""
    matrix = np.array([[largest, -largest], [-largest * 0.999, largest / 3], [0.0, 5e-324]])
    for count in range(1, slices.MOST + 1):
        scale = np.ldexp(1.0, slices._shifts(np.abs(matrix).max(axis=0), count))
        digits = slices._sliced(matrix, scale, count)
        back = sum(part.T * 256.0**k for k, part in enumerate(digits))
        assert (np.abs(back - matrix * scale) <= 0.5).all()


def test_floats_are_used_where_slices_would_not_be_exact_or_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_library", lambda quick=False: True)
    assert slices_for(basis(), 8) == 5 and slices_for(basis(scale=8.0), 8) == 0
    monkeypatch.setattr(slices, "_LONGEST", 500)
    assert slices_for(basis(), 8) == 0
    monkeypatch.undo()
    monkeypatch.setattr(slices, "_library", lambda quick=False: None)
    assert slices_for(basis(), 8) == 0
    assert Projector(basis(), "u2", "<f8").slices == 0
