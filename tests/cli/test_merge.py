"""`tpca merge` and `--update`: shards add up to the bytes of one fit, and nothing is counted twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command import tpca
from pictures import folder

from tpca_cli import basisfile

WAYS = {
    "rank1": ("--method", "rank1"),
    "rank1-center": ("--method", "rank1", "--components", 40, "--center", "--truncation", "products"),
    "tiles": ("--tile", 4, "--method", "operator"),
    "operator": ("--method", "operator", "--components", 6, "--keep-operator", "--center"),
    "energy": ("--method", "operator", "--size", "8x8", "--energy", 0.9),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """All images, and the same in three parts."""
    root = tmp_path_factory.mktemp("shards")
    paths = folder(root / "all", 15, sizes=((12, 10),))
    for i, path in enumerate(paths):
        part = root / f"part{i % 3}"
        part.mkdir(exist_ok=True)
        shutil.copy(path, part / path.name)
    return [root / "all", *(root / f"part{k}" for k in range(3))]


@pytest.fixture(autouse=True)
def small_frames_count_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of whole frames are kept on request alone, without the time that large ones take."""
    monkeypatch.setattr("tpca_cli.fit.plan.KEPT", 100)


def keep(way: str) -> tuple[str, ...]:
    return ("--keep-operator",) if "--keep-operator" in WAYS[way] else ()


@pytest.mark.parametrize("way", WAYS)
def test_merged_shards_have_the_bytes_of_one_fit(way: str, shards: list[Path], tmp_path: Path) -> None:
    whole, *parts = shards
    tpca("fit-basis", whole, "-o", tmp_path / "whole.h5", *WAYS[way])
    names = []
    for k, part in enumerate(parts):
        names.append(tmp_path / f"part{k}.h5")
        tpca("fit-basis", part, "-o", names[-1], *WAYS[way], "--operator-only")
    merged = tpca("merge", *reversed(names), "-o", tmp_path / "merged.h5", *keep(way), "--json").json
    assert merged["parts"] == 3 and merged["images"] == 15
    assert (tmp_path / "merged.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


@pytest.mark.parametrize("way", WAYS)
def test_updates_have_the_bytes_of_one_fit(way: str, shards: list[Path], tmp_path: Path) -> None:
    whole, *parts = shards
    if way == "energy":
        return  # a large operator is kept on request alone; `operator` covers it
    tpca("fit-basis", whole, "-o", tmp_path / "whole.h5", *WAYS[way])
    tpca("fit-basis", parts[1], "-o", tmp_path / "b.h5", *WAYS[way])
    tpca("fit-basis", parts[0], "--update", tmp_path / "b.h5")
    tpca("fit-basis", parts[2], "--update", tmp_path / "b.h5", "-o", tmp_path / "c.h5")
    assert (
        basisfile.read(tmp_path / "b.h5").origin.frames * 3
        == 2 * basisfile.read(tmp_path / "c.h5").origin.frames
    )
    assert (tmp_path / "c.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_an_image_is_never_counted_twice(shards: list[Path], tmp_path: Path) -> None:
    whole, first, *_ = shards
    tpca("fit-basis", first, "-o", tmp_path / "b.h5")
    before = (tmp_path / "b.h5").read_bytes()
    refused = tpca("fit-basis", whole, "--update", tmp_path / "b.h5", code=2)
    assert "5 of 15 images are counted already" in refused.err
    assert (tmp_path / "b.h5").read_bytes() == before
    again = tpca("fit-basis", whole, "--update", tmp_path / "b.h5", "--on-duplicate", "skip", "--json").json
    assert (again["added"], again["duplicates"], again["images"]) == (10, 5, 15)
    tpca("fit-basis", whole, "-o", tmp_path / "whole.h5")
    assert (tmp_path / "b.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()
    nightly = tpca("fit-basis", whole, "--update", tmp_path / "b.h5", "--on-duplicate", "skip", "--json").json
    assert nightly["added"] == 0
    assert (tmp_path / "b.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_parts_with_a_common_image_are_refused(shards: list[Path], tmp_path: Path) -> None:
    whole, first, *_ = shards
    tpca("fit-basis", whole, "-o", tmp_path / "a.h5")
    tpca("fit-basis", first, "-o", tmp_path / "b.h5")
    outcome = tpca("merge", tmp_path / "a.h5", tmp_path / "b.h5", "-o", tmp_path / "c.h5", code=2)
    assert "same image" in outcome.err and not (tmp_path / "c.h5").exists()


def test_what_does_not_add_is_refused(shards: list[Path], tmp_path: Path) -> None:
    _, one, two, three = shards
    fits = {
        "rank1": (one, "--method", "rank1"),
        "tile": (two, "--tile", 4, "--method", "rank1"),
        "operator": (three, "--method", "operator", "--size", "8x8", "--keep-operator"),
        "subspace": (two, "--method", "subspace"),
        "bare": (two, "--method", "operator", "--components", 3),
    }
    for name, (source, *options) in fits.items():
        tpca("fit-basis", source, "-o", tmp_path / f"{name}.h5", *options)

    def merged(*names: str) -> str:
        paths = [tmp_path / f"{name}.h5" for name in names]
        return tpca("merge", *paths, "-o", tmp_path / "out.h5", code=2).err

    assert "framing" in merged("rank1", "tile")
    assert "method" in merged("rank1", "operator")
    assert "two images" in merged("subspace", "subspace")
    assert "no operator" in merged("bare")
    assert "subspace" in tpca("fit-basis", one, "--update", tmp_path / "subspace.h5", code=2).err
    assert "no operator" in tpca("fit-basis", one, "--update", tmp_path / "bare.h5", code=2).err
    assert "framing" in tpca("fit-basis", two, "--update", tmp_path / "rank1.h5", "--tile", 8, code=2).err
    assert (
        "method"
        in tpca("fit-basis", two, "--update", tmp_path / "rank1.h5", "--method", "operator", code=2).err
    )
    assert not (tmp_path / "out.h5").exists()
    (tmp_path / "noise.h5").write_bytes(b"not a file of ours")
    tpca("merge", tmp_path / "noise.h5", "-o", tmp_path / "out.h5", code=4)


def test_one_part_becomes_a_basis(shards: list[Path], tmp_path: Path) -> None:
    tpca("fit-basis", shards[1], "-o", tmp_path / "part.h5", "--tile", 8, "--operator-only")
    text = tpca("merge", tmp_path / "part.h5", "-o", tmp_path / "b.h5", "--components", 7)
    assert "7 components" in text.out
    assert basisfile.read_basis(tmp_path / "b.h5").basis.components == 7
    alone = tpca("merge", tmp_path / "part.h5", "-o", tmp_path / "c.h5", "--operator-only").out
    assert "operator alone" in alone
    wish = tpca("merge", tmp_path / "part.h5", "-o", tmp_path / "d.h5", "--energy", 0.9, code=2)
    assert "pixels" in wish.err
