"""What was written is read back; what is damaged, foreign, too large or not there is refused by name."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tpca_cli import store
from tpca_cli.errors import FileRefused, StorageError
from tpca_cli.store import Field, Schema
from tpca_cli.store.guard import CheckedDataset

from .samples import LONG, ROWS, SMALL, write_small


def flip(path: Path, wanted: bytes) -> None:
    """Flip one bit of the only place where these bytes are."""
    content = bytearray(path.read_bytes())
    assert content.count(wanted) == 1
    content[content.index(wanted) + 3] ^= 4
    path.write_bytes(content)


def test_a_damaged_chunk_refuses_its_rows_and_no_others(path: Path) -> None:
    flip(path, ROWS[350:360].tobytes())
    with store.open_checked(path, LONG) as reader:
        assert np.array_equal(reader.rows("bulk", 0, 300), ROWS[:300])
        assert np.array_equal(reader.rows("bulk", 400, 1000), ROWS[400:])
        with pytest.raises(FileRefused, match="damaged"):
            reader.rows("bulk", 399, 401)
        assert np.array_equal(reader.rows("bulk", 0, 300), ROWS[:300])
        raw = reader.raw_rows("bulk", 300, 400)
        assert (raw != ROWS[300:400]).sum() == 1


def test_damaged_small_data_refuse_the_file(path: Path) -> None:
    content = path.read_bytes()
    title = content.index(b"tpca-long")
    path.write_bytes(content[:title] + b"T" + content[title + 1 :])
    with pytest.raises(FileRefused), store.open_checked(path, LONG):
        pass


@pytest.mark.parametrize("damaged", [False, True])
def test_kept_arrays_are_read_once_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    path, schema = tmp_path / "kept.h5", Schema("tpca-deep", 1, {"deep/b": Field("u1", (None, 8))})
    with store.create(path, schema) as file:
        file.put("deep/b", ROWS, compress=False)
    if damaged:
        flip(path, ROWS[350:360].tobytes())
    read, rows = CheckedDataset.read, []
    monkeypatch.setattr(CheckedDataset, "read", lambda entry, a, b: rows.append(b - a) or read(entry, a, b))
    with (
        pytest.raises(FileRefused) if damaged else nullcontext(),
        store.open_checked(path, schema, keep="deep") as reader,
    ):
        assert np.array_equal(reader.array("deep/b"), ROWS) and rows == [1000]
        assert np.array_equal(reader.array("deep/b"), ROWS)


def test_plain_h5py_reads_the_chunks_and_their_checksums(path: Path) -> None:
    with h5py.File(path) as file:
        assert file["bulk"].fletcher32
        assert np.array_equal(file["bulk"][:], ROWS)


def test_raw_rows_are_the_rows(path: Path) -> None:
    with store.open_checked(path, LONG) as reader:
        for start, stop in ((0, 0), (0, 1000), (99, 101), (250, 777), (1000, 1000)):
            assert np.array_equal(reader.raw_rows("bulk", start, stop), ROWS[start:stop])


def test_a_disk_that_cannot_be_read_is_not_a_damaged_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with store.open_checked(path, LONG) as reader, monkeypatch.context() as patch:
        patch.setattr(os, "preadv", refuse)
        with pytest.raises(StorageError) as caught:
            reader.rows("bulk", 0, 1000)
        assert caught.value.errno == errno.EIO
        with pytest.raises(StorageError), store.open_checked(path, LONG):
            pass


def test_threads_read_one_file(path: Path) -> None:
    wrong: list[int] = []
    with store.open_checked(path, LONG) as reader:

        def work(first: int) -> None:
            for start in range(first, 900, 7):
                if not np.array_equal(reader.rows("bulk", start, start + 100), ROWS[start : start + 100]):
                    wrong.append(start)

        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_python_ends_while_a_thread_holds_a_file(path: Path) -> None:
    """HDF5 closes its files when the process ends, by calls of Python that must not come too late."""
    code = """
import sys, threading
from tpca_cli import store
from tpca_cli.store import Field, Schema

FIELDS = {"small": Field("<i4", (None,)), "bulk": Field("u1", (None, 8), bulk=True)}

def work():
    with store.open_checked(sys.argv[1], Schema("tpca-long", 1, FIELDS)):
        opened.set()
        threading.Event().wait()

opened = threading.Event()
threading.Thread(target=work, daemon=True).start()
opened.wait()
"""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_sees_the_old_file_to_its_end(path: Path) -> None:
    with store.open_checked(path, LONG) as reader:
        with store.create(path, LONG, force=True) as file:
            file.put("small", np.arange(3, dtype="i4"))
            file.stream("bulk", "u1", (8,), 100)
        assert np.array_equal(reader.array("bulk"), ROWS)
        assert len(reader.array("small")) == 10
    with store.open_checked(path, LONG) as reader:
        assert reader.shapes["bulk"] == (0, 8)


def test_formats_and_versions_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    write_small(path)
    other = Schema("tpca-other", 1, SMALL.fields)
    older = Schema("tpca-small", 0, SMALL.fields)
    assert store.format_of(path) == "tpca-small"
    with pytest.raises(FileRefused, match="not tpca-other"), store.open_checked(path, other):
        pass
    with pytest.raises(FileRefused, match="newer"), store.open_checked(path, older):
        pass
    with store.open_checked(path, other, older, SMALL) as reader:
        assert (reader.schema, reader.version) == (SMALL, 1)


def test_reading_is_bounded(tmp_path: Path) -> None:
    write_small(tmp_path / "x.h5")
    with store.open_checked(tmp_path / "x.h5", SMALL) as reader:
        with pytest.raises(FileRefused, match="at most 39"):
            reader.array("bulk", limit=39)
        with pytest.raises(IndexError):
            reader.rows("bulk", 5, 11)
        with pytest.raises(KeyError):
            reader.array("many/7/x")
        assert ("many/3/x" in reader.shapes, "many/3/y" in reader.shapes) == (True, False)


def test_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError), store.open_checked(tmp_path / "x.h5", SMALL):
        pass


def test_skimming_reads_little_of_a_large_file_and_still_checks_what_it_reads(tmp_path: Path) -> None:
    schema = Schema("tpca-large", 1, {"large": Field("u1", (None,)), "small": Field("u1", (None,))})
    path = tmp_path / "x.h5"
    with store.create(path, schema) as file:
        file.put("large", np.full(6 << 20, 7, "u1"), compress=False)
        file.put("small", np.arange(9, dtype="u1"))
    data = bytearray(path.read_bytes())
    data[data.index(bytes([7]) * 1000) + 500] ^= 1
    path.write_bytes(data)
    with pytest.raises(FileRefused), store.open_checked(path, schema):
        pass
    with store.open_checked(path, schema, skim=True) as reader:
        assert reader.array("small").tolist() == list(range(9))
        with pytest.raises(FileRefused):
            reader.array("large")
