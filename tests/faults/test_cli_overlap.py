"""Several runs at once, and sources that change under a run: one wins whole, nobody's images are lost.

Cases 8, 9 and 21 to 24 of the table.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from commands import QUICK, TPCA, archived, check_failed, folder, forked, natural, pixels, save, scaled, sha
from harness import run, start, temporaries


@pytest.mark.parametrize("command", ["fit-basis", "encode"])
def test_8_a_worker_that_dies_ends_the_run(tmp_path: Path, command: str) -> None:
    """As the system does when memory is short: the parent says so, and does not wait for ever."""
    folder(tmp_path / "in", 2000, sizes=[(32, 32)])
    options = ["--size", "32x32", "--method", "rank1"] if command == "fit-basis" else QUICK
    process = start([*TPCA, command, tmp_path / "in", "-o", tmp_path / "b.h5", *options, "--workers", "2"])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    found: list[str] = []
    while not found and process.poll() is None:
        found = children.read_text().split() if children.exists() else []
    assert found, process.communicate()
    os.kill(int(found[0]), signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and "worker" in err and "Traceback" not in err, err
    assert not (tmp_path / "b.h5").exists() and temporaries(tmp_path) == []


def test_9_too_little_memory_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    folder(tmp_path / "in", 40, sizes=[(128, 128)])
    limited = ["prlimit", "--as=600000000", *TPCA]
    fit = ["fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", "--size", "96x96", "--method", "operator"]
    ended = run([*limited, *fit, "--all", "--solver", "exact", "--memory", "64G"], timeout=120)
    check_failed(ended, 1)
    assert "--memory" in ended.err and not (tmp_path / "b.h5").exists() and temporaries(tmp_path) == []


def test_21_two_encodes_to_one_output(tmp_path: Path) -> None:
    folder(tmp_path / "in", 20)
    archive = tmp_path / "a.h5"
    for attempt in range(scaled(3, 20)):
        archive.unlink(missing_ok=True)
        both = [start([*TPCA, "encode", tmp_path / "in", "-o", archive, *QUICK]) for _ in range(2)]
        ended = sorted((process.communicate()[1], process.returncode) for process in both)
        codes = sorted(code for _, code in ended)
        # both may succeed in no way: the second finds the lock held, or the file made
        assert codes == [0, 6], (attempt, ended)
        assert forked("verify", archive, "--against", tmp_path / "in").code == 0
        assert temporaries(tmp_path) == []


def test_21_two_appends_at_once_lose_nothing(tmp_path: Path) -> None:
    _, archive = archived(tmp_path, 8)
    folder(tmp_path / "one", 3, seed=100)
    folder(tmp_path / "two", 3, seed=200)
    for attempt in range(scaled(2, 20)):
        for name in ("one", "two"):  # a new image for each round
            save(tmp_path / name / f"{name}{attempt}.png", natural(24, 32, seed=attempt))
        wait = ["--append", "--lock-wait", "60"]
        both = [
            start([*TPCA, "encode", f"{tmp_path / name}/*{name}*", "-o", archive, *wait])
            for name in ("one", "two")
        ]
        for process in both:
            _, err = process.communicate()
            assert process.returncode == 0, err
        names = set(pixels(archive))
        assert {b"one%d.png" % attempt, b"two%d.png" % attempt} <= names and len(names) == 8 + 2 * (
            attempt + 1
        )


def test_22_readers_see_the_old_file_whole_while_it_is_replaced(tmp_path: Path) -> None:
    source, archive = archived(tmp_path, 30)
    wanted = {name: image.tobytes() for name, image in pixels(archive).items()}
    stop, problems, rounds = threading.Event(), [], 0

    def replace() -> None:
        while not stop.is_set():
            ended = run([*TPCA, "encode", source, "-o", archive, "--force", *QUICK])
            if ended.code:
                problems.append(ended)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        until = time.monotonic() + scaled(5, 30)
        while time.monotonic() < until:
            assert {name: image.tobytes() for name, image in pixels(archive).items()} == wanted
            rounds += 1
    finally:
        stop.set()
        thread.join()
    assert rounds > 3 and not problems


def test_23_two_fits_share_a_cache(tmp_path: Path) -> None:
    folder(tmp_path / "in", 20)
    fit = [
        *TPCA,
        "fit-basis",
        tmp_path / "in",
        "--tile",
        "8",
        "--method",
        "rank1",
        "--cache",
        tmp_path / "c.h5",
    ]
    both = [start([*fit, "-o", tmp_path / f"{name}.h5"]) for name in "ab"]
    codes = [(process.communicate()[1], process.returncode) for process in both]
    assert all(code in (0, 6) for _, code in codes) and any(code == 0 for _, code in codes), codes
    made = [tmp_path / f"{name}.h5" for name in "ab" if (tmp_path / f"{name}.h5").exists()]
    assert run([*fit, "-o", tmp_path / "alone.h5"]).code == 0
    assert {sha(path) for path in made} == {sha(tmp_path / "alone.h5")}


@pytest.mark.parametrize("how", ["delete", "truncate", "replace", "fifo"])
def test_24_an_image_changes_between_scan_and_read(tmp_path: Path, how: str) -> None:
    """The survey has seen it; when its pixels are wanted it is another file."""
    folder(tmp_path / "in", 6)
    victim = tmp_path / "in" / "image_0003.png"
    other = save(tmp_path / "other.png", natural(30, 30, seed=77)).read_bytes()

    def spoil() -> None:
        from tpca_cli.encode import run

        real = run.survey

        def survey(*arguments: object, **options: object) -> object:
            found = real(*arguments, **options)  # type: ignore[arg-type]
            if how == "truncate":
                os.truncate(victim, 40)
            else:
                os.unlink(victim)
            if how == "replace":
                victim.write_bytes(other)
            if how == "fifo":
                os.mkfifo(victim)
            return found

        run.survey = survey  # type: ignore[assignment]

    ended = forked("encode", tmp_path / "in", "-o", tmp_path / "a.h5", *QUICK, "--force", before=spoil)
    assert ended.code == 3 and "image_0003.png" in ended.err, ended
    assert len(pixels(tmp_path / "a.h5")) == 5 and forked("verify", tmp_path / "a.h5", "--decode").code == 0
