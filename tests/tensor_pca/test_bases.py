"""The laws of a basis: orthonormal, complete, optimal, independent of the index map, never NaN."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli.frames.arrays import ArrayFrames
from tpca_cli.tensor_pca import algorithm1 as operator
from tpca_cli.tensor_pca import algorithm1_streamed as streamed
from tpca_cli.tensor_pca.algorithm1 import TensorOperator, solve_operator
from tpca_cli.tensor_pca.algorithm1_streamed import solve_stream
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, solve_modes
from tpca_cli.tensor_pca.algorithm3 import GramOperator, solve_subspace
from tpca_cli.tensor_pca.basis import OperatorBasis, Rank1Basis, SubspaceBasis, TensorBasis, from_arrays
from tpca_cli.tensor_pca.eigen import solve_dense
from tpca_cli.tensor_pca.solve import solve_frames

SHAPES = ((6,), (4, 5), (4, 3, 3), (2, 3, 2, 2))


@st.composite
def frame_sets(draw: st.DrawFn) -> np.ndarray:
    """Noise, smooth images, all-equal ones and near duplicates; orders 1 to 4; more or fewer than L."""
    shape = draw(st.sampled_from(SHAPES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, 50))
    kind = draw(st.sampled_from(["noise", "smooth", "equal", "near duplicates", "black"]))
    frames = rng.integers(0, 256, (count, *shape)).astype(np.uint8)
    if kind == "smooth":
        waves = [np.cos(np.outer(rng.integers(0, 3, count), np.arange(n)) / n) for n in shape]
        total = np.ones((count, *shape))
        for k, wave in enumerate(waves):
            total *= wave.reshape(count, *(n if k == j else 1 for j, n in enumerate(shape)))
        frames = np.clip(128 + 100 * total, 0, 255).astype(np.uint8)
    elif kind == "equal":
        frames[:] = frames[0]
    elif kind == "near duplicates":
        frames[:] = frames[0]
        frames.reshape(count, -1)[:, 0] ^= rng.integers(0, 2, count).astype(np.uint8)
    elif kind == "black":
        frames[:] = 0
    return frames


def fit(method: str, frames: np.ndarray, components: int | None, center: bool) -> TensorBasis:
    if method == "rank1":
        modes = ModeOperators(frames.shape[1:])
        modes.add(frames)
        return solve_modes(modes, components, center=center)
    if method == "subspace":
        gram = GramOperator.of(ArrayFrames(frames))
        return solve_subspace(ArrayFrames(frames), gram, components, center=center)
    whole = TensorOperator(frames.shape[1:], frames.dtype)
    whole.add(frames)
    return solve_operator(whole, components, center=center)


def columns(basis: TensorBasis) -> np.ndarray:
    return basis.columns() if isinstance(basis, Rank1Basis) else basis.matrix


def centered(frames: np.ndarray, basis: TensorBasis) -> np.ndarray:
    x = frames.reshape(len(frames), -1).astype(float)
    return x - (0 if basis.mean is None else basis.mean.reshape(-1))


def check_orthonormal(basis: TensorBasis) -> None:
    u = columns(basis)
    assert np.isfinite(u).all()
    assert np.abs(u.T @ u - np.eye(u.shape[1])).max(initial=0.0) <= 1e-10


METHODS = ("operator", "rank1", "subspace")


@pytest.mark.parametrize(("method", "center"), list(product(METHODS, (False, True))))
@settings(max_examples=40)
@given(frames=frame_sets())
def test_all_components_give_the_frames_back(method: str, center: bool, frames: np.ndarray) -> None:
    basis = fit(method, frames, None, center)
    check_orthonormal(basis)
    back = basis.reconstruct(basis.project(frames))
    assert np.array_equal(np.rint(back), frames)
    assert basis.energy() == pytest.approx(1.0, abs=1e-9)
    assert (basis.energies >= 0).all() and (np.diff(basis.energies) <= 0).all()


@pytest.mark.parametrize(("method", "center"), list(product(("operator", "subspace"), (False, True))))
@settings(max_examples=40)
@given(frames=frame_sets(), components=st.integers(1, 12))
def test_truncation_loses_the_dropped_eigenvalues(
    method: str, center: bool, frames: np.ndarray, components: int
) -> None:
    basis = fit(method, frames, components, center)
    check_orthonormal(basis)
    x = centered(frames, basis)
    trace = float((x**2).sum())
    error = float(((frames - basis.reconstruct(basis.project(frames))) ** 2).sum())
    dropped = basis.total - float(basis.energies.sum())
    assert abs(error - dropped) <= 1e-6 * dropped + 1e-12 * max(trace, float((frames**2.0).sum()))
    a = x.T @ x
    u = columns(basis)
    measured = np.linalg.norm(a @ u - u * basis.energies, axis=0)
    assert np.abs(measured - basis.residuals).max() <= 1e-9 * max(1.0, trace)
    assert measured.max() <= 1e-6 * max(1e-3, basis.energies[0])


@settings(max_examples=40)
@given(frames=frame_sets(), components=st.integers(1, 12))
def test_chosen_rank1_tensors_lose_what_was_measured(frames: np.ndarray, components: int) -> None:
    basis = fit("rank1", frames, None, False)
    assert isinstance(basis, Rank1Basis)
    basis = basis.measured_by((basis.project(frames) ** 2).sum(axis=0))
    part = basis.truncate(components)
    error = float(((frames - part.reconstruct(part.project(frames))) ** 2).sum())
    dropped = float(basis.energies[components:].sum())
    assert abs(error - dropped) <= 1e-6 * dropped + 1e-12 * basis.total


@settings(max_examples=40)
@given(frames=frame_sets(), components=st.integers(1, 12))
def test_the_svd_of_the_coefficients_is_algorithm_1(frames: np.ndarray, components: int) -> None:
    whole = fit("operator", frames, None, False)
    basis = fit("rank1", frames, None, False)
    assert isinstance(basis, Rank1Basis)
    d = basis.project(frames)
    rotated = basis.rotated(d.T @ d, components)
    kept = rotated.components
    scale = max(1.0, basis.total)
    assert np.abs(rotated.energies - whole.energies[:kept]).max() <= 1e-10 * scale  # sigma^2 = lambda
    check_orthonormal(rotated)
    error = float(((frames - rotated.reconstruct(rotated.project(frames))) ** 2).sum())
    dropped = float(whole.energies[kept:].sum())
    assert abs(error - dropped) <= 1e-6 * dropped + 1e-10 * scale
    best = basis.measured_by((d**2).sum(axis=0)).truncate(kept)
    chosen = float(((frames - best.reconstruct(best.project(frames))) ** 2).sum())
    assert chosen >= error - 1e-9 * scale  # 4B15 can only lose more than 4B14


@settings(max_examples=30)
@given(frames=frame_sets())
def test_the_index_map_does_not_matter(frames: np.ndarray) -> None:
    """Proposition 1: eq 2.17 counts the first index fastest, C order the last."""
    shape = frames.shape[1:]
    order = np.arange(prod(shape)).reshape(shape).transpose().reshape(-1)  # C order of each alpha(i)
    x = frames.reshape(len(frames), -1).astype(float)
    a, b = x.T @ x, x[:, order].T @ x[:, order]
    by_c, by_alpha = solve_dense(a), solve_dense(b)
    scale = max(1.0, float(np.trace(a)))
    assert np.abs(by_c.values - by_alpha.values).max() <= 1e-12 * scale
    back = np.empty_like(by_alpha.vectors)
    back[order] = by_alpha.vectors  # eigentensors of one map solve the equation of the other
    assert np.abs(a @ back - back * by_alpha.values).max() <= 1e-10 * scale


def pictures(count: int, shape: tuple[int, ...] = (12, 10, 3)) -> np.ndarray:
    """Smooth images with noise: a spectrum like that of photographs."""
    rng = np.random.default_rng(11)
    coarse = rng.standard_normal((count, *shape))
    for k in range(1, len(shape)):
        coarse = np.cumsum(coarse, axis=k)
    return np.clip(128 + 12 * coarse + 4 * rng.standard_normal(coarse.shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("center", [False, True])
def test_the_iteration_agrees_with_lapack(center: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = pictures(500)
    exact = fit("operator", frames, 30, center)
    monkeypatch.setattr(operator, "SMALL", 0)
    iterated = fit("operator", frames, 30, center)
    check_orthonormal(iterated)
    assert iterated.residuals.max() <= 1e-6 * iterated.energies[0]
    assert np.abs(iterated.energies / exact.energies - 1).max() <= 1e-4
    by_energy = TensorOperator(frames.shape[1:])
    by_energy.add(frames)
    chosen = solve_operator(by_energy, energy=0.9, center=center)
    assert chosen.energy() >= 0.9 > chosen.energy(chosen.components - 1)


@pytest.mark.parametrize(("center", "tolerance"), [(False, None), (True, None), (True, 1e-7)])
def test_streaming_never_forms_the_operator(center: bool, tolerance: float | None) -> None:
    frames = pictures(500)
    exact = fit("operator", frames, 20, center)
    stages: set[str] = set()
    found = solve_stream(
        ArrayFrames(frames), 20, center=center, tolerance=tolerance, progress=lambda s, d, t: stages.add(s)
    )
    check_orthonormal(found)
    assert found.total == pytest.approx(exact.total, rel=1e-12)
    assert found.energy() >= 0.999 * exact.energy()
    assert found.residuals.max() <= (tolerance or 1e-2) * found.energies[0]
    assert {"coordinates", "product 1", "product 2"} <= stages
    half = solve_stream(ArrayFrames(frames), None, energy=0.5, center=center)
    assert half.energy() >= 0.5


@pytest.mark.parametrize("center", [False, True])
def test_a_product_with_rank1_tensors_is_one_with_their_columns(center: bool) -> None:
    """The start of a streamed basis is multiplied in its coordinates: the same numbers, with less work."""
    frames = pictures(60, (9, 8, 3))
    operators = ModeOperators(frames.shape[1:])
    operators.add(frames)
    some = solve_modes(operators, 70, center=center)
    d = some.project(frames)
    start = some.rotated(d.T @ d, 12)
    flat = None if start.mean is None else start.mean.reshape(-1)
    (lifted,) = streamed.lifted(0, frames, start, np.float64)
    (multiplied,) = streamed.multiplied(0, frames, start.columns(), flat)
    assert np.allclose(lifted, multiplied, rtol=0, atol=1e-10 * np.abs(multiplied).max())


def test_a_pass_from_few_coordinates_finds_what_they_lack(monkeypatch) -> None:
    """The start knows a tenth of the coordinates; one product with all pixels makes up for it."""
    monkeypatch.setattr(streamed, "LEAST", 0)
    frames = pictures(600, (16, 16, 3))
    few, exact = solve_stream(ArrayFrames(frames), 5), fit("operator", frames, 5, False)
    assert exact.energy() >= few.energy() >= 0.999 * exact.energy()


def test_subspace_has_the_same_bits_in_any_order() -> None:
    frames = pictures(40)
    base = solve_subspace(ArrayFrames(frames), GramOperator.of(ArrayFrames(frames)), 20, center=True)
    order = np.random.default_rng(0).permutation(len(frames))
    other = ArrayFrames(frames[order])
    again = solve_subspace(other, GramOperator.of(other, 7), 20, center=True, order=np.argsort(order))
    assert all(np.array_equal(a, again.to_arrays()[name]) for name, a in base.to_arrays().items())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("center", [False, True])
def test_plain_arrays_hold_everything(method: str, center: bool) -> None:
    frames = pictures(20, (5, 4, 3))
    basis = fit(method, frames, 6, center)
    back = from_arrays(method, basis.to_arrays())
    assert type(back) is type(basis) and isinstance(back, OperatorBasis | Rank1Basis | SubspaceBasis)
    assert np.array_equal(back.project(frames), basis.project(frames))
    d = basis.project(frames)
    fewer = basis.truncate(3)
    assert np.allclose(fewer.project(frames), d[:, :3])
    assert np.allclose(basis.reconstruct(d[:, :3]), fewer.reconstruct(d[:, :3]))
    if isinstance(basis, Rank1Basis):
        assert np.allclose(basis.project(frames, np.float32), d, atol=1e-2)


def test_sixteen_bits_come_back() -> None:
    frames = np.random.default_rng(2).integers(0, 65536, (30, 4, 3, 3), dtype=np.uint16)
    frames[0], frames[1] = 0, 65535
    for method in METHODS:
        basis = fit(method, frames, None, True)
        assert np.array_equal(np.rint(basis.reconstruct(basis.project(frames))), frames)


class FromAfar(ArrayFrames):
    """Frames whose sums arrive as they do from another machine: at odd addresses, not to be written to."""

    def fold(self, part, combine, *given, stage="", progress=None):
        found = super().fold(part, combine, *given)
        return tuple(map(arrived, found)) if isinstance(found, tuple) else arrived(found)


def arrived(value):
    if not isinstance(value, np.ndarray):
        return value
    odd = np.frombuffer(b"?" + value.tobytes(), np.uint8)[1:]
    return odd.view(value.dtype).reshape(value.shape)


def test_a_streamed_basis_has_the_same_bits_wherever_its_sums_were_made(monkeypatch) -> None:
    monkeypatch.setattr("tpca_cli.tensor_pca.fold._RUN", 1 << 18)  # several runs, summed
    frames = np.random.default_rng(3).integers(0, 256, (120, 40, 32, 3), np.uint8)
    here, there = (solve_stream(kind(frames), 50, center=True) for kind in (ArrayFrames, FromAfar))
    assert np.array_equal(here.matrix, there.matrix)
    assert np.array_equal(here.energies, there.energies)


def test_a_subspace_has_the_same_bits_wherever_its_sums_were_made(monkeypatch) -> None:
    monkeypatch.setattr("tpca_cli.tensor_pca.fold._RUN", 1 << 18)
    frames = np.random.default_rng(3).integers(0, 256, (150, 24, 20, 3), np.uint8)
    here, there = (solve_frames(kind(frames), "subspace", center=True) for kind in (ArrayFrames, FromAfar))
    assert here.components == 149
    assert np.array_equal(here.matrix, there.matrix)
