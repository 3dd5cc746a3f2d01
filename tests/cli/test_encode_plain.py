"""`tpca encode --plain` as a command: appending, resuming, its plan, its page, and whatever it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from command import tpca
from pictures import folder, natural, save

from tpca_cli import Scores, images


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of two classes and a basis for it."""
    folder(tmp_path / "in" / "a", 6, sizes=[(12, 16)])
    folder(tmp_path / "in" / "b", 6, sizes=[(12, 16)], seed=50)
    tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "basis.h5", "--components", 8)
    return tmp_path


def plain(place: Path, *options: object, code: int = 0, output: str = "s.h5") -> dict:
    command = ("encode", place / "in", "-o", place / output, "--plain", *options, "--json")
    return tpca(*command, code=code).json


def given(place: Path) -> tuple[object, ...]:
    return ("--basis", place / "basis.h5")


def test_the_facts_of_a_run(place: Path) -> None:
    (place / "in" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    facts = plain(place, *given(place), "--components", 5, code=3)
    assert (facts["images"], facts["frames"], facts["components"], facts["dtype"]) == (12, 12, 5, "float32")
    assert facts["labels"] == {"a": 6, "b": 6} and facts["basis"] == "embedded"
    assert [item["path"].rpartition("/")[2] for item in facts["skipped"]] == ["broken.png"]
    inspected = tpca("inspect", place / "s.h5", "--json").json
    assert inspected["skipped"][0]["reason"] and inspected["digest"] == facts["digest"]
    assert "scores of 12 images on 5 components" in tpca("inspect", place / "s.h5").out


def test_appending_adds_rows_and_keeps_the_old_ones(place: Path) -> None:
    plain(place, *given(place), "--dtype", "float64")
    with Scores(place / "s.h5") as scores:
        old, names = scores.rows(0, 12), scores.names
    assert plain(place, "--append")["appended"] == {"added": 0, "replaced": 0, "unchanged": 12}
    save(place / "in" / "c" / "new.png", natural(12, 16, seed=99))
    save(place / "in" / "a" / "image_0002.png", natural(12, 16, seed=98))
    os.utime(place / "in" / "a" / "image_0002.png", (1, 1))
    appended = plain(place, "--append")
    assert appended["appended"] == {"added": 1, "replaced": 1, "unchanged": 11}
    assert appended["dtype"] == "float64" and appended["labels"] == {"a": 6, "b": 6, "c": 1}
    plain(place, *given(place), "--dtype", "float64", output="all.h5")
    with Scores(place / "s.h5") as grown, Scores(place / "all.h5") as fresh:
        kept = tuple(name for name in names if name != "a/image_0002.png")
        assert grown.names[:11] == kept
        np.testing.assert_array_equal(grown.rows(0, 11), np.delete(old, 2, axis=0))
        for name in fresh.names:
            one, other = (s.coefficients(s.names.index(name)) for s in (grown, fresh))
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)
    tpca("verify", place / "s.h5")


def test_on_change_decides_about_changed_files(place: Path) -> None:
    plain(place, *given(place))
    before = (place / "s.h5").read_bytes()
    save(place / "in" / "a" / "image_0002.png", natural(12, 16, seed=98))
    os.utime(place / "in" / "a" / "image_0002.png", (1, 1))
    assert "--on-change" in plain(place, "--append", "--on-change", "fail", code=1)["error"]
    plain(place, "--append", "--on-change", "keep")
    assert (place / "s.h5").read_bytes() == before


def test_appending_needs_no_basis_but_no_other_either(place: Path) -> None:
    plain(place, *given(place))
    save(place / "in" / "new.png", natural(12, 16, seed=99))
    tpca("fit-basis", place / "in", "-o", place / "other.h5", "--components", 8)
    assert "another basis" in plain(place, "--append", "--basis", place / "other.h5", code=2)["error"]
    assert "8 components" in plain(place, "--append", "--components", 3, code=2)["error"]
    assert plain(place, "--append", *given(place))["images"] == 13


