"""Running `tpca` commands that are meant to fail: forked for speed, or as a program where that matters.

Counts are small by default, so that everything takes minutes; TPCA_FAULTS=full takes those that a release is
measured with.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from harness import Outcome, default_signals, inherited, reserved

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from pictures import folder, natural, save

from tpca_cli.archive.reader import Archive
from tpca_cli.cli.main import main

# what the commands import late is here already when a child is forked, or each child would take half a second
for late in (
    "encode.append",
    "decode.compare",
    "decode.run",
    "encode.run",
    "fit.run",
    "decode.repack",
    "decode.verify",
):
    importlib.import_module(f"tpca_cli.{late}")

TPCA = [sys.executable, "-m", "tpca_cli"]
QUICK = ("--step", "20", "--tile", "8", "--method", "rank1")
HANG = 60.0  # seconds after which nothing may still run

__all__ = [
    "HANG",
    "QUICK",
    "TPCA",
    "Ended",
    "archived",
    "check_failed",
    "contents",
    "folder",
    "forked",
    "natural",
    "pixels",
    "save",
    "scaled",
    "sha",
    "tree",
]


def scaled(few: int, full: int) -> int:
    """How often to try."""
    return full if os.environ.get("TPCA_FAULTS") == "full" else few


@dataclass(frozen=True)
class Ended(Outcome):
    """How a forked command ended, and what it took."""

    seconds: float
    peak: int  # resident kilobytes


def forked(
    *arguments: object,
    before: Callable[[], object] | None = None,
    memory: int | None = None,
    timeout: float = 60,
    env: dict[str, str] | None = None,
) -> Ended:
    """`tpca` in a forked child, after `before` has spoiled something there; a hang ends by SIGALRM."""
    began, parents = time.monotonic(), inherited()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                default_signals()
                signal.alarm(int(timeout))
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.stdout = os.fdopen(1, "w", closefd=False)
                sys.stderr = os.fdopen(2, "w", closefd=False)
                os.environ.update(env or {})
                if memory is not None:
                    limit = memory + reserved()
                    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
                if before is not None:
                    before()
                main([str(argument) for argument in arguments])
            except SystemExit as stop:
                code = int(stop.code or 0)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status, usage = os.wait4(child, 0)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace"))
    ended = os.waitstatus_to_exitcode(status)
    return Ended(ended, *texts, seconds=time.monotonic() - began, peak=usage.ru_maxrss - parents)


def check_failed(outcome: Outcome, *codes: int) -> None:
    """A documented exit code, no traceback, and a last line that names the program."""
    assert outcome.code in codes, outcome
    assert "Traceback" not in outcome.err and "internal error" not in outcome.err, outcome.err
    assert outcome.err.strip().splitlines()[-1].startswith("tpca: "), outcome.err


def archived(place: Path, count: int = 12, *options: object, **kinds: Any) -> tuple[Path, Path]:
    """A folder of images and its archive."""
    folder(place / "in", count, **kinds)
    ended = forked("encode", place / "in", "-o", place / "a.h5", *(options or QUICK), timeout=60)
    assert ended.code == 0, ended
    return place / "in", place / "a.h5"


def sha(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def pixels(path: Path) -> dict[bytes, np.ndarray[Any, Any]]:
    """Everything that an archive decodes to, by name."""
    with Archive(path) as archive:
        return {name: archive[position] for position, name in enumerate(archive.names_bytes)}


def contents(path: Path) -> str:
    """All names and pixels of an archive as one digest; FileRefused when any of it is damaged."""
    whole = sha256()
    for name, image in sorted(pixels(path).items()):
        whole.update(repr((name, image.shape, image.dtype.str)).encode())
        whole.update(np.ascontiguousarray(image).tobytes())
    return whole.hexdigest()


def tree(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
