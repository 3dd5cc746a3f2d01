"""Pages of the site that are written when it is built: the reference of the commands, from their help."""

from __future__ import annotations

from typing import Any

import click

from tpca_cli.cli.help import Command, explained, spelled
from tpca_cli.cli.main import COMMANDS, _variable, options_of, tpca

PAGE = "reference/commands.md"


def cell(text: str) -> str:
    """A text inside a table of Markdown."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def paragraphs(text: str) -> list[str]:
    """Help as Markdown: paragraphs, and those that a backspace begins as blocks of code."""
    found = []
    for part in filter(None, (part.strip("\n") for part in text.split("\n\n"))):
        if "\b" in part:
            lines = [line.removeprefix("  ") for line in part.splitlines() if line != "\b"]
            found += [lines[0], "\n".join(["```sh", *lines[1:], "```"])]
        else:
            found.append(" ".join(line.strip() for line in part.splitlines()).replace("<", "&lt;"))
    return found


def section(name: str) -> str:
    """What one command does, with a table of options for each theme."""
    parent = click.Context(tpca, info_name="tpca")
    command = tpca.get_command(parent, name)
    assert isinstance(command, Command)
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(["tpca", name, *command.collect_usage_pieces(context)])
    parts = [f"## tpca {name}", f"```text\n{usage}\n```", *paragraphs(command.help or "")]
    for theme, options in command.themes(context):
        rows = [
            f"| `{cell(spelled(each, context))}` | {cell(explained(each, context))} |" for each in options
        ]
        parts.append("\n".join([f"| {theme} | |", "|---|---|", *rows]))
    return "\n\n".join([*parts, *paragraphs(command.epilog or "")])


def reference() -> str:
    """The page: what holds for every command, then one section for each."""
    command = tpca.get_command(click.Context(tpca), "encode")
    assert command is not None
    longest = max(options_of(command), key=len)
    intro = (
        f"`tpca COMMAND -h` names the options on one screen, `--help` explains them, `man tpca-COMMAND` "
        f"has the same. Every option has a variable, such as `{_variable('encode-' + longest)}` for "
        f"`--{longest}`, or in [tpca.toml](../SHELL.md#tpcatoml)."
    )
    return "\n\n".join(["# Commands", intro, *map(section, COMMANDS)]) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs with the files of the site: adds the page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=reference()))
    return files
