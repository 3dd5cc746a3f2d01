"""Laws of blocks without learning: values come back, damage is refused, tables change nothing but bytes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import reference_decoder
from coders import GRIDS
from coders import PLACES as SOME_PLACES
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import natural, noise
from reference_tabled import TabledBlock

from tpca_cli.codec.basis_coding import arrays_of, coder_from_arrays, meta_of
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.contexts import LEVELS, TABLED, ContextModel, build_contexts, families_of
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.kernel_job import REPLAY
from tpca_cli.codec.kernel_run import Symbols, decode, encode, read_symbols, run_block, write_symbols
from tpca_cli.codec.priors import FAMILIES, ROWS, TOKENS, shipped
from tpca_cli.codec.scan_order import scan_order_of
from tpca_cli.codec.token_tables import FARTHEST, MOST_OF_FAMILY, ONE, TokenTables, fit_tables
from tpca_cli.errors import FileRefused
from tpca_cli.framing import Framing
from tpca_cli.tensor_pca.fixed_basis import FixedBasis
from tpca_cli.wasm import Room

PLACES = {**SOME_PLACES, "lowest only": ((0, 0, 0), (0, 0, 1), (0, 0, 2))}
NAMES = st.sampled_from(sorted(PLACES))
SEEDS = st.integers(0, 999)
SIZES = st.sampled_from([0, 1, 30, 5000, 1 << 30])
PRIORS = json.loads(reference_decoder.PRIORS.read_text())
SMALL = Grid([(5, 4), (2, 3)])


def tables_of(families: Any, rng: np.random.Generator, farthest: int = FARTHEST) -> TokenTables:
    """Any tables that components of these families may have."""
    of_family = int(rng.integers(1, MOST_OF_FAMILY + 1))
    moves = rng.integers(-farthest, farthest + 1, (FAMILIES * of_family, ROWS, TOKENS)).astype(np.int8)
    sets = families + FAMILIES * rng.integers(0, of_family, len(families))
    found = TokenTables(moves, sets.astype(np.uint8))
    assert found.fits(families)
    return found


def numbers_of(name: str, seed: int, tables: bool, factors: list[int] | None = None) -> dict[str, Any]:
    """What a file says of components: scales and steps from the smallest to the largest."""
    rng, places = np.random.default_rng(seed), PLACES[name]
    count, channels = len(places), 1 + max(c for _, _, c in places)
    same, scan = rng.random() < 0.5, scan_order_of(places)
    steps = rng.choice([1, 3, 64, 3000, 1 << 20], 1 if same else count)
    scales = rng.integers(0, 256, 1 if same else count)
    families = np.empty(count, np.int64)
    families[scan.order] = families_of(scan)
    return {
        "places": list(places),
        "steps": np.broadcast_to(steps, count).astype(np.int64),
        "scales": np.broadcast_to(scales, count).astype(np.int64),
        "lowest": rng.integers(0, 256, (channels, LEVELS)),
        "centers": rng.integers(-(10**5), 10**5, channels),
        "tokens": tables_of(families, rng) if tables else None,
        "factors": factors,
    }


def model_of(numbers: dict[str, Any]) -> ContextModel:
    scan = scan_order_of(tuple(numbers["places"]))
    known = (numbers[name] for name in ("scales", "lowest", "centers", "steps"))
    grades = None if numbers["factors"] is None else np.array(numbers["factors"])
    return build_contexts(scan, *known, grades=grades, region=2, predictor=TABLED, tokens=numbers["tokens"])


def symbols_of(model: ContextModel, grid: Grid, largest: int, seed: int) -> Symbols:
    """Random symbols: nothing behind a flag that is not set, and one grade for each image."""
    rng, plan, tiles = np.random.default_rng(seed), model.scan, grid.places.size
    values = rng.integers(-largest, largest + 1, (len(plan.places), tiles))
    values = (values * rng.choice([1.0, 0.3, 1e-3], values.shape)).astype(np.int64)
    flags = (rng.random((len(plan.zones), tiles)) < rng.choice([0.0, 0.5, 0.9, 1.0])).astype(np.uint8)
    live = {color: np.ones(tiles, np.uint8) for color in (0, 1)}
    for row, (color, zone) in enumerate(plan.zones):
        live[color] = flags[row] = flags[row] & live[color]
        values[slice(*plan.zones[color, zone])] *= live[color]
    grades = rng.integers(0, len(model.quanta), len(grid.shapes))
    return Symbols(values, flags, np.repeat(grades, [h * w for h, w in grid.shapes]).astype(np.uint8))


def usual(scale: int = 100, factors: list[int] | None = None) -> ContextModel:
    """A model of small values, with tables that are not those of the format."""
    numbers = numbers_of("tile", 7, tables=True, factors=factors)
    count = len(numbers["places"])
    numbers |= {"scales": np.full(count, scale), "steps": np.full(count, 64)}
    return model_of(numbers | {"lowest": np.full((3, LEVELS), scale), "centers": np.arange(3)})


def check_damaged(model: ContextModel, block: bytes) -> None:
    """Refused, or the one block of some symbols; larger ones than a float holds may be rounded."""
    try:
        found = read_symbols(model, SMALL, block)
    except FileRefused:
        return
    if np.abs(found.values).max() < 2**53:
        assert write_symbols(model, SMALL, found) == block


@settings(max_examples=80)
@given(GRIDS, NAMES, st.sampled_from([0, 1, 3, 30, 5000, 1 << 40]), SEEDS, st.booleans(), st.booleans())
def test_any_symbols_come_back(
    shapes: list[tuple[int, int]], name: str, largest: int, seed: int, tables: bool, regions: bool
) -> None:
    grid, model = Grid(shapes), model_of(numbers_of(name, seed, tables, [64, 200, 11] if regions else None))
    symbols = symbols_of(model, grid, largest, seed)
    back = read_symbols(model, grid, write_symbols(model, grid, symbols))
    assert np.array_equal(back.values, symbols.values)
    assert np.array_equal(back.flags, symbols.flags)
    assert np.array_equal(back.grades, symbols.grades)


@settings(max_examples=80)
@given(GRIDS, NAMES, SIZES, SEEDS, st.booleans())
def test_decoding_gives_what_encoding_said(
    shapes: list[tuple[int, int]], name: str, size: int, seed: int, tables: bool
) -> None:
    """And what was decided is written to the same bytes again when it is moved."""
    grid, model = Grid(shapes), model_of(numbers_of(name, seed, tables))
    rng = np.random.default_rng(seed)
    coefficients = rng.integers(-size, size + 1, (len(PLACES[name]), grid.places.size)).astype(np.float64)
    block, values = encode(model, grid, coefficients)
    assert np.array_equal(decode(model, grid, block), values)
    assert write_symbols(model, grid, read_symbols(model, grid, block)) == block
    if size >= 5 * model.steps.max():
        assert np.abs(values - coefficients).max() <= 4 * model.steps.max() + size * 1e-9


@settings(max_examples=40)
@given(GRIDS, NAMES, st.sampled_from([1, 3, 30, 5000, 1 << 18]), SEEDS, st.booleans(), st.booleans())
def test_the_reference_reads_the_same_values(
    shapes: list[tuple[int, int]], name: str, largest: int, seed: int, tables: bool, regions: bool
) -> None:
    """Every class, escape and frequency that random symbols can reach, beyond those of pictures."""
    numbers, grid = numbers_of(name, seed, tables, [64, 200, 11] if regions else None), Grid(shapes[:2])
    model = model_of(numbers)
    block = write_symbols(model, grid, symbols_of(model, grid, largest, seed))
    plain = {key: np.asarray(numbers[key]).tolist() for key in ("steps", "scales", "lowest", "centers")}
    plain |= {"places": numbers["places"], "factors": numbers["factors"] or [64], "region": 2}
    if numbers["tokens"] is not None:
        arrays = numbers["tokens"].to_arrays()
        plain |= {key: array.tolist() for key, array in arrays.items()}
    reference = TabledBlock(PRIORS, plain, shapes[:2])
    found = reference.decode(block)
    values = [[found.get((place, tile), 0) for tile in reference.tiles] for place in model.scan.places]
    assert np.array_equal(decode(model, grid, block), values)


@settings(max_examples=40)
@given(GRIDS, NAMES, SIZES, SEEDS)
def test_tables_of_tokens_change_bytes_and_no_value(
    shapes: list[tuple[int, int]], name: str, size: int, seed: int
) -> None:
    """What the encoder decides is the same with the tables of the format and with any others."""
    numbers, grid = numbers_of(name, seed, tables=True), Grid(shapes)
    rng = np.random.default_rng(seed)
    coefficients = rng.integers(-size, size + 1, (len(PLACES[name]), grid.places.size)).astype(np.float64)
    models = [model_of(numbers | {"tokens": tokens}) for tokens in (numbers["tokens"], None)]
    (_, mine), (_, theirs) = (encode(model, grid, coefficients) for model in models)
    assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("regions", [False, True])
def test_a_block_is_refused_when_cut_or_continued(regions: bool) -> None:
    model = usual(factors=[64, 128] if regions else None)
    block = write_symbols(model, SMALL, symbols_of(model, SMALL, 30, 0))
    assert read_symbols(model, SMALL, block)
    wrong = [block[:cut] for cut in range(len(block))] + [block + b"\0", block + b"\1", b"\0" + block]
    for data in [*wrong, block[1:], block[:-4] + bytes(4) + block[-4:], b"\0" * 32, b"\xff" * 4000]:
        with pytest.raises(FileRefused, match="damaged"):
            read_symbols(model, SMALL, data)


@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize("largest", [0, 3, 10**6])
def test_flipped_bits_are_refused_or_decode_to_other_symbols(regions: bool, largest: int) -> None:
    model = usual(factors=[64, 128, 20] if regions else None)
    block = write_symbols(model, SMALL, symbols_of(model, SMALL, largest, 1))
    rng = np.random.default_rng(largest)
    for place in rng.choice(8 * len(block), min(8 * len(block), 400), replace=False).tolist():
        changed = bytearray(block)
        changed[place // 8] ^= 1 << place % 8
        check_damaged(model, bytes(changed))


@settings(max_examples=100)
@given(st.binary(max_size=400), st.sampled_from([0, 80, 120, 255]), st.booleans())
def test_random_bytes_are_refused_or_decode_to_symbols(data: bytes, scale: int, regions: bool) -> None:
    check_damaged(usual(scale, [64, 128] if regions else None), data)


@settings(max_examples=100)
@given(st.integers(0, (1 << 32) - 1), st.binary(max_size=80))
def test_any_length_of_the_grades_is_refused_but_the_right_one(length: int, rest: bytes) -> None:
    check_damaged(usual(100, [64, 128]), length.to_bytes(4, "little") + rest)


@pytest.mark.parametrize("seed", range(8))
def test_symbols_have_one_block(seed: int) -> None:
    """A token that is taken from a smaller state, and a word for it, would stand for the same."""
    grid, numbers = Grid([(1, 1)]), numbers_of("one", 3, tables=True)
    model = model_of(numbers | {"scales": np.full(1, 60), "lowest": np.full((1, LEVELS), 60)})
    symbols = Symbols(np.array([[seed - 4]]), np.zeros((0, 1), np.uint8))
    block = write_symbols(model, grid, symbols)
    state, rest = int.from_bytes(block[:8], "little"), block[8:]
    assert rest[:24] == 3 * (1 << 32).to_bytes(8, "little")
    starts = {}  # of tokens that take 2^32 to where this one does
    for row in np.unique(model.tables.reshape(-1, TOKENS), axis=0).tolist():
        for length, start in zip(row, np.cumsum([0, *row]).tolist(), strict=False):
            if state == ((1 << 32) // length << 16) + (1 << 32) % length + start:
                starts[start] = length
    assert starts
    for start, length in starts.items():
        smaller = (1 // length << 16) + 1 % length + start
        other = smaller.to_bytes(8, "little") + rest[:24] + bytes(4) + rest[24:]
        with pytest.raises(FileRefused, match="damaged"):
            read_symbols(model, grid, other)


def test_values_that_no_block_holds_are_refused() -> None:
    model, grid = usual(), SMALL
    for size in (1e18, 1e30):
        with pytest.raises((ValueError, FileRefused), match=r"too large|damaged"):
            encode(model, grid, np.full((len(PLACES["tile"]), grid.places.size), size))


@pytest.mark.parametrize("regions", [False, True])
def test_a_block_says_how_long_it_is_whatever_room_there_is(regions: bool) -> None:
    """So a second run has enough, also for noise that takes more than was expected."""
    model = usual(scale=0, factors=[64, 128] if regions else None)
    shape = len(PLACES["tile"]), SMALL.places.size
    values = np.random.default_rng(0).integers(-(1 << 40), 1 << 40, shape)
    symbols = Symbols(values, np.ones((len(model.scan.zones), shape[1]), np.uint8))
    block = write_symbols(model, SMALL, symbols)
    assert len(block) > 4096 + values.size  # more than the first run had
    assert np.array_equal(read_symbols(model, SMALL, block).values, values)
    tiles = {"data": values, "wanted": symbols.flags, "grade": 0}
    for capacity in (1, 3, 4, 5, 6, 8, 9, 31, 32, 40, 4096, len(block) - 1, len(block), len(block) + 9):
        job = run_block(model, SMALL, REPLAY, Room(capacity, scratch=True), tiles=tiles, symbols=True)
        assert job.numbers["length"] == len(block) and not job.numbers["damaged"]
        if capacity >= len(block):
            assert job.arrays["bytes"][: len(block)].tobytes() == block


@settings(max_examples=60)
@given(SEEDS, st.sampled_from([0, 1, 8, FARTHEST]))
def test_frequencies_of_any_moves_leave_every_token_possible(seed: int, farthest: int) -> None:
    families = np.arange(7) % FAMILIES
    tables = tables_of(families, np.random.default_rng(seed), farthest)
    found = tables.frequencies(shipped())
    assert found.min() >= 1 and (found.sum(axis=2) == ONE).all()
    if not farthest:
        assert np.abs(found - shipped().tables[np.arange(len(found)) % FAMILIES]).max() <= TOKENS


def test_the_farthest_moves_leave_every_token_possible() -> None:
    for sign in (1, -1):
        for token in range(TOKENS):
            moves = np.full((FAMILIES, ROWS, TOKENS), -sign * FARTHEST, np.int8)
            moves[..., token] = sign * FARTHEST
            found = TokenTables(moves, np.zeros(1, np.uint8)).frequencies(shipped())
            assert found.min() >= 1 and (found.sum(axis=2) == ONE).all()


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([1, 30, 10**6, 10**9]), st.sampled_from([1e-3, 1.0, 1e4]), st.integers(1, 3))
def test_fitted_tables_never_cost_more_than_those_of_the_format(
    seed: int, most: int, scale: float, families_present: int
) -> None:
    """Also where rows, tokens, components or whole families were never seen."""
    rng = np.random.default_rng(seed)
    families = rng.integers(0, families_present, int(rng.integers(1, 9)))
    counts = rng.integers(0, most + 1, (len(families), ROWS, TOKENS))
    counts[:, rng.random(ROWS) < 0.5] = 0
    counts[rng.random(len(families)) < 0.3] = 0
    counts[..., rng.random(TOKENS) < 0.3] = 0
    tables = fit_tables(counts, families, shipped(), scale)
    if not counts.any():
        assert tables is None
    if tables is not None:
        assert tables.fits(families)
        assert bits_of(counts, tables.frequencies(shipped())[tables.sets]) < bits_of(
            counts, shipped().tables[families]
        )


def bits_of(counts: Any, frequencies: Any) -> float:
    return float((counts * (16 - np.log2(frequencies.astype(np.float64)))).sum())


CODERS = {
    # frame, kind, pictures, step, bits
    "tiles of 8, gray": ((8, 8, 1), "tile", [(33, 26)], 6.0, 8),
    "tiles of 16": ((16, 16, 3), "tile", [(40, 33), (3, 5)], 2.0, 8),
    "tiles of 32": ((32, 32, 3), "tile", [(65, 40)], 9.0, 8),
    "one tile": ((8, 8, 3), "tile", [(8, 8)], 4.0, 8),
    "one pixel": ((1, 1, 1), "whole", [(1, 1)] * 3, 1.0, 8),
    "16 bits": ((8, 8, 1), "tile", [(20, 31)], 0.1, 16),
    "dense": ((6, 7, 3), "whole", [(6, 7)] * 5, 1.0, 8),
}


def coder_of(name: str) -> tuple[Coder, list[Any]]:
    """With components that follow no order, and pictures of its own size."""
    frame, kind, shapes, step, bits = CODERS[name]
    dtype = np.dtype(f"u{bits // 8}")
    rng, size = np.random.default_rng(0), int(np.prod(frame))
    pictures = [natural(h, w, frame[2], k, dtype) for k, (h, w) in enumerate(shapes)]
    if name == "dense":
        columns = np.linalg.qr(rng.normal(size=(size, 30)))[0]
        basis = FixedBasis.from_dense(columns, frame, dtype=dtype)
    else:
        modes = [np.linalg.qr(rng.normal(size=(side, side)))[0] for side in frame]
        indices = np.stack(np.unravel_index(np.arange(size), frame), axis=1)
        basis = FixedBasis.from_modes(modes, indices, dtype=dtype)
    return Coder.train(pictures, Framing(kind, *frame), basis, step, predictor=TABLED), pictures


@pytest.mark.parametrize("name", CODERS)
def test_pictures_come_back_as_the_encoder_says(name: str) -> None:
    """Inside the kernel and outside, stored and read, with tables of the format and with fitted ones."""
    plain, pictures = coder_of(name)
    counts = plain.count_tokens(pictures)
    tables = fit_tables(counts, plain.token_families, shipped(), 1e4)
    assert tables is not None or name == "one pixel"
    fitted = dataclasses.replace(plain, tokens=tables)
    flat = [np.zeros_like(picture) for picture in pictures]
    loud = [noise(*picture.shape, 3, picture.dtype) for picture in pictures]
    for some in (pictures, flat, loud):
        shapes = [(int(p.shape[0]), int(p.shape[1])) for p in some]
        found = {}
        for coder in (plain, fitted):
            encoded = coder.encode(some)
            again = coder_from_arrays(meta_of(coder), arrays_of(coder))
            for reader in (coder, again):
                back = reader.decode(encoded.data, shapes)
                assert all(map(np.array_equal, back, encoded.decoded))
            slow = coder.decode(encoded.data, shapes, coder.components)
            assert all(map(np.array_equal, slow, encoded.decoded))
            found[coder] = encoded
        assert all(map(np.array_equal, found[plain].decoded, found[fitted].decoded))
        if some is pictures:
            assert len(found[fitted].data) <= len(found[plain].data)


def test_impossible_tables_are_refused() -> None:
    coder, pictures = coder_of("tiles of 8, gray")
    tables = fit_tables(coder.count_tokens(pictures), coder.token_families, shipped(), 1e4)
    assert tables is not None
    coder = dataclasses.replace(coder, tokens=tables)
    meta, arrays = meta_of(coder), arrays_of(coder)
    moves, sets = arrays["token_moves"], arrays["token_sets"]
    far = moves.copy()
    far[0, 0, 0] = FARTHEST + 1
    for wrong in (
        {"token_moves": far},
        {"token_moves": moves[:2]},
        {"token_moves": moves[:, :47]},
        {"token_moves": moves[:0]},
        {"token_moves": moves.ravel()},
        {"token_moves": np.concatenate([moves] * 16)[:15]},
        {"token_moves": moves.astype(np.int16)},
        {"token_sets": sets.astype(np.int64)},
        {"token_sets": sets[:-1]},
        {"token_sets": sets + np.uint8(1)},
        {"token_sets": sets + np.uint8(3 * MOST_OF_FAMILY)},
    ):
        with pytest.raises(FileRefused):
            coder_from_arrays(meta, {**arrays, **wrong})
    for missing in ("token_moves", "token_sets"):
        with pytest.raises(FileRefused):
            coder_from_arrays(meta, {name: a for name, a in arrays.items() if name != missing})
    with pytest.raises(FileRefused):
        coder_from_arrays({**meta, "model": 3}, arrays)
    assert coder_from_arrays(meta, arrays).tokens is not None
