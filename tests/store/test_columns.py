"""Packed columns give back what was put in, and refuse what does not add up."""

from __future__ import annotations

import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpca_cli.errors import FileRefused
from tpca_cli.store.columns import (
    fold_bytes,
    join_blobs,
    join_bundle,
    join_bytes,
    pack,
    split_blobs,
    split_bundle,
    split_bytes,
    unfold_bytes,
    unpack,
)
from tpca_cli.store.structure import BadFile

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


@given(st.lists(st.text("ab/", max_size=600).map(str.encode), max_size=9))
def test_folded_names_round_trip(names) -> None:
    assert unfold_bytes(fold_bytes(names), len(names)) == names
    with pytest.raises(FileRefused):
        unfold_bytes(fold_bytes(names), len(names) + 1)


def test_numbered_names_fold_to_next_to_nothing() -> None:
    names = [b"n01443537/images/n01443537_%d.JPEG" % k for k in range(1000)]
    assert len(zlib.compress(fold_bytes(names).tobytes())) < len(names)
    with pytest.raises(FileRefused):  # nothing to begin with
        unfold_bytes(np.frombuffer(b"\1\0a\0", np.uint8), 1)


BUNDLE = {
    "a": np.arange(12, dtype=np.uint8).reshape(3, 4),
    "b/0": np.zeros(5000, np.uint8),
    "c": np.zeros((2, 0), np.uint8),
}


def test_bundles_round_trip() -> None:
    bundle = join_bundle('{"x":1}', BUNDLE)
    meta, parts = split_bundle(bundle, 6000)
    assert meta == '{"x":1}' and list(parts) == sorted(BUNDLE) and len(bundle) < 120
    assert all(np.array_equal(part.content, BUNDLE[path]) for path, part in parts.items())
    assert sum(part.stored for part in parts.values()) < len(bundle)


def test_every_bundle_that_is_not_whole_is_refused() -> None:
    bundle = join_bundle("{}", BUNDLE)
    with pytest.raises(BadFile):  # it would take more memory than it may
        split_bundle(bundle, 5000)
    for length in range(len(bundle)):
        with pytest.raises(BadFile):
            split_bundle(bundle[:length], 6000)
    with pytest.raises(BadFile):
        split_bundle(np.append(bundle, np.uint8(0)), 6000)
    for place in range(len(bundle)):  # without a digest it may be another bundle, never a crash
        spoiled = bundle.copy()
        spoiled[place] ^= 1 << place % 8
        with suppress(BadFile):
            split_bundle(spoiled, 6000)


@given(st.lists(st.binary(max_size=9), max_size=9), st.integers(1, 4))
def test_blobs_round_trip_and_refuse_truncation(blobs, cut) -> None:
    data = join_blobs(blobs)
    assert split_blobs(data) == blobs
    if blobs and len(blobs[-1]) >= cut:
        with pytest.raises(FileRefused):
            split_blobs(data[:-cut])
