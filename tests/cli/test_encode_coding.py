"""`tpca encode --coding fast`: the same promises as ever, blocks that are read without learning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import folder, natural, save
from PIL import Image

from tpca_cli.archive.reader import Archive
from tpca_cli.quality import psnr


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Path:
    """Color and gray, alpha, 16 bits, sizes that are no multiples of tiles."""
    root = tmp_path_factory.mktemp("coding") / "in"
    folder(root, 8, sizes=[(97, 130), (140, 91)])
    save(root / "gray.png", natural(61, 77, channels=1, seed=20))
    save(root / "alpha.png", natural(66, 72, channels=4, seed=21))
    save(root / "deep.png", natural(50, 60, channels=1, seed=22).astype(np.uint16) * 16)
    return root


def codings(path: Path) -> set[str]:
    return {group["coding"] for group in tpca("inspect", path, "--json").json["groups"]}


@pytest.mark.parametrize(
    "target",
    [("--psnr", 34), ("--quality", 60, "--exclude", "deep.png"), (), ("--tune", "visual", "--step", 12)],
)
def test_what_is_promised_comes_back(mixed: Path, tmp_path: Path, target: tuple[object, ...]) -> None:
    path = tmp_path / "a.h5"
    found = tpca("encode", mixed, "-o", path, *target, "--coding", "fast", "--json", code=None)
    assert found.code in (0, 3) and codings(path) == {"fast"}
    tpca("verify", path)
    with Archive(path) as archive:
        told = found.json["psnr"]
        assert len(archive) == found.json["images"] >= 10
        if target == ("--psnr", 34):
            assert told >= 34
        errors, peaks = archive.index.images["error"], archive.index.images["peak"]
        for position, name in enumerate(archive.names):
            source = np.asarray(archive[position], np.int64)
            original = np.asarray(Image.open(mixed / name), np.int64).reshape(source.shape)
            assert ((source - original) ** 2).sum() == errors[position], name
            assert psnr(float(errors[position]), source.size, float(peaks[position])) > 20


def test_any_number_of_workers_gives_the_same_bytes(mixed: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        tpca("encode", mixed, "-o", tmp_path / f"{workers}.h5", "--psnr", 33, "--coding", "fast",
             "--workers", workers)  # fmt: skip
    assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "2.h5").read_bytes()


def test_an_append_is_coded_as_the_archive_is(mixed: Path, tmp_path: Path) -> None:
    path, more = tmp_path / "a.h5", tmp_path / "more"
    tpca("encode", mixed, "-o", path, "--psnr", 34, "--coding", "fast")
    save(more / "new.png", natural(80, 75, seed=40))
    save(more / "other.png", natural(70, 64, channels=2, seed=41))  # a group of its own
    tpca("encode", more, "-o", path, "--append")
    assert codings(path) == {"fast"} and tpca("inspect", path, "--json").json["images"] == 13
    refused = tpca("encode", more, "-o", path, "--append", "--coding", "small", code=2)
    assert "--coding fast" in refused.err
    tpca("encode", more, "-o", path, "--append", "--coding", "fast")


def test_a_repack_keeps_every_pixel(mixed: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    tpca("encode", mixed, "-o", path, "--psnr", 34, "--coding", "fast")
    save(mixed.parent / "late" / "late.png", natural(80, 75, seed=50))
    tpca("encode", mixed.parent / "late", "-o", path, "--append")
    tpca("repack", path, "-o", tmp_path / "b.h5")
    with Archive(path) as before, Archive(tmp_path / "b.h5") as after:
        assert before.names == after.names
        for position in range(len(before)):
            np.testing.assert_array_equal(before[position], after[position])


@pytest.mark.parametrize("option", [("--exact",), ("--max-error", 2)])
def test_images_that_lose_nothing_have_no_coding(
    mixed: Path, tmp_path: Path, option: tuple[object, ...]
) -> None:
    refused = tpca("encode", mixed, "-o", tmp_path / "a.h5", *option, "--coding", "fast", code=2)
    assert "--coding" in refused.err and not (tmp_path / "a.h5").exists()


def test_inspect_says_how_blocks_are_coded(mixed: Path, tmp_path: Path) -> None:
    tpca("encode", mixed, "-o", tmp_path / "a.h5", "--psnr", 34, "--coding", "fast")
    assert "quick to read" in tpca("inspect", tmp_path / "a.h5").out
