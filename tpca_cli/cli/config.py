"""The configuration file: options of commands in `tpca.toml`, below variables and the command line.

    memory = "4G"            # for every command that has --memory

    [encode]
    quality = 70             # as `tpca encode --quality 70`
    exclude = ["thumbs", "*.gif"]

The file is the one that `tpca --config FILE` or the variable TPCA_CONFIG names, else `tpca.toml` in the
current folder, else `tpca/tpca.toml` in `$XDG_CONFIG_HOME` (`~/.config`). One file is read, never two.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from tpca_cli.errors import StorageError, UsageError, printable

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same parser, under the name that it had before it came with Python
    import tomli as tomllib

Options = Mapping[str, click.Option]


def read(path: Path) -> dict[str, Any]:
    """The tables of a file, or an error that names it."""
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        return tables
    except OSError as error:
        raise StorageError.of(error, path, "read the configuration") from error
    except ValueError as error:  # not UTF-8, not TOML
        raise UsageError(f"{printable(path)}: {error}") from error


def settings(path: Path, name: str, commands: Mapping[str, Options], ctx: click.Context) -> dict[str, Any]:
    """What a file says about the command `name`, by parameter, for the `default_map` of click.

    `commands` has the options of every command by their names. Every key is checked, whichever command runs;
    values are checked for the command that runs, since files that others need may not be there.
    """
    own: dict[str, Any] = {}
    general: dict[str, Any] = {}
    for key, value in read(path).items():
        if isinstance(value, dict):
            table = _known(key, commands, f"{printable(path)}: there is no command", "")
            for inner, setting in value.items():
                said = f"{printable(path)}: [{table}] has no option"
                option = _known(inner, commands[table], said, _owners(inner, commands))
                if table == name:
                    own[option] = setting
        else:
            everything = {each: None for options in commands.values() for each in options}
            option = _known(key, everything, f"{printable(path)}: no command has an option", "")
            if option in commands[name]:
                general[option] = value
    found = {}
    for option, value in (general | own).items():
        parameter = commands[name][option]
        where = (
            f"{printable(path)}: {option}" if option not in own else f"{printable(path)}: [{name}] {option}"
        )
        found[str(parameter.name)] = _checked(where, parameter, value, ctx)
    return found


def _known(key: str, names: Iterable[str], said: str, else_said: str) -> str:
    """A key as it stands among `names`, dashes or underscores; an error that suggests one otherwise."""
    wanted = key.replace("_", "-")
    listed = list(names)
    if wanted in listed:
        return wanted
    near = difflib.get_close_matches(wanted, listed, 1)
    hint = else_said or (f": did you mean '{near[0]}'?" if near else "")
    raise UsageError(f"{said} '{key}'{hint}")


def _owners(key: str, commands: Mapping[str, Options]) -> str:
    """Which commands do have an option, as the end of a sentence."""
    owners = [name for name, options in commands.items() if key.replace("_", "-") in options]
    return f": it belongs to {', '.join(owners)}" if owners else ""


def _checked(where: str, option: click.Option, value: Any, ctx: click.Context) -> Any:
    """A value that the option takes, as it would be typed; an error that names file and key otherwise."""
    several = option.multiple or option.nargs != 1
    if option.is_flag != isinstance(value, bool):
        kind = "true or false" if option.is_flag else "a number or a text"
        raise UsageError(f"{where}: {value!r} is not {kind}")
    if several != isinstance(value, list) or not all(
        isinstance(each, (str, int, float)) for each in (value if several else [value])
    ):
        raise UsageError(
            f"{where}: {value!r} is not {'a list of texts' if several else 'a number or a text'}"
        )
    given = value if option.is_flag else [str(each) for each in value] if several else str(value)
    try:
        option.type_cast_value(ctx, given)
    except click.UsageError as error:
        raise UsageError(f"{where}: {error.message}") from None
    return given
