"""What a tpca file says of itself: one module per kind of file, found by the format that it claims.

Only what a page shows is read, and a kind of file is imported when one is met: the text page of a file of any
size takes the time of a few small reads.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from tpca_cli.errors import FileRefused, printable
from tpca_cli.report.model import Facts
from tpca_cli.store import format_of

KINDS = {
    "tpca-archive": "of_archive",
    "tpca-tensor": "of_tensor",
    "tpca-basis": "of_basis",
}


def describe(path: Path) -> Facts:
    """Everything that the page of a file shows; FileRefused when it is not one of ours."""
    kind = format_of(path)
    if kind not in KINDS:
        raise FileRefused(f"{printable(path)} was refused: format {kind[:40]!r} is none that tpca writes")
    try:
        facts: Facts = importlib.import_module(f"tpca_cli.report.{KINDS[kind]}").describe(path)
    except (KeyError, TypeError, ValueError, IndexError) as error:  # whole, but not as we write it
        raise FileRefused(
            f"{printable(path)} was refused: its description is incomplete ({error})"
        ) from error
    return facts
