"""Running things that are meant to fail: subprocesses, forked children, strace, and what must hold after.

A `Case` is a program that writes a file and one that reads it back; every fault test of the write path runs
over all `CASES`.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tpca_cli.errors import TpcaError

HERE = Path(__file__).resolve().parent
JOB = [sys.executable, str(HERE / "store_job.py")]
TEMPORARY = re.compile(r"\..*\.tmp")


@dataclass(frozen=True)
class Case:
    """A command that writes (`{target}` and then `--force` are filled in) and one that reads."""

    name: str
    write: tuple[str, ...]
    read: tuple[str, ...]
    slow: tuple[str, ...]  # the same, taking about a second and saying "writing" when it has begun
    other: tuple[str, ...]  # options with which another file is written

    def writing(self, target: Path, *options: str) -> list[str]:
        return [*(part.format(target=target) for part in self.write), *options]

    def dragging(self, target: Path, *options: str) -> list[str]:
        return [*(part.format(target=target) for part in self.slow), *options]

    def reading(self, target: Path) -> list[str]:
        return [part.format(target=target) for part in self.read]


STORE = Case(
    "store",
    (*JOB, "write", "{target}"),
    (*JOB, "read", "{target}"),
    (*JOB, "write", "{target}", "--blocks", "100", "--pause", "0.01"),
    ("--blocks", "2"),
)
CASES = [STORE]


@dataclass(frozen=True)
class Outcome:
    """How a process ended."""

    code: int  # negative: by a signal
    out: str
    err: str


def default_signals() -> None:
    """In the child: a job of a non-interactive shell would have SIGINT ignored from birth."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)


def run(command: Sequence[str | Path], *, timeout: float = 60, env: dict[str, str] | None = None) -> Outcome:
    """Run to the end; a hang is a failure."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
        preexec_fn=default_signals,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def start(command: Sequence[str | Path]) -> subprocess.Popen[str]:
    """Start and go on."""
    return subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )


def strace(*options: str, command: Sequence[str | Path], log: Path | None = None) -> Outcome:
    """Run under strace with these -e expressions."""
    tool = shutil.which("strace")
    assert tool is not None, "this test needs strace: install it with your package manager"
    expressions = [word for option in options for word in ("-e", option)]
    return run([tool, "-f", "-qq", "-o", log or "/dev/null", *expressions, *command])


@cache
def result(case: Case, *options: str) -> bytes:
    """The file that an undisturbed run writes: always the same bytes, and they read back."""
    with TemporaryDirectory() as folder:
        target = Path(folder) / "x.h5"
        assert run(case.writing(target, *options)).code == 0
        assert run(case.reading(target)).code == 0
        return target.read_bytes()


def temporaries(folder: Path) -> list[str]:
    """Names of temporaries left in a folder."""
    return sorted(entry for entry in os.listdir(folder) if TEMPORARY.fullmatch(entry))


def check_clean_failure(outcome: Outcome, code: int) -> None:
    """The documented exit code, one line, no traceback."""
    assert outcome.code == code, outcome
    assert "Traceback" not in outcome.err, outcome.err
    assert len(outcome.err.strip().splitlines()) == 1, outcome.err


def reserved() -> int:
    """Addresses that this process has already, most of which it never touches."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _resident() -> int:
    """Kilobytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


_AT_START = _resident()


def inherited() -> int:
    """Kilobytes that a forked child has only because of earlier tests in this process."""
    return max(_resident() - _AT_START, 0)


def in_child(
    work: Callable[[], object], *, memory: int | None = None, timeout: float = 30
) -> tuple[int, float, int]:
    """Run in a forked child: (exit code or minus the signal, seconds, peak resident kilobytes).

    Exit code 0 for a normal return, the error's own for a TpcaError, 99 for any other exception.
    """
    began, before = time.monotonic(), inherited()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            signal.alarm(int(timeout))
            if memory is not None:
                limit = memory + reserved()
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            work()
            code = 0
        except TpcaError as error:
            code = error.exit_code
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - began, usage.ru_maxrss - before
