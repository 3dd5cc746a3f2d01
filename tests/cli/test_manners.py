"""What a person meets at the prompt: mistakes are understood, and nothing odd reaches the terminal."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
from command import tpca
from hypothesis import given
from hypothesis import strategies as st
from pictures import folder, natural, save, save_frames

from tpca_cli.archive.reader import Archive
from tpca_cli.cli import console as text


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    folder(root, 6, sizes=[(32, 48)])
    return root


@pytest.fixture(scope="module")
def archive(photos, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "a.h5"
    tpca("encode", photos, "-o", path, "--step", 8, "--force")
    return path


MISSING = [
    ("encode", "nowhere", "-o", "a.h5"),
    ("encode", "@nowhere", "-o", "a.h5"),
    ("encode", "{photos}", "-o", "a.h5", "--basis", "nowhere"),
    ("fit-basis", "nowhere", "-o", "a.h5"),
    ("fit-basis", "{photos}", "--update", "nowhere"),
    ("decode", "nowhere", "-o", "out"),
    ("inspect", "nowhere"),
    ("verify", "nowhere"),
    ("verify", "{archive}", "--against", "nowhere"),
    ("merge", "nowhere", "-o", "a.h5"),
    ("repack", "nowhere", "-o", "a.h5"),
]


@pytest.mark.parametrize(
    "arguments",
    [
        ("encode", "{photos}", "-o", "s3://bucket/a.h5"),
        ("encode", "{photos}", "-o", "https://host/a.h5", "--append"),
        ("fit-basis", "{photos}", "-o", "s3://bucket/b.h5"),
        ("repack", "{archive}", "-o", "s3://bucket/a.h5"),
        ("decode", "{archive}", "-o", "s3://bucket"),
        ("export", "{archive}", "-o", "s3://bucket/shards"),
        ("inspect", "{archive}", "--report", "s3://bucket/a.html"),
    ],
    ids=" ".join,
)
def test_nothing_is_written_to_an_address(arguments, photos, archive, tmp_path, monkeypatch) -> None:
    """Where a path is meant, its first part would be a folder `s3:`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "bucket").mkdir(parents=True)  # that some earlier command may have left
    filled = [word.format(photos=photos, archive=archive) for word in arguments]
    outcome = tpca(*filled, code=2)
    assert "is an address" in outcome.err and "there is no folder" not in outcome.err
    assert [path.name for path in tmp_path.rglob("*")] == ["s3:", "bucket"]


@pytest.mark.parametrize("arguments", MISSING, ids=" ".join)
def test_a_missing_input_is_one_exit_code_everywhere(
    arguments, photos, archive, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    filled = [word.format(photos=photos, archive=archive) for word in arguments]
    outcome = tpca(*filled, code=2)
    assert "no such" in outcome.err and "nowhere" in outcome.err
    assert {name for name in os.listdir(tmp_path) if not name.endswith(".lock")} == set()


OUTPUTS = [
    ("encode", "{photos}", "-o", "nowhere/a.h5"),
    ("fit-basis", "{photos}", "-o", "nowhere/a.h5"),
    ("fit-basis", "{photos}", "-o", "a.h5", "--cache", "nowhere/t.h5"),
    ("repack", "{archive}", "-o", "nowhere/a.h5"),
    ("inspect", "{archive}", "--spectrum", "nowhere/s.png"),
    ("inspect", "{archive}", "--gallery", "{photos}", "nowhere/s.png"),
]


@pytest.mark.parametrize("arguments", OUTPUTS, ids=" ".join)
def test_a_missing_output_folder_is_said_to_be_missing(
    arguments, photos, archive, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = tpca(*[word.format(photos=photos, archive=archive) for word in arguments], code=5)
    assert "there is no folder nowhere" in outcome.err and "lock" not in outcome.err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--psnr", "high", "'high' is not a number"),
        ("--psnr", "300", "300 is out of range: it must be at least 5 and at most 120"),
        ("--components", "x", "'x' is not a whole number"),
        ("--components", "0", "0 is out of range: it must be at least 1"),
        ("--energy", "1", "must be above 0 and below 1"),
        ("--ratio", "1", "must be above 1"),
        ("--tile", "1", "must be at least 2 and at most 256"),
        ("--method", "rank2", "'rank2' is not one of 'auto', 'operator', 'rank1'"),
    ],
)
def test_a_wrong_value_is_answered_in_a_sentence(option, value, words, photos, tmp_path) -> None:
    error = tpca("encode", photos, "-o", tmp_path / "a.h5", option, value, code=2).err
    assert words in error and "float" not in error and "<" not in error


