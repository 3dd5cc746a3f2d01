"""A quality that people mean: reached on average, stored for each image, refused where it has no meaning."""

import numpy as np
import pytest
from command import tpca
from pictures import natural, save

from tpca_cli import Archive
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


def test_deep_images_and_other_steps_are_refused_in_one_line(photos, tmp_path) -> None:
    deep = (natural(40, 40, 1, seed=1).astype(np.uint16) * 257).astype(np.uint16)
    save(tmp_path / "in" / "a.png", deep)
    told = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--quality", 70, code=2).err
    assert "--quality is for images of 8 bits" in told and "--psnr" in told
    for more in (["--tune", "psnr"], ["--components", 10], ["--method", "operator"]):
        told = tpca("encode", photos, "-o", tmp_path / "b.h5", "--quality", 70, *more, code=2).err
        assert "leave out --tune psnr" in told
