"""The design of a group: tiles of 8 x 8 for photographs, of 4 x 4 for drawings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import tpca
from pictures import Pixels, natural, save

from tpca_cli.encode import choose_design as choose_design_module
from tpca_cli.encode.choose_design import candidates, choose_design
from tpca_cli.sources.probe import Kind


def drawing(side: int, channels: int, seed: int) -> Pixels:
    """Flat shapes of few colors with sharp borders, (side, side, channels)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:side, 0:side]
    pixels = np.full((side, side, channels), 255, np.uint8)
    for _ in range(9):
        color, (a, b, r) = rng.integers(0, 256, channels), rng.uniform(0, side, 3)
        inside = (
            (np.hypot(y - a, x - b) < r / 3)
            if rng.random() < 0.6
            else (abs(y - a) + 0.5 * abs(x - b) < r / 5)
        )
        pixels[inside] = color
    return pixels


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("drawn", "side"), [(True, 4), (False, 8)])
def test_drawings_are_cut_into_small_tiles(channels: int, drawn: bool, side: int) -> None:
    kind = Kind("u1", channels)
    some = range(24)
    pictures = [drawing(64, channels, n) if drawn else natural(64, 64, channels, n) for n in some]
    designs = candidates([], kind, "rank1", None, sampled_whole=False, small=True)
    assert choose_design(designs, pictures, kind, 12.0, 1.0).framing.height == side


@pytest.mark.parametrize("guessed", [True, False])
def test_a_step_that_was_asked_for_does_not_grow(guessed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, coded = list[float](), choose_design_module._coded

    def noted(*given: Any) -> Any:
        tried.append(given[3])
        return coded(*given)

    monkeypatch.setattr(choose_design_module, "_coded", noted)
    kind, pictures = Kind("u1", 3), [drawing(64, 3, n) for n in range(24)]
    designs = candidates([], kind, "rank1", None, sampled_whole=False, small=True)
    assert choose_design(designs, pictures, kind, 12.0, 1.0, guessed=guessed).framing.height == 4
    assert len(tried) == 5 and (max(tried) > 12) == guessed


def test_small_tiles_are_for_8_bits_and_where_they_are_asked_for() -> None:
    def sides(dtype: str, method: str, tile: int | None, small: bool) -> set[int]:
        designs = candidates([], Kind(dtype, 3), method, tile, sampled_whole=False, small=small)
        return {design.framing.height for design in designs}

    assert sides("u1", "auto", None, True) == sides("u1", "rank1", None, True) == {4, 8, 16}
    assert sides("u1", "auto", None, False) == sides("u2", "auto", None, True) == {8, 16}
    assert sides("u1", "auto", 8, True) == {8} and sides("u1", "operator", None, True) == {8}


@pytest.mark.parametrize(
    ("side", "channels", "measure", "aim"), [(64, 4, "psnr", 38), (160, 3, "quality", 75)]
)
def test_drawings_take_fewer_bytes_by_default_than_in_larger_tiles(
    tmp_path: Path, side: int, channels: int, measure: str, aim: int
) -> None:
    for n in range(40 * 64 // side):
        save(tmp_path / "in" / f"{n:02d}.png", drawing(side, channels, n))

    def taken(name: str, *options: str) -> dict[str, Any]:
        target = f"--{measure}", str(aim), "--json", "--force"
        return tpca("encode", tmp_path / "in", "-o", tmp_path / name, *target, *options).json

    free, eights = taken("free.h5"), taken("eights.h5", "--tile", "8")
    assert free["framing"] == "tile 4x4" and free[measure] >= aim
    assert free["archive_bytes"] < 0.95 * eights["archive_bytes"]
    tpca("verify", tmp_path / "free.h5", "--against", tmp_path / "in")
