"""Eigenpairs: residuals as measured, orthonormal vectors, falling values, fixed signs, found rank."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli.errors import ConvergenceError
from tpca_cli.tensor_pca.eigen import Eigenpairs, fix_signs, orthonormalize, solve_dense
from tpca_cli.tensor_pca.krylov import refine, solve_top


@st.composite
def operators(draw: st.DrawFn) -> np.ndarray:
    """Symmetric positive semidefinite matrices: full and low rank, with ties, zero."""
    size = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["full", "low rank", "ties", "zero", "integers"]))
    if kind == "zero":
        return np.zeros((size, size))
    if kind == "ties":
        q, _ = np.linalg.qr(rng.standard_normal((size, size)))
        values = rng.integers(0, 3, size).astype(float)
        return (q * values) @ q.T
    rows = size + 3 if kind == "full" else draw(st.integers(1, size))
    x = rng.integers(0, 256, (rows, size)).astype(float)
    return x.T @ x


def check_pairs(matrix: np.ndarray, pairs: Eigenpairs, residual: float) -> None:
    """The laws of every solver."""
    scale = max(1.0, float(np.linalg.norm(matrix, 2)))
    u = pairs.vectors
    assert np.isfinite(u).all() and np.isfinite(pairs.values).all()
    assert np.abs(u.T @ u - np.eye(u.shape[1])).max(initial=0.0) <= 1e-10
    assert (pairs.values >= 0).all() and (np.diff(pairs.values) <= 0).all()
    measured = np.linalg.norm(matrix @ u - u * pairs.values, axis=0)
    assert np.abs(measured - pairs.residuals).max(initial=0.0) <= 1e-12 * scale
    assert pairs.residuals.max(initial=0.0) <= residual * scale
    assert np.array_equal(fix_signs(u.copy()), u)


@given(operators())
def test_all_pairs(matrix: np.ndarray) -> None:
    pairs = solve_dense((matrix + matrix.T) / 2)
    check_pairs(matrix, pairs, 1e-10)
    scale = max(1.0, float(np.linalg.norm(matrix, 2)))
    assert np.abs((pairs.vectors * pairs.values) @ pairs.vectors.T - matrix).max() <= 1e-10 * scale
    assert pairs.rank() == np.linalg.matrix_rank(matrix, hermitian=True)


@given(operators(), st.integers(0, 50))
def test_a_part_of_the_pairs(matrix: np.ndarray, count: int) -> None:
    everything, part = solve_dense(matrix), solve_dense(matrix, count)
    check_pairs(matrix, part, 1e-10)
    assert len(part.values) == min(count, len(matrix))
    scale = max(1.0, float(np.linalg.norm(matrix, 2)))
    assert np.abs(part.values - everything.values[: len(part.values)]).max(initial=0.0) <= 1e-10 * scale


@given(operators(), st.integers(1, 12), st.integers(0, 8), st.integers(0, 2**32))
def test_top_pairs_from_any_start(matrix: np.ndarray, count: int, guard: int, seed: int) -> None:
    size = len(matrix)
    count = min(count, size)
    start = np.random.default_rng(seed).standard_normal((size, min(size, count + guard)))
    pairs = solve_top(lambda v: matrix @ v, start, count, tolerance=1e-9, steps=200)
    check_pairs(matrix, pairs, 1e-9)
    scale = max(1.0, float(np.linalg.norm(matrix, 2)))
    exact = solve_dense(matrix, count)
    assert np.abs(pairs.values - exact.values).max() <= 1e-6 * scale


def decaying(size: int = 300) -> np.ndarray:
    x = np.random.default_rng(3).standard_normal((2 * size, size)) * np.exp(-np.arange(size) / 40)
    return x.T @ x


def test_restarts_keep_converging() -> None:
    matrix = decaying()
    start = np.random.default_rng(0).standard_normal((len(matrix), 12))
    pairs = solve_top(lambda v: matrix @ v, start, 8, tolerance=1e-10, steps=300, room=3)
    check_pairs(matrix, pairs, 1e-10)


def test_a_good_start_needs_fewer_products() -> None:
    matrix = decaying()
    exact = solve_dense(matrix, 20)
    rng = np.random.default_rng(1)
    columns = []
    for start in (rng.standard_normal((300, 20)), exact.vectors + 1e-3 * rng.standard_normal((300, 20))):
        used = 0

        def multiply(v: np.ndarray) -> np.ndarray:
            nonlocal used
            used += v.shape[1]
            return matrix @ v

        check_pairs(matrix, solve_top(multiply, start, 16, tolerance=1e-6), 1e-6)
        columns.append(used)
    assert columns[1] < columns[0]


def test_a_fixed_number_of_steps_reports_what_it_left() -> None:
    matrix = decaying()
    start = np.random.default_rng(0).standard_normal((len(matrix), 10))
    rough = refine(lambda v: matrix @ v, start.copy(), 8)
    better = refine(lambda v: matrix @ v, start, 8, steps=3)
    assert 0 < better.residual < rough.residual
    check_pairs(matrix, rough, 1.0)


def test_not_converging_is_an_error() -> None:
    matrix = decaying()
    start = np.random.default_rng(0).standard_normal((len(matrix), 10))
    with pytest.raises(ConvergenceError, match="residual"):
        solve_top(lambda v: matrix @ v, start, 10, tolerance=1e-13, steps=2)


@settings(max_examples=50)
@given(st.integers(1, 20), st.integers(1, 12), st.integers(0, 2**32))
def test_orthonormalize_spans_the_columns(size: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = rng.standard_normal((size, count))
    columns[:, rng.integers(0, count)] = 0
    columns[:, -1] = columns[:, 0] * 3
    q = orthonormalize(columns.copy())
    assert np.abs(q.T @ q - np.eye(q.shape[1])).max(initial=0.0) <= 1e-12
    assert np.abs(columns - q @ (q.T @ columns)).max() <= 1e-10
    assert q.shape[1] == np.linalg.matrix_rank(columns)


def test_signs_do_not_hang_on_rounding() -> None:
    vector = np.array([[-0.5], [0.5], [0.5], [-0.5]])
    nudged = vector * np.array([[1], [1 + 1e-12], [1], [1]])
    assert np.array_equal(np.sign(fix_signs(vector.copy())), np.sign(fix_signs(nudged)))
    assert fix_signs(vector)[0, 0] > 0


def test_residual_relative_to_each_value() -> None:
    pairs = Eigenpairs(np.array([4.0, 2.0, 0.0]), np.eye(3), np.array([0.4, 0.4, 0.1]))
    assert pairs.residual == pytest.approx(0.1)
    assert pairs.relative.tolist() == pytest.approx([0.1, 0.2, 0.0])
    assert pairs.rank() == 2


@pytest.mark.parametrize("dependent", [0, 1, 5])
def test_columns_become_orthonormal_whether_or_not_they_are_independent(dependent: int) -> None:
    rng = np.random.default_rng(dependent)
    columns = rng.normal(size=(300, 20))
    given = np.hstack([columns, columns[:, :dependent] * 3.0])
    found = orthonormalize(given.copy())
    assert found.shape == (300, 20)
    np.testing.assert_allclose(found.T @ found, np.eye(20), atol=1e-12)
    np.testing.assert_allclose(found @ (found.T @ columns), columns, atol=1e-9)
