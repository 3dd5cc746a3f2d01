"""`tpca repack` takes the waste out of an archive and leaves every pixel as it is."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from command import tpca
from pictures import folder, natural, save

from tpca_cli.archive.reader import Archive

TARGET = ("--step", 20, "--tile", 8, "--method", "rank1")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An archive of many appends: dead images, small blocks, two groups, one image in bands."""
    root = tmp_path_factory.mktemp("repack")
    exif = b"Exif\0\0" + b"MM\0*\0\0\0\x08\0\0"
    folder(root / "in", 12, sizes=[(96, 128), (64, 64)])
    save(root / "in" / "large.png", natural(500, 600, seed=77))
    save(root / "in" / "tagged.png", natural(40, 40, seed=78), exif=exif, icc_profile=b"old" * 20)
    tpca("encode", root / "in", "-o", root / "a.h5", *TARGET)
    for night in range(4):
        save(root / "in" / f"night{night}.png", natural(48, 64, seed=100 + night))
        save(root / "in" / f"image_000{2 * night}.png", natural(70, 50, seed=200 + night))
        if night == 2:
            save(root / "in" / "tagged.png", natural(40, 40, seed=79), icc_profile=b"new" * 20)
        if night == 3:
            save(root / "in" / "deep.png", natural(40, 40, 1, seed=300, dtype=np.uint16))
        tpca("encode", root / "in", "-o", root / "a.h5", "--append")
    return root


def pixels(path) -> dict[bytes, np.ndarray]:
    with Archive(path) as archive:
        return {name: archive[k] for k, name in enumerate(archive.names_bytes)}


def check_same(one, other) -> None:
    first, second = pixels(one), pixels(other)
    assert set(first) == set(second)
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_pixels_and_entries_stay_and_waste_goes(made, tmp_path) -> None:
    facts = tpca("repack", made / "a.h5", "-o", tmp_path / "b.h5", "--json").json
    check_same(made / "a.h5", tmp_path / "b.h5")
    assert facts["dropped"] == 5 and facts["replaced"] == 0 and facts["blocks"] < facts["before_blocks"]
    assert facts["archive_bytes"] < facts["before_bytes"]
    with Archive(made / "a.h5") as old, Archive(tmp_path / "b.h5") as new:
        assert old.target == new.target and old.info()["psnr"] == pytest.approx(new.info()["psnr"])
        assert b"new" * 20 in new.index.extras and b"old" * 20 not in new.index.extras
    assert tpca("verify", tmp_path / "b.h5", "--against", made / "in", "--decode").code == 0
    assert (
        tpca("encode", made / "in", "-o", tmp_path / "b.h5", "--append", "--json").json["appended"]["added"]
        == 0
    )


def test_a_fresh_archive_is_copied_byte_for_byte(tmp_path) -> None:
    folder(tmp_path / "in", 10, sizes=[(96, 128)])
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", *TARGET)
    tpca("repack", tmp_path / "a.h5", "-o", tmp_path / "b.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_the_same_bytes_whatever_the_workers(made, tmp_path) -> None:
    for workers in (1, 3):
        tpca("repack", made / "a.h5", "-o", tmp_path / f"{workers}.h5", "--workers", workers)
    assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "3.h5").read_bytes()


def test_an_archive_may_replace_itself_only_by_force(made, tmp_path) -> None:
    shutil.copy2(made / "a.h5", tmp_path / "a.h5")
    tpca("repack", tmp_path / "a.h5", "-o", tmp_path / "a.h5", code=6)
    tpca("repack", tmp_path / "a.h5", "-o", tmp_path / "a.h5", "--force")
    check_same(made / "a.h5", tmp_path / "a.h5")
    assert not (tmp_path / "a.h5.partial").exists()


def test_damage_is_refused_or_left_out(made, tmp_path) -> None:
    data = bytearray((made / "a.h5").read_bytes())
    with Archive(made / "a.h5") as archive:
        block = 1
        coded = archive.block_bytes(block)
        first, count = (int(archive.index.blocks[name][block]) for name in ("first", "count"))
        cost = {name for name in archive.index.names[first : first + count] if name}
    data[bytes(data).find(coded) + 3] ^= 1
    (tmp_path / "x.h5").write_bytes(data)
    tpca("repack", tmp_path / "x.h5", "-o", tmp_path / "b.h5", code=4)
    assert not (tmp_path / "b.h5").exists()
    facts = tpca("repack", tmp_path / "x.h5", "-o", tmp_path / "b.h5", "--salvage", "--json", code=3).json
    assert {name.encode() for name in facts["lost"]} == cost
    wanted = {name: image for name, image in pixels(made / "a.h5").items() if name not in cost}
    kept = pixels(tmp_path / "b.h5")
    assert set(kept) == set(wanted) and all(np.array_equal(kept[name], wanted[name]) for name in wanted)
    # what was lost comes back from the sources that are still there
    tpca("encode", made / "in", "-o", tmp_path / "b.h5", "--append")
    assert tpca("verify", tmp_path / "b.h5", "--against", made / "in").code == 0
