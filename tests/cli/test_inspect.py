"""`tpca inspect` of archives and tensor caches: the page, the numbers, the list, the pictures."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import folder, natural, save
from PIL import Image

FIELDS = {
    *("images", "skipped", "raw_bytes", "source_bytes", "archive_bytes", "basis_bytes", "coefficient_bytes"),
    *(
        "index_bytes",
        "psnr",
        "psnr_min",
        "components",
        "step",
        "method",
        "framing",
        "ratio_raw",
        "ratio_source",
    ),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source")
    folder(root / "color", 6, sizes=((24, 32), (40, 17)))
    save(root / "color" / "<b>&.png", natural(24, 32, seed=40))
    folder(root / "clear", 2, channels=(4,), seed=50)
    return root


@pytest.fixture(scope="module")
def archive(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "a.h5"
    tpca("encode", source, "-o", path, "--step", 20, "--force", "--quiet")
    return path


def test_json_has_the_fields_of_encode(archive: Path) -> None:
    data = tpca("inspect", archive, "--json").json
    assert set(data) >= FIELDS
    assert data["format"] == "tpca-archive" and data["images"] == 9
    assert data["archive_bytes"] == archive.stat().st_size
    assert "list" not in data


def test_page_shows_the_numbers_of_the_json(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tpca("inspect", archive, "--json").json
    for columns in ("60", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        page = tpca("inspect", archive).out
        assert max(map(len, page.split("\n"))) <= int(columns)
        for words in (
            f"{data['psnr']:.2f} dB",
            f"{data['psnr_min']:.2f} dB",
            "7 RGB, 2 RGBA",
            data["digest"],
        ):
            assert words in " ".join(page.split())


def test_list_has_every_image_with_its_measured_psnr(archive: Path, source: Path, tmp_path: Path) -> None:
    listed = tpca("inspect", archive, "--list", "--json").json["list"]
    tpca("decode", archive, "-o", tmp_path / "out", "--quiet")
    assert len(listed) == 9
    for row in listed:
        before, after = (
            np.asarray(Image.open(root / row["name"])) * 1.0 for root in (source, tmp_path / "out")
        )
        assert before.shape[:2] == (row["height"], row["width"])
        error = np.mean((before - after) ** 2)
        assert row["psnr"] == pytest.approx(10 * math.log10(255**2 / error))
    lines = tpca("inspect", archive, "--list").out.splitlines()
    assert len(lines) == 10
    assert [line.split("dB  ")[1] for line in lines[1:]] == [row["name"] for row in listed]


def test_pictures_are_written_and_the_files_named(archive: Path, source: Path, tmp_path: Path) -> None:
    spectrum, grid, gallery = (tmp_path / name for name in ("s.png", "b.png", "g.png"))
    asked = ("--spectrum", spectrum, "--basis-grid", grid, "--count", 6, "--gallery", source, gallery)
    data = tpca("inspect", archive, *asked, "--json").json
    assert sorted(data["written"]) == sorted(map(str, (spectrum, grid, gallery)))
    for path in (spectrum, grid, gallery):
        assert np.asarray(Image.open(path)).std() > 5
    before = grid.read_bytes()
    assert "exists" in tpca("inspect", archive, "--basis-grid", grid, code=6).err
    tpca("inspect", archive, "--basis-grid", grid, "--count", 6, "--force")
    assert grid.read_bytes() == before


def test_asking_for_a_picture_leaves_the_page_as_it_is(archive: Path, tmp_path: Path) -> None:
    grid = tmp_path / "b.png"
    assert tpca("inspect", archive, "--basis-grid", grid).out == tpca("inspect", archive).out
    data = tpca("inspect", archive, "--basis-grid", grid, "--force", "--json").json
    assert data.pop("written") == [str(grid)] and data == tpca("inspect", archive, "--json").json


def test_rate_distortion_curve_is_drawn(archive: Path, source: Path, tmp_path: Path) -> None:
    tpca("inspect", archive, "--rd", source / "color", tmp_path / "rd.png", code=1)  # names lack the folder
    tpca("inspect", archive, "--rd", source, tmp_path / "rd.png")
    assert np.asarray(Image.open(tmp_path / "rd.png")).std() > 5


@pytest.mark.parametrize("known", [True, False])
def test_report_is_one_page(archive: Path, source: Path, tmp_path: Path, known: bool) -> None:
    arguments = ("--source", source) if known else ()
    tpca("inspect", archive, "--report", tmp_path / "r.html", *arguments)
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "&lt;b&gt;&amp;.png" in page and "<b>" not in page
    assert ("original on its left" in page) == known
    assert ("Rate and distortion" in page) == known
    assert "<h2>Spectrum</h2>" in page


def test_tensor_cache_has_numbers_and_no_pictures(tmp_path: Path) -> None:
    from tpca_cli.frames.stage import stage
    from tpca_cli.sources.scan import scan

    folder(tmp_path / "in", 5)
    cache = tmp_path / "cache.h5"
    with stage(scan([tmp_path / "in"]).refs, None, memory=1 << 30, cache=cache, workers=1):
        pass
    data = tpca("inspect", cache, "--json").json
    assert (data["format"], data["images"], data["frame_shape"]) == ("tpca-tensor", 5, [24, 32, 3])
    assert "5 x 24 x 32 x 3 of uint8" in tpca("inspect", cache).out
    assert "no pictures" in tpca("inspect", cache, "--basis-grid", tmp_path / "b.png", code=2).err


def test_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "x.h5"
    other.write_bytes(b"not HDF5")
    assert tpca("inspect", other, "--json", code=4).json["code"] == 4
    tpca("inspect", other, "--report", tmp_path / "r.html", code=4)
    assert not (tmp_path / "r.html").exists()


def test_text_page_imports_nothing_heavy(archive: Path) -> None:
    script = (
        "import sys; from tpca_cli.cli.main import _run; code = _run(['inspect', sys.argv[1]]);"
        "heavy = {'scipy', 'tqdm', 'dask', 'sklearn', 'tpca_cli.codec.coder'} & set(sys.modules);"
        "sys.exit(code or (f'imported {heavy}' if heavy else 0))"
    )
    command = [sys.executable, "-c", script, str(archive)]
    plain = os.environ | {"PYTHONIOENCODING": "ascii"}  # a terminal that has no blocks gets none
    done = subprocess.run(command, capture_output=True, text=True, env=plain)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and "###" in done.stdout
