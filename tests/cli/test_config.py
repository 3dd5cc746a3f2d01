"""Options from `tpca.toml`: below variables and the command line, and wrong keys are named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command import tpca
from pictures import folder, natural, save

import tpca_cli
from tpca_cli.cli.main import COMMANDS, options_of
from tpca_cli.cli.main import tpca as group


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder to work in, with a home of its own, and photos beside it."""
    folder(tmp_path / "photos", 4, sizes=[(32, 48)])
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TPCA_CONFIG", raising=False)
    return tmp_path / "work"


def plan(*more: object) -> dict[str, float]:
    """The target that `encode` would aim at."""
    target = tpca("encode", "../photos", "-o", "a.h5", "--dry-run", "--json", *more).json["target"]
    return {kind: value for kind, value in target.items() if kind != "visual"}


def test_the_command_line_beats_variables_and_these_beat_the_file(here, monkeypatch) -> None:
    (here / "tpca.toml").write_text("[encode]\npsnr = 30\n")
    assert plan() == {"psnr": 30.0}
    monkeypatch.setenv("TPCA_ENCODE_PSNR", "31")
    assert plan() == {"psnr": 31.0}
    assert plan("--psnr", 32) == {"psnr": 32.0}


def test_another_target_given_more_strongly_takes_its_place(here, monkeypatch) -> None:
    (here / "tpca.toml").write_text("[encode]\npsnr = 30\n")
    assert plan("--step", 8) == {"step": 8.0}
    monkeypatch.setenv("TPCA_RATIO", "9")
    assert plan() == {"ratio": 9.0}
    (here / "tpca.toml").write_text("[encode]\npsnr = 30\nstep = 8\n")
    monkeypatch.delenv("TPCA_RATIO")
    told = tpca("encode", "../photos", "-o", "a.h5", code=2).err
    assert "--psnr and --step exclude one another" in told
    assert plan("--psnr", 33) == {"psnr": 33.0}


def test_a_basis_that_is_asked_for_beats_a_method_of_the_file(here) -> None:
    tpca("fit-basis", "../photos", "-o", "basis.h5", "--tile", 8)
    (here / "tpca.toml").write_text('[encode]\nmethod = "rank1"\ntile = 16\nstep = 8\n')
    tpca("encode", "../photos", "-o", "a.h5", "--basis", "basis.h5", "--force")
    assert tpca("inspect", "a.h5", "--json").json["framing"] == "tile 8x8"
    tpca("encode", "../photos", "-o", "s.h5", "--basis", "basis.h5", "--plain")  # targets are not for it
    (here / "tpca.toml").write_text('[encode]\nbasis = "basis.h5"\nstep = 8\n')
    tpca("encode", "../photos", "-o", "b.h5", "--tile", 16, "--force")
    assert tpca("inspect", "b.h5", "--json").json["framing"] == "tile 16x16"


def test_one_file_is_read_the_named_one_first_then_here_then_at_home(here, monkeypatch) -> None:
    (here.parent / "home" / "tpca").mkdir(parents=True)
    (here.parent / "home" / "tpca" / "tpca.toml").write_text("psnr = 30\n")
    assert plan() == {"psnr": 30.0}
    (here / "tpca.toml").write_text("[encode]\nmax-bytes = '1M'\n")
    assert plan() == {"max_bytes": float(1 << 20)}
    (here / "other.toml").write_text("[encode]\nmax_bytes = 5000\n")
    monkeypatch.setenv("TPCA_CONFIG", "other.toml")
    assert plan() == {"max_bytes": 5000.0}
    named = tpca("--config", "tpca.toml", "encode", "../photos", "-o", "a.h5", "--dry-run", "--json").json
    assert named["target"]["max_bytes"] == 1 << 20
    monkeypatch.setenv("TPCA_CONFIG", "")
    assert set(plan()) not in ({"max_bytes"}, {"ratio"})  # the default: no file is read
    monkeypatch.setenv("TPCA_CONFIG", "nowhere.toml")
    assert "nowhere.toml" in tpca("encode", "../photos", "-o", "a.h5", code=5).err


def test_a_setting_for_all_commands_goes_where_the_option_is(here) -> None:
    (here / "tpca.toml").write_text("workers = 1\nmemory = '1G'\nstep = 8\n[ls]\nnames = true\n")
    tpca("encode", "../photos", "-o", "a.h5", "--force")
    assert tpca("ls", "a.h5").out.splitlines() == [f"image_{number:04}.png" for number in range(4)]


def test_lists_are_for_options_that_may_be_repeated(here) -> None:
    (here / "tpca.toml").write_text("[encode]\nexclude = ['image_0000*', 'image_0001*']\nstep = 8\n")
    facts = tpca("encode", "../photos", "-o", "a.h5", "--force", "--json").json
    assert facts["images"] == 2


