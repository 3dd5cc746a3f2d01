"""The recipes of docs/RECIPES.md, run as they stand there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import folder, natural, oddities, save, save_frames

from tpca_cli.archive.reader import Archive

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "RECIPES.md").read_text()


def recipe(language: str, holding: str) -> str:
    """The code block in a language that holds a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)
    return next(block for block in blocks if holding in block)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `tpca` on the path, and quick settings for it."""
    tool = tmp_path / "bin" / "tpca"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tpca_cli "$@"\n')
    tool.chmod(0o755)
    root = str(Path(__file__).resolve().parent.parent)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("TPCA_TILE", "8")
    monkeypatch.setenv("TPCA_METHOD", "rank1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def script(place: Path, name: str) -> Path:
    path = place / "bin" / name
    path.write_text(recipe("sh", f"# {name} "))
    path.chmod(0o755)
    return path


def run(*command: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)


def test_the_cron_line_appends_logs_and_tells_the_exit_code(place: Path) -> None:
    line = next(line for line in recipe("crontab", "tpca-nightly").splitlines() if line[0].isdigit())
    command = " ".join(line.split()[5:])
    nightly = script(place, "tpca-nightly")
    for old, new in (("/usr/local/bin/tpca-nightly", nightly), ("/srv", place), ("/var/log", place)):
        command = command.replace(old, str(new))
    (place / "archive").mkdir()
    folder(place / "photos", 6)

    def night() -> tuple[int, str]:
        done = run("sh", "-c", command)
        assert done.stdout == done.stderr == ""  # cron would mail it
        return done.returncode, (place / "tpca.log").read_text().splitlines()[-1]

    assert night()[0] == 0
    save(place / "photos" / "new.png", natural(seed=9))
    assert night()[1].endswith("photos.h5: ok (exit 0)")
    assert len(Archive(place / "archive" / "photos.h5")) == 7
    (place / "photos" / "broken.png").write_bytes(b"<html>")
    assert night()[0] == 0 and "skipped" in night()[1] and "broken.png" in (place / "tpca.log").read_text()
    (place / "archive" / "photos.h5").write_bytes(b"rotten")
    code, last = night()
    assert code == 4 and last.endswith("failed (exit 4)")


def test_make_archives_folders_and_rebuilds_only_what_changed(place: Path) -> None:
    (place / "Makefile").write_text(recipe("make", "archives/%.h5"))
    for number, name in enumerate(("spring", "summer", "autumn")):
        folder(place / "photos" / name, 4, seed=10 * number)
    assert run("make", "-j2", "archives").returncode == 0
    assert sorted(path.name for path in (place / "archives").glob("*.h5")) == [
        "autumn.h5",
        "spring.h5",
        "summer.h5",
    ]
    again = run("make", "-j2", "archives")
    assert again.returncode == 0 and "tpca" not in again.stdout
    save(place / "photos" / "summer" / "sub" / "new.png", natural(seed=99))
    once_more = run("make", "-j2", "archives")
    assert once_more.returncode == 0
    assert "summer.h5" in once_more.stdout and "spring.h5" not in once_more.stdout
    assert len(Archive(place / "archives" / "summer.h5")) == 5
    assert "tpca" not in run("make", "archives").stdout


def test_the_systemd_units_name_commands_that_work(place: Path) -> None:
    service, timer = recipe("ini", "[Service]"), recipe("ini", "[Timer]")
    (place / "archive").mkdir()
    folder(place / "photos", 4)
    lines = [line.partition("=")[2] for line in service.splitlines() if line.startswith("ExecStart=")]
    assert len(lines) == 2 and "SuccessExitStatus=3" in service and "OnCalendar=" in timer
    for line in lines:
        words = line.replace("/usr/local/bin/tpca", "tpca").replace("/srv", str(place)).split()
        assert run(*words).returncode == 0
    if shutil.which("systemd-analyze"):
        (place / "tpca.timer").write_text(timer)
        (place / "tpca.service").write_text(service.replace("/usr/local/bin/tpca", "/bin/true"))
        done = run("systemd-analyze", "verify", place / "tpca.timer", place / "tpca.service")
        assert "tpca." not in done.stderr, done.stderr


def test_retention_deletes_only_what_the_archive_holds_safely(place: Path) -> None:
    source, archive = place / "photos", place / "photos.h5"
    folder(source, 8)
    save(source / "sub" / "deep.png", natural(seed=50))
    (source / "broken.png").write_bytes(b"<html>")
    whole = (source / "image_0000.png").read_bytes()
    (source / "cut.png").write_bytes(whole[: len(whole) // 2])
    (source / "notes.txt").write_text("mine")
    (source / ".hidden.png").write_bytes(whole)
    save_frames(source / "film.gif", [natural(seed=k) for k in range(3)], duration=40)
    tpca("encode", source, "-o", archive, "--step", 4, "--force", code=3)
    save(source / "later.png", natural(seed=60))
    save(source / "image_0003.png", natural(seed=61))
    (source / "link.png").symlink_to("image_0004.png")
    old = {source / name for name in ("broken.png", "cut.png", "notes.txt", ".hidden.png", "film.gif")}
    kept = old | {source / name for name in ("later.png", "image_0003.png", "image_0004.png", "link.png")}
    young = source / "image_0005.png"
    for path in source.rglob("*"):
        if path.is_file() and path != young:
            os.utime(path, (10**9, 10**9), follow_symlinks=False)

    retire = script(place, "tpca-retire")
    assert run(retire, source, archive, 30).returncode == 0
    left = {path for path in source.rglob("*") if not path.is_dir()}
    assert left == kept | {young}
    # everything that is gone comes back
    tpca("decode", archive, "-o", place / "back")
    assert (place / "back" / "sub" / "deep.png").exists() and (place / "back" / "image_0007.png").exists()

    spoiled = bytearray(archive.read_bytes())
    with Archive(archive) as opened:
        spoiled[bytes(spoiled).find(opened.block_bytes(0)) + 5] ^= 1
    archive.write_bytes(spoiled)
    os.utime(young, (10**9, 10**9))
    assert run(retire, source, archive, 30).returncode == 4
    assert young.exists()


def test_what_is_identical_may_go_and_comes_back(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in ("TPCA_TILE", "TPCA_METHOD"):
        monkeypatch.delenv(setting)
    source, archive = place / "photos", place / "exact.h5"
    contents = {name: path.read_bytes() for name, path in oddities(source).items()}
    (source / "notes.txt").write_text("mine")
    retire = script(place, "tpca-retire-identical")
    done = run(retire, source, archive)
    assert done.returncode == 0, done.stderr
    left = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert "notes.txt" in left and left > {"n0.png", "deep.png", "deep color.png"}
    gone = set(contents) - left
    assert gone >= {"gray.jpg", "cut.jpg", "bomb.png", "film.gif", "float.tif", "page.png", "trailing.jpg"}
    tpca("decode", archive, "-o", place / "back")
    assert all((place / "back" / name).read_bytes() == contents[name] for name in gone)
    # once more, after a new file came
    save(source / "new.jpg", natural(seed=77))
    new = (source / "new.jpg").read_bytes()
    assert run(retire, source, archive).returncode == 0
    assert not (source / "new.jpg").exists() and (source / "n0.png").exists()
    with Archive(archive) as opened:
        assert opened.file(opened.names.index("new.jpg")) == new
        spoiled = bytearray(archive.read_bytes())
        spoiled[bytes(spoiled).find(opened.block_bytes(0)) + 5] ^= 1
    archive.write_bytes(spoiled)
    save(source / "late.jpg", natural(seed=78))
    assert run(retire, source, archive).returncode == 4
    assert (source / "late.jpg").exists()


def test_the_other_commands_run(place: Path) -> None:
    folder(place / "photos", 6)
    tpca("encode", "photos", "-o", "photos.h5", "--step", 8)
    for block in (recipe("sh", "repack photos.h5 -o photos.h5"), recipe("sh", "rescued/")):
        for line in block.splitlines():
            assert run(*shlex.split(line, comments=True)).returncode == 0, line


def test_tensors_go_there_and_back(place: Path) -> None:
    (place / "volumes").mkdir()
    rng = np.random.default_rng(0)
    for k in range(6):
        np.save(place / "volumes" / f"{k}.npy", rng.normal(size=(4, 8, 6)).astype(np.float32))
        for z in range(4):
            save(place / "scans" / f"case{k}" / f"{z}.png", natural(12, 16, 1, 10 * k + z))
    for line in recipe("sh tensors", "tpca fit-basis").splitlines():
        if line:
            tpca(*shlex.split(line)[1:])
    assert np.load(place / "volumes-again" / "0.npy").shape == (4, 8, 6)
    assert (place / "scans-again" / "case5" / "3.png").exists()
