"""Files come back with their permissions; an archive is no more open than its most private source."""

from __future__ import annotations

import os
import shutil
import stat

import pytest
from command import tpca
from pictures import folder, natural, save


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_files_come_back_with_their_permissions(tmp_path) -> None:
    modes = {"a.png": 0o600, "b.png": 0o644, "c.png": 0o640, "d.png": 0o755, "e.png": 0o4755, "f.png": 0o666}
    for seed, (name, bits) in enumerate(modes.items()):
        save(tmp_path / "in" / name, natural(24, 32, seed=seed)).chmod(bits)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 8, "--force")
    for options in ((), ("--force",), ("--format", "same", "--force")):
        tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out", *options)
        assert {name: mode(tmp_path / "out" / name) for name in modes} == {
            name: bits & 0o777 for name, bits in modes.items()
        }


@pytest.mark.parametrize(
    ("bits", "wanted"),
    [
        ([0o600, 0o644], 0o600),
        ([0o640, 0o644], 0o640),
        ([0o644, 0o664], 0o644),
        ([0o400], 0o600),
        ([0o666], 0o644),
    ],
)
def test_an_archive_is_as_private_as_its_sources(tmp_path, bits, wanted) -> None:
    for path, own in zip(folder(tmp_path / "in", len(bits)), bits, strict=True):
        path.chmod(own)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 8, "--force")
    assert mode(tmp_path / "a.h5") == wanted
    tpca("repack", tmp_path / "a.h5", "-o", tmp_path / "b.h5")
    assert mode(tmp_path / "b.h5") == wanted


def test_an_append_of_private_images_makes_the_archive_private(tmp_path) -> None:
    folder(tmp_path / "in", 3)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 8, "--force")
    assert mode(tmp_path / "a.h5") == 0o644
    save(tmp_path / "in" / "mine.png", natural(24, 32, seed=9)).chmod(0o600)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--append")
    assert mode(tmp_path / "a.h5") == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_append_by_root_keeps_the_owner(tmp_path) -> None:
    folder(tmp_path / "in", 3)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 8, "--force")
    os.chown(tmp_path / "a.h5", 12345, 23456)
    save(tmp_path / "in" / "new.png", natural(24, 32, seed=9))
    for command in (
        ("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--append"),
        ("repack", tmp_path / "a.h5", "-o", tmp_path / "a.h5", "--force"),
    ):
        tpca(*command)
        found = os.stat(tmp_path / "a.h5")
        assert (found.st_uid, found.st_gid) == (12345, 23456)
    # a file that is merely in the way is nobody's to inherit
    shutil.copy(tmp_path / "a.h5", tmp_path / "b.h5")
    os.chown(tmp_path / "b.h5", 12345, 23456)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "b.h5", "--step", 8, "--force")
    assert os.stat(tmp_path / "b.h5").st_uid == 0
