"""Asks the system to begin writing to the disk what must be there in the end.

Only a hint, so that the one fsync at the end need not wait for a whole file; that fsync still finds every
failure. Where the system has no such call nothing happens.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

_WRITE = 2  # SYNC_FILE_RANGE_WRITE: begin, and wait for nothing


def begin_writing(fd: int, start: int, count: int) -> None:
    """For bytes that are not likely to change again; whatever goes wrong with the call is ignored."""
    _call()(fd, start, count, _WRITE)


@functools.cache
def _call() -> Callable[[int, int, int, int], int]:
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return lambda fd, start, count, flags: 0
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return call
