"""A mounted archive, by the real FUSE: what programs see, and how it ends."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import tpca
from pictures import folder

pytestmark = pytest.mark.skipif(
    not (os.path.exists("/dev/fuse") and shutil.which("fusermount3")), reason="needs /dev/fuse and fuse3"
)


@contextmanager
def mounted(archive: object, place: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A mount in a process of its own, which is there until the end."""
    place.mkdir()
    run = [sys.executable, "-m", "tpca_cli", "mount", str(archive), str(place), *options]
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not os.path.ismount(place):
            if process.poll() is not None:
                pytest.fail(str(process.communicate()))
            time.sleep(0.02)
        yield process
    finally:
        if os.path.ismount(place):
            subprocess.run(["fusermount3", "-u", "-z", str(place)], check=False)
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mount")
    folder(root / "in" / "holiday", 4, sizes=[(40, 56)])
    tpca("encode", root / "in", "-o", root / "photos.h5", "--step", 8, "--force")
    tpca("decode", root / "photos.h5", "-o", root / "out")
    return root


def test_programs_read_the_files_that_decode_writes(made: Path, tmp_path: Path) -> None:
    with mounted(made / "photos.h5", tmp_path / "m", "--json") as process:
        place = tmp_path / "m" / "holiday"
        assert sorted(os.listdir(place)) == sorted(os.listdir(made / "out" / "holiday"))
        for path in (made / "out" / "holiday").iterdir():
            assert (place / path.name).read_bytes() == path.read_bytes()
            assert (place / path.name).stat().st_size == path.stat().st_size
            assert abs((place / path.name).stat().st_mtime - path.stat().st_mtime) < 1e-3
        for write in (lambda: (place / "new").write_text("x"), lambda: (place / "image_0000.png").unlink()):
            with pytest.raises(OSError) as caught:
                write()
            assert caught.value.errno == errno.EROFS
        subprocess.run(["fusermount3", "-u", str(tmp_path / "m")], check=True)
        out, _ = process.communicate()
    assert process.returncode == 0 and json.loads(out)["images"] == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_unmounts(made: Path, tmp_path: Path, number: signal.Signals) -> None:
    with mounted(made / "photos.h5", tmp_path / "m", "--select", "holiday/*", "--format", "jpeg") as process:
        assert sorted(os.listdir(tmp_path / "m" / "holiday"))[0] == "image_0000.jpg"
        assert tpca("mount", made / "photos.h5", tmp_path / "m", code=6).err
        process.send_signal(number)
        process.communicate()
    assert process.returncode == 0 and not os.path.ismount(tmp_path / "m")
