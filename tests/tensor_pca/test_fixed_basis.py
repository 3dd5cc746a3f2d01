"""Laws of the integer basis: exact pixels, same bits however the work is cut, refusal of what is no basis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli.errors import FileRefused
from tpca_cli.tensor_pca.fixed_basis import SCALE, FixedBasis


def orthonormal(rng: np.random.Generator, side: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(side, side)))[0]


def all_indices(shape: tuple[int, ...]) -> np.ndarray:
    return np.stack([axis.ravel() for axis in np.indices(shape)], axis=1)


def rank1(shape: tuple[int, ...], dtype: type, seed: int = 0) -> FixedBasis:
    rng = np.random.default_rng(seed)
    return FixedBasis.from_modes([orthonormal(rng, side) for side in shape], all_indices(shape), dtype=dtype)


def frames_of(shape: tuple[int, ...], dtype: type, count: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, np.iinfo(dtype).max + 1, (count, *shape)).astype(dtype)
    frames[0] = np.iinfo(dtype).max
    frames[-1] = 0
    return frames


@settings(max_examples=25)
@given(
    st.sampled_from([(1, 1, 1), (5, 3, 1), (8, 8, 3), (16, 16, 4), (7, 12, 2)]),
    st.sampled_from([np.uint8, np.uint16]),
    st.integers(0, 1000),
)
def test_all_components_give_the_pixels_back(shape: tuple[int, ...], dtype: type, seed: int) -> None:
    basis = rank1(shape, dtype, seed)
    frames = frames_of(shape, dtype, 4, seed)
    assert np.array_equal(basis.reconstruct(basis.project(frames)), frames)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_dense_basis_gives_the_pixels_back(dtype: type) -> None:
    shape = (6, 5, 3)
    basis = FixedBasis.from_dense(orthonormal(np.random.default_rng(3), 90), shape, dtype=dtype)
    frames = frames_of(shape, dtype, 5)
    assert np.array_equal(basis.reconstruct(basis.project(frames)), frames)


def test_mean_is_subtracted_and_restored() -> None:
    shape = (4, 4, 1)
    mean = np.arange(16).reshape(shape) * 7
    plain = rank1(shape, np.uint8)
    basis = FixedBasis(plain.frame_shape, plain.depth, plain.bits, plain.factors, plain.indices, mean.ravel())
    assert not basis.project(mean[None].astype(np.uint8)).any()
    frames = frames_of(shape, np.uint8, 3)
    assert np.array_equal(basis.reconstruct(basis.project(frames)), frames)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_any_blocking_gives_the_same_bits(dtype: type) -> None:
    basis = rank1((16, 16, 3), dtype)
    frames = frames_of((16, 16, 3), dtype, 33)
    whole = basis.project(frames)
    for size in (1, 7, 32):
        parts = [basis.project(frames[at : at + size]) for at in range(0, len(frames), size)]
        assert np.array_equal(np.concatenate(parts), whole)
        back = [basis.reconstruct(whole[at : at + size]) for at in range(0, len(frames), size)]
        assert np.array_equal(np.concatenate(back), basis.reconstruct(whole))


def test_products_equal_integer_arithmetic() -> None:
    """The float products are the integers that they stand for, with the stated rounding."""
    basis = rank1((8, 8, 3), np.uint16, 5)
    frames = frames_of((8, 8, 3), np.uint16, 3)
    values = frames.astype(object)
    have = 0
    for axis, factor in enumerate(basis.factors):
        values = np.moveaxis(np.tensordot(values, factor.astype(object), axes=(axis + 1, 0)), -1, axis + 1)
        shift = basis.bits + have - 6
        values = (values + (1 << (shift - 1))) >> shift
        have = 6
    assert np.array_equal(basis.project(frames), values.reshape(3, -1).astype(np.int64))


def test_fewer_components_leave_the_dropped_energy() -> None:
    basis = rank1((8, 8, 1), np.uint8)
    frames = frames_of((8, 8, 1), np.uint8, 6)
    coefficients = basis.project(frames)
    kept = coefficients.copy()
    kept[:, 40:] = 0
    planes = basis.synthesize(kept.T.astype(np.float64))
    error = ((np.moveaxis(planes, -1, 0) / SCALE - frames) ** 2).sum()
    assert error == pytest.approx((coefficients[:, 40:] / SCALE).__pow__(2).sum(), rel=1e-3)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_arrays_round_trip(dtype: type) -> None:
    for basis in (
        rank1((8, 8, 3), dtype),
        FixedBasis.from_dense(orthonormal(np.random.default_rng(0), 48)[:, :20], (4, 4, 3), dtype=dtype),
    ):
        again = FixedBasis.from_arrays(basis.meta, basis.to_arrays())
        frames = frames_of(basis.frame_shape, dtype, 4)
        assert np.array_equal(again.project(frames), basis.project(frames))


def broken(change: str) -> tuple[dict, dict]:
    basis = rank1((4, 4, 1), np.uint8)
    meta, arrays = dict(basis.meta), dict(basis.to_arrays())
    if change == "missing":
        del arrays["factor1"]
    elif change == "skewed":
        arrays["factor0"] = arrays["factor0"] // 2
    elif change == "repeated":
        arrays["indices"] = np.zeros_like(arrays["indices"])
    elif change == "outside":
        arrays["indices"] = arrays["indices"] + np.uint8(200)
    elif change == "shape":
        meta["frame"] = [4, 5, 1]
    elif change == "huge":
        meta["frame"] = [1 << 20, 1 << 20, 3]
    elif change == "bits":
        meta["bits"] = 3
    elif change == "kind":
        meta["frame"] = "no"
    return meta, arrays


@pytest.mark.parametrize(
    "change", ["missing", "skewed", "repeated", "outside", "shape", "huge", "bits", "kind"]
)
def test_what_is_no_basis_is_refused(change: str) -> None:
    with pytest.raises(FileRefused):
        FixedBasis.from_arrays(*broken(change))