WRONG = {
    "[encode]\nqualty = 70": "[encode] has no option 'qualty': did you mean 'quality'?",
    "[encod]\nquality = 70": "there is no command 'encod': did you mean 'encode'?",
    "[decode]\nselct = ['x']": "[decode] has no option 'selct': did you mean 'select'?",
    "[decode]\nmax-bytes = 5": "[decode] has no option 'max-bytes': it belongs to encode",
    "memry = '4G'": "no command has an option 'memry': did you mean 'memory'?",
    "[encode]\nquality = 'high'": "[encode] quality: 'high' is not a number",
    "quality = 300": "quality: 300 is out of range: it must be at least 0 and at most 95",
    "[encode]\nmax-bytes = 0": "[encode] max-bytes: '0' is not a size",
    "[encode]\nforce = 1": "[encode] force: 1 is not true or false",
    "[encode]\nstep = true": "[encode] step: True is not a number or a text",
    "[encode]\nexclude = '*.gif'": "[encode] exclude: '*.gif' is not a list of texts",
    "[encode]\nmethod = 'rank2'": "[encode] method: 'rank2' is not one of",
    "[encode]\nbasis = 'nowhere.h5'": "[encode] basis: no such file: nowhere.h5",
    "[encode\nquality = 70": "line 1",
    "psnr = {a = 1": "tpca.toml",
    "[encode.more]\npsnr = 1": "[encode] has no option 'more'",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said_with_the_name_of_the_file(text, here) -> None:
    (here / "tpca.toml").write_text(text)
    told = tpca("encode", "../photos", "-o", "a.h5", code=2)
    assert told.err.startswith("tpca: tpca.toml: ") and WRONG[text] in told.err
    assert told.err.count("\n") == 1 and not (here / "a.h5").exists()
    assert "Usage" in tpca("encode", "--help").out  # help is there in spite of it


def test_a_file_that_is_no_text_is_refused(here) -> None:
    (here / "tpca.toml").write_bytes(b"\xff\xfe")
    assert "tpca.toml" in tpca("ls", "../photos", code=2).err


def test_errors_are_json_where_the_file_says_so(here) -> None:
    (here / "tpca.toml").write_text("json = true")
    assert tpca("decode", "nowhere.h5", "-o", "out", code=2).json["code"] == 2


def test_every_variable_has_the_name_of_its_option(here, monkeypatch) -> None:
    for name in COMMANDS:
        command = group.get_command(None, name)  # type: ignore[arg-type]
        for option, found in options_of(command).items():
            upper = option.replace("-", "_").upper()
            assert found.envvar == [f"TPCA_{name.replace('-', '_').upper()}_{upper}", f"TPCA_{upper}"]
    monkeypatch.setenv("TPCA_LS_JSON", "1")
    assert tpca("ls", "nowhere.h5", code=2).json["code"] == 2
    monkeypatch.delenv("TPCA_LS_JSON")
    monkeypatch.setenv("TPCA_JSON", "1")
    assert plan() and tpca("ls", "nowhere.h5", code=2).json["code"] == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_not_read_unless_it_is_named(here) -> None:
    (here / "tpca.toml").write_text("[encode]\npsnr = 30\n")
    os.chown(here / "tpca.toml", 12345, 12345)
    told = tpca("encode", "../photos", "-o", "a.h5", "--dry-run", code=2).err
    assert "belongs to another user" in told and "--config" in told
    assert tpca("--config", "tpca.toml", "encode", "../photos", "-o", "a.h5", "--dry-run").code == 0


def test_the_version_comes_with_those_of_the_libraries() -> None:
    first, python, libraries, *_ = tpca("--version").out.splitlines()
    assert first == f"tpca {tpca_cli.__version__}" and python.startswith("Python 3.")
    for name in ("numpy", "scipy", "h5py", "pillow", "wasmtime", "click"):
        assert f"{name} " in libraries


@pytest.mark.parametrize("made", [("--quality", 60), ("--exact",), ("--max-error", 2), ("--step", 8)])
@pytest.mark.parametrize("where", ["file", "variable"])
def test_a_target_that_is_not_typed_is_for_new_archives(here, monkeypatch, made, where) -> None:
    """An archive has its own: what it was made with stays what new images are made with."""
    tpca("encode", "../photos", "-o", "a.h5", *made, "--force", code=None)
    before = tpca("inspect", "a.h5", "--json").json
    if where == "file":
        (here / "tpca.toml").write_text('[encode]\npsnr = 30\ncomponents = 3\ncoding = "fast"\n')
    else:
        monkeypatch.setenv("TPCA_PSNR", "30")
        monkeypatch.setenv("TPCA_ENCODE_CODING", "fast")
    save(here.parent / "more" / "new.png", natural(130, 140, seed=60))
    append = ("encode", here.parent / "more", "-o", "a.h5", "--append")
    assert tpca(*append, "--dry-run", "--json").json["new"] == 1
    tpca(*append, code=None)
    after = tpca("inspect", "a.h5", "--json").json
    assert after["images"] == before["images"] + 1 and after["target"] == before["target"]
    methods, codings = ({group[name] for group in after["groups"]} for name in ("method", "coding"))
    assert methods == {group["method"] for group in before["groups"]}
    assert codings == {group["coding"] for group in before["groups"]}
    if "--exact" not in made and "--max-error" not in made:
        assert "leave the target out" in tpca(*append, "--psnr", 33, code=2).err


def test_exact_images_of_a_file_are_for_new_archives(here) -> None:
    tpca("encode", "../photos", "-o", "a.h5", "--psnr", 33)
    (here / "tpca.toml").write_text("[encode]\nexact = true\n")
    (here.parent / "more").mkdir()
    (here.parent / "more" / "notes.txt").write_text("no image")
    save(here.parent / "more" / "new.png", natural(130, 140, seed=60))
    append = ("encode", here.parent / "more", "-o", "a.h5", "--append", "--coding", "small")
    assert tpca(*append, "--dry-run", "--json").json["new"] == 1
    facts = tpca(*append, "--json", code=None).json
    assert facts["appended"]["added"] == 1 and facts["method"] == "rank1"
