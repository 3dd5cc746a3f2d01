"""What goes into a file comes out, with the same bytes every time; or the file does not appear."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tpca_cli import store
from tpca_cli.errors import OutputExists, StorageError
from tpca_cli.store import Field, Schema

from .samples import SMALL, write_small

DTYPES = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")


arrays = st.sampled_from(DTYPES).flatmap(
    lambda kind: hnp.arrays(np.dtype(kind), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7))
)
names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
attributes = st.dictionaries(
    names.filter(lambda name: name not in ("format", "digest", "meta")),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.binary(max_size=30),
    max_size=12,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(
    content=st.dictionaries(names, arrays, min_size=1, max_size=5),
    values=attributes,
    meta=st.dictionaries(st.text(), json_values, max_size=3),
    compress=st.booleans(),
)
def test_what_goes_in_comes_out(
    tmp_path_factory: pytest.TempPathFactory,
    content: dict[str, Any],
    values: dict[str, Any],
    meta: dict[str, Any],
    compress: bool,
) -> None:
    path = tmp_path_factory.mktemp("store") / "x.h5"
    fields = {name: Field(array.dtype.str[1:], array.shape) for name, array in content.items()}
    schema = Schema("tpca-any", 1, fields)
    with store.create(path, schema) as file:
        file.attrs(values)
        file.meta(meta)
        for name, array in content.items():
            file.put(name, array, compress=compress)
    with store.open_checked(path, schema) as reader:
        assert reader.attrs == values
        assert reader.meta == meta
        assert tuple(reader.stored) == tuple(sorted(content))
        for name, array in content.items():
            found = reader.array(name)
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()


@settings(max_examples=40)
@given(
    cuts=st.lists(st.integers(0, 9), max_size=8),
    chunk=st.integers(1, 12),
    compress=st.booleans(),
    bulk=st.booleans(),
)
def test_a_stream_is_the_array_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], chunk: int, compress: bool, bulk: bool
) -> None:
    folder = tmp_path_factory.mktemp("store")
    schema = Schema("tpca-stream", 1, {"rows": Field("i2", (None, 2, 3), bulk=bulk)})
    whole = np.arange(sum(cuts) * 6, dtype="i2").reshape(-1, 2, 3)
    parts = np.split(whole, np.cumsum(cuts)[:-1]) if cuts else []
    for name, pieces in (("cut.h5", parts), ("whole.h5", [whole])):
        with store.create(folder / name, schema) as file:
            stream = file.stream("rows", "i2", (2, 3), chunk, compress=compress)
            reused = np.empty((10, 2, 3), "i2")
            for piece in pieces:
                if len(piece) <= 10:
                    reused[: len(piece)] = piece
                    stream.append(reused[: len(piece)])
                    reused[:] = -1
                else:
                    stream.append(piece)
    assert (folder / "cut.h5").read_bytes() == (folder / "whole.h5").read_bytes()
    with store.open_checked(folder / "cut.h5", schema) as reader:
        assert np.array_equal(reader.array("rows"), whole)
        for start in range(len(whole) + 1):
            assert np.array_equal(reader.rows("rows", start, len(whole)), whole[start:])


def test_same_content_same_bytes(tmp_path: Path) -> None:
    write_small(tmp_path / "a.h5")
    write_small(tmp_path / "b.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_a_digest_that_an_array_brings_is_held_to_what_was_written(tmp_path: Path) -> None:
    schema, array = Schema("tpca-any", 1, {"kept/it": Field("u2", (None, 4))}), np.ones((9, 4), "u2")

    def write(name: str, array: Any, **known: bytes) -> None:
        with store.create(tmp_path / name, schema) as file:
            file.put("kept/it", array, compress=False, **known)

    write("first.h5", array)
    with store.open_checked(tmp_path / "first.h5", schema, keep="kept") as reader:
        digest = reader.leaves["kept/it"]
    write("again.h5", array, digest=digest)
    assert (tmp_path / "again.h5").read_bytes() == (tmp_path / "first.h5").read_bytes()
    with pytest.raises(StorageError, match="did not read back"):
        write("other.h5", array + np.uint16(1), digest=digest)
    assert not (tmp_path / "other.h5").exists()


def test_bookkeeping_is_small(tmp_path: Path) -> None:
    schema = Schema("tpca-six", 1, {f"d{n}": Field("u1", (None,)) for n in range(6)})
    with store.create(tmp_path / "x.h5", schema) as file:
        file.meta({"a": 1})
        for n in range(6):
            file.put(f"d{n}", np.frombuffer(np.random.default_rng(n).bytes(500), "u1"))
    assert (tmp_path / "x.h5").stat().st_size - 6 * 500 < 4000


def test_padding_of_a_compressed_stream_is_not_stored(tmp_path: Path) -> None:
    schema = Schema("tpca-tail", 1, {"bytes": Field("u1", (None,), bulk=True)})
    data = np.frombuffer(np.random.default_rng(0).bytes(70_000), "u1")
    with store.create(tmp_path / "x.h5", schema) as file:
        file.stream("bytes", "u1", (), 65_536, compress=True).append(data)
    assert (tmp_path / "x.h5").stat().st_size < 72_000


def test_large_rows_are_cut_into_small_chunks(tmp_path: Path) -> None:
    schema = Schema("tpca-large", 1, {"rows": Field("u1", (None, 5000, 5000), bulk=True)})
    rows = np.random.default_rng(0).integers(0, 9, (2, 5000, 5000), dtype="u1")
    with store.create(tmp_path / "x.h5", schema) as file:
        file.stream("rows", "u1", (5000, 5000), 1).append(rows)
    with store.open_checked(tmp_path / "x.h5", schema) as reader:
        assert np.array_equal(reader.rows("rows", 1, 2), rows[1:])


def test_no_clobber_without_force(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    write_small(path)
    before = path.read_bytes()
    with pytest.raises(OutputExists):
        write_small(path, groups=(9,))
    assert path.read_bytes() == before
    write_small(path, groups=(9,), force=True)
    assert path.read_bytes() != before
    assert os.listdir(tmp_path) == ["x.h5"]


def test_an_exception_leaves_no_trace(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), store.create(tmp_path / "x.h5", SMALL) as file:
        file.put("a", np.arange(5, dtype="u2"))
        file.stream("bulk", "u1", (4,), 3).append(np.zeros((7, 4), "u1"))
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("where", ["between two calls", "in a call"])
def test_python_ends_while_a_thread_writes(tmp_path: Path, where: str) -> None:
    """HDF5 closes its files when the process ends: by calls of Python, and not while a thread is in it."""
    code = """
