"""A quality that people mean: reached on average, stored for each image, refused where it has no meaning."""

import json

import numpy as np
import pytest
from command import tpca
from pictures import natural, save

from tpca_cli import Archive
from tpca_cli.codec.tuning import THUMBNAIL, VISUAL
from tpca_cli.encode.code_blocks import _together
from tpca_cli.rate import DEFAULT_QUALITY
from tpca_cli.visual import score


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("quality") / "in"
    for number in range(6):
        save(root / f"{number}.png", natural(72, 96 + 8 * number, seed=number))
    return root


@pytest.mark.parametrize("asked", [50, 80])
def test_the_quality_is_reached_and_stored_for_each_image(photos, tmp_path, asked: int) -> None:
    facts = tpca("encode", photos, "-o", tmp_path / "a.h5", "--quality", asked, "--force", "--json").json
    assert facts["target"] == {"quality": asked, "visual": 1}
    assert asked <= facts["quality"] <= asked + 0.5
    listed = tpca("inspect", tmp_path / "a.h5", "--list", "--json").json["list"]
    with Archive(tmp_path / "a.h5") as archive:
        found = {
            name: score(natural(72, 96 + 8 * number, seed=number), archive[name])
            for number, name in enumerate(f"{k}.png" for k in range(6))
        }
    stored = {image["name"]: image["quality"] for image in listed}
    assert stored == {name: pytest.approx(value, abs=0.006) for name, value in found.items()}
    assert facts["quality"] == pytest.approx(np.mean(list(found.values())), abs=0.006)
    worst = min(found, key=lambda name: found[name])
    assert facts["quality_worst"] == worst and facts["quality_min"] == stored[worst]


def test_appending_measures_too_and_other_targets_do_not(photos, tmp_path) -> None:
    tpca("encode", photos / "0.png", photos / "1.png", "-o", tmp_path / "a.h5", "--quality", 60, "--force")
    facts = tpca("encode", photos, "-o", tmp_path / "a.h5", "--append", "--json").json
    listed = tpca("inspect", tmp_path / "a.h5", "--list", "--json").json["list"]
    assert facts["images"] == 6 and all(image["quality"] is not None for image in listed)
    plain = tpca("encode", photos, "-o", tmp_path / "b.h5", "--psnr", 30, "--force", "--json").json
    assert plain["quality"] is None and plain["quality_min"] is None


def test_thumbnails_have_steps_of_their_own_but_for_a_quality(photos, tmp_path) -> None:
    def tunes(*arguments: object) -> set[str]:
        tpca("encode", "-o", tmp_path / "a.h5", "--force", *arguments)
        with Archive(tmp_path / "a.h5") as archive:
            return {archive.coder(group).tune for group in range(len(archive.groups))}

    assert tunes(photos, "--max-bytes", 8000) == {THUMBNAIL}
    assert 0.97 * 8000 <= (tmp_path / "a.h5").stat().st_size <= 8000
    assert tunes(photos / "0.png", photos / "1.png", "--quality", 60) == {VISUAL}
    assert tunes(photos / "0.png", "--step", 20, "--tune", "visual") == {THUMBNAIL}
    assert tunes(photos / "1.png", "--append") == {THUMBNAIL}


def test_deep_images_and_other_steps_are_refused_in_one_line(photos, tmp_path) -> None:
    deep = (natural(40, 40, 1, seed=1).astype(np.uint16) * 257).astype(np.uint16)
    save(tmp_path / "in" / "a.png", deep)
    told = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--quality", 70, code=2).err
    assert "--quality is for images of 8 bits" in told and "--psnr" in told
    for more in (["--tune", "psnr"], ["--components", 10], ["--method", "operator"]):
        told = tpca("encode", photos, "-o", tmp_path / "b.h5", "--quality", 70, *more, code=2).err
        assert "leave out --tune psnr" in told


def test_a_basis_of_tiles_has_steps_for_a_quality_and_a_dense_one_has_not(photos, tmp_path) -> None:
    tiles, dense = tmp_path / "tiles.h5", tmp_path / "dense.h5"
    tpca("fit-basis", photos, "-o", tiles, "--tile", 8, "--method", "rank1")
    tpca("fit-basis", photos, "-o", dense, "--tile", 8, "--method", "operator")
    for more in ([], ["--link-basis"]):
        asked = ("--basis", tiles, "--quality", 60, "--force", "--json", *more)
        assert 60 <= tpca("encode", photos, "-o", tmp_path / "a.h5", *asked).json["quality"] <= 60.5
    for run in ([], ["--dry-run"]):
        asked = ("--basis", dense, "--quality", 60, *run)
        assert "rank-1 tiles" in tpca("encode", photos, "-o", tmp_path / "b.h5", *asked, code=2).err


