"""The documentation is run: commands of the README and of every help page, in a folder of photos."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from command import tpca
from pictures import folder

import tpca_cli
from tpca_cli import formats
from tpca_cli.cli.main import COMMANDS
from tpca_cli.cli.main import tpca as group

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def commands(text: str) -> list[list[str]]:
    """The `tpca ..` lines of a text, without their comments."""
    whole = text.replace("\\\n", " ")  # lines that go on
    parts = [part.strip() for line in whole.splitlines() for part in re.split(r"&&|\|\|", line)]
    return [
        shlex.split(re.split(r" [|>] ", part)[0], comments=True)[1:]
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
    (tmp_path / "volumes").mkdir()
    for number in range(6):
        np.save(tmp_path / "volumes" / f"{number}.npy", np.random.default_rng(number).normal(size=(4, 6, 5)))
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


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs(page: Path, workplace) -> None:
    """Its blocks in order, commands and Python in one folder."""
    namespace: dict[str, object] = {}
    for language, block in re.findall(r"^```(sh|python)\n(.*?)^```", page.read_text(), re.M | re.S):
        if language == "sh":
            for arguments in commands(block):
                tpca(*arguments)
        else:
            exec(compile(block, page.name, "exec"), namespace)


@pytest.fixture
def photos(tmp_path):
    """The dataset of the README over an archive of color images with one gray image among them."""
    folder(tmp_path / "in", 7, channels=[3, 3, 1, 3], sizes=[(24, 32)])
    tpca("encode", tmp_path / "in", "-o", tmp_path / "photos.h5", "--psnr", 36)
    namespace: dict[str, Any] = {"tpca_cli": tpca_cli}
    (example,) = (block for block in blocks("python") if "class Photos" in block)
    exec(compile(example, "README.md", "exec"), namespace)
    return namespace["Photos"](tmp_path / "photos.h5")


def test_the_dataset_of_the_readme_gives_images_that_stack(photos) -> None:
    batch = np.stack([photos[position] for position in range(len(photos))])
    assert batch.shape == (7, 3, 24, 32) and batch.dtype == np.uint8


def test_the_dataset_of_the_readme_feeds_a_loader_of_pytorch(photos) -> None:
    data = pytest.importorskip("torch.utils.data")
    found = [tuple(batch.shape) for batch in data.DataLoader(photos, batch_size=4, num_workers=0)]
    assert found == [(4, 3, 24, 32), (3, 3, 24, 32)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help_and_the_page_renders(name) -> None:
    command = command_of(name)
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts[0]} has no help"
    page = tpca(name, "--help").out
    assert "Usage:" in page and max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_every_help_page_run(name, workplace) -> None:
    examples = commands(command_of(name).epilog or "")
    assert examples, f"{name} --help shows no example"
    if name == "mount":  # goes on until somebody ends it: tests/faults/test_mount.py
        return
    prepare(name)
    for arguments in examples:
        tpca(*arguments)


def prepare(name: str) -> None:
    """What the examples of a command take for granted."""
    tpca("fit-basis", "faces", "-o", "faces-basis.h5", "--tile", 8)
    if name != "encode":
        tpca("encode", "photos", "-o", "photos.h5", "--psnr", 40)
        for copy in ("damaged.h5", "copy.h5"):
            shutil.copy("photos.h5", copy)
        Path("names.txt").write_text("image_0000.png\nholiday/image_0001.png\n")
        tpca("encode", "photos", "-o", "exact.h5", "--exact")
    if name == "inspect":
        shutil.copy("faces-basis.h5", "basis.h5")
        tpca("encode", "faces", "-o", "scores.h5", "--basis", "basis.h5", "--plain")


def test_docstring_examples_name_things_that_exist() -> None:
    for path in (ROOT / "tpca_cli").rglob("*.py"):
        for module in re.findall(r"`(tpca_cli(?:\.\w+)+)`", path.read_text()):
            head, _, tail = module.rpartition(".")
            try:
                importlib.import_module(module)
            except ModuleNotFoundError:
                assert hasattr(importlib.import_module(head), tail), f"{path}: {module}"


def tree(text: str) -> set[str]:
    """The Python files of a drawn tree: indented lines that begin with names, `folder/` or `module.py`."""
    found = set()
    folder = ""
    for line in text.splitlines():
        names = re.match(r" *((?:[\w]+(?:/|\.py)(?: |$))*)", line)
        depth = len(line) - len(line.lstrip())
        for name in names[1].split() if names else ():
            if name.endswith("/"):
                folder = name if depth == 4 else folder
            else:
                found.add(name if depth == 4 else folder + name)
    return found


def test_the_tree_of_the_architecture_is_the_package() -> None:
    drawn = tree(blocks("text", (ROOT / "docs" / "ARCHITECTURE.md").read_text())[0])
    package = ROOT / "tpca_cli"
    there = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    there = {name for name in there if "__" not in name}
    assert drawn == there, f"drawn only: {sorted(drawn - there)}, there only: {sorted(there - drawn)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        made = target == "reference/commands.md"  # by `make site`, which checks links and anchors
        assert made or target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_that_a_page_names_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    text = page.read_text()
    named = set(re.findall(r"(?:^|`)(?:[A-Z_]+=\w+ )?make ([a-z][a-z-]*)", text, re.M))
    assert named <= targets, f"no such target: {sorted(named - targets)}"


def test_the_version_is_said_once() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert 'attr = "tpca_cli.__version__"' in project
    assert f'"{tpca_cli.__version__}"' not in project
    assert tpca("--version").out.split()[1] == tpca_cli.__version__
    assert f"## {tpca_cli.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_paper_is_cited_in_the_same_words() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    for words in ("Tensor PCA from basis in tensor space", "Turchetti", "Falaschetti", "2305.02803"):
        assert words in README and words in citation


def test_the_readme_says_how_to_install_right_after_the_demo() -> None:
    """Ways to install, Python versions, platform, every format that is read, and completion."""
    sections = README.split("\n## ")
    assert "make demo" in sections[0] and sections[1].startswith("Installing")
    project = (ROOT / "pyproject.toml").read_text()
    pythons = re.findall(r"Python :: (3\.\d+)", project)
    for words in (
        "pipx install tpca-cli",
        "pip install tpca-cli",
        "Linux",
        pythons[0],
        pythons[-1],
        "ompletion",
    ):
        assert words in sections[1], words
    names = {"HEIF": "HEIC", "JXL": "JPEG XL", "WEBP": "WebP"}
    for name in formats.FORMATS:
        assert names.get(name, name) in sections[1], name
    for extras in re.findall(r"tpca-cli\[([\w,]+)\]", README):
        assert all(re.search(rf"^{extra} = ", project, re.M) for extra in extras.split(",")), extras
