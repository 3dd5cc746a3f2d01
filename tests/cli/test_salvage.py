"""An archive that was cut off: `--salvage` saves what lies before the cut; the archive stays as it is."""

from __future__ import annotations

import os

import numpy as np
import pytest
from command import tpca
from pictures import folder, natural, save
from PIL import Image

from tpca_cli.archive.reader import Archive
from tpca_cli.archive.writer import PAYLOAD_CHUNK
from tpca_cli.errors import FileRefused


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Several chunks of payload, so that the cut can be in any of them."""
    root = tmp_path_factory.mktemp("cut")
    folder(root / "in", 14, sizes=[(400, 500), (380, 420)])
    save(root / "in" / "large.png", natural(900, 700, seed=90))
    tpca("encode", root / "in", "-o", root / "a.h5", "--step", 2, "--tile", 8, "--method", "rank1", "--force")
    with Archive(root / "a.h5") as archive:
        assert archive.index.offsets[-1] > 2 * PAYLOAD_CHUNK
    return root


def pixels(path) -> dict[bytes, np.ndarray]:
    with Archive(path) as archive:
        return {name: archive[k] for k, name in enumerate(archive.names_bytes)}


def cut(made, tmp_path, share: float):
    data = (made / "a.h5").read_bytes()
    path = tmp_path / "cut.h5"
    path.write_bytes(data[: int(len(data) * share)])
    return path


@pytest.mark.parametrize("share", [0.25, 0.55, 0.8, 0.97, 0.9999])
def test_what_lies_before_the_cut_is_saved(made, tmp_path, share) -> None:
    path = cut(made, tmp_path, share)
    before = path.read_bytes(), os.stat(path).st_mtime_ns
    for command in ("repack", "decode"):
        assert "--salvage" in tpca(command, path, "-o", tmp_path / "no", code=4).err
    facts = tpca("repack", path, "-o", tmp_path / "b.h5", "--salvage", "--json", code=3).json
    wanted, kept = pixels(made / "a.h5"), pixels(tmp_path / "b.h5")
    lost = {os.fsencode(name) for name in facts["lost"]}
    assert lost and kept and set(kept) == set(wanted) - lost
    assert all(np.array_equal(kept[name], wanted[name]) for name in kept)
    # no more is lost than lies behind the cut
    assert len(kept) >= int(len(wanted) * share) - 2
    tpca("verify", tmp_path / "b.h5")
    rescued = tpca("decode", path, "-o", tmp_path / "out", "--salvage", "--json", code=3).json
    assert {os.fsencode(item["path"]) for item in rescued["lost"]} == lost
    for name in kept:
        assert np.array_equal(np.asarray(Image.open(tmp_path / "out" / os.fsdecode(name))), wanted[name])
    assert (path.read_bytes(), os.stat(path).st_mtime_ns) == before


def test_an_archive_of_one_chunk_is_saved_too(tmp_path) -> None:
    folder(tmp_path / "in", 12, sizes=[(200, 260)])
    target = ("--step", 4, "--tile", 8, "--method", "rank1", "--force")
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", *target)
    data = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(data[: len(data) * 6 // 10])
    tpca("repack", tmp_path / "cut.h5", "-o", tmp_path / "b.h5", "--salvage", code=3)
    assert 4 <= len(pixels(tmp_path / "b.h5")) < 12


def test_a_cut_before_the_index_is_refused_in_words(made, tmp_path) -> None:
    for share in (0.0001, 0.0003, 0.0005):
        path = cut(made, tmp_path, share)
        failed = tpca("repack", path, "-o", tmp_path / "b.h5", "--salvage", code=4)
        assert "cut off" in failed.err and not (tmp_path / "b.h5").exists()


def test_every_cut_is_saved_in_part_or_refused(made, tmp_path) -> None:
    wanted = pixels(made / "a.h5")
    data = (made / "a.h5").read_bytes()
    rng = np.random.default_rng(5)
    for length in [40, 48, 100, 2000, *rng.integers(50, len(data), 12)]:
        (tmp_path / "x.h5").write_bytes(data[: int(length)])
        done = tpca("repack", tmp_path / "x.h5", "-o", tmp_path / "y.h5", "--salvage", "--force", code=None)
        assert done.code in (1, 3, 4), done.err
        if done.code == 3:
            kept = pixels(tmp_path / "y.h5")
            assert all(np.array_equal(kept[name], wanted[name]) for name in kept)


def test_a_damaged_index_is_still_refused(made, tmp_path) -> None:
    data = bytearray((made / "a.h5").read_bytes())
    with Archive(made / "a.h5") as archive:
        names = archive.index.names
    assert names
    data[700] ^= 1
    (tmp_path / "x.h5").write_bytes(data[: len(data) * 8 // 10])
    tpca("repack", tmp_path / "x.h5", "-o", tmp_path / "y.h5", "--salvage", code=4)


def test_a_cut_archive_does_not_replace_itself(made, tmp_path) -> None:
    path = cut(made, tmp_path, 0.8)
    before = path.read_bytes()
    failed = tpca("repack", path, "-o", path, "--salvage", "--force", code=2)
    assert "another file" in failed.err and path.read_bytes() == before


def test_no_more_is_read_than_can_be_there(made, tmp_path) -> None:
    """A file may claim any length: memory is taken by the bytes that it has."""
    with Archive(cut(made, tmp_path, 0.55), cut=True, ready=False) as archive:
        assert archive.cut_off
        total = int(archive.index.offsets[-1])
        with pytest.raises(FileRefused, match="cut off"):
            archive.payload(0, total)
