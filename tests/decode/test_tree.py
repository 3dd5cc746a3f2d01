"""The tree of files that `mount` shows: the files that decode writes, made when they are read."""

from __future__ import annotations

import errno
import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command import tpca
from pictures import folder, natural
from PIL import Image

from tpca_cli.archive.reader import Archive
from tpca_cli.decode import mount as trees
from tpca_cli.decode.mount import ImageTree


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos in folders, one with an odd name, an archive of them, and what decode makes of it."""
    root = tmp_path_factory.mktemp("tree")
    folder(root / "in" / "a" / "b", 3, sizes=[(200, 260)])
    folder(root / "in", 2, channels=(1,), seed=7)
    odd = os.fsencode(root / "in") + b"/a/caf\xe9.png"
    Image.fromarray(natural(300, 300, 3, 77)).save(os.fsdecode(odd))
    tpca("encode", root / "in", "-o", root / "a.h5", "--step", 8, "--force")
    tpca("decode", root / "a.h5", "-o", root / "out")
    return root


def walk(tree: ImageTree, path: bytes = b"/") -> dict[bytes, bytes]:
    """All files below a folder, by path."""
    found = {}
    for name in tree.names(path):
        below = path.rstrip(b"/") + b"/" + name
        attributes = tree.attributes(below)
        if stat.S_ISDIR(attributes.mode):
            found.update(walk(tree, below))
        else:
            found[below] = tree.read(below, 1 << 30, 0)
            assert len(found[below]) == attributes.size and not attributes.mode & 0o222
    return found


def test_the_tree_has_the_files_that_decode_writes(made: Path) -> None:
    root = os.fsencode(made / "out")
    wanted = {
        b"/" + os.path.relpath(os.path.join(folder, name), root): Path(
            os.fsdecode(os.path.join(folder, name))
        ).read_bytes()
        for folder, _, names in os.walk(root)
        for name in names
    }
    with Archive(made / "a.h5") as archive:
        tree = ImageTree(archive)
        assert walk(tree) == wanted and tree.images == 6
        when = tree.attributes(b"/image_0000.png").mtime
        assert abs(when - (made / "in" / "image_0000.png").stat().st_mtime) < 1e-5
        assert set(walk(ImageTree(archive, select=["a/*"], format="jpeg"))) == {
            path.replace(b".png", b".jpg") for path in wanted if path.startswith(b"/a/")
        }


def test_parts_and_threads_get_the_same_bytes(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "KEPT_BYTES", 1000)  # files are made again and again
    with Archive(made / "a.h5") as archive:
        tree = ImageTree(archive)
        paths = sorted(walk(tree))
        wanted = {path: tree.read(path, 1 << 30, 0) for path in paths}
        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(lambda k: tree.read(paths[k % 6], 100, 10 * k), range(60)))
        for k, part in enumerate(parts):
            assert part == wanted[paths[k % 6]][10 * k : 10 * k + 100]


def test_wrong_paths_and_damage_are_errors_of_the_system(made: Path, tmp_path: Path) -> None:
    data = bytearray((made / "a.h5").read_bytes())
    with Archive(made / "a.h5") as archive:
        tree = ImageTree(archive)
        for path, number in ((b"/no", errno.ENOENT), (b"/no/a", errno.ENOENT), (b"/a", errno.EISDIR)):
            with pytest.raises(OSError) as caught:
                tree.read(path, 10, 0)
            assert caught.value.errno == number
        with pytest.raises(NotADirectoryError):
            tree.names(b"/image_0000.png")
        archive.payload(0, 1)
        start = archive._file._places["payload"][0][0] + int(archive.index.offsets[-2])
    data[start + 2] ^= 255  # in the last block
    (tmp_path / "x.h5").write_bytes(data)
    with Archive(tmp_path / "x.h5") as archive:
        tree, lost = ImageTree(archive), 0
        for position, name in enumerate(archive.names_bytes):
            path = b"/" + name
            if archive.index.blocks_of(int(archive.alive[position]))[0] < len(archive.index.offsets) - 2:
                assert tree.read(path, 10, 0).startswith(b"\x89PNG")
                continue
            lost += 1
            with pytest.raises(OSError, match="damaged") as caught:
                tree.attributes(path)
            assert caught.value.errno == errno.EIO
        assert lost


def test_bad_input_of_the_command(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("text")
    assert "not empty" in tpca("mount", made / "a.h5", tmp_path / "full", code=6).err
    tpca("mount", made / "a.h5", tmp_path / "none", code=2)
    tpca("mount", tmp_path / "none.h5", tmp_path / "empty", code=2)
    assert tpca("mount", tmp_path / "text", tmp_path / "empty", "--json", code=4).json["error"]
    assert tpca("mount", made / "a.h5", tmp_path / "empty", "--select", "none*", code=1).err
    monkeypatch.setitem(sys.modules, "mfusepy", None)
    assert "tpca-cli[mount]" in tpca("mount", made / "a.h5", tmp_path / "empty", code=1).err
