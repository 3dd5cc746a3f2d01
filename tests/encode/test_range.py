"""Quality counts from the range that the images use: what can be seen in them is kept, or it is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import tpca
from hypothesis import given
from hypothesis import strategies as st
from pictures import folder, natural, noise, save

from tpca_cli.archive.facts import image_quality
from tpca_cli.archive.reader import Archive
from tpca_cli.encode import sample
from tpca_cli.encode.sample import moments
from tpca_cli.quality import DETAIL_SHARE, NEGLIGIBLE, peak_of, psnr


def microscopy(seed: int, height: int = 96, width: int = 128) -> np.ndarray:
    """Cells of 60 to 400 photons over a background of 100, with Poisson noise, one hot pixel at 4095."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    light = np.full((height, width), 100.0)
    for _ in range(8):
        away = np.hypot(y - rng.uniform(0, height), x - rng.uniform(0, width)) - rng.uniform(5, 12)
        light += rng.uniform(60, 400) / (1 + np.exp(away))
    counted = rng.poisson(light)
    counted[rng.integers(0, height), rng.integers(0, width)] = 4095
    return np.clip(counted, 0, 4095).astype(np.uint16)[:, :, None]


def lights(seed: int) -> np.ndarray:
    """The same without noise: where the cells are."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:96, 0:128]
    light = np.full((96, 128), 100.0)
    for _ in range(8):
        away = np.hypot(y - rng.uniform(0, 96), x - rng.uniform(0, 128)) - rng.uniform(5, 12)
        light += rng.uniform(60, 400) / (1 + np.exp(away))
    return light


def dark(seed: int) -> np.ndarray:
    return (natural(64, 80, 3, seed) // 16).astype(np.uint8)


def nearly_equal(seed: int) -> np.ndarray:
    """One scene, a little different each time, of little contrast."""
    rng = np.random.default_rng(seed)
    return np.clip(100 + natural(64, 80, 3, 0) / 10.0 + rng.normal(0, 1, (64, 80, 3)), 0, 255).astype(
        np.uint8
    )


def shares(archive: Path, originals: dict[str, np.ndarray]) -> list[float]:
    """The error of each image by its variance, from decoded pixels."""
    with Archive(archive) as opened:
        found = []
        for k, name in enumerate(opened.names_bytes):
            source = originals[name.decode()].astype(np.int64)
            error = source - opened[k].astype(np.int64)
            found.append(float((error**2).sum() / max(moments(source).deviation, 1)))
        return found


@pytest.fixture(scope="module")
def cells(tmp_path_factory) -> tuple[Path, dict[str, np.ndarray]]:
    root = tmp_path_factory.mktemp("cells")
    originals = {f"cell_{k:02}.tif": microscopy(k) for k in range(12)}
    for name, pixels in originals.items():
        save(root / name, pixels)
    return root, originals


def test_cells_are_visible_by_default(cells, tmp_path) -> None:
    """12 bits in 16: 36 dB counted from 65535 once kept a constant."""
    root, originals = cells
    facts = tpca("encode", root, "-o", tmp_path / "a.h5", "--json").json
    assert facts["groups"][0]["peak"] == 4095 and facts["low_quality"] == []
    assert facts["psnr"] > 36 and facts["archive_bytes"] < facts["raw_bytes"] / 10
    assert max(shares(tmp_path / "a.h5", originals)) < DETAIL_SHARE
    with Archive(tmp_path / "a.h5") as archive:
        for k, name in enumerate(archive.names_bytes):
            seen = np.minimum(archive[k][:, :, 0], 600)  # the hot pixel aside
            assert np.corrcoef(seen.ravel(), lights(int(name[5:7])).ravel())[0, 1] > 0.97
    shown = tpca("inspect", tmp_path / "a.h5", "--json").json
    assert shown["peak"] == shown["groups"][0]["peak"] == 4095
    told = tpca("inspect", tmp_path / "a.h5").out
    assert "0 to 4,095" in told and "more for images of little contrast" in told


def test_a_quality_that_costs_the_cells_is_said_with_names(cells, tmp_path) -> None:
    root, originals = cells
    told = tpca("encode", root, "-o", tmp_path / "a.h5", "--psnr", 36, "--json", code=3).json
    assert 36 <= told["psnr"] <= 36.5 and told["skipped"] == []
    lost = {item["name"]: item["share"] for item in told["low_quality"]}
    measured = dict(zip(sorted(originals), shares(tmp_path / "a.h5", originals), strict=True))
    assert set(lost) == {name for name, share in measured.items() if share > DETAIL_SHARE} != set()
    assert all(abs(lost[name] - measured[name]) < 1e-3 * measured[name] for name in lost)
    warned = tpca("encode", root, "-o", tmp_path / "b.h5", "--psnr", 36, code=3).err
    assert "low quality: cell_" in warned and "% of its variance" in warned


@pytest.mark.parametrize("kind", [dark, nearly_equal])
@pytest.mark.parametrize("count", [1, 11])
def test_dark_nearly_equal_and_single_images_are_kept(tmp_path, kind, count) -> None:
    originals = {f"image_{k:02}.png": kind(k) for k in range(count)}
    for name, pixels in originals.items():
        save(tmp_path / "in" / name, pixels)
    facts = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--force", "--json").json
    assert facts["low_quality"] == []
    limits = [max(DETAIL_SHARE, NEGLIGIBLE * p.size / moments(p).deviation) for p in originals.values()]
    assert all(a <= b for a, b in zip(shares(tmp_path / "a.h5", originals), limits, strict=True))


def test_flat_images_do_not_decide_how_photographs_are_coded(tmp_path) -> None:
    """Three blank pages among twenty once made an archive four times as large."""
    folder(tmp_path / "in", 9, sizes=[(144, 160)])
    alone = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--json", "--force").json
    for k in range(3):
        save(tmp_path / "in" / f"blank_{k}.png", (250 + noise(144, 160, 3, k) // 64).astype(np.uint8))
    beside = tpca("encode", tmp_path / "in", "-o", tmp_path / "b.h5", "--json", "--force", code=3).json
    assert alone["target"] == beside["target"] and beside["quality"] >= 80
    assert beside["archive_bytes"] < 1.5 * alone["archive_bytes"]
    assert {item["name"] for item in beside["low_quality"]} <= {f"blank_{k}.png" for k in range(3)}


def test_icons_do_not_decide_how_photographs_are_coded(tmp_path) -> None:
    folder(tmp_path / "in", 2, sizes=[(160, 176)])
    for k in range(6):
        icon = np.dstack([natural(24, 24, 3, k), np.full((24, 24), 255, np.uint8)])
        save(tmp_path / "in" / f"icon_{k}.png", icon)
    facts = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--json", "--force").json
    with Archive(tmp_path / "a.h5") as archive:
        seen = dict(zip(archive.names, image_quality(archive.index), strict=True))
        errors = dict(zip(archive.names, archive.index.images["error"].tolist(), strict=True))
    assert facts["quality"] >= 80
    for name, score in seen.items():  # who is not measured is not coded for people
        assert (score is None) == name.startswith("icon_")
        assert score is not None or psnr(errors[name], 24 * 24 * 4, 255) > 36


def test_photographs_are_coded_as_ever(tmp_path) -> None:
    folder(tmp_path / "in", 10, sizes=[(48, 64)])
    default = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--json").json
    asked = tpca("encode", tmp_path / "in", "-o", tmp_path / "b.h5", "--psnr", 36, "--json").json
    assert default["coefficient_bytes"] == asked["coefficient_bytes"] and default["step"] == asked["step"]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_step_is_in_pixel_values_at_every_depth(tmp_path, dtype) -> None:
    folder(tmp_path / "in", 3, channels=(1,), dtype=dtype)
    facts = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 6, "--json", "--force").json
    assert facts["groups"][0]["step"] == 6
    with Archive(tmp_path / "a.h5") as archive:
        for k in range(3):
            error = archive[k].astype(int) - natural(24, 32, 1, k, dtype).astype(int)
            assert abs(error).max() < 24


@pytest.mark.parametrize("given", [False, True])
def test_the_range_follows_from_all_images(tmp_path, monkeypatch, given) -> None:
    """A large value that the sample does not show is found while coding."""
    for k in range(6):
        pixels = natural(24, 32, 1, k, np.uint16) >> 6
        if k == 0:
            pixels[3, 4] = 5000
        save(tmp_path / "in" / f"image_{k}.png", pixels)
    monkeypatch.setattr(sample, "SAMPLE_IMAGES", 2)  # images 1 and 4
    monkeypatch.setattr(sample, "SAMPLE_PIXELS", 2 * 24 * 32)
    options = ["--force", "--json"]
    if given:
        tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "basis.h5", "--tile", 8)
        options += ["--basis", tmp_path / "basis.h5"]
    for target in (["--psnr", 50], ["--step", 8]):
        facts = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", *options, *target).json
        assert facts["groups"][0]["peak"] == 8191


@given(st.integers(0, 65535))
def test_the_peak_is_the_smallest_that_holds(largest: int) -> None:
    peak = peak_of(largest, "u2")
    assert peak >= largest and (peak + 1) & peak == 0 and (peak == 1 or peak // 2 < largest)
    assert peak_of(largest, "u1") == 255


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_deviation_is_the_variance_of_each_channel(seed: int, channels: int) -> None:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 65536, (5, 7, channels), np.uint16)
    assert abs(moments(pixels).deviation - 35 * pixels.var(axis=(0, 1)).sum()) <= channels
    assert moments(np.full((4, 4, channels), 9, np.uint16)).deviation == 0


def test_near_exactness_one_pass_is_enough(tmp_path) -> None:
    """Between hardly a sample wrong and none there is nothing to search for."""
    folder(tmp_path / "in", 4, sizes=[(48, 64)])
    facts = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--psnr", 90, "--force", "--json").json
    assert facts["psnr"] is None or facts["psnr"] >= 90  # None: identical pixels
    assert len(facts["steps"]) <= 2 and facts["steps"][-1]["step"] > 0.1
    assert facts["seconds"] > 0 and facts["output"] == str(tmp_path / "a.h5")


def test_unreachable_quality_and_other_methods_say_what_to_do(tmp_path) -> None:
    folder(tmp_path / "in", 4, sizes=[(48, 64)])
    told = tpca(
        "encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--psnr", 90, "--components", 3, "--json", code=1
    ).json["error"]
    assert "cannot be reached with 3 components" in told and "dB" in told
    asked = ("--method", "subspace", "--tile", 8)
    assert "--size" in tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", *asked, code=2).err
