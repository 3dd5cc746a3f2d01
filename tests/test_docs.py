"""The documentation is run: commands of the README and of every help page, in a folder of photos."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from command import tpca
from pictures import folder

from tpca_cli.cli.main import COMMANDS
from tpca_cli.cli.main import tpca as group

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def commands(text: str) -> list[list[str]]:
    """The `tpca ..` lines of a text, without their comments."""
    parts = [part.strip() for line in text.splitlines() for part in re.split(r"&&|\|\|", line)]
    return [
        shlex.split(part.partition(" | ")[0], comments=True)[1:]
        for part in parts
        if re.match(r"tpca [a-z]", part)
    ]


def command_of(name: str) -> click.Command:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    return command


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with the names that the documentation uses."""
    names = ("photos", "scans", "faces", "monday", "tuesday", "shard1", "shard2")
    for number, name in enumerate(names):
        folder(tmp_path / name, 12, sizes=[(32, 48)], seed=100 * number)
        folder(tmp_path / name / "holiday", 2, sizes=[(32, 48)], seed=100 * number + 50)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TPCA_FORCE", "1")  # one example after another may use the same name
    return tmp_path


def test_the_readme_runs(workplace) -> None:
    for block in blocks("sh"):
        for arguments in commands(block):
            tpca(*arguments)
    namespace: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help_and_the_page_renders(name) -> None:
    command = command_of(name)
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts[0]} has no help"
    page = tpca(name, "--help").out
    assert "Usage:" in page and max(map(len, page.splitlines())) <= 110


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_every_help_page_run(name, workplace) -> None:
    examples = commands(command_of(name).epilog or "")
    assert examples, f"{name} --help shows no example"
    prepare(name)
    for arguments in examples:
        tpca(*arguments)


def prepare(name: str) -> None:
    """What the examples of a command take for granted."""
    tpca("fit-basis", "faces", "-o", "faces-basis.h5", "--tile", 8)
    if name != "encode":
        tpca("encode", "photos", "-o", "photos.h5", "--psnr", 40)
        shutil.copy("photos.h5", "damaged.h5")
    if name == "inspect":
        shutil.copy("faces-basis.h5", "basis.h5")


def test_docstring_examples_name_things_that_exist() -> None:
    for path in (ROOT / "tpca_cli").rglob("*.py"):
        for module in re.findall(r"`(tpca_cli(?:\.\w+)+)`", path.read_text()):
            head, _, tail = module.rpartition(".")
            try:
                importlib.import_module(module)
            except ModuleNotFoundError:
                assert hasattr(importlib.import_module(head), tail), f"{path}: {module}"
