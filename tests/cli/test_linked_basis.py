"""Archives whose basis is in another file: without it they are refused, and not called damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import tpca
from pictures import folder


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Images, two bases, and an archive that is linked to the first."""
    root = tmp_path_factory.mktemp("linked")
    folder(root / "in", 4, sizes=[(48, 64)])
    tpca("fit-basis", root / "in", "-o", root / "b.h5", "--tile", 8)
    tpca("fit-basis", root / "in", "-o", root / "other.h5", "--tile", 8, "--components", 3)
    tpca("encode", root / "in", "-o", root / "a.h5", "--basis", root / "b.h5", "--link-basis", "--step", 24)
    return root


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "a.h5", "--decode"),
        ("verify", "a.h5", "--decode", "--against", "in"),
        ("decode", "a.h5", "-o", "out"),
        ("decode", "a.h5", "-o", "out", "--salvage"),
    ],
)
def test_without_its_basis_nothing_is_called_damaged(made, tmp_path, words) -> None:
    asked = [made / word if (made / word).exists() else word for word in words]
    asked = [tmp_path / "out" if word == "out" else word for word in asked]
    refused = tpca(*asked, code=4)
    assert not refused.out and len(refused.err.splitlines()) == 1
    assert "is in another file: name it with --basis" in refused.err
    wrong = tpca(*asked, "--basis", made / "other.h5", code=4)
    assert not wrong.out and len(wrong.err.splitlines()) == 1 and "--basis holds" in wrong.err
    tpca(*asked, "--basis", made / "b.h5")


def test_salvage_restores_what_needs_no_other_basis(made, tmp_path) -> None:
    """Of images of two bases, those of the one that is named; none of the others is damaged either."""
    (tmp_path / "a.h5").write_bytes((made / "a.h5").read_bytes())
    folder(tmp_path / "more", 3, sizes=[(48, 64)], seed=50)
    for image in sorted((tmp_path / "more").iterdir()):
        image.rename(image.with_name(f"more_{image.name}"))
    other = ("--append", "--refit", "--basis", made / "other.h5", "--link-basis")
    tpca("encode", tmp_path / "more", "-o", tmp_path / "a.h5", *other)
    salvage = ("decode", tmp_path / "a.h5", "-o", tmp_path / "out", "--salvage", "--json")
    tpca(*salvage, code=4)
    facts = tpca(*salvage, "--basis", made / "b.h5", code=3).json
    assert facts["images"] == 4 and len(facts["lost"]) == 3
