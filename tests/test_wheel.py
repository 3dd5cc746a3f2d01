"""The wheel holds all of the package and its manual pages, and works when it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from pictures import folder

import tpca_cli
from tpca_cli.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "tools/build_man.py")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


def run(*command: object, **settings: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **settings
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, with what is installed here: no network is needed."""
    sources = tmp_path_factory.mktemp("sources")
    shutil.copytree(ROOT / "tpca_cli", sources / "tpca_cli", ignore=LEFT_OUT)
    (sources / "tools").mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, sources / name)
    made = tmp_path_factory.mktemp("dist")
    run(*PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", made, sources)
    (found,) = made.iterdir()
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `tpca` of an environment that holds the wheel, and beside it the libraries of this one."""
    place = tmp_path_factory.mktemp("installed") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", place)
    python = place / "bin" / "python"
    run(*PIP[:3], "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel)
    (site,) = place.glob("lib/python3*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return place / "bin" / "tpca"


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        held = {name for name in opened.namelist() if name.startswith("tpca_cli/")}
    there = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tpca_cli").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == there, f"only in one of them: {sorted(held ^ there)}"


def test_the_wheel_has_a_manual_page_for_each_command(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        pages = {Path(name).name: name for name in opened.namelist() if "/share/man/man1/" in name}
        assert set(pages) == {"tpca.1", *(f"tpca-{name}.1" for name in COMMANDS)}
        for name in COMMANDS:
            page = opened.read(pages[f"tpca-{name}.1"]).decode()
            assert ".SH OPTIONS" in page and ".SH EXAMPLES" in page and "\\-\\-verbose" in page
            (tmp_path / f"{name}.1").write_text(page)
    if shutil.which("man"):
        for name in COMMANDS:
            command = ["man", "--warnings", "-l", f"{name}.1"]
            env = os.environ | {"LC_ALL": "C.UTF-8", "MANPAGER": "cat", "MANWIDTH": "80"}
            shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env, check=True)
            assert not shown.stderr and f"tpca-{name} - {COMMANDS[name][:20]}" in " ".join(
                shown.stdout.split()
            )


def test_an_installed_wheel_says_its_version_and_makes_a_round_trip(installed: Path, tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TPCA"))}
    assert run(installed, "--version", cwd=tmp_path, env=env).split()[1] == tpca_cli.__version__
    python = installed.with_name("python")
    where = run(python, "-c", "import tpca_cli; print(tpca_cli.__file__)", cwd=tmp_path, env=env)
    assert Path(where.strip()).is_relative_to(installed.parent.parent), "the wheel is not what runs"
    folder(tmp_path / "in", 2, sizes=[(24, 32)])
    run(installed, "encode", "in", "-o", "a.h5", "--step", 8, "--force", cwd=tmp_path, env=env)
    run(installed, "encode", "in", "-o", "b.h5", "--exact", "--force", cwd=tmp_path, env=env)
    for archive in ("a", "b"):
        run(installed, "decode", f"{archive}.h5", "-o", archive, cwd=tmp_path, env=env)
        assert len(list((tmp_path / archive).iterdir())) == 2
    assert (installed.parent.parent / "share" / "man" / "man1" / "tpca-encode.1").exists()
