"""Laws of plain files, locks and temporaries: whole or not at all, nothing else touched."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tpca_cli import store
from tpca_cli.errors import OutputExists, StorageError

NAMES = [b"a", b"-x", b" a b", b"new\nline", b"\xff\xfe", b"x" * 255, "é".encode(), b"*?[a]"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_written_byte_for_byte(tmp_path: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    store.write_file(path, b"content", mtime_ns=1_234_567_891_000_000_000)
    assert os.listdir(os.fsencode(tmp_path)) == [name]
    with open(path, "rb") as file:
        assert file.read() == b"content"
    assert os.stat(path).st_mtime_ns == 1_234_567_891_000_000_000
    with pytest.raises(OutputExists):
        store.write_file(path, b"other")
    store.write_file(path, b"", force=True, durable=True)
    assert os.stat(path).st_size == 0
    assert os.listdir(os.fsencode(tmp_path)) == [name]


def test_permissions_follow_the_umask_or_the_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    before = os.umask(0o027)
    try:
        store.write_file(path, b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o600)
    store.write_file(path, b"2", force=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_below_a_folder_links_are_never_followed(tmp_path: Path) -> None:
    victim, root = tmp_path / "victim", tmp_path / "root"
    victim.mkdir()
    root.mkdir()
    (victim / "file").write_bytes(b"precious")
    (root / "link").symlink_to(victim)
    (root / "file").symlink_to(victim / "file")
    (root / "plain").write_bytes(b"")
    (tmp_path / "alias").symlink_to(root)
    store.write_file(b"a/b/c.png", b"1", root=root)
    assert (root / "a/b/c.png").read_bytes() == b"1"
    for path in (b"link/file", b"link/new", b"file", b"plain/x"):
        with pytest.raises(OutputExists):
            store.write_file(path, b"bad", root=root)
    with pytest.raises(OutputExists):
        store.write_file(b"x", b"bad", root=tmp_path / "alias")
    for path in (b"../victim/file", b"/etc/x", b"a//x", b".", b"", b"a/./x"):
        with pytest.raises(StorageError):
            store.write_file(path, b"bad", root=root, force=True)
    store.write_file(b"file", b"2", root=root, force=True)
    assert not (root / "file").is_symlink()
    assert {entry.name: entry.read_bytes() for entry in victim.iterdir()} == {"file": b"precious"}


def test_a_hard_link_to_a_victim_is_replaced_not_written(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    os.link(tmp_path / "victim", tmp_path / "x")
    store.write_file(tmp_path / "x", b"new", force=True)
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_an_output_is_checked_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    store.check_output(tmp_path / "new")
    store.check_output(tmp_path / "file", force=True)
    for name in ("file", "folder", "fifo"):
        with pytest.raises(OutputExists):
            store.check_output(tmp_path / name)
    for path in ("folder", "fifo", "none/x", "file/x", "folder/"):
        with pytest.raises(StorageError):
            store.check_output(os.path.join(tmp_path, path), force=True)
    assert sorted(os.listdir(tmp_path)) == ["fifo", "file", "folder"]


def test_a_lock_excludes_and_is_freed(tmp_path: Path) -> None:
    target = tmp_path / "x.h5"
    with store.lock(target), pytest.raises(OutputExists, match="in use"), store.lock(target):
        pass
    with store.lock(target):
        pass
    assert os.listdir(tmp_path) == [], "nothing is left beside the output"


COUNT = """
import sys
from pathlib import Path
from tpca_cli import store

target = Path(sys.argv[1])
for _ in range(60):
    with store.lock(target, wait=60):
        value = int(target.read_text())
        target.write_text(str(value + 1))
"""


@pytest.mark.parametrize("length", [250, 251, 255])
def test_the_lock_of_a_long_name_has_a_name_that_fits(tmp_path: Path, length: int) -> None:
    target, other = tmp_path / ("x" * length), tmp_path / ("x" * (length - 1) + "y")
    with store.lock(target), store.lock(other):
        with pytest.raises(OutputExists, match="in use"), store.lock(target):
            pass
        assert len(os.listdir(tmp_path)) == 2
    assert os.listdir(tmp_path) == []


def test_a_lock_that_is_removed_by_its_holder_is_never_held_twice(tmp_path: Path) -> None:
    target = tmp_path / "count"
    target.write_text("0")
    runs = [subprocess.Popen([sys.executable, "-c", COUNT, str(target)]) for _ in range(6)]
    assert [run.wait(120) for run in runs] == [0] * 6
    assert target.read_text() == "360"
    assert os.listdir(tmp_path) == ["count"]


def test_who_waits_for_a_lock_takes_the_file_that_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the lock and locking it, its holder may remove it and another run make a new one."""
    target, taken = tmp_path / "x.h5", tmp_path / "x.h5.lock"
    real, others = fcntl.flock, []

    def flock(fd: int, operation: int) -> None:
        if not others:
            taken.unlink()
            taken.touch()
            others.append(os.open(taken, os.O_RDONLY))
            real(others[0], fcntl.LOCK_EX)
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OutputExists), store.lock(target):
        pass
    assert taken.exists(), "it belongs to the run that holds it"
    os.close(others[0])


def test_a_lock_left_by_a_killed_run_is_taken_over_and_removed(tmp_path: Path) -> None:
    (tmp_path / "x.h5.lock").touch()
    with store.lock(tmp_path / "x.h5"):
        pass
    assert os.listdir(tmp_path) == []


def test_a_file_of_the_user_that_has_the_name_of_a_lock_stays(tmp_path: Path) -> None:
    (tmp_path / "x.h5.lock").write_text("mine")
    with store.lock(tmp_path / "x.h5"):
        pass
    assert (tmp_path / "x.h5.lock").read_text() == "mine"


def test_a_lock_can_be_waited_for(tmp_path: Path) -> None:
    target, order = tmp_path / "x.h5", []
    held = threading.Event()

    def first() -> None:
        with store.lock(target):
            held.set()
            time.sleep(0.2)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    held.wait()
    with store.lock(target, wait=30):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_stale_temporaries_are_known_by_name_and_owner(tmp_path: Path) -> None:
    target = tmp_path / "x.h5"
    ours = [tmp_path / name for name in (".x.h5.0a1b2c3d.tmp", ".x.h5.abc.tmp")]
    others = [tmp_path / name for name in (".y.h5.abc.tmp", "x.h5.abc.tmp", ".x.h5.tmp", ".x.h5.a.b.tmp")]
    for path in ours + others:
        path.write_bytes(b"")
    assert store.stale_temporaries(target) == ours
    os.utime(ours[0], (1, 1))
    os.utime(others[0], (1, 1))
    assert store.remove_stale(target) == ([ours[0]], [ours[1]])
    assert sorted(tmp_path.iterdir()) == sorted([ours[1], *others])


def test_locks_and_plain_files_need_no_heavy_import() -> None:
    code = "import sys, tpca_cli.store; print([m for m in ('numpy', 'h5py') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
