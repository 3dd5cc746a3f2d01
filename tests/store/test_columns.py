"""Packed columns give back what was put in, and refuse what does not add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpca_cli.errors import FileRefused
from tpca_cli.store.columns import join_blobs, join_bytes, pack, split_blobs, split_bytes, unpack

COLUMNS = {"digest": 8, "time": 8, "size": 6, "mode": 1}
ROW = st.tuples(
    st.binary(min_size=8, max_size=8),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**48 - 1),
    st.integers(0, 255),
)


@given(st.lists(ROW, max_size=20))
def test_tables_round_trip(rows) -> None:
    digest = np.frombuffer(b"".join(row[0] for row in rows), np.uint8).reshape(-1, 8)
    table = {name: np.array([row[k] for row in rows], np.int64) for k, name in enumerate(COLUMNS) if k}
    back = unpack(pack({"digest": digest, **table}, COLUMNS), COLUMNS, raw=("digest",))
    assert np.array_equal(back["digest"], digest)
    for name, values in table.items():
        assert np.array_equal(back[name], values)


def test_a_value_too_wide_for_its_column_is_never_cut() -> None:
    with pytest.raises(OverflowError):
        pack({"mode": np.array([256])}, {"mode": 1})


def test_wrong_number_of_planes_is_refused() -> None:
    with pytest.raises(FileRefused):
        unpack(np.zeros((3, 5), np.uint8), {"mode": 1})


@given(st.lists(st.binary(max_size=9).filter(lambda item: b"\0" not in item), max_size=9))
def test_names_round_trip(names) -> None:
    assert split_bytes(join_bytes(names), len(names)) == names
    with pytest.raises(FileRefused):
        split_bytes(join_bytes(names), len(names) + 1)


@given(st.lists(st.binary(max_size=9), max_size=9), st.integers(1, 4))
def test_blobs_round_trip_and_refuse_truncation(blobs, cut) -> None:
    data = join_blobs(blobs)
    assert split_blobs(data) == blobs
    if blobs and len(blobs[-1]) >= cut:
        with pytest.raises(FileRefused):
            split_blobs(data[:-cut])
