"""A few images of unusual shape beside ordinary ones cost what they hold, not the product of their sides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import QUICK, archived, check_failed, folder, forked, save
from PIL import Image


@pytest.mark.parametrize("side", [8192, 30000])
def test_55_a_long_and_a_high_image(tmp_path: Path, side: int) -> None:
    source, archive = tmp_path / "in", tmp_path / "a.h5"
    folder(source, 60, sizes=[(48, 64)])
    for name, shape in (("long", (1, side, 1)), ("high", (side, 1, 1))):
        save(source / f"{name}.png", np.full(shape, 200, np.uint8))
    ended = forked("encode", source, "-o", archive, *QUICK, memory=3 << 30, timeout=60)
    assert ended.code == 0 and ended.peak < 500_000, ended
    ended = forked("decode", archive, "-o", tmp_path / "out", memory=3 << 30)
    assert ended.code == 0 and ended.peak < 300_000, ended
    with Image.open(tmp_path / "out" / "long.png") as image:
        assert image.size == (side, 1)


def test_55_with_default_settings_beside_a_few_images(tmp_path: Path) -> None:
    """Where the sample that designs are tried on holds all of them; an append tries its steps on one, too."""
    source, more, archive = tmp_path / "in", tmp_path / "more", tmp_path / "a.h5"
    folder(source, 3, sizes=[(48, 64)])
    folder(more, 2, sizes=[(48, 64)], seed=7)
    for place in (source, more):
        for name, shape in (("long", (1, 30000, 3)), ("high", (30000, 1, 3))):
            save(place / f"{name}-{place.name}.png", np.full(shape, 200, np.uint8))
    ended = forked("encode", source, "-o", archive, memory=3 << 30, timeout=120)
    assert ended.code == 0, ended
    ended = forked("encode", more, "-o", archive, "--append", memory=3 << 30, timeout=120)
    assert ended.code in (0, 3), ended


def test_55_what_no_reader_would_open_is_not_written(tmp_path: Path) -> None:
    folder(tmp_path / "in", 2, sizes=[(300, 300)])
    ended = forked("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--tile", 256, "--method", "rank1")
    check_failed(ended, 2)
    assert "smaller --tile" in ended.err and not (tmp_path / "a.h5").exists()


def test_55_a_bound_on_the_pixels_of_an_archive(tmp_path: Path) -> None:
    _, archive = archived(tmp_path, 4)
    decode = ("decode", archive, "-o", tmp_path / "out")
    for words in (("verify", archive), ("verify", archive, "--decode"), decode):
        ended = forked(*words, "--max-pixels", 24 * 32 - 1)
        check_failed(ended, 4)
        assert "raise --max-pixels" in ended.err
        assert not (tmp_path / "out").exists()
        assert forked(*words, "--max-pixels", 24 * 32).code == 0
