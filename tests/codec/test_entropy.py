"""Laws of the compiled coder: any symbols come back, damage is refused, all machines write the same bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli import wasm
from tpca_cli.codec import kernel_job
from tpca_cli.codec.contexts import LEVELS, PREDICTORS, ContextModel, build_contexts
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.kernel_run import Symbols, decode, encode, read_symbols, write_symbols
from tpca_cli.codec.scan_order import scan_order_of
from tpca_cli.errors import FileRefused

GRID = Grid([(5, 4), (2, 3)])
PLAN = scan_order_of(tuple((i, j, c) for c in range(3) for i in range(4) for j in range(4)))


def model_of(scale: int, step: int = 64, predictor: int = 1) -> ContextModel:
    """A model that expects values of this log code."""
    count, channels = len(PLAN.places), len(PLAN.lowest)
    return build_contexts(
        PLAN,
        np.full(count, scale),
        np.full((channels, LEVELS), scale),
        np.arange(channels),
        np.full(count, step),
        predictor=predictor,
    )


def symbols_of(size: int, seed: int, part: float = 1.0) -> Symbols:
    """Values up to `size` in a part of the components, with every flag set."""
    rng = np.random.default_rng(seed)
    shape = len(PLAN.places), GRID.places.size
    values = rng.integers(-size, size + 1, shape) * (rng.random(shape) < part)
    return Symbols(values, np.ones((len(PLAN.zones), shape[1]), np.uint8))


def some(seed: int, size: float = 900.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, size, (len(PLAN.places), GRID.places.size)).round()


def check_symbols(model: ContextModel, symbols: Symbols) -> bytes:
    block = write_symbols(model, GRID, symbols)
    back = read_symbols(model, GRID, block)
    assert np.array_equal(back.values, symbols.values)
    assert np.array_equal(back.flags, symbols.flags)
    return block


def check_damaged(model: ContextModel, block: bytes) -> None:
    """Refused, or the one block of some symbols; larger ones than a float holds may be rounded."""
    try:
        found = read_symbols(model, GRID, block)
    except FileRefused:
        return
    if np.abs(found.values).max() < 2**53:
        assert write_symbols(model, GRID, found) == block


MAGNITUDES = st.one_of(st.integers(0, 3), st.sampled_from([14, 15, 16, 4095, 4096]), st.integers(0, 1 << 40))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(MAGNITUDES, st.booleans()), min_size=1, max_size=200),
    st.integers(0, 255),
    st.sampled_from([1, 64, 1 << 30]),
)
def test_any_magnitude_comes_back_whatever_was_expected(
    items: list[tuple[int, bool]], scale: int, step: int
) -> None:
    """Escapes, raw low bits and values that no picture has."""
    symbols = symbols_of(0, 0)
    values = [-size if negative else size for size, negative in items]
    symbols.values[:] = np.resize(np.array(values, np.int64), symbols.values.shape)
    for predictor in PREDICTORS:
        check_symbols(model_of(scale, step, predictor), symbols)


@pytest.mark.parametrize("scale", [0, 60, 120, 255])
@pytest.mark.parametrize("size", [0, 1, 20, 10**6, 2**40])
def test_noise_comes_back_and_its_sparse_part(scale: int, size: int) -> None:
    dense, sparse = (
        check_symbols(model_of(scale), symbols_of(size, 1)),
        check_symbols(model_of(scale), symbols_of(size, 1, 0.1)),
    )
    assert size == 0 or len(sparse) < len(dense)
    for sign in (1, -1):
        same = symbols_of(size, 1)
        assert len(check_symbols(model_of(scale), Symbols(sign * np.abs(same.values), same.flags))) <= len(
            dense
        )


def test_what_repeats_is_learned() -> None:
    """Noise that no table expects costs little more than its entropy, and what is always so costs nothing."""
    grid = Grid([(40, 40)])
    shape = len(PLAN.places), grid.places.size
    flags = np.ones((len(PLAN.zones), shape[1]), np.uint8)
    values = np.random.default_rng(0).integers(0, 2, shape) * 2 - 1
    coins = write_symbols(model_of(0), grid, Symbols(values, flags))
    assert 8 * len(coins) < 1.05 * values.size
    same = write_symbols(model_of(0), grid, Symbols(np.ones(shape, np.int64), flags))
    assert 8 * len(same) < 0.05 * values.size


def test_the_bytes_are_what_they_always_were() -> None:
    """A change here is a change of the format."""
    symbols, blocks = symbols_of(0, 0), []
    mixed = (
        np.arange(symbols.values.size).reshape(symbols.values.shape) * 40503 % 65536
    )  # from integers alone
    for size, scale in [(0, 60), (3, 90), (40, 100), (2**30, 150)]:
        symbols.values[:] = mixed * (2 * size + 1) // 65536 - size
        blocks.append(write_symbols(model_of(scale), GRID, symbols))
    assert [len(block) for block in blocks] == LENGTHS
    assert hashlib.sha256(b"".join(blocks)).hexdigest() == DIGEST


LENGTHS = [15, 465, 1162, 7770]
DIGEST = "0e1f084c078389fc27b1c3593ec064c5af69e35ae4581b3b8e1e5d7e6ade6c34"


def test_a_block_is_refused_when_cut_or_continued() -> None:
    model = model_of(100)
    block, _ = encode(model, GRID, some(0))
    for wrong in [block[:cut] for cut in range(0, len(block), 7)] + [
        block + b"\0",
        block + b"\1",
        b"\0" + block,
    ]:
        with pytest.raises(FileRefused, match="damaged"):
            decode(model, GRID, wrong)


def test_a_block_ends_with_the_fewest_bytes() -> None:
    """Symbols have one block only: another end is damage, or the end of other symbols."""
    model = model_of(100)
    for seed in range(40):
        block, _ = encode(model, GRID, some(seed, 30.0))
        for last in {0, 1, 255, block[-1] ^ 1, (block[-1] + 1) % 256}:
            check_damaged(model, block[:-1] + bytes([last]))


@settings(max_examples=100)
@given(st.integers(0, 3), st.lists(st.integers(0, 1 << 20), min_size=1, max_size=3))
def test_flipped_bits_are_refused_or_decode_to_other_symbols(seed: int, places: list[int]) -> None:
    model = model_of(100)
    block = bytearray(write_symbols(model, GRID, symbols_of(30, seed)))
    for place in set(places):
        block[place // 8 % len(block)] ^= 1 << place % 8
    check_damaged(model, bytes(block))


@settings(max_examples=100)
@given(st.binary(max_size=400), st.sampled_from([0, 80, 120, 255]))
def test_random_bytes_are_refused_or_decode_to_symbols(data: bytes, scale: int) -> None:
    check_damaged(model_of(scale, 1 << 30), data)


def test_an_escape_without_end_is_refused() -> None:
    for length in (0, 4, 1000):
        with pytest.raises(FileRefused, match="damaged"):
            decode(model_of(100), GRID, b"\0" * length)


def test_a_frugal_instance_writes_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(100)
    usual = encode(model, GRID, some(0))
    kernel = kernel_job.KERNEL
    monkeypatch.setitem(wasm._local.__dict__, kernel.program, wasm.WasmInstance(kernel, frugal=True))
    frugal = encode(model, GRID, some(0))
    assert frugal[0] == usual[0] and np.array_equal(frugal[1], usual[1])
    assert np.array_equal(decode(model, GRID, usual[0]), usual[1])


def test_little_address_space_is_enough() -> None:
    """In a process that may have 1.5 GB of addresses, less than an instance reserves by default."""
    pytest.importorskip("resource")
    script = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
sys.path.insert(0, sys.argv[1])
from test_entropy import GRID, encode, large, model_of, some
print(encode(model_of(100), GRID, some(0))[0].hex(), large())
"""
    command = [sys.executable, "-c", script, str(Path(__file__).parent)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert found.returncode == 0, found.stderr
    block, size = found.stdout.split()
    assert bytes.fromhex(block) == encode(model_of(100), GRID, some(0))[0]
    assert int(size) == large()


def large() -> int:
    """The size of a block that needs tens of megabytes while it is coded."""
    grid = Grid([(300, 300)])
    return len(encode(model_of(100), grid, np.ones((len(PLAN.places), grid.places.size)))[0])


def test_threads_at_the_same_time_write_the_same_bytes() -> None:
    model = model_of(100)
    expected = [encode(model, GRID, some(seed))[0] for seed in range(24)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda seed: encode(model, GRID, some(seed))[0], range(24))) == expected
