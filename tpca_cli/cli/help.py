"""Help pages: options grouped by theme, on 80 columns; `-h` gives their names on one screen.

Themes stand in one table here, by the option's parameter name, so that an option which several commands share
is found in the same place of each page.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator

import click
from click.shell_completion import CompletionItem

from tpca_cli.cli.console import BOLD, paint

WIDTH, SCREEN = 80, 24
TERMS = 24  # columns for the names of options
HYPHEN, SPACE = "\N{NON-BREAKING HYPHEN}", "\N{NO-BREAK SPACE}"  # a line is not broken there

THEMES = {
    "Target": (
        "psnr", "quality", "energy", "max_bytes", "ratio", "step", "exact", "max_error", "components",
        "all_pairs", "tune",
    ),
    "Basis": (
        "basis", "link_basis", "method", "tile", "size", "truncation", "solver", "center", "tolerance",
        "keep_operator", "operator_only", "operator", "update", "on_duplicate", "refit",
    ),
    "Checking": (
        "sources", "min_psnr", "min_quality", "identical", "allow_partial", "decode", "print0_verified",
    ),
    "Showing": (
        "listed", "names", "print0", "sort", "spectrum", "scatter", "basis_grid", "count", "gallery", "rd",
        "report", "source", "pictures",
    ),
    "Reading": (
        "include", "exclude", "select", "select_from", "stack", "max_pixels", "on_error", "strip_metadata",
        "salvage",
    ),
    "Writing": (
        "output", "to", "shard_bytes", "format", "append", "on_change", "coding", "plain", "dtype",
        "compress", "cache", "scores", "resume", "force",
    ),
    "Running": (
        "dry_run", "workers", "cluster", "memory", "lock_wait", "as_json", "quiet", "verbose", "brief",
        "help", "_click_default_help",  # what click calls --help, before 8.5 and since
    ),
}  # fmt: skip
THEME_OF = {name: theme for theme, names in THEMES.items() for name in names}
OTHER = "Options"
MAKERS = ("encode", "fit-basis", "merge")  # to others, a basis and components are a way to read


def theme_of(command: str, option: str) -> str:
    """The theme of an option of a command, by the names of both."""
    if option in ("basis", "components") and command not in MAKERS:
        return "Reading"
    return THEME_OF.get(option, OTHER)


class Formatter(click.HelpFormatter):
    """The formatter of click: bold headings on a terminal, one column for terms, options unbroken."""

    def write_heading(self, heading: str) -> None:
        """A heading, bold on a terminal."""
        self.write(f"{'':>{self.current_indent}}{paint(heading + ':', sys.stdout, BOLD)}\n")

    def write_text(self, text: str) -> None:
        """A paragraph."""
        super().write_text(text.replace("-", HYPHEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = TERMS, col_spacing: int = 2) -> None:
        """Terms and what they mean."""
        unbroken = [(f"{term:{col_max}}", text.replace("-", HYPHEN)) for term, text in rows]
        super().write_dl(unbroken, col_max, col_spacing)

    def getvalue(self) -> str:
        """The page."""
        return "".join(line.rstrip() + "\n" for line in super().getvalue().replace(HYPHEN, "-").splitlines())


class Context(click.Context):
    """The context of click with our formatter."""

    formatter_class = Formatter


class Command(click.Command):
    """A command whose help is grouped by theme, and that has a short form of it."""

    context_class = Context

    def themes(self, ctx: click.Context) -> Iterator[tuple[str, list[click.Option]]]:
        """The options that are shown, by theme, in the order of the table."""
        shown = [each for each in self.get_params(ctx) if isinstance(each, click.Option) and not each.hidden]
        for theme in (*THEMES, OTHER):
            found = [each for each in shown if theme_of(self.name or "", each.name or "") == theme]
            if found:
                yield theme, found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of each theme, with what they do."""
        for theme, found in self.themes(ctx):
            with formatter.section(theme):
                formatter.write_dl([(spelled(each, ctx), explained(each, ctx)) for each in found])

    def brief(self, ctx: click.Context) -> str:
        """The short form: usage, what the command does, the names of its options, and examples."""
        what = (self.help or "").split("\n\n")[0]
        lines = [self.get_usage(ctx), *textwrap.wrap(" ".join(what.split()), WIDTH - 1), ""]
        for theme, found in self.themes(ctx):
            names = [spelled(each, ctx).split(", ")[-1].replace(" ", SPACE) for each in found]
            head = f"{theme + ':':10}"
            wrapped = textwrap.wrap(
                ", ".join(names), WIDTH - 11, break_on_hyphens=False, break_long_words=False
            )
            text = f"\n{'':10}".join(wrapped).replace(SPACE, " ")
            lines += (paint(head, sys.stdout, BOLD) + text).splitlines()
        more = f"'{ctx.command_path} --help' explains each option."
        shown = examples(self)[: SCREEN - 3 - len(lines)]
        while shown and shown[-1].endswith("\\"):  # half an example is none
            shown.pop()
        return "\n".join([*lines, "", *shown, more])


def spelled(option: click.Option, ctx: click.Context) -> str:
    """An option as one types it: `-o, --output FILE`."""
    record = option.get_help_record(ctx)
    assert record is not None
    return record[0]


def explained(option: click.Option, ctx: click.Context) -> str:
    """What an option does, whether it must be given, and what it is otherwise."""
    extra = option.get_help_extra(ctx)
    notes = [extra[key] for key in ("required",) if key in extra]
    if "default" in extra:
        notes.append(f"default: {extra['default'].strip('()')}")
    return f"{option.help} [{'; '.join(notes)}]" if notes else str(option.help)


def examples(command: click.Command) -> list[str]:
    """The first paragraph of the epilog: its examples, one on each line."""
    first = (command.epilog or "").split("\n\n")[0]
    return [line for line in first.splitlines() if line != "\b"]


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For the shell: names of files, which it finds by itself."""
    return [CompletionItem(incomplete, type="file")]
