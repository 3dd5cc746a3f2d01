"""The walk: what the encoder decided is what every decoder finds, for any geometry and any values."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import reference_decoder
from coders import GRIDS, PLACES
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_symbols import Block

from tpca_cli.codec.contexts import LEVELS, ContextModel, build_contexts, log_code
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.kernel_run import Symbols, decode, encode, read_symbols, write_symbols
from tpca_cli.codec.restore import BITS, SUBPIXEL, Restorer, _whole_weights, fit
from tpca_cli.codec.scan_order import ScanOrder, scan_order_of, zone_of
from tpca_cli.codec.tiling import AFTER, BEFORE, LAP_BITS, lap

NAMES = st.sampled_from(sorted(PLACES))
SEEDS = st.integers(0, 999)
PRIORS = json.loads(reference_decoder.PRIORS.read_text())


@dataclasses.dataclass(frozen=True)
class Numbers:
    """What a file says about components."""

    places: tuple[tuple[int, int, int], ...]
    steps: np.ndarray
    scales: np.ndarray
    lowest: np.ndarray
    centers: np.ndarray

    @property
    def model(self) -> ContextModel:
        return build_contexts(scan_order_of(self.places), self.scales, self.lowest, self.centers, self.steps)

    def reference(self, shapes: list[tuple[int, int]]) -> Block:
        fields = {name: np.asarray(value).tolist() for name, value in vars(self).items()}
        return Block(PRIORS, fields | {"places": list(self.places)}, shapes)


def numbers_of(name: str, rng: np.random.Generator) -> Numbers:
    """Scales and steps from the smallest to the largest, the same for all components or not."""
    places, same = PLACES[name], rng.random() < 0.5
    count, channels = len(places), 1 + max(c for _, _, c in places)
    steps = rng.choice([1, 3, 64, 3000, 1 << 20], 1 if same else count)
    scales = rng.integers(0, 256, 1 if same else count)
    return Numbers(
        places,
        np.broadcast_to(steps, count).astype(np.int64),
        np.broadcast_to(scales, count).astype(np.int64),
        rng.integers(0, 256, (channels, LEVELS)),
        rng.integers(-(10**5), 10**5, channels),
    )


def symbols_of(plan: ScanOrder, tiles: int, largest: int, rng: np.random.Generator) -> Symbols:
    """Random symbols: nothing behind a flag that is not set."""
    values = rng.integers(-largest, largest + 1, (len(plan.places), tiles))
    values = (values * rng.choice([1.0, 0.3, 1e-3], values.shape)).astype(np.int64)
    flags = (rng.random((len(plan.zones), tiles)) < rng.choice([0.0, 0.5, 0.9, 1.0])).astype(np.uint8)
    live = {color: np.ones(tiles, np.uint8) for color in (0, 1)}
    for row, (color, zone) in enumerate(plan.zones):
        live[color] = flags[row] = flags[row] & live[color]
        values[slice(*plan.zones[color, zone])] *= live[color]
    return Symbols(values, flags)


@settings(max_examples=60)
@given(GRIDS, NAMES, st.sampled_from([0, 1, 3, 30, 5000, 1 << 40]), SEEDS)
def test_any_symbols_come_back(shapes: list[tuple[int, int]], name: str, largest: int, seed: int) -> None:
    """Also values far beyond anything the tables were made for."""
    rng, grid = np.random.default_rng(seed), Grid(shapes)
    model = numbers_of(name, rng).model
    symbols = symbols_of(model.scan, grid.places.size, largest, rng)
    block = write_symbols(model, grid, symbols)
    back = read_symbols(model, grid, block)
    assert np.array_equal(back.values, symbols.values)
    assert np.array_equal(back.flags, symbols.flags)


@settings(max_examples=40)
@given(GRIDS, NAMES, st.sampled_from([1, 3, 30, 5000, 1 << 18]), SEEDS)
def test_the_reference_reads_the_same_values(
    shapes: list[tuple[int, int]], name: str, largest: int, seed: int
) -> None:
    """Every class, escape and surrounding that random symbols can reach, beyond those of pictures."""
    rng, grid = np.random.default_rng(seed), Grid(shapes[:2])
    numbers = numbers_of(name, rng)
    model = numbers.model
    block = write_symbols(model, grid, symbols_of(model.scan, grid.places.size, largest, rng))
    reference = numbers.reference(shapes[:2])
    found = reference.decode(block)
    values = [[found.get((place, tile), 0) for tile in reference.tiles] for place in model.scan.places]
    assert np.array_equal(decode(model, grid, block), values)


@settings(max_examples=60)
@given(GRIDS, NAMES, st.sampled_from([0, 1, 30, 5000, 1 << 30]), SEEDS)
def test_decoding_gives_what_encoding_said(
    shapes: list[tuple[int, int]], name: str, size: int, seed: int
) -> None:
    rng, grid = np.random.default_rng(seed), Grid(shapes)
    model = numbers_of(name, rng).model
    coefficients = rng.integers(-size, size + 1, (len(PLACES[name]), grid.places.size)).astype(np.float64)
    block, values = encode(model, grid, coefficients)
    assert np.array_equal(decode(model, grid, block), values)
    assert write_symbols(model, grid, read_symbols(model, grid, block)) == block
    if size >= 5 * model.steps.max():
        assert np.abs(values - coefficients).max() <= 4 * model.steps.max() + size * 1e-9


def even(name: str, step: int, scale: float) -> ContextModel:
    """A model whose components are all alike."""
    count, channels = len(PLACES[name]), len(scan_order_of(PLACES[name]).lowest)
    lowest, centers = np.full((channels, LEVELS), 60), np.zeros(channels, np.int64)
    scales = log_code(np.full(count, scale))
    return build_contexts(scan_order_of(PLACES[name]), scales, lowest, centers, np.full(count, step))


def test_a_fine_step_is_exact() -> None:
    grid = Grid([(3, 5), (2, 2)])
    coefficients = np.random.default_rng(0).normal(0, 900, (48, grid.places.size)).round()
    _, values = encode(even("tile", 1, 900.0), grid, coefficients)
    assert np.abs(values - coefficients).max() <= 1


def test_zeros_cost_almost_nothing() -> None:
    grid = Grid([(8, 8)] * 8)
    block, values = encode(even("tile", 3000, 1.0), grid, np.zeros((48, grid.places.size)))
    assert len(block) < 60 and not values.any()


@pytest.mark.parametrize("name", sorted(PLACES))
def test_weights_fit_where_the_kernel_keeps_them(name: str) -> None:
    """16 bits for weights and 32 for sums, whatever scales a file has."""
    rng, count = np.random.default_rng(0), len(PLACES[name])
    for scales in (np.arange(count) % 2 * 255, np.full(count, 255), rng.integers(0, 256, count)):
        numbers = dataclasses.replace(
            numbers_of(name, rng), scales=scales, steps=rng.choice([1, (1 << 30) - 1], count)
        )
        model, looks = numbers.model, numbers.model.scan.looks
        assert model.weights.min(initial=0) >= 0 and model.weights.max(initial=0) < 1 << 15
        sums = model.bases.copy()
        np.add.at(sums, (looks.rows, looks.phases), 2 * 4095 * model.weights)
        assert sums.max() < 1 << 32


@settings(max_examples=40)
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
    plan = scan_order_of(PLACES[name])
    looks, done = plan.looks, {row for row in plan.lowest if row >= 0}
    for step in plan.steps:
        rows = set(range(step.start, step.stop))
        assert done.isdisjoint(rows)
        for phase in (0, 1):
            mine = (looks.rows >= step.start) & (looks.rows < step.stop) & (looks.phases == phase)
            sights = looks.sights[slice(*step.sights[phase])]
            assert np.array_equal(sights[looks.chosen[mine], 1], looks.seen[mine])
            beside = done | rows if phase else done
            for kind, row in sights.tolist():
                assert row in (beside if kind in (1, 2) else done)
        done |= rows
    assert done == set(range(len(PLACES[name])))
    assert sorted(plan.order.tolist()) == list(range(len(PLACES[name])))


def test_zones_grow_with_the_diagonal() -> None:
    assert [zone_of(d) for d in (1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]


def test_lapping_is_undone_to_the_last_bit_of_a_pixel() -> None:
    assert np.abs(BEFORE @ AFTER * 4.0**-LAP_BITS - np.eye(8)).max() < 3e-4
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 24, 40)).astype(np.float64) * 64
    filtered = images.copy()
    lap(filtered, 8)
    assert np.abs(filtered - images).max() > 64
    lap(filtered, 8, inverse=True)
    assert np.array_equal(np.floor(filtered / 64 + 0.5), images / 64)


def test_weights_of_the_filter_are_rounded_together() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(0, 60, 2000) + rng.normal(0, 3, (6, 2000))  # that go together
    wanted = rng.normal(0, 0.1, (6, 30))
    gram, right = features @ features.T, features @ (features.T @ wanted)
    left = (_whole_weights(gram, right).T - wanted * 2.0**BITS).T @ features  # (channels, samples)
    alone = (np.rint(wanted * 2.0**BITS) - wanted * 2.0**BITS).T @ features
    assert (left**2).sum() < 0.2 * (alone**2).sum()
    assert np.array_equal(_whole_weights(gram, gram @ np.full((6, 1), 3 / 2**BITS)), [[3] * 6])


@pytest.mark.parametrize("bound", [0, 8])
def test_the_restoring_filter_never_makes_its_sample_worse(bound: int) -> None:
    rng = np.random.default_rng(0)
    smooth = np.cumsum(np.cumsum(rng.normal(size=(2, 3, 48, 48)), axis=2), axis=3)
    original = np.round(128 + 40 * smooth / smooth.std()).astype(np.float32) * SUBPIXEL
    decoded = original + np.round(rng.normal(0, 30, original.shape)).astype(np.float32)
    restorer, _ = fit([decoded], [original], bound)
    better = decoded.copy()
    restorer.apply(better)
    assert ((better - original) ** 2).sum() < 0.9 * ((decoded - original) ** 2).sum()
    again = Restorer.from_array(restorer.to_array(), 3, bound)
    twice = decoded.copy()
    again.apply(twice)
    assert np.array_equal(twice, better)
    with pytest.raises(ValueError, match="numbers"):
        Restorer.from_array(restorer.to_array()[:-1], 3, bound)
    with pytest.raises(ValueError, match="numbers"):
        Restorer.from_array(restorer.to_array(), 4, bound)
    for other in (-1, 5000, 8 - bound):
        with pytest.raises(ValueError, match="numbers"):
            Restorer.from_array(restorer.to_array(), 3, other)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_filter_is_the_same_whatever_is_looked_at_together(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(channels)
    shapes = [(1, channels, 90, 40), (3, channels, 33, 21)]
    originals = [8.0 * np.cumsum(rng.integers(-2, 3, shape), axis=3) + 1000 for shape in shapes]
    decoded = [(o + rng.integers(-30, 31, o.shape)).astype(np.float32) for o in originals]
    found = []
    for together in (1 << 17, 1400, 500):
        monkeypatch.setattr("tpca_cli.codec.bands.BAND_PIXELS", together)
        filtered, _ = fit(decoded, originals, 8)
        pixels = [filtered.pixels(d.astype(float), SUBPIXEL, np.zeros(0, np.int64)) for d in decoded]
        found.append((filtered.to_array(), *pixels))
    for other in found[1:]:
        assert all(map(np.array_equal, found[0], other))


def test_a_filter_with_a_bound_smooths_beside_edges_without_softening_them() -> None:
    rng = np.random.default_rng(1)
    steps = np.repeat(np.repeat(rng.integers(20, 230, (1, 1, 12, 12)), 12, axis=2), 12, axis=3)
    original = (steps * SUBPIXEL).astype(np.float32)
    decoded = original + np.round(rng.normal(0, 24, original.shape)).astype(np.float32)
    left = []
    for bound in (0, 40):
        better = decoded.copy()
        fit([decoded], [original], bound)[0].apply(better)
        left.append(((better - original) ** 2).sum())
    assert left[1] < 0.8 * left[0]
