"""Files on disk: written whole or not at all, and read only after they were checked.

    files     plain files, temporary files; holds signals back while they are handled
    lock      one writer at a time, and what killed ones left
    schema    the table of datasets that a file must match; digests of pieces and of whole files
    write     HDF5 files by their table
    read      the same files back; `guard` holds the checks, `remote` reads what is behind an address
    columns   tables packed into byte arrays
    hdf5      the only module that imports h5py; `structure` looks at its records before it does

What the numbers in a file mean is the business of the modules that call this one with a `Schema`. Names that
need numpy and h5py load on first use, so that locks and plain files cost nothing to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tpca_cli.store.files import (
    Address,
    check_output,
    holds,
    is_remote,
    location,
    sync_folders,
    write_file,
)
from tpca_cli.store.lock import lock, remove_abandoned, remove_stale, stale_temporaries
from tpca_cli.store.schema import Field, Schema, digest_of, piece_digest

if TYPE_CHECKING:
    from tpca_cli.store.read import Identity, Reader, format_of, identity, open_as_it_is, open_checked
    from tpca_cli.store.write import Stream, Writer, create

__all__ = [
    "Address",
    "Field",
    "Identity",
    "Reader",
    "Schema",
    "Stream",
    "Writer",
    "check_output",
    "create",
    "digest_of",
    "format_of",
    "holds",
    "identity",
    "is_remote",
    "location",
    "lock",
    "open_as_it_is",
    "open_checked",
    "piece_digest",
    "remove_abandoned",
    "remove_stale",
    "stale_temporaries",
    "sync_folders",
    "write_file",
]

_LATE = {
    "Identity": "read",
    "Reader": "read",
    "format_of": "read",
    "identity": "read",
    "open_as_it_is": "read",
    "open_checked": "read",
    "Stream": "write",
    "Writer": "write",
    "create": "write",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_LATE[name]}", __name__), name)
    return found