def test_a_run_that_was_stopped_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run reads only what the first one had not finished, and writes the same bytes."""
    import tpca_cli.encode.plain as flow
    from tpca_cli.errors import Interrupted

    monkeypatch.setattr("tpca_cli.scores.project.RUN_VALUES", 3 * 12 * 16 * 3)
    plain(place, *given(place), "--workers", 1, output="whole.h5")
    original, done = flow.project_run, []

    def stopping(plan: flow.PlainPlan, run: range, reading: flow.Reading) -> flow.Projected:
        if len(done) == 2:
            raise Interrupted(15)
        done.append(run)
        return original(plan, run, reading)

    monkeypatch.setattr(flow, "project_run", stopping)
    assert tpca(
        "encode", place / "in", "-o", place / "s.h5", "--plain", *given(place), "--workers", 1, code=143
    )
    assert (place / "s.h5.partial").is_dir() and not (place / "s.h5").exists()
    read = []
    monkeypatch.setattr(flow, "project_run", lambda *a: read.append(a[1]) or original(*a))
    plain(place, *given(place), "--workers", 1)
    assert read == [range(6, 9), range(9, 12)]
    assert (place / "s.h5").read_bytes() == (place / "whole.h5").read_bytes()
    assert not (place / "s.h5.partial").exists()


UNLIKE = {
    "gray": (natural(12, 16, 1, seed=7), True),
    "another size": (natural(8, 16, seed=7), False),
    "alpha": (natural(12, 16, 4, seed=7), False),
    "16 bits": (natural(12, 16, 1, seed=7).astype(np.uint16) * 257, False),
    "damaged": (None, False),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_headers_come_with_the_pixels_where_images_are_alike(
    place: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A few headers stand for all; an image that is not like them makes the command look at every one."""
    pixels, fits = UNLIKE[case]
    if pixels is None:
        (place / "in" / "b" / "odd.png").write_bytes(
            (place / "in" / "b" / "image_0001.png").read_bytes()[:99]
        )
    else:
        save(place / "in" / "b" / "odd.png", pixels)
    options = (*given(place), "--components", 4)
    monkeypatch.setattr("tpca_cli.encode.plain.guess_members", lambda *given: None)
    careful = plain(place, *options, code=0 if fits else 3, output="careful.h5")
    monkeypatch.undo()
    monkeypatch.setattr("tpca_cli.sources.probe._SAMPLE", 1)
    looked, probe = [], images.probe
    monkeypatch.setattr(images, "probe", lambda path, *a, **k: looked.append(path) or probe(path, *a, **k))
    quick = plain(place, *options, code=0 if fits else 3)
    assert len(looked) == 1 if fits else len(looked) > 12
    assert quick["skipped"] == careful["skipped"] and quick["images"] == (13 if fits else 12)
    assert (place / "s.h5").read_bytes() == (place / "careful.h5").read_bytes()
    assert not (place / "s.h5.partial").exists()


