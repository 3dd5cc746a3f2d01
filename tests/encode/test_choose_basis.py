"""The sample that a design is tried on: windows of large images, or whole images where frames are whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pictures import folder

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
