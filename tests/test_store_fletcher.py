"""The checksum that we write for whole chunks is the one that HDF5 expects when it reads them."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli import store
from tpca_cli.errors import FileRefused
from tpca_cli.store.fletcher import fletcher32

TABLE = store.Schema("test", 1, {"rows": store.Field("u1", (None, None), bulk=True)})


def by_words(data: bytes) -> int:
    """The definition: sums of 16-bit words with the carry added at the low end."""
    first = second = 0
    for word in np.frombuffer(data + b"\0" * (len(data) % 2), ">u2").tolist():
        first += word
        second += first
    fold = [(total - 1) % 65535 + 1 if total else 0 for total in (first, second)]
    return fold[1] << 16 | fold[0]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 300_000), st.sampled_from(["random", "zeros", "ones"]), st.integers(0, 99))
def test_it_is_the_checksum_by_its_definition(size: int, kind: str, seed: int) -> None:
    fill = {"zeros": 0, "ones": 255}
    data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    if kind in fill:
        data[:] = fill[kind]
    assert fletcher32(data) == by_words(data.tobytes())


def written(path: Path, count: int, width: int, chunk: int) -> np.ndarray:
    values = np.random.default_rng(count).integers(0, 256, (count, width), dtype=np.uint8)
    with store.create(path, TABLE) as writer:
        stream = writer.stream("rows", np.dtype("u1"), (width,), chunk)
        for start in range(0, count, 7):
            stream.append(values[start : start + 7])
    return values


@pytest.mark.parametrize(("count", "width", "chunk"), [(1, 1, 1), (64, 33, 8), (61, 33, 8), (900, 501, 300)])
def test_hdf5_accepts_the_chunks(tmp_path: Path, count: int, width: int, chunk: int) -> None:
    values = written(tmp_path / "a.h5", count, width, chunk)
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["rows"].fletcher32
        assert np.array_equal(file["rows"][:], values)


def test_hdf5_refuses_them_when_a_bit_differs(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    values = written(path, 64, 33, 8)
    data = bytearray(path.read_bytes())
    at = data.find(values[8:16].tobytes())
    data[at + 100] ^= 4
    path.write_bytes(data)
    with store.open_checked(path, TABLE) as reader:
        assert np.array_equal(reader.rows("rows", 0, 8), values[:8])
        with pytest.raises(FileRefused):
            reader.rows("rows", 8, 16)
