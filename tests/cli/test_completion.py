"""Completion in bash, zsh and fish: what they are told, and the shells themselves where installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class
from command import tpca
from pictures import folder

from tpca_cli.cli.main import tpca as group

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive, photos, and a `tpca` of this interpreter to be found on the path."""
    root = tmp_path_factory.mktemp("place")
    folder(root / "photos", 2, sizes=[(24, 32)])
    tpca("encode", root / "photos", "-o", root / "photos.h5", "--step", 8, "--force")
    (root / "bin").mkdir()
    script = root / "bin" / "tpca"
    start = "import sys; from tpca_cli.cli.main import main; main()"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n')
    script.chmod(0o755)
    return root


def environment(place: Path, **variables: str) -> dict[str, str]:
    root = str(Path(__file__).resolve().parent.parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": path} | variables


def ask(shell: str, words: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `tpca` answers when a shell asks how to go on after `words`."""
    last = words.split(" ")[-1] if shell == "fish" else str(words.count(" "))
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", last)
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(group, {}, "tpca", "_TPCA_COMPLETE").complete()


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_is_told_commands_options_files_and_names(shell, place, monkeypatch) -> None:
    monkeypatch.chdir(place)
    for words, answer in {
        "tpca dec": "decode",
        "tpca encode --ps": "--psnr",
        "tpca encode --method su": "subspace",
        "tpca encode pho": "file",
        "tpca diff pho": "file",
        "tpca cat photos.h5 image_0001": "image_0001.png",
    }.items():
        assert answer in ask(shell, words, monkeypatch)
    assert "image_0000" not in ask(shell, "tpca cat photos.h5 image_0001", monkeypatch)
    assert "png" not in ask(shell, "tpca cat nowhere.h5 image", monkeypatch)


IN_BASH = """
eval "$(_TPCA_COMPLETE=bash_source tpca)"
complete -p tpca >/dev/null || exit 1
COMP_WORDS=(tpca encode --ma) COMP_CWORD=2
_tpca_completion tpca
printf '%s\\n' "${COMPREPLY[@]}"
"""
IN_ZSH = """
autoload -Uz compinit && compinit -u -D
eval "$(_TPCA_COMPLETE=zsh_source tpca)"
(( $+functions[_tpca_completion] )) || exit 1
compadd() { print -l -- $completions }
_describe() { print -l -- $completions_with_descriptions }
words=(tpca encode --ma) CURRENT=3
_tpca_completion
"""
IN_FISH = """
_TPCA_COMPLETE=fish_source tpca | source
complete --do-complete 'tpca encode --ma'
"""


@pytest.mark.parametrize(
    ("shell", "script"), [("bash", IN_BASH), ("zsh", IN_ZSH), ("fish", IN_FISH)], ids=SHELLS
)
def test_the_shell_itself_completes_with_what_the_documentation_says(shell, script, place) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    plain = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [program, *plain, "-c", script],
        cwd=place,
        env=environment(place, HOME=str(place)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "--max-bytes" in done.stdout and "--max-pixels" in done.stdout, done.stdout + done.stderr
