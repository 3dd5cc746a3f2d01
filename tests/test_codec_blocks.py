"""The walk: what the encoder decided is what the decoder finds, for any geometry and any values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli.codec.blocks import walk
from tpca_cli.codec.entropy import Reader, Writer
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.lapping import AFTER, BEFORE, BITS, lap
from tpca_cli.codec.model import LEVELS, Model, build, classes_of, log_code
from tpca_cli.codec.plan import plan_of, zone_of
from tpca_cli.codec.ports import Decoder, Encoder
from tpca_cli.codec.restore import SUBPIXEL, Restorer, fit

GRIDS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4)
PLACES = {
    "tile": tuple((i, j, c) for c in range(3) for i in range(4) for j in range(4)),
    "gray": tuple((i, j, 0) for i in range(8) for j in range(8)),
    "dense": tuple((m, 0, 0) for m in range(9)),
    "chosen": ((2, 1, 0), (0, 1, 1), (5, 5, 2), (0, 3, 0)),
    "one": ((0, 0, 0),),
}


def model_of(name: str, step: int, scale: float) -> Model:
    plan = plan_of(PLACES[name])
    count, channels = len(PLACES[name]), len(plan.lowest)
    scales = log_code(np.full(count, scale))
    return build(
        plan, scales, np.full((channels, LEVELS), 60), np.zeros(channels, np.int64), np.full(count, step)
    )


def round_trip(model: Model, grid: Grid, coefficients: np.ndarray) -> tuple[np.ndarray, bytes]:
    canvas = np.zeros((coefficients.shape[0], grid.size))
    canvas[:, grid.places] = coefficients
    writer = Writer()
    coded = walk(model, grid, Encoder(model, canvas, writer))
    data = writer.finish()
    decoded = walk(model, grid, Decoder(model, Reader(data)))
    assert np.array_equal(coded.values, decoded.values)
    return decoded.values[:, grid.places], data


@settings(max_examples=60, deadline=None)
@given(GRIDS, st.sampled_from(sorted(PLACES)), st.sampled_from([0, 1, 30, 5000, 1 << 30]), st.integers(0, 99))
def test_any_coefficients_come_back(shapes: list[tuple[int, int]], name: str, size: int, seed: int) -> None:
    """Also values far beyond anything the tables were made for."""
    grid = Grid(shapes)
    rng = np.random.default_rng(seed)
    coefficients = rng.integers(-size, size + 1, (len(PLACES[name]), grid.places.size)).astype(np.float64)
    step = int(rng.choice([1, 64, 3000]))
    model = model_of(name, step, float(rng.choice([1, 100, 1e5])))
    values, _ = round_trip(model, grid, coefficients)
    assert (
        np.abs(values - coefficients).max() <= max(4.0 * step, 1.0) + np.abs(coefficients).max() * 1e-9
        or size < 5 * step
    )


def test_a_fine_step_is_exact() -> None:
    grid = Grid([(3, 5), (2, 2)])
    rng = np.random.default_rng(0)
    coefficients = rng.normal(0, 900, (48, grid.places.size)).round()
    values, _ = round_trip(model_of("tile", 1, 900.0), grid, coefficients)
    assert np.abs(values - coefficients).max() <= 1


def test_zeros_cost_almost_nothing() -> None:
    grid = Grid([(8, 8)] * 8)
    _, data = round_trip(model_of("tile", 3000, 1.0), grid, np.zeros((48, grid.places.size)))
    assert len(data) < 60


@settings(max_examples=40, deadline=None)
@given(GRIDS)
def test_the_pyramid_visits_every_tile_once_and_looks_only_back(shapes: list[tuple[int, int]]) -> None:
    grid = Grid(shapes)
    seen: set[int] = set()
    for level in grid.levels:
        assert seen.isdisjoint(level.places.tolist())
        assert set(level.around[level.around > 0].tolist()) <= seen
        seen.update(level.places.tolist())
    assert seen == set(grid.places.tolist())
    assert sorted(np.concatenate(grid.phases).tolist()) == sorted(seen)


@pytest.mark.parametrize("name", sorted(PLACES))
def test_the_plan_codes_every_component_once_and_looks_only_back(name: str) -> None:
    plan = plan_of(PLACES[name])
    done = {row for row in plan.lowest if row >= 0}
    for step in plan.steps:
        rows = set(range(step.start, step.stop))
        assert done.isdisjoint(rows)
        for phase in (0, 1):
            for sight in step.sights[phase]:
                used = {sight.start + int(k) for k in np.flatnonzero((sight.slots < 37).any(axis=0))}
                beside = phase == 1 and sight.kind in (1, 2)
                assert used <= (done | rows if beside else done)
        done |= rows
    assert done == set(range(len(PLACES[name])))
    assert sorted(plan.order.tolist()) == list(range(len(PLACES[name])))


def test_zones_grow_with_the_diagonal() -> None:
    assert [zone_of(d) for d in (1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]


def test_classes_follow_quarter_octaves() -> None:
    found = classes_of(2.0 ** np.arange(1, 20) * 1.0)
    assert np.array_equal(np.diff(found), np.full(18, 4))


def test_lapping_is_undone_to_the_last_bit_of_a_pixel() -> None:
    assert np.abs(BEFORE @ AFTER * 4.0**-BITS - np.eye(8)).max() < 3e-4
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 24, 40)).astype(np.float64) * 64
    filtered = images.copy()
    lap(filtered, 8)
    assert np.abs(filtered - images).max() > 64
    lap(filtered, 8, inverse=True)
    assert np.array_equal(np.floor(filtered / 64 + 0.5), images / 64)


def test_the_restoring_filter_never_makes_its_sample_worse() -> None:
    rng = np.random.default_rng(0)
    smooth = np.cumsum(np.cumsum(rng.normal(size=(2, 3, 48, 48)), axis=2), axis=3)
    original = np.round(128 + 40 * smooth / smooth.std()).astype(np.float32) * SUBPIXEL
    decoded = original + np.round(rng.normal(0, 30, original.shape)).astype(np.float32)
    restorer = fit([decoded], [original])
    better = decoded.copy()
    restorer.apply(better)
    assert ((better - original) ** 2).sum() < 0.9 * ((decoded - original) ** 2).sum()
    again = Restorer.from_array(restorer.to_array())
    twice = decoded.copy()
    again.apply(twice)
    assert np.array_equal(twice, better)
    with pytest.raises(ValueError, match="numbers"):
        Restorer.from_array(restorer.to_array()[:-1])
