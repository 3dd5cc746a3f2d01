"""The sample that a design is tried on: bands of large images, or whole images where frames are whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictures import folder

from tpca_cli.encode import choose_basis as design
from tpca_cli.sources.probe import survey
from tpca_cli.sources.read_plan import Reading


@pytest.mark.parametrize("bands", [True, False])
def test_only_a_sample_for_tiles_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bands: bool) -> None:
    folder(tmp_path, 6, sizes=((128, 40),))
    monkeypatch.setattr(design, "SAMPLE_PIXELS", 3 * 128 * 40)
    ((kind, members),) = survey([str(tmp_path)], Reading()).groups.items()
    sample, complete = design.take_sample(members, kind, Reading(), bands=bands)
    assert not complete
    assert {pixels.shape[:2] for pixels in sample} == {(64, 40) if bands else (128, 40)}
    assert sum(pixels.shape[0] * pixels.shape[1] for pixels in sample) <= design.SAMPLE_PIXELS
