"""Kills, errors and order at single system calls. Needs strace: without it these tests fail and say so."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
import store_job
from harness import CASES, STORE, Case, check_clean_failure, in_child, result, strace, temporaries

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
old_or_not = pytest.mark.parametrize("old", [False, True], ids=["fresh", "replacing"])


def content(path: Path) -> bytes | None:
    """The bytes of a file, None without the file."""
    return path.read_bytes() if path.exists() else None


def prepare(case: Case, folder: Path, old: bool) -> tuple[Path, bytes | None, bytes, list[str]]:
    """A target with or without an old file; its bytes before, the new ones, and the options to write."""
    target = folder / "x.h5"
    if old:
        target.write_bytes(result(case, *case.other))
    return target, content(target), result(case), ["--force"] if old else []


@old_or_not
def test_1_killed_at_every_write(tmp_path: Path, old: bool) -> None:
    """All of them, by a kill from inside, which is quicker than strace and no less sudden."""
    target, before, new, options = prepare(STORE, tmp_path, old)
    real, calls = os.pwrite, 0

    def attempt(which: int) -> None:
        nonlocal calls

        def pwrite(fd: int, data: bytes, offset: int) -> int:
            nonlocal calls
            calls += 1
            if calls == which:
                real(fd, data[: len(data) // 2], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(fd, data, offset)

        os.pwrite = pwrite
        store_job.write(str(target), force=bool(options))

    for which in range(1, 300):
        ended, _, _ = in_child(lambda which=which: attempt(which))
        if ended != -signal.SIGKILL:
            break
        assert content(target) == before
    assert (ended, which > 10) == (0, True)
    assert content(target) == new


@each_case
@pytest.mark.parametrize(
    ("old", "call"),
    [
        (False, "pwrite64"),
        (False, "fsync"),
        (False, "linkat"),
        (False, "unlinkat"),
        (True, "pwrite64"),
        (True, "fsync"),
        (True, "renameat"),
    ],
)
def test_1_killed_at_every_call_of_the_commit(tmp_path: Path, case: Case, old: bool, call: str) -> None:
    target, before, new, options = prepare(case, tmp_path, old)
    skip = 7 if call == "pwrite64" else 1
    for which in range(1, 300, skip):
        outcome = strace(
            f"trace={call}",
            f"inject={call}:signal=SIGKILL:when={which}",
            command=case.writing(target, *options),
        )
        assert outcome.code in (0, -signal.SIGKILL, 128 + signal.SIGKILL), outcome
        assert content(target) in (before, new)
        if outcome.code == 0:
            break
        if content(target) == new and not old:
            target.unlink()
    assert (outcome.code, which > 1) == (0, True), "no kill, or nothing but kills"
    assert content(target) == new


@each_case
@old_or_not
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda n: n.name)
def test_3_a_signal_during_the_sync(tmp_path: Path, case: Case, old: bool, number: signal.Signals) -> None:
    target, before, _, options = prepare(case, tmp_path, old)
    outcome = strace(
        "trace=fsync", f"inject=fsync:signal={number.name}:when=1", command=case.writing(target, *options)
    )
    check_clean_failure(outcome, 128 + number)
    assert (content(target), temporaries(tmp_path)) == (before, [])


@each_case
@old_or_not
def test_7_content_reaches_the_disk_before_its_name(tmp_path: Path, case: Case, old: bool) -> None:
    target, _, new, options = prepare(case, tmp_path, old)
    log = tmp_path / "log"
    calls = "openat,pwrite64,write,ftruncate,fchmod,fsync,fdatasync,link,linkat,rename,renameat,renameat2"
    outcome = strace(f"trace={calls}", command=case.writing(target, *options), log=log)
    assert (outcome.code, content(target)) == (0, new)
    lines = [re.sub(r"^\d+\s+", "", line) for line in log.read_text().splitlines()]
    (opened,) = (n for n, line in enumerate(lines) if ".x.h5." in line and "O_CREAT" in line)
    fd = lines[opened].rsplit("=", 1)[1].strip()
    folder = lines[opened].split("(")[1].split(",")[0]
    written = [
        n for n, line in enumerate(lines) if n > opened and re.match(rf"(p?write\w*|ftruncate)\({fd},", line)
    ]
    synced = [n for n, line in enumerate(lines) if line.startswith(f"fsync({fd})") and n > opened]
    named = [n for n, line in enumerate(lines) if re.match(r"(link|rename)", line) and '"x.h5"' in line]
    settled = [n for n, line in enumerate(lines) if line.startswith(f"fsync({folder})")]
    assert [len(synced), len(named), len(settled)] == [1, 1, 1], lines
    assert max(written) < synced[0] < named[0] < settled[0], lines


@each_case
@old_or_not
@pytest.mark.parametrize("which", [1, 2])
def test_12_a_sync_that_fails(tmp_path: Path, case: Case, old: bool, which: int) -> None:
    target, before, new, options = prepare(case, tmp_path, old)
    outcome = strace(
        "trace=fsync", f"inject=fsync:error=EIO:when={which}", command=case.writing(target, *options)
    )
    check_clean_failure(outcome, 5)
    # the second one is that of the folder: the file may have its name by then, and must be whole
    assert content(target) == (before if which == 1 else new)
    assert temporaries(tmp_path) == []


@each_case
@pytest.mark.parametrize("which", [1, 3, 6])
def test_12_a_write_that_fails(tmp_path: Path, case: Case, which: int) -> None:
    outcome = strace(
        "trace=pwrite64",
        f"inject=pwrite64:error=EIO:when={which}+",
        command=case.writing(tmp_path / "x.h5"),
    )
    check_clean_failure(outcome, 5)
    assert os.listdir(tmp_path) == []