def test_photographs_get_a_quality_without_being_asked(tmp_path) -> None:
    """And what is no photograph of 8 bits a PSNR: small, deep, flat, or for the least error."""
    photos = tmp_path / "in"
    for number in range(2):
        save(photos / f"{number}.png", natural(136, 160, seed=number))
    ended = tpca("encode", photos, "-o", tmp_path / "a.h5", "--force", "--json")
    assert ended.json["target"] == {"quality": DEFAULT_QUALITY, "detail": 1, "visual": 1}
    assert DEFAULT_QUALITY <= ended.json["quality"] <= DEFAULT_QUALITY + 0.5
    told = tpca("encode", photos, "-o", tmp_path / "a.h5", "--force").err
    assert "no target given: aiming at a quality of 80" in told
    assert tpca("encode", photos, "-o", tmp_path / "b.h5", "--dry-run", "--json").json["target"] == {
        "quality": DEFAULT_QUALITY, "detail": 1, "visual": 1
    }  # fmt: skip
    save(tmp_path / "small" / "a.png", natural(100, 160, seed=3))
    save(tmp_path / "flat" / "a.png", (100 + natural(136, 160, seed=4) // 64).astype(np.uint8))
    save(tmp_path / "deep" / "a.png", natural(136, 160, 1, seed=5).astype(np.uint16) * 257)
    asked = {"psnr": 36, "detail": 1}
    for folder in ("small", "flat", "deep"):
        found = tpca("encode", tmp_path / folder, "-o", tmp_path / f"{folder}.h5", "--force", "--json").json
        assert found["target"] == asked, folder
    found = tpca("encode", photos, "-o", tmp_path / "c.h5", "--tune", "psnr", "--force", "--json").json
    assert found["target"] == asked and found["psnr"] >= 36


def test_new_images_reach_the_quality_and_others_join_by_psnr(tmp_path) -> None:
    """An append holds each night to what the archive was made for; deep images go in beside them."""
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    for number in range(2):
        save(root / f"a{number}.png", natural(136, 160, seed=number))
    tpca("encode", root, "-o", archive, "--force")
    for number in range(2):
        grain = np.random.default_rng(number).normal(0, 12, (136, 160, 3))
        busy = np.clip(natural(136, 160, seed=9 + number) + grain, 0, 255).astype(np.uint8)
        save(root / f"b{number}.png", busy)
    save(root / "deep.png", natural(40, 40, 1, seed=5).astype(np.uint16) * 257)
    facts = tpca("encode", root, "-o", archive, "--append", "--force", "--json").json
    assert facts["images"] == 5 and not facts["warning"]
    listed = tpca("ls", archive, "b*", "--json").out
    seen = [json.loads(line)["quality"] for line in listed.splitlines()]
    assert DEFAULT_QUALITY <= np.mean(seen) <= DEFAULT_QUALITY + 2
    with Archive(archive) as opened:
        assert opened["deep.png"].dtype == np.uint16
    again = tpca("ls", archive, "--sort", "quality").out.split("\n")[1:]
    assert "deep.png" in again[4] and float(again[0].split()[4]) <= float(again[3].split()[4])


@pytest.mark.parametrize("before", [["--psnr", 33], ["--psnr", 33, "--method", "operator"], ["--step", 12]])
def test_a_quality_is_reached_beside_groups_that_were_made_for_something_else(tmp_path, before) -> None:
    """Their steps are for the least squared error, at which no quality is measured."""
    archive = tmp_path / "a.h5"
    for number, asked in enumerate((["--exact"], before, ["--quality", 85], ["--quality", 85])):
        save(tmp_path / "in" / f"{number}.png", natural(136, 160, seed=number))
        facts = tpca("encode", tmp_path / "in", "-o", archive, "--append", "--force", "--json", *asked).json
        assert facts["warning"] == ""
    assert facts["images"] == 4 and len(facts["groups"]) <= 4
    seen = [json.loads(line)["quality"] for line in tpca("ls", archive, "--json").out.splitlines()]
    assert seen[1] is None and min(seen[2:]) >= 85


def test_a_photograph_is_not_coded_as_the_thumbnails_of_its_kind_are(tmp_path) -> None:
    """Every night is held to what its images were coded for: to 36 dB where they are small."""
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    nights = [(136, 160, 3), (32, 32, 4), (136, 160, 4), (78, 180, 3), (40, 32, 4), (136, 160, 4)]
    for number, (height, width, channels) in enumerate(nights):
        save(root / f"{number}.png", natural(height, width, channels, seed=number))
        facts = tpca("encode", root, "-o", archive, "--append", "--force", "--json").json
        assert facts.get("warning", "") == ""
    seen = [json.loads(line)["quality"] for line in tpca("ls", archive, "--json").out.splitlines()]
    assert all(seen[night] >= DEFAULT_QUALITY for night in (0, 2, 5))


def test_the_quality_of_an_image_in_bands_is_that_of_the_whole(tmp_path) -> None:
    """Bands are lower than what people see errors at: each alone would be judged by other scales."""
    source = natural(80, 450, 3, 7).repeat(4, axis=0).repeat(4, axis=1)  # (h, w, c)
    save(tmp_path / "wide.png", source)
    asked = ("--step", 40, "--tune", "visual", "--json")
    found = tpca("encode", tmp_path / "wide.png", "-o", tmp_path / "a.h5", *asked).json
    with Archive(tmp_path / "a.h5") as archive:
        assert len(archive.index.blocks["first"]) > 1
        assert abs(found["quality"] - score(source, archive[0])) < 2


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 17])
@pytest.mark.parametrize("rows", [0, 90, 200, 256, 10_000])
def test_bands_that_are_judged_together_are_all_bands_in_order(count: int, rows: int) -> None:
    bands = [(80 * k, 80 if k < count - 1 else 33) for k in range(count)]
    parts = _together(bands, rows)
    assert [band for part in parts for band in part] == bands
    assert len(parts) == 1 or all(sum(height for _, height in part) >= rows for part in parts)
