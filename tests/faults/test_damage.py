"""Files that were damaged, cut, or never were ours: refused, or read exactly as they were written."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
from pathlib import Path

import pytest
import store_job
from harness import CASES, STORE, Case, check_clean_failure, in_child, result, run

from tpca_cli.errors import FileRefused

SEEDS = 1000
BATCH = 50


def readings(path: Path, contents: list[bytes]) -> list[str]:
    """What reading gives for each content: a fingerprint or "refused"; any other ending is an error."""
    outcomes = []
    for content in contents:
        path.write_bytes(content)
        try:
            outcomes.append(store_job.fingerprint(str(path)))
        except FileRefused:
            outcomes.append("refused")
    return outcomes


def check_each(path: Path, contents: list[bytes], allowed: set[str]) -> None:
    """All contents read as allowed; in children, so that a crash of HDF5 is seen and placed."""

    def batch(part: list[bytes]) -> None:
        outcomes = readings(path, part)
        assert set(outcomes) <= allowed, outcomes

    for start in range(0, len(contents), BATCH):
        ended, _, _ = in_child(lambda start=start: batch(contents[start : start + BATCH]))
        assert ended == 0, f"cases {start} to {start + BATCH}: {ended}"


def test_25_truncated_anywhere(tmp_path: Path) -> None:
    whole = result(STORE)
    points = sorted({round(n * (len(whole) - 1) / 199) for n in range(200)})
    check_each(tmp_path / "x.h5", [whole[:point] for point in points], {"refused"})


def test_25_something_appended(tmp_path: Path) -> None:
    check_each(tmp_path / "x.h5", [result(STORE) + tail for tail in (b"\0", b"x" * 5000)], {"refused"})


def test_26_one_bit_flipped_anywhere(tmp_path: Path) -> None:
    whole = result(STORE)
    chance = random.Random(26)
    flipped = []
    for _ in range(SEEDS):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        flipped.append(bytes(content))
    path = tmp_path / "x.h5"
    (clean,) = readings(path, [whole])
    check_each(path, flipped, {"refused", clean})


def test_26_bytes_outside_bulk_data(tmp_path: Path) -> None:
    """The attributes, headers and small datasets of a file with hardly any bulk: every third byte."""
    whole = result(STORE, "--blocks", "0")
    changed = [whole[:at] + bytes([whole[at] ^ 0x81]) + whole[at + 1 :] for at in range(0, len(whole), 3)]
    path = tmp_path / "x.h5"
    (clean,) = readings(path, [whole])
    check_each(path, changed, {"refused", clean})


def test_26_bursts_and_swaps(tmp_path: Path) -> None:
    whole = result(STORE)
    chance = random.Random(27)
    changed = []
    for turn in range(300):
        content = bytearray(whole)
        size = chance.choice([2, 16, 512])
        at = chance.randrange(len(content) - size)
        if turn % 3 == 0:
            content[at : at + size] = bytes(size)
        elif turn % 3 == 1:
            content[at : at + size] = chance.randbytes(size)
        else:
            other = chance.randrange(len(content) - size)
            content[at : at + size] = whole[other : other + size]
        changed.append(bytes(content))
    path = tmp_path / "x.h5"
    (clean,) = readings(path, [whole])
    check_each(path, changed, {"refused", clean})


def foreign(folder: Path) -> dict[str, Path]:
    """Things that are no tpca file."""
    things = {name: folder / name for name in ("empty", "text", "png", "folder", "fifo", "socket", "hdf5")}
    things["empty"].write_bytes(b"")
    things["text"].write_text("images, many of them\n" * 50)
    things["png"].write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    things["folder"].mkdir()
    os.mkfifo(things["fifo"])
    socket.socket(socket.AF_UNIX).bind(os.path.relpath(things["socket"]))
    things["hdf5"].write_bytes(b"\x89HDF\r\n\x1a\n")
    return {**things, "zeros": Path("/dev/zero"), "null": Path("/dev/null"), "terminal": Path("/dev/tty")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_30_not_a_tpca_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    monkeypatch.chdir(tmp_path)
    for path in foreign(tmp_path).values():
        outcome = run(case.reading(path), timeout=60)
        check_clean_failure(outcome, 4)
        assert str(path) in outcome.err


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_30_missing(tmp_path: Path, case: Case) -> None:
    check_clean_failure(run(case.reading(tmp_path / "none.h5")), 5)


NATIVE = """
import os, signal, sys
import h5py, numpy
file = h5py.File(sys.argv[1], "w", libver="latest")
data = file.create_dataset("payload", (0,), maxshape=(None,), chunks=(4096,), dtype="u1")
for turn in range(20):
    data.resize((4096 * (turn + 1),))
    data[4096 * turn :] = numpy.full(4096, turn, "u1")
    file.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_33_left_by_a_killed_writer(tmp_path: Path, case: Case) -> None:
    path = tmp_path / "x.h5"
    assert run([sys.executable, "-c", NATIVE, path]).code == -signal.SIGKILL
    outcome = run(case.reading(path))
    check_clean_failure(outcome, 4)
    assert "incomplete" in outcome.err


HELD = """
import sys, time
import h5py
file = h5py.File(sys.argv[1], "r+")
print("open", flush=True)
time.sleep(60)
"""


def test_33_held_by_another_writer(tmp_path: Path) -> None:
    from harness import start

    path = tmp_path / "x.h5"
    path.write_bytes(result(STORE))
    process = start([sys.executable, "-c", HELD, path])
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        outcome = run(STORE.reading(path))
    finally:
        process.kill()
        process.communicate()
    check_clean_failure(outcome, 6)
    assert "in use" in outcome.err
