"""A disk that is full, broken, read-only or missing under a command: exit 5, nothing lost, nothing left.

Cases 10 to 20 of the table, through the command line.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import QUICK, TPCA, archived, check_failed, folder, forked, natural, save, scaled, sha
from harness import run, temporaries

from tpca_cli import images


def failing(name: str, which: int, code: int, *, after: bool = True) -> Callable[[], None]:
    """In the child: an os function that fails the nth time, and (`after`) ever after."""
    real, calls = getattr(os, name), 0

    def broken(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == which or (after and calls > which):
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    return lambda: setattr(os, name, broken)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    source, _ = archived(tmp_path, 6, sizes=[(96, 128)])
    save(source / "new.png", natural(48, 64, seed=99))
    return tmp_path


def commands(place: Path) -> dict[str, tuple[object, ...]]:
    first = ("encode", place / "in", "-o", place / "a.h5")
    return {"encode": (*first, "--force", *QUICK), "append": (*first, "--append")}


@pytest.mark.parametrize("call", ["pwrite", "write"])
@pytest.mark.parametrize("name", ["encode", "append"])
def test_10_no_room_at_any_write(place: Path, name: str, call: str) -> None:
    before, listing = sha(place / "a.h5"), sorted(os.listdir(place))
    which, failures = 1, 0
    while True:
        ended = forked(*commands(place)[name], "--workers", "1", before=failing(call, which, errno.ENOSPC))
        if ended.code == 0:
            break
        check_failed(ended, 5)
        assert "No space left" in ended.err
        assert sha(place / "a.h5") == before and sorted(os.listdir(place)) == listing
        failures += 1
        which = which + 1 if scaled(0, 1) else 2 * which
    assert failures


def test_11_a_real_full_disk(place: Path) -> None:
    """A small file system of our own, in a private mount namespace: nothing to clean up afterwards."""
    small = place / "small"
    small.mkdir()
    for size in ("4k", "16k"):
        script = f'mount -t tmpfs -o size={size} tpca "{small}" && "$@"; code=$?; ls -A "{small}"; exit $code'
        command = [*TPCA, "encode", place / "in", "-o", small / "a.h5", "--step", "1", "--force"]
        ended = run(["unshare", "-m", "sh", "-c", script, "sh", *command])
        check_failed(ended, 5)
        assert "No space left" in ended.err and ended.out.split() == []


@pytest.mark.parametrize(("which", "kept"), [(1, True), (2, False)], ids=["file", "folder"])
@pytest.mark.parametrize("name", ["encode", "append"])
def test_12_a_sync_that_fails(place: Path, name: str, which: int, kept: bool) -> None:
    """When only the folder could not be synced the file may be the new one, but the exit still says 5."""
    before = sha(place / "a.h5")
    ended = forked(*commands(place)[name], before=failing("fsync", which, errno.EIO, after=False))
    check_failed(ended, 5)
    assert (sha(place / "a.h5") == before) is kept
    assert temporaries(place) == [] and forked("verify", place / "a.h5").code == 0


def unreadable(victim: Path) -> Callable[[], None]:
    """In the child: every read of one file fails as a bad sector does."""
    opened, read = os.open, os.read
    marked: set[int] = set()

    def open_(path: Any, *arguments: Any, **options: Any) -> int:
        descriptor = opened(path, *arguments, **options)
        if os.fsencode(path).endswith(os.fsencode(victim.name)):
            marked.add(descriptor)
        else:
            marked.discard(descriptor)
        return descriptor

    def read_(descriptor: int, size: int) -> bytes:
        if descriptor in marked and size > 64:  # the first bytes were still readable
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, size)

    def install() -> None:
        os.open, os.read = open_, read_  # type: ignore[assignment]

    return install


@pytest.mark.parametrize("name", ["encode", "append"])
def test_13_one_image_cannot_be_read(place: Path, name: str) -> None:
    spoil = unreadable(place / "in" / "new.png")
    before = sha(place / "a.h5")
    ended = forked(*commands(place)[name], "--on-error", "fail", before=spoil)
    check_failed(ended, 5)
    assert sha(place / "a.h5") == before
    ended = forked(*commands(place)[name], before=spoil)
    assert ended.code == 3 and "new.png" in ended.err and "Input/output" in ended.err
    assert forked("verify", place / "a.h5", "--against", place / "in").code == 3


@pytest.mark.parametrize("command", ["inspect", "verify", "decode", "encode"])
def test_14_the_file_itself_cannot_be_read(place: Path, command: str) -> None:
    out = {"decode": ["-o", place / "out"]}.get(command, [])
    words = commands(place)["append"] if command == "encode" else (command, place / "a.h5", *out)
    before = sha(place / "a.h5")
    check_failed(forked(*words, before=failing("preadv", 2, errno.EIO)), 5)
    assert sha(place / "a.h5") == before


def test_14_a_basis_or_cache_that_cannot_be_read(place: Path) -> None:
    fit = ("fit-basis", place / "in", "-o", place / "b.h5", "--tile", "8", "--method", "rank1")
    assert forked(*fit, "--cache", place / "c.h5", timeout=60).code == 0
    encode = ("encode", place / "in", "-o", place / "x.h5", "--basis", place / "b.h5", "--step", "20")
    check_failed(forked(*encode, before=failing("preadv", 2, errno.EIO)), 5)
    ended = forked(*fit, "--cache", place / "c.h5", "--force", before=failing("preadv", 6, errno.EIO))
    check_failed(ended, 5)
    assert not (place / "x.h5").exists() and forked("verify", place / "b.h5").code == 0


def no_reading() -> None:
    """In the child: whoever decodes an image has begun too early."""

    def read(*arguments: Any, **options: Any) -> None:
        os._exit(98)

    images.read = read  # type: ignore[assignment]


def test_15_an_output_that_cannot_be_written_is_found_first(place: Path) -> None:
    (place / "file").write_text("x")
    for output in (place / "missing" / "a.h5", place / "file" / "a.h5", place / "in"):
        check_failed(forked("encode", place / "in", "-o", output, "--force", before=no_reading), 5)
    outside = place / "closed"
    outside.mkdir(mode=0o555)
    os.chmod(place, 0o755)
    command = ["setpriv", "--reuid=65534", "--clear-groups", *TPCA]
    readable = run([*command, "inspect", place / "a.h5"]).code == 0
    if readable:  # the interpreter itself may be out of reach for another user
        check_failed(run([*command, "encode", place / "in", "-o", outside / "a.h5"]), 5)
    assert os.listdir(outside) == []


def test_16_a_read_only_file_system(place: Path) -> None:
    small = place / "small"
    small.mkdir()
    script = f'mount -t tmpfs tpca "{small}" && mount -o remount,ro "{small}" && "$@"'
    command = [*TPCA, "encode", place / "in", "-o", small / "a.h5", *QUICK]
    ended = run(["unshare", "-m", "sh", "-c", script, "sh", *command])
    check_failed(ended, 5)
    assert "Read-only" in ended.err


@pytest.mark.parametrize("limit", [700, 3000])
def test_17_a_file_size_limit(place: Path, limit: int) -> None:
    before, listing = sha(place / "a.h5"), sorted(os.listdir(place))
    ended = run(["prlimit", f"--fsize={limit}", *TPCA, *map(str, commands(place)["encode"])])
    check_failed(ended, 5)
    assert os.strerror(errno.EFBIG) in ended.err
    assert sha(place / "a.h5") == before and sorted(os.listdir(place)) == listing


def test_18_few_descriptors_suffice(tmp_path: Path) -> None:
    folder(tmp_path / "in", 500, sizes=[(8, 8)])
    few = ["prlimit", "--nofile=32", *TPCA]
    assert run([*few, "encode", tmp_path / "in", "-o", tmp_path / "a.h5", *QUICK, "--force"]).code == 0
    assert run([*few, "decode", tmp_path / "a.h5", "-o", tmp_path / "out"]).code == 0
    assert len(os.listdir(tmp_path / "out")) == 500
    assert run([*few, "verify", tmp_path / "a.h5", "--against", tmp_path / "in"]).code == 0


@pytest.mark.parametrize("command", ["inspect", "verify", "inspect --list"])
def test_19_nobody_reads_the_output(place: Path, command: str) -> None:
    name, *options = command.split()
    words = " ".join([*TPCA, name, str(place / "a.h5"), *options])
    ended = run(["bash", "-c", f"{words} | head -c 0; exit ${{PIPESTATUS[0]}}"])
    assert ended.code in (0, 1, 141) and ended.err == ""
    ended = run(["bash", "-c", f"{words} > /dev/full"])
    check_failed(ended, 5)
    assert len(ended.err.splitlines()) == 1


def test_20_temporaries_are_beside_the_output(place: Path) -> None:
    ended = run([*TPCA, *map(str, commands(place)["encode"])], env={"TMPDIR": "/nonexistent"})
    assert ended.code == 0, ended
