"""Signals and kills during a write: the old file or the new one, whole, and no litter but after a kill."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import store_job
from harness import CASES, HERE, STORE, Case, result, run, start, temporaries

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def content(path: Path) -> bytes | None:
    """The bytes of a file, None without the file."""
    return path.read_bytes() if path.exists() else None


def begun(case: Case, target: Path, *options: str) -> subprocess.Popen[str]:
    """A slow write that has really begun."""
    process = start(case.dragging(target, *options))
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "writing"
    return process


@each_case
def test_2_killed_at_random_times(tmp_path: Path, case: Case) -> None:
    target = tmp_path / "x.h5"
    began = time.monotonic()
    assert run(case.writing(target)).code == 0
    duration = time.monotonic() - began
    target.unlink()
    chance = random.Random(7)
    for _ in range(20):
        process = start(case.writing(target, "--force"))
        time.sleep(chance.uniform(0.3, 1.0) * duration)
        process.kill()
        process.communicate()
        assert content(target) in (None, result(case))
    assert run(case.writing(target, "--force")).code == 0
    assert content(target) == result(case)


@each_case
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda n: n.name)
def test_3_4_5_one_signal(tmp_path: Path, case: Case, number: signal.Signals) -> None:
    target = tmp_path / "x.h5"
    target.write_bytes(result(case))
    process = begun(case, target, "--force")
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert (content(target), temporaries(tmp_path)) == (result(case), [])


@each_case
def test_4_a_second_signal_does_not_break_the_cleanup(tmp_path: Path, case: Case) -> None:
    chance = random.Random(4)
    for _ in range(5):
        process = begun(case, tmp_path / "x.h5")
        process.send_signal(signal.SIGINT)
        time.sleep(chance.uniform(0, 0.003))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        assert process.returncode == 130
        assert os.listdir(tmp_path) == []


STORM = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[2])
import store_job
from tpca_cli.errors import Interrupted

def stop(number, frame):
    raise Interrupted(number)

signal.signal(signal.SIGTERM, stop)
ended = {"whole": 0, "stopped": 0}
for turn in range(60):
    wait = 0.0005 * (turn % 20)
    timer = threading.Timer(wait, os.kill, (os.getpid(), signal.SIGTERM))
    try:
        timer.start()
        store_job.write(sys.argv[1], force=True, blocks=40)
        timer.join()
        time.sleep(0.01)
        ended["whole"] += 1
    except Interrupted:
        ended["stopped"] += 1
        timer.join()
print(ended["stopped"], file=sys.stderr)
"""


def test_3_signals_never_reach_into_hdf5(tmp_path: Path) -> None:
    """Sixty signals at all moments of a write in one process: each ends as an exception, none as a crash."""
    target = tmp_path / "x.h5"
    outcome = run([sys.executable, "-c", STORM, target, HERE])
    assert outcome.code == 0, outcome.err[-2000:]
    # what is raised in a callback of a weak reference is printed; `tpca` raises it again (below)
    assert int(outcome.err.splitlines()[-1]) >= 30
    assert temporaries(tmp_path) == []


FORGOTTEN = """
import os, signal, sys, time, weakref
from tpca_cli.cli import main
from tpca_cli.errors import Interrupted

class Thing:
    pass

main._install_signal_handlers()
thing = Thing()
watch = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
try:
    del thing
    end = time.monotonic() + 60
    while time.monotonic() < end:
        pass
except Interrupted as error:
    print(error.exit_code)
"""


def test_3_a_signal_that_python_forgets_is_raised_again() -> None:
    outcome = run([sys.executable, "-c", FORGOTTEN])
    assert (outcome.code, outcome.out.strip(), outcome.err) == (0, "143", "")


@each_case
def test_6_a_stale_temporary_is_no_obstacle_and_no_input(tmp_path: Path, case: Case) -> None:
    target = tmp_path / "x.h5"
    stale = tmp_path / ".x.h5.abc.tmp"
    stale.write_bytes(b"half a file")
    assert run(case.writing(target)).code == 0
    assert content(target) == result(case)
    assert run(case.reading(stale)).code == 4
    assert stale.read_bytes() == b"half a file"


def test_6_a_kill_leaves_a_temporary_that_the_store_knows(tmp_path: Path) -> None:
    from tpca_cli import store

    target = tmp_path / "x.h5"
    process = begun(STORE, target)
    assert store.stale_temporaries(target) == [], "its writer is alive"
    assert len(temporaries(tmp_path)) == 1
    process.kill()
    process.communicate()
    (left,) = store.stale_temporaries(target)
    assert store.remove_stale(target) == ([], [left]), "too young to be deleted"
    os.utime(left, (1, 1))
    assert store.remove_stale(target) == ([left], [])
    assert temporaries(tmp_path) == []


def test_two_appends_at_once_lose_nothing(tmp_path: Path) -> None:
    target = tmp_path / "x.h5"
    target.write_bytes(result(STORE))
    processes = [start([*STORE.write[:2], "append", target]) for _ in range(4)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    for process in processes:
        process.communicate()
    wanted = tmp_path / "wanted.h5"
    wanted.write_bytes(result(STORE, "--blocks", "8"))
    assert store_job.fingerprint(str(target)) == store_job.fingerprint(str(wanted))


def test_two_writers_of_one_output(tmp_path: Path) -> None:
    """One wins whole, the other is told; by the commit alone, without a lock."""
    target = tmp_path / "x.h5"
    for _ in range(5):
        first, second = (start([*STORE.writing(target), "--pause", "0.02"]) for _ in range(2))
        codes = sorted(process.wait(timeout=120) for process in (first, second))
        for process in (first, second):
            process.communicate()
        assert codes == [0, 6]
        assert content(target) == result(STORE)
        assert temporaries(tmp_path) == []
        target.unlink()
