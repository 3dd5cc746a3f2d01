"""Passes over frames: one schedule for a sum, whoever computes it, and exact products between runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from tpca_cli.frames.arrays import ArrayFrames
from tpca_cli.tensor_pca.algorithm1_streamed import multiplied
from tpca_cli.tensor_pca.algorithm3 import cross, gram_of_blocks, gram_of_products
from tpca_cli.tensor_pca.fold import add, join, run_length, tree


def spelled(count: int, fan: int) -> str:
    """The tree over so many leaves, level by level: neighbors, then neighboring groups, and so on."""
    level = [str(leaf) for leaf in range(count)]
    while len(level) > 1:
        level = [chain(level[start : start + fan]) for start in range(0, len(level), fan)]
    return level[0]


def chain(parts: list[str]) -> str:
    total, *rest = parts
    for part in rest:
        total = f"({total}+{part})"
    return total


@given(st.integers(1, 300), st.integers(2, 16))
def test_neighbors_are_added_level_by_level(count, fan) -> None:
    assert tree(map(str, range(count)), lambda a, b: f"({a}+{b})", fan) == spelled(count, fan)


def test_a_fold_sees_every_frame_once_in_runs_of_one_length() -> None:
    shape = (256, 128, 4)  # large frames: runs are short
    frames = ArrayFrames(np.arange(600, dtype=np.uint16).reshape(-1, 1, 1, 1) + np.zeros(shape, np.uint16))
    seen = frames.fold(starts, join)
    lengths = np.diff([*seen[:, 0], 600])
    assert list(seen[:, 0]) == list(seen[:, 1])  # where a run begins, and the frame found there
    assert set(lengths[:-1]) == {run_length(shape)} and 0 < lengths[-1] <= run_length(shape)


def starts(at, run):
    return np.array([[at, run[0, 0, 0, 0]]])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@given(seed=st.integers(0, 2**32 - 1), m=st.integers(1, 9), n=st.integers(1, 9), extreme=st.booleans())
def test_products_between_runs_are_exact(dtype, seed, m, n, extreme) -> None:
    rng = np.random.default_rng(seed)
    top = int(np.iinfo(dtype).max)
    low = top - 1 if extreme else 0
    frames = rng.integers(low, top, (m + n, 23, 31, 3), dtype, endpoint=True)
    rows = frames.reshape(m + n, -1).astype(np.int64)
    assert np.array_equal(cross(frames[:m], frames[m:]), rows[:m] @ rows[m:].T)


def test_an_operator_put_together_from_products_of_runs_is_the_whole_one() -> None:
    frames = np.random.default_rng(0).integers(0, 255, (11, 5, 7, 3), np.uint8)

    runs = [(0, frames[:4]), (4, frames[4:8]), (8, frames[8:])]
    products = [(at, then, cross(x, y)) for i, (at, x) in enumerate(runs) for then, y in runs[: i + 1]]
    assert np.array_equal(gram_of_blocks(ArrayFrames(frames)), gram_of_products(11, products))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_rounds_alike_whatever_the_threads_of_blas(dtype) -> None:
    rng = np.random.default_rng(4)
    frames = ArrayFrames(rng.integers(0, 256, (5 * 64, 256, 128, 4), np.uint8))  # five runs
    v = rng.standard_normal((256 * 128 * 4, 3)).astype(dtype)
    found = []
    for threads in (1, 2, 5):
        with threadpool_limits(threads, user_api="blas"):
            found.append(frames.fold(multiplied, add, v, None)[0])
    assert all(np.array_equal(found[0], other) for other in found[1:])
