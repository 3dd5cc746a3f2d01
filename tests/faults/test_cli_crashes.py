"""Kills and signals while `tpca` works: the archive is the old one or the new one, and the next run finishes.

Cases 1 to 7 of the table, through the command line.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import QUICK, TPCA, archived, check_failed, contents, folder, forked, natural, save, scaled, sha
from harness import run, start, strace, temporaries

from tpca_cli import store

CALLS = ("pwrite", "fsync", "link", "replace", "unlink", "ftruncate", "write", "fchmod")


def dying(name: str, which: int) -> Callable[[], None]:
    """In the child: be killed at the nth call of an os function, before it happens."""
    real, calls = getattr(os, name), 0

    def wrapped(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == which:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    return lambda: setattr(os, name, wrapped)


def prepared(place: Path, append: bool) -> tuple[Path, tuple[object, ...], str]:
    """An archive, a command that changes it, and the digest of the result."""
    source, archive = archived(place, 4, sizes=[(64, 64)])
    save(source / "new.png", natural(48, 64, seed=99))
    options = ("--append",) if append else ("--force", *QUICK)
    command = ("encode", source, "-o", archive, *options, "--workers", "1")
    shutil.copy2(archive, place / "reference.h5")
    assert forked("encode", source, "-o", place / "reference.h5", *options, "--workers", "1").code == 0
    return archive, command, sha(place / "reference.h5")


@pytest.mark.parametrize("append", [False, True], ids=["encode", "append"])
def test_1_killed_at_any_call_that_writes(tmp_path: Path, append: bool) -> None:
    archive, command, new = prepared(tmp_path, append)
    saved, old = archive.read_bytes(), sha(archive)
    killed = 0
    for name in CALLS:
        which = 1
        while True:
            archive.write_bytes(saved)
            shutil.rmtree(tmp_path / "a.h5.partial", ignore_errors=True)
            ended = forked(*command, before=dying(name, which), timeout=60)
            if ended.code == 0:
                break
            assert ended.code == -signal.SIGKILL
            killed += 1
            assert sha(archive) in (old, new), f"killed at {name} {which}"
            assert forked("verify", archive).code == 0
            # the next run completes, from what the killed one left, to the bytes of an undisturbed one
            assert forked(*command, timeout=60).code == 0
            assert sha(archive) == new, f"killed at {name} {which}"
            which = which + 1 if scaled(0, 1) else 3 * which
    assert killed > 8
    assert not (tmp_path / "a.h5.partial").exists()


@pytest.mark.parametrize("kind", ["encode", "append", "fit-basis"])
def test_2_killed_at_random_times(tmp_path: Path, kind: str) -> None:
    """As a program, with workers: 20 kills each for a release, and 50 of an append to 2,000 images."""
    append = kind == "append"
    count, kills = (scaled(100, 2000), scaled(4, 50)) if append else (200, scaled(3, 20))
    source, target, reference = tmp_path / "in", tmp_path / "a.h5", tmp_path / "reference.h5"
    folder(source, count)
    command = [*TPCA, "fit-basis" if kind == "fit-basis" else "encode", source, "-o"]
    options = {
        "encode": ["--force", *QUICK],
        "append": ["--append"],
        "fit-basis": ["--force", "--tile", "8", "--components", "40", "--cache", tmp_path / "cache.h5"],
    }[kind]
    if append:
        assert run([*command, target, *QUICK], timeout=600).code == 0
        folder(source / "more", 200, seed=count)
        shutil.copy2(target, reference)
    began = time.monotonic()
    assert run([*command, reference, *options], timeout=600).code == 0
    whole = time.monotonic() - began
    (tmp_path / "cache.h5").unlink(missing_ok=True)
    old = sha(target) if append else None
    saved = target.read_bytes() if append else b""
    wanted, rng = sha(reference), random.Random(2)
    for _ in range(kills):
        if append:
            target.write_bytes(saved)
        else:
            target.unlink(missing_ok=True)
        process = start([*command, target, *options])
        time.sleep(rng.uniform(0, 1.1) * whole)
        process.kill()
        process.communicate()
        assert (sha(target) if target.exists() else None) in (old, wanted)
        assert run([*command, target, *options], timeout=600).code == 0
        assert sha(target) == wanted
        assert not (tmp_path / "a.h5.partial").exists()
    assert run([*TPCA, "verify", target]).code == 0


def words_of(path: Path) -> list[str]:
    """Words of a file of the system's; none where it is gone."""
    try:
        return path.read_text().split()
    except OSError:
        return []


def has_worked(process: str) -> bool:
    """Whether a process had a hundredth of a second of the processor: it is past its first steps."""
    fields = words_of(Path(f"/proc/{process}/stat"))
    return bool(fields) and int(fields[13]) + int(fields[14]) > 0