def test_plans_speak_no_python(photos, tmp_path) -> None:
    save(tmp_path / "in" / "gray.png", natural(32, 48, 1))
    plan = tpca("encode", photos, tmp_path / "in", "-o", tmp_path / "a.h5", "--dry-run").out
    assert "{" not in plan and "'" not in plan
    assert "8-bit color 7" in plan and "psnr 36" in plan


def test_append_names_the_target_in_words(photos, tmp_path) -> None:
    tpca("encode", photos, "-o", tmp_path / "a.h5", "--step", 8, "--force")
    told = tpca("encode", photos, "-o", tmp_path / "a.h5", "--append", "--step", 9, code=None)
    assert "{" not in told.err + told.out


@pytest.mark.parametrize(
    ("typed", "meant"), [("encod", "encode"), ("decoed", "decode"), ("fit", "fit-basis"), ("info", "inspect")]
)
def test_a_typo_in_a_command_suggests_the_right_one(typed, meant) -> None:
    assert f"Did you mean '{meant}'?" in tpca(typed, "x", code=2).err


def test_a_typo_in_an_option_suggests_the_right_one(photos) -> None:
    assert "--psnr" in tpca("encode", photos, "--pnsr", "30", code=2).err


def test_the_command_line_overrides_a_target_of_the_environment(photos, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TPCA_ENCODE_STEP", "8")
    facts = tpca("encode", photos, "-o", tmp_path / "a.h5", "--psnr", 33, "--json").json
    assert facts["target"] == {"psnr": 33.0}
    assert tpca("encode", photos, "-o", tmp_path / "b.h5", "--force", "--json").json["target"] == {
        "step": 8.0
    }
    monkeypatch.setenv("TPCA_PSNR", "30")
    assert "TPCA_PSNR and TPCA_ENCODE_STEP" in tpca("encode", photos, "-o", tmp_path / "c.h5", code=2).err
    told = tpca("encode", photos, "-o", tmp_path / "c.h5", "--psnr", 30, "--step", 8, code=2).err
    assert "--psnr and --step exclude one another" in told


@pytest.mark.parametrize("option", ["--spectrum", "--basis-grid", "--rd", "--gallery"])
@pytest.mark.parametrize("name", ["s.pdf", "s.svg", "s"])
def test_a_picture_is_what_its_name_says_or_refused(option, name, photos, archive, tmp_path) -> None:
    values = [photos, tmp_path / name] if option in ("--rd", "--gallery") else [tmp_path / name]
    error = tpca("inspect", archive, option, *values, code=2).err
    assert ".png" in error and option in error
    assert not os.listdir(tmp_path)


def test_a_chart_can_be_a_jpeg(archive, tmp_path) -> None:
    tpca("inspect", archive, "--spectrum", tmp_path / "s.jpg")
    assert (tmp_path / "s.jpg").read_bytes()[:3] == b"\xff\xd8\xff"


def test_the_list_has_bytes_and_an_order(archive) -> None:
    found = tpca("inspect", archive, "--list", "--json").json
    listed = found["list"]
    assert all(item["bytes"] > 0 and item["source_bytes"] > 0 for item in listed)
    assert sum(item["bytes"] for item in listed) == pytest.approx(found["coefficient_bytes"], rel=1e-9)
    for order, key in (("psnr", "psnr"), ("bytes", "bytes")):
        values = [
            item[key] for item in tpca("inspect", archive, "--list", "--sort", order, "--json").json["list"]
        ]
        assert values == sorted(item[key] for item in listed)
    names = [
        item["name"] for item in tpca("inspect", archive, "--list", "--sort", "-name", "--json").json["list"]
    ]
    assert names == sorted((item["name"] for item in listed), reverse=True)
    head, *rows = tpca("inspect", archive, "--list").out.splitlines()
    assert "bytes" in head and len(rows) == 6
    assert "--sort needs --list" in tpca("inspect", archive, "--sort", "psnr", code=2).err


def test_encode_says_what_it_wrote_and_how_long_it_took(photos, tmp_path) -> None:
    facts = tpca("encode", photos, "-o", tmp_path / "a.h5", "--psnr", 34, "--json").json
    assert facts["output"] == str(tmp_path / "a.h5") and facts["seconds"] > 0
    again = tpca("encode", photos, "-o", tmp_path / "a.h5", "--append", "--json").json
    assert again["output"] == str(tmp_path / "a.h5") and again["seconds"] > 0


@pytest.mark.parametrize("target", [("--psnr", 36), ("--quality", 60), ()])
def test_images_that_come_back_exactly_are_called_identical(target, tmp_path) -> None:
    (tmp_path / "black").mkdir()
    for name in ("a.png", "b.png"):
        save(tmp_path / "black" / name, np.zeros((160, 160, 3), np.uint8))
    said = tpca("encode", tmp_path / "black", "-o", tmp_path / "a.h5", *target, "--force").err
    assert "allow is identical pixels" in said and "inf" not in said


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_costs_nothing_but_what_it_would_have_shown(closed, photos, tmp_path) -> None:
    """Nor may the archive get the number of a stream that others then write to."""
    command = [
        sys.executable,
        "-m",
        "tpca_cli",
        "encode",
        str(photos),
        "-o",
        "a.h5",
        "--step",
        "8",
        "--force",
    ]
    done = subprocess.run(
        f"{shlex.join(command)} {closed}", shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert ("a.h5: " in done.stdout) == (" >&-" not in f" {closed}")
    assert tpca("verify", tmp_path / "a.h5", "--against", photos).code == 0
    failed = subprocess.run(
        f"{shlex.join(command[:-1])} --json {closed}", shell=True, cwd=tmp_path, capture_output=True
    )
    assert failed.returncode == 6  # it exists now


def test_one_is_not_called_several(tmp_path) -> None:
    folder(tmp_path / "in", 2)
    save_frames(tmp_path / "in" / "film.gif", [natural(seed=seed) for seed in range(2)])
    archive = tmp_path / "a.h5"
    told = tpca("encode", tmp_path / "in", "-o", archive, "--step", 8, "--force")
    assert "1 image is archived in part: " in told.err
    save(tmp_path / "in" / "image_0001.png", natural(seed=9))
    tpca("encode", tmp_path / "in", "-o", archive, "--append", "--force")
    told = tpca("repack", archive, "-o", tmp_path / "b.h5")
    assert "3 images, 1 replaced image dropped, " in told.out
    told = tpca("repack", tmp_path / "b.h5", "-o", tmp_path / "c.h5")
    assert "3 images, 0 replaced images dropped, 1 block became 1" in told.out


def test_phones_of_108_megapixels_pass(photos, tmp_path) -> None:
    assert "250000000" in tpca("encode", "--help").out.replace("_", "").replace(",", "")


def test_json_tells_a_byte_from_its_escape(tmp_path) -> None:
    os.mkdir(tmp_path / "in")
    for number, name in enumerate((b"\xff.png", rb"\xff.png", "ä\n.png".encode())):
        os.rename(
            save(tmp_path / "x.png", natural(32, 48, seed=number)), os.fsencode(tmp_path) + b"/in/" + name
        )
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 8, "--force")
    listed = tpca("inspect", tmp_path / "a.h5", "--list", "--json").json["list"]
    names = {(item["name"], item.get("name_bytes")) for item in listed}
    assert names == {("\\xff.png", "ff2e706e67"), ("\\xff.png", None), ("ä\n.png", None)}


@given(st.recursive(st.binary(max_size=9), lambda inner: st.lists(inner, max_size=4), max_leaves=6))
def test_bytes_survive_the_way_through_json(value) -> None:
    def back(shown, raw):
        if isinstance(shown, list):
            return [back(*pair) for pair in zip(shown, raw or [None] * len(shown), strict=True)]
        return shown.encode() if raw is None else bytes.fromhex(raw)

    data = json.loads(json.dumps(text.plain({"value": value}), allow_nan=False))
    assert back(data["value"], data.get("value_bytes")) == value


@given(st.text())
def test_no_control_character_reaches_the_terminal(words) -> None:
    shown = text.safe(words)
    assert all(ch.isprintable() or ch == "\n" for ch in shown)
    assert text.safe(shown) == shown


def test_fields_of_an_archive_are_shown_without_control_characters(archive, capsys, monkeypatch) -> None:
    info = Archive.info
    monkeypatch.setattr(Archive, "info", lambda self: {**info(self), "partial": 0})
    from tpca_cli.cli.console import Console

    console = Console()
    for speak in (console.say, console.warn, lambda words: console.result({}, words)):
        speak("name \x1b[31mred\x07 \x9b2J \u202e end")
    out, err = capsys.readouterr()
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out + err)


def test_pixels_of_a_rate_curve_pay_their_share_of_the_basis() -> None:
    from tpca_cli.report import samples

    assert samples.charged(size=1000, fixed=600, share=1.0) == 1000
    assert samples.charged(size=1000, fixed=600, share=0.01) == pytest.approx(406)
    assert np.isfinite(samples.charged(size=0, fixed=0, share=1.0))