import sys, threading, time
import numpy as np
from tpca_cli import store
from tpca_cli.store import Field, Schema, hdf5

reached, write = threading.Event(), hdf5.OutputFile.write

def slow(self, data):
    reached.set()
    time.sleep(0.5)
    return write(self, data)

def work():
    fields = {"bulk": Field("u1", (None, 8), bulk=True)}
    with store.create(sys.argv[1], Schema("tpca-long", 1, fields)) as file:
        if sys.argv[2] == "in a call":
            hdf5.OutputFile.write = slow
        stream = file.stream("bulk", "u1", (8,), 1 << 17)
        while not reached.is_set():
            stream.append(np.zeros((1 << 17, 8), np.uint8))
            if sys.argv[2] != "in a call":
                reached.set()
        threading.Event().wait()

threading.Thread(target=work, daemon=True).start()
reached.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.h5", where],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path) == []


def test_a_file_that_changed_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    write_small(path)
    known = store.identity(path)
    write_small(path, force=True, expect=known)
    with store.open_checked(path, SMALL) as reader:
        assert reader.identity == store.identity(path) != known
    with pytest.raises(OutputExists, match="changed"):
        write_small(path, force=True, expect=known)
    path.unlink()
    with pytest.raises(OutputExists, match="changed"):
        write_small(path, force=True, expect=known)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda file: file.put("a", np.zeros(3, "u1")), TypeError),
        (lambda file: file.put("a", np.zeros((3, 1), "u2")), ValueError),
        (lambda file: file.put("other", np.zeros(3, "u2")), KeyError),
        (lambda file: file.put("many/01/x", np.int32(1)), KeyError),
        (lambda file: (file.put("a", np.zeros(3, "u2")), file.put("a", np.zeros(3, "u2"))), ValueError),
        (lambda file: file.stream("bulk", "u1", (5,), 3), ValueError),
        (lambda file: file.stream("bulk", "u1", (4,), 3).append(np.zeros((1, 4), "u2")), TypeError),
        (lambda file: file.attrs({"digest": "x"}), ValueError),
        (lambda file: file.attrs({"flag": True}), TypeError),
        (lambda file: file.attrs({"text": "a\0b"}), ValueError),
        (lambda file: file.attrs({"text": "x" * 70_000}), ValueError),
        (lambda file: file.meta({"x": float("nan")}), ValueError),
        (lambda file: file.put("a", np.zeros(3, "u2")), ValueError),  # the rest is missing
    ],
)
def test_a_writer_keeps_to_its_table(tmp_path: Path, act: Any, error: type[Exception]) -> None:
    with pytest.raises(error), store.create(tmp_path / "x.h5", SMALL) as file:
        act(file)
    assert os.listdir(tmp_path) == []


def test_small_datasets_take_little_more_than_their_content(tmp_path: Path) -> None:
    fields = {f"{k}/{name}": Field("u1", (None,)) for k in "ab" for name in ("one", "two", "three")}
    path, schema = (
        tmp_path / "x.h5",
        Schema("tpca-any", 1, fields | {"bulk": Field("u1", (None,), bulk=True)}),
    )
    with store.create(path, schema) as file:
        for name in fields:
            file.put(name, np.arange(50, dtype="u1"), compress=False)
        rows = file.stream("bulk", "u1", (), 4000, rows=3000)
        file.describe()
        rows.append(np.zeros(3000, "u1"))
    around = path.stat().st_size - sum(file.checked.stored.values())
    assert around < 1500  # a header takes 100 bytes: 268 with the room that HDF5 leaves for attributes
    # a file that is cut off in its bulk data has all that says what it is
    os.truncate(path, path.stat().st_size - 2000)
    with store.open_checked(path, schema, cut=True) as cut:
        assert cut.shapes["bulk"] == (3000,)
        assert cut.array("b/two").tolist() == list(range(50))