def test_2_the_lock_of_the_dead_is_free_at_once(tmp_path: Path) -> None:
    """Also where worker processes live on for a moment."""
    folder(tmp_path / "in", 40, sizes=[(128, 160)])
    archive = tmp_path / "a.h5"
    process = start([*TPCA, "encode", tmp_path / "in", "-o", archive, *QUICK, "--workers", "2"])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None and not any(map(has_worked, words_of(children))):
        time.sleep(0.002)
    process.kill()
    process.wait()
    with store.lock(archive):
        pass


@pytest.mark.parametrize(
    ("number", "twice"),
    [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGHUP, False)],
)
def test_3_4_5_a_signal_leaves_no_temporary(tmp_path: Path, number: signal.Signals, twice: bool) -> None:
    source, archive = archived(tmp_path, 60, sizes=[(96, 128)])
    before = sha(archive)
    process = start([*TPCA, "encode", source, "-o", archive, "--force", *QUICK, "--workers", "1"])
    deadline = time.monotonic() + 120
    while not any((tmp_path / "a.h5.partial").glob("*/*")) and time.monotonic() < deadline:
        time.sleep(0.01)  # until it has begun to code
    process.send_signal(number)
    if twice:
        process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number and f"stopped by {number.name}" in err
    assert sha(archive) == before and temporaries(tmp_path) == []
    # finished blocks stay for the next run, which takes them over and clears up
    assert run([*TPCA, "encode", source, "-o", archive, "--force", *QUICK]).code == 0
    assert sha(archive) == before and not (tmp_path / "a.h5.partial").exists()


def test_6_a_stale_temporary_is_told_of_and_never_read(tmp_path: Path) -> None:
    source, archive = archived(tmp_path)
    young, aged = tmp_path / ".a.h5.0123abcd.tmp", tmp_path / ".a.h5.4567cdef.tmp"
    for path in (young, aged):
        path.write_bytes(b"half a file")
    os.utime(aged, (0, 0))
    for command in (["decode", archive, "-o", tmp_path / "out"], ["inspect", archive], ["verify", archive]):
        assert forked(*command).code == 0
    ended = forked("encode", source, "-o", archive, "--force", *QUICK)
    assert ended.code == 0 and young.name in ended.err and aged.name in ended.err
    assert young.exists() and not aged.exists()


def test_stale_partial_work_is_never_trusted(tmp_path: Path) -> None:
    """Blocks kept by a killed run count only if the sources and the bytes are still the same."""
    source, archive = archived(tmp_path, 12, sizes=[(96, 128)])
    command = ("encode", source, "-o", archive, "--force", *QUICK, "--workers", "1")
    clean = sha(archive)
    for spoil in ("source", "block", "cut", "junk"):
        assert forked(*command, before=dying("replace", 2)).code == -signal.SIGKILL
        kept = sorted(path for path in (tmp_path / "a.h5.partial").rglob("*") if path.is_file())
        assert kept
        saved = (source / "image_0000.png").read_bytes()
        if spoil == "source":  # same size, same time, other pixels: only the digest can tell
            found = os.stat(source / "image_0000.png")
            data = bytearray(saved)
            save(tmp_path / "other.png", natural(96, 128, seed=1234))
            data = bytearray((tmp_path / "other.png").read_bytes()[: len(saved)].ljust(len(saved), b"\0"))
            (source / "image_0000.png").write_bytes(data)
            os.utime(source / "image_0000.png", ns=(found.st_atime_ns, found.st_mtime_ns))
        for path in kept:
            data = bytearray(path.read_bytes())
            if spoil == "block":
                data[len(data) // 2] ^= 1
            path.write_bytes(data[: len(data) // 2] if spoil == "cut" else b"" if spoil == "junk" else data)
        ended = forked(*command)
        if spoil == "source":
            assert ended.code in (0, 3) and sha(archive) != clean
            (source / "image_0000.png").write_bytes(saved)
            os.utime(source / "image_0000.png", ns=(found.st_atime_ns, found.st_mtime_ns))
            assert forked(*command).code == 0
        assert sha(archive) == clean, spoil


def test_7_content_reaches_the_disk_before_its_name(tmp_path: Path) -> None:
    source, archive = archived(tmp_path)
    save(source / "new.png", natural(24, 32, seed=99))
    log = tmp_path / "trace"
    calls = "trace=pwrite64,fsync,rename,renameat,renameat2"
    ended = strace(calls, command=[*TPCA, "encode", source, "-o", archive, "--append"], log=log)
    assert ended.code == 0, ended
    lines = [line.split(" ", 1)[1].strip() for line in log.read_text().splitlines()]
    names = [line.split("(")[0] for line in lines if not line.startswith("+++")]
    commit = [name for name in names if name in ("fsync", "pwrite64") or 'a.h5"' in lines[names.index(name)]]
    assert (
        commit[-1] == "fsync"
        and "pwrite64" not in names[len(names) - 1 - names[::-1].index("pwrite64") + 1 :]
    )
    tail = names[len(names) - names[::-1].index("pwrite64") :]
    assert [name[:6] for name in tail if name[:6] in ("fsync", "rename")] == ["fsync", "rename", "fsync"], (
        tail
    )
    assert contents(archive)
    check_failed(forked("verify", tmp_path / "none.h5"), 2)
