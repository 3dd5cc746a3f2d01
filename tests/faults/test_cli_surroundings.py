"""Many files, other orders, other environments: the same archive.

Cases 51 to 53 of the table.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path

import pytest
from commands import QUICK, TPCA, folder, forked, scaled, sha
from harness import run
from pictures import png_bytes


def test_51_many_files_take_no_memory(tmp_path: Path) -> None:
    """A tenth as many for every day; 100,000 for a release."""
    peaks = []
    for count in (scaled(1000, 10_000), scaled(10_000, 100_000)):
        source = tmp_path / str(count)
        order = list(range(count))
        random.Random(count).shuffle(order)
        for number in order:
            folder_ = source / f"{number % 100:02d}"
            folder_.mkdir(parents=True, exist_ok=True)
            (folder_ / f"{number:06d}.png").write_bytes(png_bytes(1, 1, 8, 0, b"\0" + bytes([number % 256])))
        words = ("encode", source, "-o", tmp_path / "a.h5", "--force", *QUICK, "--json")
        ended = forked(*words, timeout=900)
        assert ended.code == 0, ended
        peaks.append(ended.peak)
    grown = (peaks[1] - peaks[0]) / (scaled(9000, 90_000))
    assert grown < 4, f"{grown:.1f} kB per file"


def test_52_threads_and_order_do_not_matter(tmp_path: Path) -> None:
    folder(tmp_path / "in", 60, sizes=[(48, 64), (40, 40)])
    names = sorted(os.listdir(tmp_path / "in"))
    random.Random(52).shuffle(names)
    (tmp_path / "shuffled").mkdir()
    for name in names:
        shutil.copy2(tmp_path / "in" / name, tmp_path / "shuffled" / name)
    made = set()
    for source in ("in", "shuffled"):
        for workers, threads in ((1, 1), (2, 2), (7, 1)):
            command = [*TPCA, "encode", tmp_path / source, "-o", tmp_path / "a.h5", "--force", *QUICK]
            env = {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
            ended = run([*command, "--workers", str(workers)], env=env)
            assert ended.code == 0, ended
            made.add(sha(tmp_path / "a.h5"))
    assert len(made) == 1


@pytest.mark.parametrize(
    "how",
    [
        "LANG=C",
        "LC_ALL=C",
        "no HOME",
        "no terminal",
        "-W error",
        "-O",
        "-OO",
        "PYTHONUTF8=0",
        "cwd deleted",
        "umask",
    ],
)
def test_53_other_environments(tmp_path: Path, how: str) -> None:
    folder(tmp_path / "in", 6)
    (tmp_path / "in" / os.fsdecode(b"\xff\xe9.png")).write_bytes(
        (tmp_path / "in" / "image_0000.png").read_bytes()
    )
    reference, output = tmp_path / "reference.h5", tmp_path / "a.h5"
    assert forked("encode", tmp_path / "in", "-o", reference, *QUICK, "--force").code == 0
    command = [*TPCA, "encode", tmp_path / "in", "-o", output, *QUICK, "--force"]
    env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    if "=" in how:
        name, value = how.split("=")
        env[name] = value
    elif how.startswith("-"):
        command[1:1] = how.split()
    elif how == "no HOME":
        command = ["env", "-u", "HOME", *command]
    elif how == "no terminal":
        command = ["setsid", "--wait", *command]
    elif how == "cwd deleted":
        gone = tmp_path / "gone"
        gone.mkdir()
        command[:3] = [str(Path(sys.executable).with_name("tpca"))]  # -m would look into the folder
        words = " ".join(f"'{word}'" for word in command)
        # with PYTHONPATH set Python itself does not start in such a folder
        command = ["sh", "-c", f"unset PYTHONPATH; cd '{gone}' && rmdir '{gone}' && exec {words}"]
    elif how == "umask":
        command = ["sh", "-c", 'umask 077; exec "$@"', "sh", *command]
    ended = run(command, env=env)
    assert ended.code == 0, ended
    assert sha(output) == sha(reference)
    assert oct(output.stat().st_mode & 0o777) == ("0o600" if how == "umask" else "0o644")
