"""Help pages: themes, 80 columns, one screen for `-h`; colors for people at a terminal only."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import click
import pytest
from command import tpca

from tpca_cli.cli.help import OTHER, SCREEN, THEMES, WIDTH, Command
from tpca_cli.cli.main import COMMANDS
from tpca_cli.cli.main import tpca as group


def command_of(name: str) -> Command:
    command = group.get_command(click.Context(group), name)
    assert isinstance(command, Command), f"{name} needs cls=Command for its help"
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_form_names_every_option_on_one_screen(name) -> None:
    lines = tpca(name, "-h").out.splitlines()
    assert len(lines) <= SCREEN and max(map(len, lines)) <= WIDTH
    words = " ".join(lines).replace(",", " ").split()
    command = command_of(name)
    for option in command.get_params(click.Context(command)):
        if isinstance(option, click.Option):
            assert set(option.opts) & set(words), f"{name} -h does not name {option.opts}"
    assert not lines[-2].endswith("\\"), "half an example"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_long_form_has_every_option_once_and_its_theme(name) -> None:
    page = tpca(name, "--help").out
    command = command_of(name)
    context = click.Context(command)
    shown = [option for _, options in command.themes(context) for option in options]
    assert len(shown) == len({id(option) for option in shown})
    assert OTHER not in dict(command.themes(context))
    for theme, options in command.themes(context):
        section = page.split(f"\n{theme}:\n")[1].split("\n\n")[0]
        assert all(option.opts[0] in section for option in options)
    assert max(map(len, page.splitlines())) <= WIDTH


def test_a_theme_has_no_option_that_another_has() -> None:
    names = [name for names in THEMES.values() for name in names]
    assert len(names) == len(set(names))


def test_options_are_never_broken_at_a_hyphen() -> None:
    for name in COMMANDS:
        for line in tpca(name, "--help").out.splitlines():
            assert not re.search(r"\w-$", line), line


def seen_on_a_terminal(*arguments: str, **variables: str) -> bytes:
    """What a command writes where stdout and stderr are a terminal."""
    ours, theirs = os.openpty()
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    command = [sys.executable, "-m", "tpca_cli", *arguments]
    subprocess.run(
        command, stdout=theirs, stderr=theirs, env=env | {"TERM": "xterm"} | variables, check=False
    )
    os.close(theirs)
    told = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the end of a terminal that nobody holds any more
            data = b""
        if not data:
            os.close(ours)
            return told
        told += data


@pytest.mark.parametrize("arguments", [("ls", "-h"), ("ls", "nowhere.h5")])
def test_colors_are_for_terminals_and_never_with_no_color(arguments) -> None:
    assert b"\x1b[" in seen_on_a_terminal(*arguments)
    assert b"\x1b" not in seen_on_a_terminal(*arguments, NO_COLOR="1")
    assert b"\x1b" not in seen_on_a_terminal(*arguments, TERM="dumb")
    piped = subprocess.run([sys.executable, "-m", "tpca_cli", *arguments], capture_output=True, check=False)
    assert piped.stdout + piped.stderr and b"\x1b" not in piped.stdout + piped.stderr
