"""The one door to h5py: loaded late, with plugins off, over file objects that never raise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tpca_cli.errors import FileRefused, StorageError, TpcaError, printable
from tpca_cli.store.files import AnyPath
from tpca_cli.store.signals import Shield
from tpca_cli.store.sink import Latched

# HDF5 would load any library from a plugin folder to read a foreign filter; it reads this once, at start
os.environ["HDF5_PLUGIN_PRELOAD"] = "::"

with Shield():  # an import that a signal breaks in the middle does not say so
    from h5py import h5a, h5d, h5f, h5fd, h5g, h5l, h5o, h5p, h5s, h5t, h5z

__all__ = [
    "Refusal",
    "close_all",
    "guarded",
    "h5a",
    "h5d",
    "h5f",
    "h5g",
    "h5l",
    "h5o",
    "h5p",
    "h5s",
    "h5t",
    "h5z",
    "open_file",
]


class Refusal(Exception):
    """Why a file is refused, without its name."""


def open_file(stream: Latched, *, write: bool) -> Any:
    """An HDF5 file identifier over a latched file object."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
    access.set_fileobj_driver(h5fd.fileobj_driver, stream)
    if not write:
        return h5f.open(b"tpca", h5f.ACC_RDONLY, access)
    creation = h5p.create(h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    creation.set_attr_phase_change(32, 0)  # attributes stay in the header: no heap for a few more than eight
    return h5f.create(b"tpca", h5f.ACC_TRUNC, creation, access)


@contextmanager
def guarded(stream: Latched, path: AnyPath, doing: str) -> Iterator[None]:
    """Every call into HDF5 runs in here: signals wait, and whatever fails gets its right name.

    A failure of the system is a StorageError; anything else that HDF5 finds is a damaged file.
    """
    with Shield():
        try:
            try:
                yield
            finally:
                failure = stream.failure
                if isinstance(failure, OSError):
                    raise StorageError.of(failure, path, doing) from failure
                if failure is not None:
                    raise failure
        except (TpcaError, MemoryError):
            raise
        except Refusal as error:
            raise FileRefused(f"{printable(path)} was refused: {error}") from error
        except Exception as error:
            if "memory allocation" in str(error):
                raise MemoryError(f"not enough memory to {doing} {printable(path)}") from error
            reason = " ".join(str(error).split()) or type(error).__name__
            if doing == "write":
                raise StorageError(f"cannot write {printable(path)}: {printable(reason[:200])}") from error
            raise FileRefused(f"{printable(path)} is damaged: {printable(reason[:200])}") from error


def close_all(file: Any, *things: Any) -> None:
    """Close identifiers now, inside the guard: the garbage collector would do it where signals raise."""
    for thing in things:
        if thing.valid:
            thing.close()
    if file is not None and file.valid:
        file.close()