def test_a_wrong_guess_keeps_what_an_earlier_run_finished(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tpca_cli.encode.plain as flow
    from tpca_cli.errors import Interrupted

    save(place / "in" / "b" / "odd.png", natural(8, 16))
    monkeypatch.setattr("tpca_cli.sources.probe._SAMPLE", 1)
    monkeypatch.setattr("tpca_cli.scores.project.RUN_VALUES", 3 * 12 * 16 * 3)
    original, read = flow.project_run, []

    def stopping(plan: flow.PlainPlan, run: range, reading: flow.Reading) -> flow.Projected:
        if plan.members[0].mode and run.start == 6:
            raise Interrupted(15)
        return original(plan, run, reading)

    monkeypatch.setattr(flow, "project_run", stopping)
    command = ("encode", place / "in", "-o", place / "s.h5", "--plain", *given(place), "--workers", 1)
    tpca(*command, code=143)
    monkeypatch.setattr(
        flow, "project_run", lambda p, run, r: read.append((p.members[0].mode, run)) or original(p, run, r)
    )
    tpca(*command, code=3)
    assert [run for mode, run in read if mode] == [range(6, 9), range(9, 12)]


def test_compression_keeps_the_numbers(place: Path) -> None:
    plain(place, *given(place))
    plain(place, *given(place), "--compress", output="small.h5")
    with h5py.File(place / "s.h5") as one, h5py.File(place / "small.h5") as other:
        assert other["coefficients"].compression == "gzip" and one["coefficients"].compression is None
        np.testing.assert_array_equal(one["coefficients"][:], other["coefficients"][:])
    tpca("verify", place / "small.h5")


def test_the_plan_writes_nothing(place: Path) -> None:
    facts = plain(place, *given(place), "--dry-run")
    assert (facts["images"], facts["coefficient_bytes"]) == (12, 12 * 8 * 4)
    assert not (place / "s.h5").exists()


def test_pictures_and_a_report(place: Path) -> None:
    plain(place, *given(place))
    options = ("--scatter", place / "s.png", "--report", place / "s.html", "--basis-grid", place / "g.png")
    tpca("inspect", place / "s.h5", *options, "--gallery", place / "in", place / "gallery.png")
    assert (place / "s.png").read_bytes().startswith(b"\x89PNG")
    page = (place / "s.html").read_text()
    assert "First two components" in page and page.count("<circle") >= 12
    assert "--scatter" in tpca("inspect", place / "basis.h5", "--scatter", place / "x.png", code=2).err
    assert "rate" in tpca("inspect", place / "s.h5", "--rd", place / "in", place / "x.png", code=2).err


WRONG = {
    "without a basis": ((), "--basis"),
    "with a target": (("--psnr", 36), "--psnr"),
    "with a step": (("--step", 3), "--step"),
    "with too many components": (("--components", 9), "--components 9"),
    "stripped": (("--strip-metadata",), "--strip-metadata"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_sense_is_refused(place: Path, case: str) -> None:
    options, words = WRONG[case]
    basis = () if case == "without a basis" else given(place)
    assert words in plain(place, *basis, *options, code=2)["error"]
    assert not list(place.glob("s.h5*"))


def test_options_of_scores_need_scores(place: Path) -> None:
    for option in (("--dtype", "float64"), ("--compress",)):
        assert "--plain" in tpca("encode", place / "in", "-o", place / "x.h5", *option, code=2).err
    operator = ("--operator-only", "--method", "rank1", "--scores", place / "x.h5")
    assert "--scores" in tpca("fit-basis", place / "in", "-o", place / "o.h5", *operator, code=2).err


def test_outputs_and_inputs_of_other_kinds_are_refused(place: Path) -> None:
    plain(place, *given(place))
    assert "exists" in plain(place, *given(place), code=6)["error"]
    assert "was refused" in plain(place, "--basis", place / "s.h5", code=4, output="x.h5")["error"]
    assert "was refused" in tpca("encode", place / "in", "-o", place / "s.h5", "--append", code=4).err
    tpca("encode", place / "in", "-o", place / "a.h5", "--step", 8, "--force")
    assert "was refused" in plain(place, "--append", code=4, output="a.h5")["error"]
    folder(place / "large", 3, sizes=[(30, 30)])
    wrong = tpca("encode", place / "large", "-o", place / "x.h5", "--plain", *given(place), code=None)
    assert wrong.code == 1 and "--size 12x16" in wrong.err
    assert not (place / "x.h5").exists()


def test_method_subspace_encodes_by_itself(place: Path) -> None:
    options = ("--method", "subspace", "--psnr", 30, "--force")
    facts = tpca("encode", place / "in", "-o", place / "a.h5", *options, "--json", code=None).json
    assert facts["method"] == "subspace" and facts["framing"] == "whole 12x16" and facts["psnr"] >= 30
    save(place / "in" / "other.png", natural(20, 20))
    assert "--size" in tpca("encode", place / "in", "-o", place / "b.h5", *options, code=2).err


def test_many_components_give_the_same_bytes_for_any_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of many components, which are computed in slices of 8 bits where that is quick."""
    pixels = np.random.default_rng(5).integers(0, 256, (130, 16, 12, 1), np.uint8)
    for number, picture in enumerate(pixels):
        save(tmp_path / "in" / f"{number:03}.png", picture)
    tpca(
        "fit-basis", tmp_path / "in", "-o", tmp_path / "basis.h5", "--components", 110, "--method", "operator"
    )
    monkeypatch.setattr("tpca_cli.scores.project.RUN_VALUES", 40 * 16 * 12)
    for workers in (1, 2):
        plain(tmp_path, *given(tmp_path), "--workers", workers, output=f"{workers}.h5")
    assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "2.h5").read_bytes()
    rows = pixels.reshape(130, -1).astype(np.float64)
    with Scores(tmp_path / "1.h5") as scores:
        found, expected = scores.rows(0, 130), rows @ scores.of.basis.matrix
    assert np.abs(found - expected).max() < 2.0**-24 * np.linalg.norm(rows, axis=1).max()
