"""Faults of the disk under a writer: never a crash, never half a file, the reason in the exit code."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import store_job
from harness import CASES, STORE, Case, check_clean_failure, in_child, run, temporaries

from tpca_cli.errors import StorageError

MANY = 1000


def count_writes(target: Path) -> int:
    """How many times a clean run writes."""
    calls = []
    real = os.pwrite

    def counted(*arguments: Any) -> int:
        calls.append(1)
        return real(*arguments)

    os.pwrite = counted
    try:
        store_job.write(str(target))
    finally:
        os.pwrite = real
    return len(calls)


def failing(which: int, code: int, *, after: bool, short: bool) -> Callable[..., int]:
    """A pwrite that fails the nth time, and (`after`) ever after; `short`: half of it gets through first."""
    real, calls = os.pwrite, 0

    def pwrite(fd: int, data: Any, offset: int) -> int:
        nonlocal calls
        calls += 1
        if short and calls == which:
            return real(fd, data[: max(1, len(data) // 2)], offset)
        if calls == which + short or (after and calls > which):
            raise OSError(code, os.strerror(code))
        return real(fd, data, offset)

    return pwrite


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("after", "short"), [(True, False), (False, False), (True, True)])
def test_10_every_write_may_fail(tmp_path: Path, code: int, force: bool, after: bool, short: bool) -> None:
    total = count_writes(tmp_path / "clean.h5")
    assert 10 < total < MANY
    target = tmp_path / "x.h5"
    if force:
        target.write_bytes(b"the old content")
    before = sorted(os.listdir(tmp_path))

    def attempt(which: int) -> None:
        os.pwrite = failing(which, code, after=after, short=short)
        try:
            store_job.write(str(target), force=force)
        except StorageError as error:
            assert error.errno == code, error
            raise

    for which in range(1, total + 1):
        ended, _, _ = in_child(lambda which=which: attempt(which))
        assert ended == 5, f"write {which} of {total}: {ended}"
        assert sorted(os.listdir(tmp_path)) == before
        if force:
            assert target.read_bytes() == b"the old content"


@pytest.mark.parametrize("call", ["ftruncate", "fsync", "link", "preadv"])
def test_10_every_other_call_may_fail(tmp_path: Path, call: str) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def attempt() -> None:
        setattr(os, call, broken)
        store_job.write(str(tmp_path / "x.h5"))

    ended, _, _ = in_child(attempt)
    assert ended == 5
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("size", ["4k", "12k"])
def test_11_a_real_full_disk(tmp_path: Path, case: Case, size: str) -> None:
    """A small file system of our own, in a private mount namespace: nothing to clean up afterwards."""
    script = (
        f'mount -t tmpfs -o size={size} tpca "{tmp_path}" && "$@"; code=$?; '
        f'echo "left:" $(ls -A "{tmp_path}"); exit $code'
    )
    outcome = run(["unshare", "-m", "sh", "-c", script, "sh", *case.writing(tmp_path / "x.h5")])
    check_clean_failure(outcome, 5)
    assert "No space left" in outcome.err
    assert outcome.out.splitlines()[-1] == "left:"


@pytest.mark.parametrize("limit", [1, 700, 5000, 9000])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_17_a_file_size_limit(tmp_path: Path, case: Case, limit: int) -> None:
    outcome = run(["prlimit", f"--fsize={limit}", *case.writing(tmp_path / "x.h5")])
    check_clean_failure(outcome, 5)
    assert os.strerror(errno.EFBIG) in outcome.err
    assert os.listdir(tmp_path) == []


def test_the_job_itself_is_sound(tmp_path: Path) -> None:
    """Without a fault everything works, twice with the same bytes: the other tests stand on this."""
    for name in ("a.h5", "b.h5"):
        assert run(STORE.writing(tmp_path / name)).code == 0
    first, second = ((tmp_path / name).read_bytes() for name in ("a.h5", "b.h5"))
    assert sha256(first).digest() == sha256(second).digest()
    assert run(STORE.reading(tmp_path / "a.h5")).out == run(STORE.reading(tmp_path / "b.h5")).out
    assert temporaries(tmp_path) == []
