"""`tpca --version`: the program, Python, and the libraries that are installed, without importing them."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from importlib import metadata

from tpca_cli import __version__

FOR_USERS = re.compile(r"extra == ['\"](?!dev|bench|kernel|fuzz|site)")


def versions() -> str:
    """The version, then one line for Python, one for libraries, one for optional libraries."""
    lines = [
        f"tpca {__version__}",
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
    ]
    try:
        wanted = metadata.requires("tpca-cli") or []
    except metadata.PackageNotFoundError:  # run from a folder that was never installed
        wanted = []
    needed = _installed(text for text in wanted if "extra ==" not in text)
    extras = _installed(text for text in wanted if FOR_USERS.search(text))
    absent = [name for name, version in extras.items() if version is None]
    present = {name: version for name, version in extras.items() if version is not None}
    for title, found in (("libraries", needed), ("optional", present)):
        if found:
            lines.append(f"{title}: {', '.join(f'{name} {version}' for name, version in found.items())}")
    if absent:
        lines.append(f"not installed: {', '.join(absent)}")
    return "\n".join(lines)


def _installed(requirements: Iterable[str]) -> dict[str, str | None]:
    """The installed version of each package that is required, by name; None where it is not installed."""
    found: dict[str, str | None] = {}
    for text in requirements:
        match = re.match(r"[\w.-]+", text)
        assert match is not None
        try:
            found[match[0]] = metadata.version(match[0])
        except metadata.PackageNotFoundError:
            if "python_version" not in text:
                found.setdefault(match[0], None)
    return found
