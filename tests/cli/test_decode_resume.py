"""A decode that was stopped can go on; nothing that is there is lost by it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest
from command import tpca
from pictures import folder, natural, save

from tpca_cli.decode import run
from tpca_cli.store import files


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    root = tmp_path_factory.mktemp("resume")
    folder(root / "in", 6)
    save(root / "in" / "sub" / "deep" / "x.png", natural(24, 32, seed=40))
    tpca("encode", root / "in", "-o", root / "a.h5", "--step", 8, "--force")
    return root / "a.h5"


def content(root) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("large", [1, run.LARGE])
def test_a_stopped_run_goes_on(archive, tmp_path, monkeypatch, large) -> None:
    """Files are written a few at a time, large ones alone."""
    monkeypatch.setattr(run, "LARGE", large)
    whole, out = tmp_path / "whole", tmp_path / "out"
    tpca("decode", archive, "-o", whole)
    shutil.copytree(whole, out)
    for name in ("image_0002.png", "image_0004.png"):
        (out / name).unlink()
    kept = (out / "image_0001.png").stat().st_ino
    left = out / ".image_0002.png.0123abcd.tmp"
    left.write_bytes(b"half")
    mine = out / ".mine.0123abcd.tmp"
    mine.write_bytes(b"mine")
    failed = tpca("decode", archive, "-o", out, code=6)
    assert "--resume" in failed.err
    facts = tpca("decode", archive, "-o", out, "--resume", "--json").json
    assert facts["images"] == 7 and facts["found"] == 5
    assert not left.exists() and mine.read_bytes() == b"mine"
    mine.unlink()
    assert content(out) == content(whole)
    assert (out / "image_0001.png").stat().st_ino == kept


def test_a_different_file_is_never_replaced(archive, tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "image_0003.png").write_bytes(b"mine")
    failed = tpca("decode", archive, "-o", out, "--resume", code=6)
    assert "image_0003.png" in failed.err and (out / "image_0003.png").read_bytes() == b"mine"
    victim = tmp_path / "victim"
    shutil.copy(tmp_path / "out" / "image_0003.png", victim)
    (out / "image_0003.png").unlink()
    (out / "image_0003.png").symlink_to(victim)
    tpca("decode", archive, "-o", out, "--resume", code=6)
    assert victim.read_bytes() == b"mine"
    tpca("decode", archive, "-o", out, "--resume", "--force", code=2)


def test_files_and_folders_are_synced(archive, tmp_path) -> None:
    """Content before its name, and every folder after the last name in it."""
    if shutil.which("strace") is None:
        pytest.fail("this test needs strace")
    log = tmp_path / "log"
    calls = "fsync,fdatasync,link,linkat,rename,renameat,renameat2"
    command = ["strace", "-f", "-y", "-qq", "-e", f"trace={calls}", "-o", log, sys.executable, "-B"]
    command += ["-m", "tpca_cli", "decode", archive, "-o", tmp_path / "out"]
    subprocess.run([str(part) for part in command], check=True, env=os.environ, capture_output=True)
    lines = log.read_text().splitlines()
    names = [at for at, line in enumerate(lines) if re.search(r"linkat\(|rename", line)]
    # a thread does one after the other: by number of the thread and name of the temporary
    synced = re.compile(r"(\d+) +fsync\(\d+<[^>]*/([^/>]*\.tmp)>")
    done = {found.groups(): at for at, line in enumerate(lines) if (found := synced.match(line))}
    assert len(names) == len(done) == 7
    for at in names:
        named = re.match(r"(\d+) .*?\"([^\"]*\.tmp)\"", lines[at])
        assert named is not None and done[named[1], named[2]] < at
    for place in (tmp_path, tmp_path / "out", tmp_path / "out" / "sub", tmp_path / "out" / "sub" / "deep"):
        last = max(
            (at for at, line in enumerate(lines) if f"<{place}>" in line and "fsync(" in line), default=-1
        )
        assert last > max(names), place


def test_what_was_written_is_read_back(archive, tmp_path, monkeypatch) -> None:
    write = os.write

    def flipping(fd, data):
        changed = bytearray(data)
        changed[len(changed) // 2] ^= 1
        return write(fd, changed)

    monkeypatch.setattr(files.os, "write", flipping)
    failed = tpca("decode", archive, "-o", tmp_path / "out", code=5)
    assert "read back" in failed.err and not list((tmp_path / "out").glob("*.png"))
