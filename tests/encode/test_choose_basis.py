"""The sample that a design is tried on, windows or whole images; and what is made of a given basis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import tpca
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pictures import folder, save

from tpca_cli.archive.reader import Archive
from tpca_cli.archive.writer import linked_basis
from tpca_cli.basisfile import read_basis
from tpca_cli.encode import sample as sampling
from tpca_cli.encode.sample import moments, pixel_count, take_sample
from tpca_cli.sources.probe import survey
from tpca_cli.sources.read_plan import Reading


@pytest.mark.parametrize("windows", [True, False])
def test_only_a_sample_for_tiles_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: bool
) -> None:
    folder(tmp_path, 6, sizes=((128, 140),))
    monkeypatch.setattr(sampling, "SAMPLE_PIXELS", 3 * 128 * 140)
    ((kind, members),) = survey([str(tmp_path)], Reading()).groups.items()
    sample = take_sample(members, kind, Reading(), windows=windows)
    assert not sample.whole
    cells = {(64, 64), (64, 140 % 64)} if windows else {(128, 140)}
    assert {pixels.shape[:2] for pixels in sample.pictures} <= cells
    assert pixel_count(sample.pictures) <= sampling.SAMPLE_PIXELS


def test_of_large_images_a_part_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of quality are pictures as people see them, and stay few pixels however large the images."""
    folder(tmp_path, 6, sizes=((128, 140), (20, 300), (32, 32)))
    monkeypatch.setattr(sampling, "SAMPLE_PIXELS", 6 * 32**2)
    monkeypatch.setattr(sampling, "SEEN", 32)
    ((kind, members),) = survey([str(tmp_path)], Reading()).groups.items()
    sample = take_sample(members, kind, Reading(), windows=False, seen_area=True)
    assert sorted({pixels.shape[:2] for pixels in sample.pictures}) == [(20, 32), (32, 32)]
    assert len(sample.pictures) == len(members)


def test_few_small_images_are_taken_whole(tmp_path: Path) -> None:
    folder(tmp_path, 3, sizes=((100, 60), (70, 50)))
    ((kind, members),) = survey([str(tmp_path)], Reading()).groups.items()
    sample = take_sample(members, kind, Reading())
    assert sample.whole
    assert [p.shape[:2] for p in sample.pictures] == [(m.height, m.width) for m in members]


@given(
    arrays(
        st.sampled_from([np.uint8, np.uint16]),
        st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4)),
    )
)
def test_moments_are_exact(pixels: np.ndarray) -> None:
    wide = pixels.astype(object).reshape(-1, pixels.shape[2])
    squares = (wide * wide).sum(axis=0)
    sums = wide.sum(axis=0)
    n = len(wide)
    found = moments(pixels)
    assert found.samples == pixels.size
    assert found.largest == pixels.max()
    assert found.energy == squares.sum()
    assert found.deviation == sum((n * q - s * s) // n for q, s in zip(squares, sums, strict=True))


@pytest.fixture
def tinted(tmp_path: Path) -> Path:
    """Pictures of a color whose brightness alone varies, and a basis of their tiles."""
    rng = np.random.default_rng(5)
    for number in range(4):
        waves = np.cumsum(rng.normal(0, 6, (64, 64 + number)), axis=1)[..., None]
        pixels = waves + rng.normal(0, 1, (*waves.shape[:2], 3)) + [170, 90, 60]
        save(tmp_path / f"in/{number}.png", np.clip(pixels, 0, 255).astype(np.uint8))
    tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "basis.h5", "--tile", 8)
    return tmp_path


def encoded(place: Path, name: str, *options: object) -> dict[str, Any]:
    return tpca("encode", place / "in", "-o", place / name, "--step", 6, *options, "--json").json


def test_a_complete_basis_of_tiles_costs_nothing(tinted: Path) -> None:
    """It spans all tiles in any modes: those are taken that suit the images, as without a basis."""
    given = ("--basis", tinted / "basis.h5")
    own, with_it = encoded(tinted, "own.h5"), encoded(tinted, "given.h5", *given)
    linked = encoded(tinted, "linked.h5", *given, "--link-basis")
    assert with_it["coefficient_bytes"] <= 1.02 * own["coefficient_bytes"] < linked["coefficient_bytes"]
    assert "in modes that suit" in tpca("encode", tinted / "in", "-o", tinted / "a.h5", *given).err
    # the archive knows which basis it was made with, and takes more images with it
    (tinted / "in/0.png").rename(tinted / "in/new.png")
    added = tpca("encode", tinted / "in", "-o", tinted / "given.h5", "--append", *given, "--json").json
    assert added["images"] == 5


@pytest.mark.parametrize("options", [("--link-basis",), ("--components", 192)])
def test_a_basis_is_used_as_it_is_where_that_is_asked_for(tinted: Path, options: tuple[object, ...]) -> None:
    encoded(tinted, "a.h5", "--basis", tinted / "basis.h5", *options)
    stored = linked_basis(tinted / "basis.h5")
    with Archive(tinted / "a.h5", basis=stored) as archive:
        basis = archive.coder(0).basis
    modes = read_basis(tinted / "basis.h5").basis.modes  # type: ignore[union-attr]
    for factor, mode in zip(basis.factors, modes, strict=True):
        assert np.allclose(factor / 2**basis.bits, mode, atol=2.0**-basis.bits)
