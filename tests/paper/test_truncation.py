"""Every path against numpy written from the equations: eigenvalues, errors and spaces."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import equations as eq

from tpca_cli.errors import ConvergenceError
from tpca_cli.frames.arrays import ArrayFrames
from tpca_cli.tensor_pca.algorithm1 import TensorOperator, solve_operator
from tpca_cli.tensor_pca.algorithm1_streamed import solve_stream
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, measured_rank1, singular_rank1, solve_modes
from tpca_cli.tensor_pca.algorithm3 import GramOperator, solve_subspace
from tpca_cli.tensor_pca.solve import fixed_threads, solve_frames

SHAPES = ((30,), (9, 8), (9, 8, 1), (6, 5, 3), (4, 4, 3, 2), (3, 2, 3, 2, 2))
KINDS = list(product(SHAPES, (np.uint8, np.uint16), (False, True)))


def complete(frames: np.ndarray, center: bool):
    operators = ModeOperators(frames.shape[1:])
    operators.add(frames)
    return solve_modes(operators, center=center)


def tensors(basis) -> np.ndarray:
    columns = basis.columns() if basis.method == "rank1" else basis.matrix
    return columns.T.reshape(-1, *basis.frame_shape)


def dense(method: str, frames: np.ndarray, components: int, center: bool):
    if method == "operator":
        whole = TensorOperator(frames.shape[1:], frames.dtype)
        whole.add(frames)
        return solve_operator(whole, components, center=center)
    return solve_frames(ArrayFrames(frames), method, components, center=center)


@pytest.mark.parametrize(("shape", "dtype", "center"), KINDS)
def test_all_three_methods_lose_the_dropped_eigenvalues(shape, dtype, center) -> None:
    frames = eq.images(25, shape, dtype)
    components = 7
    total = float((eq.flat(frames, center) ** 2).sum())
    values = eq.operator_eigenvalues(frames, center)
    dropped = values[components:].sum()
    assert eq.gram_eigenvalues(frames, center)[components:].sum() == pytest.approx(dropped, abs=1e-11 * total)
    assert eq.svd_error(frames, center, components) == pytest.approx(dropped, abs=1e-11 * total)
    found = [dense(method, frames, components, center) for method in ("operator", "subspace")]
    found.append(singular_rank1(complete(frames, center), found[0]))
    for basis in found:
        assert eq.truncation_error(frames, tensors(basis), center) == pytest.approx(dropped, rel=1e-6)
        assert np.allclose(basis.energies, values[:components], rtol=0, atol=1e-12 * total)
        assert eq.sine(tensors(basis).reshape(components, -1).T, eq.eigentensors(frames, center, 7)) <= 1e-6


@pytest.mark.parametrize(("shape", "dtype", "center"), KINDS)
def test_chosen_rank1_tensors_are_the_best_choice(shape, dtype, center) -> None:
    frames = eq.images(25, shape, dtype)
    best = measured_rank1(complete(frames, center), ArrayFrames(frames), 7)
    expected = eq.rank1_error(frames, center, 7)
    assert eq.truncation_error(frames, tensors(best), center) == pytest.approx(expected, rel=1e-6)
    assert best.total - best.energies.sum() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("share", [0.9, 0.999, 0.99999, 1.0])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_share_of_energy_is_reached_with_the_fewest_tensors(channels, share, center) -> None:
    frames = eq.images(80, (16, 16, channels))
    chosen = measured_rank1(complete(frames, center), ArrayFrames(frames), energy=share)
    energies = np.sort((eq.rank1_coefficients(frames, center) ** 2).sum(axis=0))[::-1]
    held = np.cumsum(energies) / (eq.flat(frames, center) ** 2).sum()
    kept = chosen.components
    assert held[kept - 1] >= share - 1e-11 and (kept == 1 or held[kept - 2] < share + 1e-11)
    assert chosen.energy() == pytest.approx(held[kept - 1], abs=1e-11)
    if share == 1.0:
        back = chosen.reconstruct(chosen.project(frames))
        assert np.array_equal(np.rint(back), frames)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_measured_energies_do_not_depend_on_blocks_or_order(dtype, center, monkeypatch) -> None:
    frames = eq.images(150, (12, 9, 3), dtype)
    basis = complete(frames, center)
    once = measured_rank1(basis, ArrayFrames(frames))
    order = np.random.default_rng(0).permutation(len(frames))
    monkeypatch.setattr("tpca_cli.tensor_pca.fold._RUN", 1 << 15)
    monkeypatch.setattr("tpca_cli.tensor_pca.basis._CHUNK", 1 << 12)
    again = measured_rank1(basis, ArrayFrames(frames[order]))
    assert np.array_equal(once.energies, again.energies) and np.array_equal(once.indices, again.indices)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("method", ["by passes", "as chosen"])
def test_the_fast_solver_gives_what_was_asked_for(method, center) -> None:
    """The weakest components lie far below sqrt(L) eps32 lambda_1."""
    frames = eq.images(500, (16, 16, 3))
    values = eq.gram_eigenvalues(frames, center)
    with fixed_threads():
        for components in (100, 300, 450):
            if method == "by passes":
                basis = solve_stream(ArrayFrames(frames), components, center=center)
            else:
                basis = solve_frames(ArrayFrames(frames), "operator", components, center=center, exact=False)
            assert basis.components == components
            error = eq.truncation_error(frames, tensors(basis), center)
            assert 10 * np.log10(error / values[components:].sum()) <= 0.02
            assert basis.total - basis.energies.sum() == pytest.approx(error, rel=1e-6)
            x, u = eq.flat(frames, center), basis.matrix
            measured = np.linalg.norm(x.T @ (x @ u) - u * basis.energies, axis=0)
            assert (np.abs(measured - basis.residuals) <= 0.5 * measured + 1e-7 * values[0]).all()


@pytest.mark.parametrize("center", [False, True])
def test_the_fast_solver_says_what_it_leaves_over(center) -> None:
    """Little is left over of bright frames: float32 would not say how much."""
    rng = np.random.default_rng(1)
    shades = 160 + rng.integers(-40, 40, (1500, 1, 1, 1))
    frames = (shades + rng.integers(-5, 6, (1500, 12, 12, 3))).astype(np.uint8)
    with fixed_threads():
        for components in (1, 40, 150):
            basis = solve_stream(ArrayFrames(frames), components, center=center)
            error = eq.truncation_error(frames, tensors(basis), center)
            assert basis.total - basis.energies.sum() == pytest.approx(error, rel=1e-6)
            measured = ((eq.flat(frames, center) @ basis.matrix) ** 2).sum(axis=0)
            assert np.allclose(basis.energies, measured, rtol=1e-5)
            assert (np.diff(basis.energies) <= 0).all()


@pytest.mark.parametrize("method", ["by passes", "as chosen"])
def test_the_fast_solver_reaches_a_share_of_energy(method) -> None:
    frames = eq.images(300, (16, 16, 3))
    share = 1 - 1e-6
    solve = solve_stream if method == "by passes" else lambda f, m, **k: solve_frames(f, "operator", m, **k)
    basis = solve(ArrayFrames(frames), None, energy=share)
    total = (eq.flat(frames, False) ** 2).sum()
    assert 1 - eq.truncation_error(frames, tensors(basis), False) / total >= share - 1e-9


@pytest.mark.parametrize("method", ["by passes", "as chosen"])
@pytest.mark.parametrize("center", [False, True])
def test_the_fast_solver_finds_the_rank(method, center) -> None:
    """Frames that are sums of 20 frames have no more components, however many are asked for."""
    rng = np.random.default_rng(5)
    parts = rng.integers(0, 12, (20, 12, 12, 3))
    weights = rng.integers(0, 2, (400, 20))
    frames = np.tensordot(weights, parts, axes=1).astype(np.uint8)
    rank = np.linalg.matrix_rank(eq.flat(frames, center))
    if method == "by passes":
        basis = solve_stream(ArrayFrames(frames), 60, center=center)
    else:
        basis = solve_frames(ArrayFrames(frames), "operator", 120, center=center, exact=False)
    assert basis.components == rank
    assert eq.truncation_error(frames, tensors(basis), center) <= 1e-9 * (frames.astype(float) ** 2).sum()


def test_a_tolerance_is_met_or_refused() -> None:
    frames = ArrayFrames(eq.images(60, (10, 10, 3)))
    basis = solve_subspace(frames, GramOperator.of(frames), 20, tolerance=1e-12)
    assert basis.residuals.max() <= 1e-12 * basis.energies[0]
    with pytest.raises(ConvergenceError, match="--tolerance"):
        solve_subspace(frames, GramOperator.of(frames), 20, tolerance=1e-22)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("method", ["operator", "subspace"])
def test_exact_is_exact_where_it_iterates(method, center, monkeypatch) -> None:
    monkeypatch.setattr("tpca_cli.tensor_pca.algorithm1.SMALL", 10)
    monkeypatch.setattr("tpca_cli.tensor_pca.algorithm3.SMALL", 10)
    frames = eq.images(200, (10, 10, 3))
    basis = dense(method, frames, 40, center)
    assert eq.sine(basis.matrix, eq.eigentensors(frames, center, 40)) <= 1e-6


@pytest.mark.parametrize("center", [False, True])
def test_exact_is_exact_where_it_streams(center) -> None:
    frames = eq.images(400, (10, 10, 3))
    basis = solve_frames(ArrayFrames(frames), "operator", 30, center=center)
    assert eq.sine(basis.matrix, eq.eigentensors(frames, center, 30)) <= 1e-6
