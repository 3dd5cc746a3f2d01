"""Laws of the parts below the store: the file objects of HDF5, deferred signals, the checked reader."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli import store
from tpca_cli.errors import FileRefused, StorageError
from tpca_cli.store import Field, Schema
from tpca_cli.store.hdf5 import OutputFile
from tpca_cli.store.signals import DeferredSignals

SCHEMA = Schema("tpca-guard", 1, {"small": Field("i4", (None,)), "bulk": Field("u1", (None, 8), bulk=True)})
ROWS = np.random.default_rng(5).integers(0, 256, (1000, 8), dtype="u1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.h5"
    with store.create(path, SCHEMA) as file:
        file.put("small", np.arange(10, dtype="i4"))
        file.stream("bulk", "u1", (8,), 100).append(ROWS)
    return path


@settings(max_examples=50, deadline=None)
@given(
    writes=st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=20)), max_size=12),
    broken=st.integers(0, 12),
)
def test_an_output_file_reads_back_what_was_written_whether_or_not_it_failed(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, bytes]], broken: int
) -> None:
    fd = os.open(tmp_path_factory.mktemp("output") / "x", os.O_RDWR | os.O_CREAT)
    file, model = OutputFile(fd), bytearray()
    with pytest.MonkeyPatch.context() as patch:
        for number, (offset, data) in enumerate(writes):
            if number == broken:

                def refuse(*_: Any) -> int:
                    raise OSError(errno.ENOSPC, "full")

                patch.setattr(os, "pwrite", refuse)
            model.extend(bytes(max(0, offset + len(data) - len(model))))
            model[offset : offset + len(data)] = data
            file.seek(offset)
            assert file.write(data) == len(data)
        assert file.seek(0, os.SEEK_END) == len(model)
        file.seek(0)
        assert file.read() == model
        assert (getattr(file.failure, "errno", None) == errno.ENOSPC) == (broken < len(writes))
    os.close(fd)


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """A handler of SIGUSR1 that notes and raises."""
    seen: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise InterruptedError

    before = signal.signal(signal.SIGUSR1, handler)
    yield seen
    signal.signal(signal.SIGUSR1, before)


def test_deferred_signals_are_handled_at_the_end_of_the_outermost_block(handled: list[int]) -> None:
    with pytest.raises(InterruptedError), DeferredSignals():
        with DeferredSignals():
            os.kill(os.getpid(), signal.SIGUSR1)
        assert handled == []
    assert handled == [signal.SIGUSR1]
    with pytest.raises(InterruptedError):
        os.kill(os.getpid(), signal.SIGUSR1)


def test_a_handler_replaced_meanwhile_stays_replaced(handled: list[int]) -> None:
    with DeferredSignals():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN


def flip(path: Path, wanted: bytes) -> None:
    """Flip one bit of the only place where these bytes are."""
    content = bytearray(path.read_bytes())
    assert content.count(wanted) == 1
    content[content.index(wanted) + 3] ^= 4
    path.write_bytes(content)


def test_a_damaged_chunk_refuses_its_rows_and_no_others(path: Path) -> None:
    flip(path, ROWS[350:360].tobytes())
    with store.open_checked(path, SCHEMA) as reader:
        assert np.array_equal(reader.rows("bulk", 0, 300), ROWS[:300])
        assert np.array_equal(reader.rows("bulk", 400, 1000), ROWS[400:])
        with pytest.raises(FileRefused, match="damaged"):
            reader.rows("bulk", 399, 401)
        assert np.array_equal(reader.rows("bulk", 0, 300), ROWS[:300])
        raw = reader.raw_rows("bulk", 300, 400)
        assert (raw != ROWS[300:400]).sum() == 1


def test_damaged_small_data_refuse_the_file(path: Path) -> None:
    content = path.read_bytes()
    title = content.index(b"tpca-guard")
    path.write_bytes(content[:title] + b"T" + content[title + 1 :])
    with pytest.raises(FileRefused), store.open_checked(path, SCHEMA):
        pass


def test_plain_h5py_reads_the_chunks_and_their_checksums(path: Path) -> None:
    with h5py.File(path) as file:
        assert file["bulk"].fletcher32
        assert np.array_equal(file["bulk"][:], ROWS)


def test_raw_rows_are_the_rows(path: Path) -> None:
    with store.open_checked(path, SCHEMA) as reader:
        for start, stop in ((0, 0), (0, 1000), (99, 101), (250, 777), (1000, 1000)):
            assert np.array_equal(reader.raw_rows("bulk", start, stop), ROWS[start:stop])


def test_a_disk_that_cannot_be_read_is_not_a_damaged_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with store.open_checked(path, SCHEMA) as reader, monkeypatch.context() as patch:
        patch.setattr(os, "preadv", refuse)
        with pytest.raises(StorageError) as caught:
            reader.rows("bulk", 0, 1000)
        assert caught.value.errno == errno.EIO
        with pytest.raises(StorageError), store.open_checked(path, SCHEMA):
            pass


def test_threads_read_one_file(path: Path) -> None:
    wrong: list[int] = []
    with store.open_checked(path, SCHEMA) as reader:

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


def test_a_reader_sees_the_old_file_to_its_end(path: Path) -> None:
    with store.open_checked(path, SCHEMA) as reader:
        with store.create(path, SCHEMA, force=True) as file:
            file.put("small", np.arange(3, dtype="i4"))
            file.stream("bulk", "u1", (8,), 100)
        assert np.array_equal(reader.array("bulk"), ROWS)
        assert len(reader.array("small")) == 10
    with store.open_checked(path, SCHEMA) as reader:
        assert reader.shape("bulk") == (0, 8)
