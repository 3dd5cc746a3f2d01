"""Which kind of file this is, before anything of that kind is imported."""

from __future__ import annotations

import os

from .files import AnyPath
from .guard import check_header, read_attributes
from .hdf5 import close_all, guarded, h5g, open_file
from .read import _open, _text
from .sink import Latched


def format_of(path: AnyPath) -> str:
    """The `format` that a file claims; `open_checked` then decides whether to believe it."""
    fd = _open(path)
    try:
        stream = Latched(fd)
        with guarded(stream, path, "read"):
            check_header(fd)
            file = open_file(stream, write=False)
            try:
                return _text(read_attributes(h5g.open(file, b"/")), "format")
            finally:
                close_all(file)
    finally:
        os.close(fd)
