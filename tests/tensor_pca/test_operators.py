"""Operators equal int64 arithmetic entry by entry, however the frames arrive."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli.frames.arrays import ArrayFrames
from tpca_cli.tensor_pca import exact
from tpca_cli.tensor_pca.algorithm1 import TensorOperator
from tpca_cli.tensor_pca.algorithm2 import ModeOperators
from tpca_cli.tensor_pca.algorithm3 import GramOperator

SHAPES = ((5,), (3, 4), (4, 3, 3), (2, 3, 2, 3))
DTYPES = (np.uint8, np.uint16)


@st.composite
def frame_sets(draw: st.DrawFn, most: int = 12) -> np.ndarray:
    """Random, constant and checkerboard frames of order 1 to 4, 8 and 16 bits."""
    shape = draw(st.sampled_from(SHAPES))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    count = draw(st.integers(1, most))
    top = np.iinfo(dtype).max
    kind = draw(st.sampled_from(["random", "black", "white", "checkerboard"]))
    if kind == "random":
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        return rng.integers(0, top + 1, (count, *shape), dtype=dtype)
    frames = np.full((count, *shape), 0 if kind == "black" else top, dtype)
    if kind == "checkerboard":
        frames[np.indices(frames.shape).sum(axis=0) % 2 == 0] = 0
    return frames


def rows_of(frames: np.ndarray) -> np.ndarray:
    return frames.reshape(len(frames), -1).astype(np.int64)


def mode_matrix(frames: np.ndarray, k: int) -> np.ndarray:
    unfolded = np.moveaxis(frames.astype(np.int64), k + 1, 0).reshape(frames.shape[k + 1], -1)
    return unfolded @ unfolded.T


def tensor_operator(frames: np.ndarray, *, block: int = 1000) -> TensorOperator:
    return in_parts(frames, list(range(0, len(frames), block)))


def in_parts(frames: np.ndarray, cuts: list[int]) -> TensorOperator:
    operator = TensorOperator(frames.shape[1:], frames.dtype)
    for start, stop in itertools.pairwise(sorted({0, *cuts, len(frames)})):
        operator.add(frames[start:stop])
    return operator


@given(frame_sets(), st.integers(1, 5))
def test_tensor_operator_is_integer_arithmetic(frames: np.ndarray, block: int) -> None:
    operator = tensor_operator(frames, block=block)
    assert np.array_equal(operator.integers(), rows_of(frames).T @ rows_of(frames))
    assert np.array_equal(operator.sums, frames.sum(axis=0, dtype=np.int64))
    assert operator.n == len(frames)
    assert operator.trace == int((rows_of(frames) ** 2).sum())


@given(frame_sets(most=60), st.lists(st.integers(0, 60), max_size=6), st.integers(1, 4))
def test_parts_of_any_length_add_up(frames: np.ndarray, cuts: list[int], panel: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_PANEL", panel)  # many panels: they are multiplied in threads
        operator = in_parts(frames, [min(cut, len(frames)) for cut in cuts])
        assert np.array_equal(operator.integers(), rows_of(frames).T @ rows_of(frames))


@given(frame_sets(), st.integers(1, 5))
def test_mode_operators_are_integer_arithmetic(frames: np.ndarray, block: int) -> None:
    operators = ModeOperators(frames.shape[1:])
    for start in range(0, len(frames), block):
        operators.add(frames[start : start + block])
    for k, matrix in enumerate(operators.matrices):
        assert np.array_equal(matrix, mode_matrix(frames, k))
    assert np.array_equal(operators.sums, frames.sum(axis=0, dtype=np.int64))
    assert operators.trace == int((rows_of(frames) ** 2).sum())


@given(frame_sets(), st.integers(1, 13))
def test_gram_operator_is_integer_arithmetic(frames: np.ndarray, rows: int) -> None:
    gram = GramOperator.of(ArrayFrames(frames), rows)
    assert np.array_equal(gram.integers, rows_of(frames) @ rows_of(frames).T)


@pytest.mark.parametrize("value", [0, 128, 255])
@pytest.mark.parametrize("panel", [2, 1024])
def test_every_product_stays_within_the_bound(
    value: int, panel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "_PANEL", panel)
    frames = np.full((5000, 3), value, np.uint8)
    frames[::7, 1] = 255 - value
    assert np.array_equal(tensor_operator(frames).integers(), rows_of(frames).T @ rows_of(frames))


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_extreme_pixels_stay_exact(dtype: type) -> None:
    rng = np.random.default_rng(5)
    top = np.iinfo(dtype).max
    frames = np.where(rng.integers(0, 2, (3000, 40)) == 1, top, 0).astype(dtype)
    assert np.array_equal(tensor_operator(frames).integers(), rows_of(frames).T @ rows_of(frames))


@given(frame_sets(), st.randoms(use_true_random=False), st.integers(0, 12))
def test_order_and_shards_do_not_matter(frames: np.ndarray, random: object, cut: int) -> None:
    order = np.arange(len(frames))
    random.shuffle(order)  # type: ignore[attr-defined]
    whole = tensor_operator(frames)
    first, second = (tensor_operator(part) for part in (frames[order[:cut]], frames[order[cut:]]))
    first.merge(second)
    parts, once = first.to_arrays(), whole.to_arrays()
    assert all(np.array_equal(parts[name], once[name]) for name in once)
    modes, other = ModeOperators(frames.shape[1:]), ModeOperators(frames.shape[1:])
    modes.add(frames[order[:cut]])
    other.add(frames[order[cut:]])
    modes.merge(other)
    for k, matrix in enumerate(modes.matrices):
        assert np.array_equal(matrix, mode_matrix(frames, k))


@given(frame_sets())
def test_centering_is_subtracting_the_mean(frames: np.ndarray) -> None:
    x = rows_of(frames) - rows_of(frames).mean(axis=0)
    scale = float((rows_of(frames) ** 2).sum()) + 1
    matrix = tensor_operator(frames).matrix(center=True)
    assert np.abs(matrix - x.T @ x).max() <= 1e-12 * scale
    assert np.array_equal(matrix, matrix.T)
    gram = GramOperator.of(ArrayFrames(frames)).matrix(center=True)
    assert np.abs(gram - x @ x.T).max() <= 1e-12 * scale
    operators = ModeOperators(frames.shape[1:])
    operators.add(frames)
    centered = x.reshape(frames.shape)
    for k in range(frames.ndim - 1):
        unfolded = np.moveaxis(centered, k + 1, 0).reshape(frames.shape[k + 1], -1)
        assert np.abs(operators.matrix(k, center=True) - unfolded @ unfolded.T).max() <= 1e-12 * scale


@given(frame_sets())
def test_operators_survive_plain_arrays(frames: np.ndarray) -> None:
    operator = tensor_operator(frames)
    back = TensorOperator.from_arrays(operator.to_arrays())
    assert back.n == operator.n and back.dtype == operator.dtype
    assert np.array_equal(back.integers(), operator.integers())
    assert np.array_equal(back.sums, operator.sums)
    modes = ModeOperators(frames.shape[1:])
    modes.add(frames)
    again = ModeOperators.from_arrays(modes.to_arrays())
    assert all(np.array_equal(a, b) for a, b in zip(again.matrices, modes.matrices, strict=True))
    consumed = operator.matrix(center=False)
    assert np.array_equal(operator.matrix(consume=True), consumed)


@settings(max_examples=10)
@given(frame_sets())
def test_low_precision_blas_is_found_and_replaced(frames: np.ndarray) -> None:
    honest = exact.multiply

    def rounded(left: np.ndarray, right: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        product = honest(left, right, out)
        return product * np.float32(1.001) + 1 if product.dtype == np.float32 else product

    def wrong(left: np.ndarray, right: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        product = honest(left, right, out)
        product[:, :1] += 1  # in one column: signs that add up to zero would not see it in all
        return product

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "multiply", rounded)
        assert np.array_equal(tensor_operator(frames).integers(), rows_of(frames).T @ rows_of(frames))
        if frames.dtype == np.uint8:  # the check itself may be what the BLAS rounds
            image = exact.ExactGram._image
            patch.setattr(exact.ExactGram, "_image", lambda *given: image(*given) + 1)
            assert np.array_equal(tensor_operator(frames).integers(), rows_of(frames).T @ rows_of(frames))
            patch.setattr(exact.ExactGram, "_image", image)  # two errors could cancel
        patch.setattr(exact, "multiply", wrong)
        with pytest.raises(ArithmeticError):
            tensor_operator(frames).integers()


def test_odd_input_is_refused() -> None:
    with pytest.raises(TypeError, match="uint8 or uint16"):
        TensorOperator((2, 2), np.float32)
    with pytest.raises(TypeError, match="uint8 or uint16"):
        ModeOperators((2, 2)).add(np.zeros((1, 2, 2)))  # type: ignore[arg-type]
    for operator in (TensorOperator((2, 2)), ModeOperators((2, 2))):
        with pytest.raises(ValueError, match="frames have shape"):
            operator.add(np.zeros((1, 2, 3), np.uint8))
    with pytest.raises(ValueError, match="do not add"):
        TensorOperator((2, 2)).merge(TensorOperator((2, 2), np.uint16))
    with pytest.raises(ValueError, match="do not add"):
        ModeOperators((2, 2)).merge(ModeOperators((2, 3)))


def test_partial_rows_of_the_triangle_add_up() -> None:
    frames = np.random.default_rng(1).integers(0, 256, (9, 4, 3), dtype=np.uint8)
    operator = tensor_operator(frames)
    copy = TensorOperator(frames.shape[1:])
    row, size = 0, prod(frames.shape[1:])
    for stop in (1, 5, 6, size):
        row = copy.add_packed(operator.packed(row, stop), row)
    copy.count(operator.n, operator.sums)
    assert row == size
    assert np.array_equal(copy.integers(), operator.integers())


@pytest.mark.parametrize("shape", [(5, 4, 3), (8, 8, 1), (20, 16, 3)])
def test_turned_frames_count_like_any_others(shape: tuple[int, ...]) -> None:
    frames = np.random.default_rng(7).integers(0, 256, (9, *shape), np.uint8)
    one, both = ModeOperators(shape), ModeOperators(shape)
    one.add(frames)
    both.add(frames)
    both.add(np.ascontiguousarray(frames[:, ::-1, ::-1]))
    found = one.with_turned()
    assert found.n == both.n
    np.testing.assert_array_equal(found.sums, both.sums)
    for mine, theirs in zip(found.matrices, both.matrices, strict=True):
        np.testing.assert_array_equal(mine, theirs)
