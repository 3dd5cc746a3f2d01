"""A file that was cut, lengthened or changed by other hands is refused before its data are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tpca_cli import store
from tpca_cli.errors import FileRefused

from .samples import LONG


def check_refused(path: Path, reason: str | None = None) -> None:
    with pytest.raises(FileRefused, match=reason), store.open_checked(path, LONG):
        pass


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    content = path.read_bytes()
    for length in (*range(60), *range(60, len(content), 97), len(content) - 1):
        path.write_bytes(content[:length])
        check_refused(path)


def test_bytes_after_the_end_are_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")
    check_refused(path, "4 foreign bytes")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda file: file.create_dataset("other", data=np.zeros(3, "u1")), "unexpected names in group '/'"),
        (lambda file: file.move("small", "other"), "unexpected name 'other'"),
        (lambda file: file.__delitem__("small"), "'small' is missing"),
        (lambda file: file["small"].attrs.__setitem__("note", 1), "attributes of its own"),
        (lambda file: file.attrs.__setitem__("list", [1.0, 2.0]), "unexpected type"),
        (
            lambda file: (file.__delitem__("small"), file.__setitem__("small", h5py.SoftLink("/bulk"))),
            "a link",
        ),
        (lambda file: (file.__delitem__("small"), file.__setitem__("small", file["bulk"])), "appears twice"),
        (lambda file: file["bulk"].resize(2000, axis=0), "does not hold them"),
    ],
)
def test_what_the_table_does_not_name_is_refused(
    path: Path, change: Callable[[h5py.File], object], reason: str
) -> None:
    with h5py.File(path, "r+", libver=("v110", "v110")) as file:
        change(file)
    check_refused(path, reason)
