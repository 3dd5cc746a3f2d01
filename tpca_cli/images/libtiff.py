"""Keeps libtiff quiet: it would print by itself what Pillow reports as an exception anyway."""

from __future__ import annotations

import ctypes

from PIL import _imaging


def silence() -> None:
    """Take libtiff's error and warning printers away, once and for the whole process.

    The symbols are looked up through Pillow's own extension, so that it is the libtiff that Pillow uses.
    Where that is built in without its symbols, or missing, nothing is changed.
    """
    try:
        library = ctypes.CDLL(_imaging.__file__)
        setters = library.TIFFSetErrorHandler, library.TIFFSetWarningHandler
    except (OSError, AttributeError):
        return
    for setter in setters:
        setter.argtypes, setter.restype = [ctypes.c_void_p], ctypes.c_void_p
        setter(None)
