"""Memory that cannot be had, at any point of any command: exit 1 and a sentence, and nothing half-written.

Two ways to run out of it: a limit on addresses that grows step by step, and a hook that fails the Nth large
array. Case 9 of the table.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import QUICK, Ended, archived, check_failed, folder, forked, scaled, sha
from threadpoolctl import threadpool_limits

from tpca_cli.codec.kernel_job import prepare

LARGE = 1 << 14  # bytes of an array that the hook counts; test images are small
MAKERS = ("empty", "zeros", "full", "concatenate", "stack", "ascontiguousarray", "array", "pad", "empty_like")
COMMANDS = ("encode", "append", "decode", "verify", "repack", "fit-basis")
# without those that fit: OpenBLAS ends the process, or waits for ever, where it finds no memory
LIMITED = ("append", "decode", "verify", "inspect", "repack")


@pytest.fixture(autouse=True)
def one_thread_of_blas() -> Iterator[None]:
    """OpenBLAS interrupts a process that has no addresses for its threads."""
    with threadpool_limits(1, "blas"):
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # the compiler of the kernel and the loader of libraries end the process where they find no memory
    prepare()
    importlib.import_module("scipy.linalg")
    root = tmp_path_factory.mktemp("memory")
    archived(root, 6, *QUICK, sizes=[(96, 128)])
    folder(root / "more", 8, sizes=[(96, 128)])
    return root


def words(command: str, place: Path, out: Path) -> tuple[object, ...]:
    """A run of a command that writes to `out`, if it writes."""
    archive, plain = place / "a.h5", ("--workers", "1")
    return {
        "encode": ("encode", place / "in", "-o", out, *QUICK, *plain),
        "append": ("encode", place / "more", "-o", out, "--append", *plain),
        "decode": ("decode", archive, "-o", out, *plain),
        "verify": ("verify", archive, "--decode", *plain),
        "inspect": ("inspect", archive),
        "repack": ("repack", archive, "-o", out, *plain),
        "fit-basis": ("fit-basis", place / "in", "-o", out, "--tile", "8", "--method", "rank1", *plain),
    }[command]


def attempt(command: str, place: Path, out: Path, **limits: Any) -> Ended:
    """One run; whatever happens, an archive that was there is whole, and no other is."""
    before = None
    if command == "append":
        out.write_bytes((place / "a.h5").read_bytes())
        before = sha(out)
    ended = forked(*words(command, place, out), timeout=120, **limits)
    if ended.code:
        check_failed(ended, 1)
        assert "memory" in ended.err, ended
        if command == "append":
            assert sha(out) == before
        elif command != "decode":  # which leaves the images that it has finished
            assert not out.exists(), list(out.parent.iterdir())
        assert not [path for path in out.parent.iterdir() if path.name.endswith(".tmp")]
    return ended


def failing(nth: int) -> Callable[[], None]:
    """Makes the Nth large array of the process, and every later one, fail."""

    def spoil() -> None:
        count = 0

        def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
            def make(*arguments: Any, **options: Any) -> Any:
                nonlocal count
                made = real(*arguments, **options)
                if getattr(made, "nbytes", 0) >= LARGE:
                    count += 1
                    if count >= nth:
                        raise MemoryError(f"array {count}")
                return made

            return make

        for name in MAKERS:
            setattr(np, name, wrapped(getattr(np, name)))

    return spoil


@pytest.mark.parametrize("command", COMMANDS)
def test_09_the_nth_large_array(place: Path, tmp_path: Path, command: str) -> None:
    failed, nth = 0, 1
    while nth < 3000:
        out = tmp_path / f"{nth}"
        ended = attempt(command, place, out, before=failing(nth))
        if ended.code == 0:
            break
        failed += 1
        nth += max(1, nth // scaled(3, 12))
    assert ended.code == 0
    assert failed >= 4


@pytest.mark.parametrize("command", LIMITED)
def test_09_a_limit_on_memory(place: Path, tmp_path: Path, command: str) -> None:
    """Beginning where nothing is possible, until the command succeeds."""
    megabytes = 1
    while megabytes < 2048:
        ended = attempt(command, place, tmp_path / f"{megabytes}", memory=megabytes << 20)
        if ended.code == 0:
            break
        megabytes += max(1, megabytes // scaled(3, 20))
    assert ended.code == 0
