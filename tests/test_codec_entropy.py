"""Any integers come back from the range coder and the bit string; damaged bytes are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli.codec import priors
from tpca_cli.codec.entropy import (
    ESCAPE,
    PRECISION,
    ROWS,
    TOKENS,
    Reader,
    Writer,
    probabilities,
    rows_of,
    shifts_of,
)
from tpca_cli.codec.model import CLASSES
from tpca_cli.errors import FileRefused

TABLES = probabilities(priors.TABLES)
FLAGS = probabilities(priors.FLAG_TABLES)

magnitudes = st.one_of(
    st.integers(0, 3), st.sampled_from([ESCAPE - 1, ESCAPE, ESCAPE + 1]), st.integers(0, 1 << 38)
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(magnitudes, st.integers(0, CLASSES - 1)), max_size=60), st.integers(0, 2))
def test_any_magnitude_in_any_class_comes_back(items: list[tuple[int, int]], family: int) -> None:
    values = np.array([value for value, _ in items], np.int64)
    classes = np.array([kind for _, kind in items], np.int64)
    writer = Writer()
    writer.values(values, classes, TABLES[family])
    writer.bits(values & 1)
    reader = Reader(writer.finish())
    assert np.array_equal(reader.values(classes, TABLES[family]), values)
    assert np.array_equal(reader.bits(values.size), values & 1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, CLASSES - 1)), max_size=80))
def test_flags_come_back(items: list[tuple[bool, int]]) -> None:
    flags = np.array([flag for flag, _ in items], np.bool_)
    models = FLAGS[np.array([kind for _, kind in items], np.int64)]
    writer = Writer()
    writer.flags(flags, models)
    assert np.array_equal(Reader(writer.finish()).flags(models), flags)


def test_tables_are_whole_frequencies_without_zeros() -> None:
    for tables in (priors.TABLES, priors.FLAG_TABLES):
        assert (tables >= 1).all()
        assert (tables.sum(axis=-1) == 2**PRECISION).all()
    assert priors.TABLES.shape == (3, ROWS, TOKENS)


def test_large_classes_shift_by_one_bit_per_octave() -> None:
    classes = np.arange(CLASSES)
    assert rows_of(classes).max() < ROWS
    assert np.array_equal(shifts_of(classes[:ROWS]), np.zeros(ROWS))
    assert np.array_equal(shifts_of(classes[ROWS : ROWS + 8]), [1, 1, 1, 1, 2, 2, 2, 2])


def test_the_bytes_are_what_they_always_were() -> None:
    """A change here is a change of the format."""
    writer = Writer()
    writer.values(np.array([0, 1, 2, 3, 14, 15, 16, 1000, 5, 0]), np.arange(8, 58, 5), TABLES[0])
    writer.flags(np.array([True, False, True]), FLAGS[[10, 30, 50]])
    writer.bits(np.array([1, 0, 1, 1, 0, 1, 0, 0, 1]))
    assert writer.finish().hex() == GOLDEN


def test_a_block_is_refused_when_cut_or_continued() -> None:
    rng = np.random.default_rng(0)
    values, classes, bits = rng.integers(0, 40, 500), rng.integers(0, CLASSES, 500), rng.integers(0, 2, 333)
    writer = Writer()
    writer.values(values, classes, TABLES[0])
    writer.bits(bits)
    data = writer.finish()

    def read(some: bytes) -> None:
        reader = Reader(some)
        assert np.array_equal(reader.values(classes, TABLES[0]), values)
        assert np.array_equal(reader.bits(333), bits)
        reader.finish()

    read(data)
    for wrong in [data[:cut] for cut in range(0, len(data), 5)] + [data + b"\0"]:
        with pytest.raises(FileRefused):
            read(wrong)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        reader = Reader(data)
        found = reader.values(np.arange(200) % CLASSES, TABLES[0])
    except FileRefused:
        return
    assert found.min() >= 0


GOLDEN = "035e5fa2fb780c171202663bfd9da5a4"
