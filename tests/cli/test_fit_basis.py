"""`tpca fit-basis`: every option, the same bytes from the same images, clear ends for odd input."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import folder, natural, save

from tpca_cli import basisfile
from tpca_cli.tensor_pca.basis import Rank1Basis


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    folder(root, 24, sizes=((12, 10),))
    return root


WAYS = {
    "rank1": ("--method", "rank1"),
    "rank1-tile": ("--tile", 4),
    "operator": ("--method", "operator", "--components", 9, "--solver", "exact"),
    "operator-center": ("--method", "operator", "--energy", 0.9, "--center"),
    "operator-all": ("--method", "operator", "--size", "6x5", "--all"),
    "subspace": ("--method", "subspace", "--components", 8, "--center"),
    "rank1-energy": ("--method", "rank1", "--energy", 0.95, "--center"),
}


@pytest.mark.parametrize("way", WAYS)
def test_same_images_same_bytes(way: str, photos: Path, tmp_path: Path) -> None:
    """Any worker count, memory (so frames in memory or on disk), names and folders."""
    one = tpca("fit-basis", photos, "-o", tmp_path / "one.h5", *WAYS[way], "--json").json
    assert one["images"] == 24 and one["residual"] <= 1e-6
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    for i, path in enumerate(sorted(photos.iterdir())):
        shutil.copy(path, renamed / f"{(7 * i) % 24:03}.png")
    tpca("fit-basis", renamed, "-o", tmp_path / "two.h5", *WAYS[way], "--workers", 3, "--memory", "1500M")
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()
    cache = ("--cache", tmp_path / "cache.h5")
    for name in ("three.h5", "four.h5"):  # once decoding into the cache, once from it
        tpca("fit-basis", photos, "-o", tmp_path / name, *WAYS[way], *cache)
        assert (tmp_path / "one.h5").read_bytes() == (tmp_path / name).read_bytes()
    assert not list(tmp_path.glob(".*"))


def test_the_basis_rebuilds_what_it_was_fitted_to(photos: Path, tmp_path: Path) -> None:
    tpca("fit-basis", photos, "-o", tmp_path / "b.h5", "--method", "subspace")
    stored = basisfile.read_basis(tmp_path / "b.h5")
    frames = np.stack([natural(12, 10, 3, seed) for seed in range(24)])
    back = stored.basis.reconstruct(stored.basis.project(frames))
    assert np.array_equal(np.rint(back), frames)


def test_fast_streams_and_reports_its_residual(photos: Path, tmp_path: Path) -> None:
    args = ("fit-basis", photos, "--method", "operator", "--components", 6, "--center", "--json")
    fast = tpca(*args, "--solver", "fast", "-o", tmp_path / "f.h5").json
    exact = tpca(*args, "--solver", "exact", "-o", tmp_path / "e.h5").json
    assert fast["streamed"] and not exact["streamed"]
    assert 0 < fast["residual"] <= fast["residual_relative"]
    assert exact["energy"] * 0.999 <= fast["energy"] <= exact["energy"] + 1e-6
    tight = tpca(*args, "--solver", "fast", "--tolerance", 1e-8, "-o", tmp_path / "t.h5").json
    assert tight["residual"] <= 1e-8


def test_auto_says_what_it_chose_and_why(photos: Path, tmp_path: Path) -> None:
    plain = tpca("fit-basis", photos, "-o", tmp_path / "a.h5")
    assert "rank1" in plain.err and "complete" in plain.err
    chosen = tpca("fit-basis", photos, "-o", tmp_path / "b.h5", "--components", 5, "--json").json
    assert chosen["method"] == "subspace" and "24 frames" in chosen["reason"]
    many = tpca("fit-basis", photos, "-o", tmp_path / "c.h5", "--tile", 4, "--components", 5, "--json").json
    assert many["method"] == "operator" and many["frames"] == 24 * 9
    quiet = tpca("fit-basis", photos, "-o", tmp_path / "d.h5", "-q")
    assert quiet.out == "" and quiet.err == ""


def test_dry_run_writes_nothing(photos: Path, tmp_path: Path) -> None:
    plan = tpca("fit-basis", photos, "-o", tmp_path / "b.h5", "--components", 5, "--dry-run", "--json").json
    assert plan["images"] == plan["frames"] == 24 and plan["frame_shape"] == [12, 10, 3]
    assert plan["memory_bytes"] > 0 and plan["disk_bytes"] == 0 and plan["seconds"] >= 0
    assert list(tmp_path.iterdir()) == []
    text = tpca("fit-basis", photos, "-o", tmp_path / "b.h5", "--dry-run").out
    assert "rank1" in text and "reason" in text


def test_memory_decides_whether_the_operator_is_formed(photos: Path, tmp_path: Path) -> None:
    args = ("fit-basis", photos, "--size", "48x48", "--method", "operator", "--components", 4)
    lean = tpca(*args, "--memory", "400M", "-o", tmp_path / "b.h5", "--json").json
    assert lean["streamed"] and lean["solver"] == "fast" and "does not fit" in lean["reason"]
    exact = tpca(*args, "--memory", "400M", "--solver", "exact", "-o", tmp_path / "c.h5", "--json").json
    assert exact["streamed"] and exact["residual"] <= 1e-6
    kept = tpca(*args, "--memory", "400M", "--keep-operator", "-o", tmp_path / "d.h5", code=2)
    assert "memory" in kept.err


ODD = {
    "size and tile": ("--size", "8x8", "--tile", 8),
    "components and energy": ("--components", 3, "--energy", 0.5),
    "all and energy": ("--all", "--energy", 0.5),
    "too many frames for subspace": ("--method", "subspace", "--tile", 2),
    "subspace operator": ("--method", "subspace", "--operator-only"),
    "fast keeps nothing": ("--method", "operator", "--solver", "fast", "--keep-operator"),
    "no such memory": ("--memory", "2X"),
    "no such size": ("--size", "0x4"),
}


@pytest.mark.parametrize("case", ODD)
def test_contradictions_are_usage_errors(case: str, photos: Path, tmp_path: Path) -> None:
    outcome = tpca("fit-basis", photos, "-o", tmp_path / "b.h5", *ODD[case], code=2)
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "b.h5").exists()


@pytest.mark.parametrize("method", ["operator", "rank1", "subspace"])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kind", ["one", "equal", "black"])
def test_degenerate_folders_give_a_valid_basis(kind: str, center: bool, method: str, tmp_path: Path) -> None:
    for i in range(1 if kind == "one" else 3):
        pixels = np.zeros((8, 8, 3), np.uint8) if kind == "black" else natural(8, 8, 3, 1)
        save(tmp_path / "in" / f"{i}.png", pixels)
    flags = ("--center",) if center else ()
    args = ("--method", method, "--components", 5, *flags)
    facts = tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", *args, "--json").json
    assert facts["components"] >= 1
    basis = basisfile.read_basis(tmp_path / "b.h5").basis
    d = basis.project(pixels[None])
    assert np.isfinite(d).all()
    if method != "rank1":  # five rank-1 tensors need not hold one image
        assert np.array_equal(np.rint(basis.reconstruct(d))[0], pixels)


def test_more_components_than_rank_warns(photos: Path, tmp_path: Path) -> None:
    outcome = tpca("fit-basis", photos, "-o", tmp_path / "b.h5", "--method", "operator", "--components", 300)
    assert "only 24 carry energy" in outcome.err
    assert basisfile.read_basis(tmp_path / "b.h5").basis.components == 24


def test_mixed_sizes_become_tiles(tmp_path: Path) -> None:
    folder(tmp_path / "in", 4, sizes=((12, 10), (9, 20)))
    facts = tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", "--json").json
    assert facts["framing"] == "tile" and facts["frame_shape"] == [8, 8, 3]


def test_bad_images_are_skipped_or_fatal(photos: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "in"
    shutil.copytree(photos, mixed)
    (mixed / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 50)
    (mixed / "notes.txt").write_text("hello")
    skipped = tpca("fit-basis", mixed, "-o", tmp_path / "b.h5", "--json", code=3).json
    assert [item["path"].endswith("broken.png") for item in skipped["skipped"]] == [True]
    assert skipped["images"] == 24 and skipped["ignored"] == 1
    tpca("fit-basis", photos, "-o", tmp_path / "clean.h5")
    assert (tmp_path / "clean.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    fatal = tpca("fit-basis", mixed, "-o", tmp_path / "c.h5", "--on-error", "fail", code=None)
    assert fatal.code not in (0, 3) and "broken.png" in fatal.err
    assert tpca("fit-basis", photos, "-o", tmp_path / "d.h5", "--max-pixels", 50, code=1).err
    (tmp_path / "empty").mkdir()
    assert "no image" in tpca("fit-basis", tmp_path / "empty", "-o", tmp_path / "e.h5", code=1).err


def test_when_nothing_is_usable_every_file_is_listed(tmp_path: Path) -> None:
    source = tmp_path / "in"
    folder(source, 2)
    for path in source.iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (source / "empty.png").write_bytes(b"")  # refused before it is opened as an image
    facts = tpca("fit-basis", source, "-o", tmp_path / "b.h5", "--json", code=1).json
    assert {item["path"].split("/")[-1] for item in facts["skipped"]} == {
        "empty.png",
        "image_0000.png",
        "image_0001.png",
    }


def test_nothing_is_overwritten_unasked(photos: Path, tmp_path: Path) -> None:
    tpca("fit-basis", photos, "-o", tmp_path / "b.h5")
    before = (tmp_path / "b.h5").read_bytes()
    tpca("fit-basis", photos, "-o", tmp_path / "b.h5", "--center", code=6)
    assert (tmp_path / "b.h5").read_bytes() == before
    tpca("fit-basis", photos, "-o", tmp_path / "b.h5", "--center", "--force")
    assert (tmp_path / "b.h5").read_bytes() != before


def test_sixteen_bits(tmp_path: Path) -> None:
    folder(tmp_path / "in", 6, sizes=((10, 8),), channels=(1,), dtype=np.uint16)
    for method in ("operator", "rank1", "subspace"):
        out = tmp_path / f"{method}.h5"
        facts = tpca("fit-basis", tmp_path / "in", "-o", out, "--method", method, "--json").json
        assert facts["dtype"] == "u2" and facts["frame_shape"] == [10, 8, 1]
    stored = basisfile.read_basis(tmp_path / "rank1.h5")
    assert isinstance(stored.basis, Rank1Basis) and stored.basis.components == 80


def test_a_basis_of_mixed_channels_says_what_cannot_be_archived_with_it(tmp_path: Path) -> None:
    root, said = tmp_path / "in", "cannot be archived"
    folder(root, 5, sizes=[(16, 16)], channels=[3, 3, 1])
    assert said not in tpca("fit-basis", root, "-o", tmp_path / "b.h5", "--tile", 8).err
    save(root / "clear.png", natural(16, 16, 4))
    told = tpca("fit-basis", root, "-o", tmp_path / "c.h5", "--tile", 8).err
    assert f"4 of 6 images {said} with a basis of 8-bit color and alpha images" in told
    encoded = tpca(
        "encode", root, "-o", tmp_path / "a.h5", "--basis", tmp_path / "c.h5", "--json", code=3
    ).json
    assert encoded["images"] == 2 and len(encoded["skipped"]) == 4
