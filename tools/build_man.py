"""Manual pages from the help of the commands: `tpca.1`, `tpca-encode.1` and so on, one for each.

`setup.py` calls it when a wheel is built, so that the pages are always those of the program beside them.
Needs click and the package, nothing else.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tpca_cli import __version__
from tpca_cli.cli.help import Command, explained, spelled
from tpca_cli.cli.main import COMMANDS, tpca

SEE = ".SH SEE ALSO"


def escaped(text: str) -> str:
    """A text as troff takes it: no backslash, dash, dot or quote with a meaning of its own."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def paragraphs(text: str) -> Iterator[str]:
    """Help as click reads it: paragraphs to be filled; after a backspace, lines that stay."""
    for part in filter(None, re.split(r"\n\s*\n", text)):
        lines = [line for line in part.splitlines() if line.strip() != "\b"]
        if "\b" in part:
            heading = lines[0].rstrip(":") if lines[0].endswith(":") else None
            if heading:
                yield f".SH {escaped(heading.upper())}"
                lines = lines[1:]
            yield "\n".join([".nf", *(escaped(line.removeprefix("  ")) for line in lines), ".fi"])
        else:
            yield f".PP\n{escaped(' '.join(line.strip() for line in lines))}"


def closing(epilog: str) -> Iterator[str]:
    """What follows the options: examples, then notes."""
    noted = False
    for part in paragraphs(epilog):
        if part.startswith(".PP") and not noted:
            noted = True
            yield ".SH NOTES"
        yield part


def head(name: str, about: str) -> list[str]:
    """The first lines of a page: its title, and what `whatis` shows."""
    title = escaped(name.upper())
    return [
        f'.TH "{title}" "1" "" "tpca {__version__}" "tpca"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(about)}",
    ]


def command_page(name: str) -> str:
    """The page of a command: synopsis, description, options by theme, examples."""
    parent = click.Context(tpca, info_name="tpca")
    command = tpca.get_command(parent, name)
    assert isinstance(command, Command)
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        *head(f"tpca-{name}", COMMANDS[name]),
        ".SH SYNOPSIS",
        f".B tpca {escaped(name)}",
        escaped(usage),
        ".SH DESCRIPTION",
        *paragraphs(command.help or ""),
        ".SH OPTIONS",
    ]
    for theme, options in command.themes(context):
        lines.append(f".SS {theme}")
        for option in options:
            lines += [".TP", f".B {escaped(spelled(option, context))}", escaped(explained(option, context))]
    lines += closing(command.epilog or "")
    return "\n".join([*lines, SEE, ".BR tpca (1)"]) + "\n"


def main_page() -> str:
    """The page of `tpca` itself: what it is, and its commands."""
    context = click.Context(tpca, info_name="tpca")
    lines = [
        *head("tpca", "compress folders of images with a basis learned from the folder itself"),
        ".SH SYNOPSIS",
        ".B tpca",
        escaped(" ".join(tpca.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *paragraphs(tpca.help or ""),
        ".SH COMMANDS",
    ]
    for name, about in COMMANDS.items():
        lines += [".TP", f".BR tpca\\-{escaped(name)} (1)", escaped(about)]
    lines.append(".SH OPTIONS")
    for option in tpca.get_params(context):
        assert isinstance(option, click.Option)
        lines += [".TP", f".B {escaped(spelled(option, context))}", escaped(explained(option, context))]
    lines += closing(tpca.epilog or "")
    pages = ",\n".join(f".BR tpca\\-{escaped(name)} (1)" for name in COMMANDS)
    return "\n".join([*lines, SEE, pages]) + "\n"


def build(folder: Path) -> list[Path]:
    """Write all pages into a folder; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"tpca.1": main_page(), **{f"tpca-{name}.1": command_page(name) for name in COMMANDS}}
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages]


if __name__ == "__main__":
    for path in build(Path(sys.argv[1] if len(sys.argv) > 1 else "build/man")):
        print(path)
