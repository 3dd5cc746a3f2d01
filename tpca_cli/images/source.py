"""Opens an input file without trusting it: no link, no device, no surprise in size, read once."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tpca_cli.errors import ImageRefused, StorageError

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


class Stamp(NamedTuple):
    """What a file looked like when it was listed."""

    size: int
    mtime_ns: int


def source_digest(data: bytes) -> bytes:
    """Eight bytes that name the content of a source file."""
    return hashlib.blake2b(data, digest_size=8).digest()


@contextmanager
def opened(path: bytes, limit: int, stamp: Stamp | None = None) -> Iterator[tuple[int, int]]:
    """A descriptor of a regular file no larger than `limit` bytes, and its size."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno in _GONE:
            raise ImageRefused("no longer the file that was listed") from None
        raise StorageError.of(error, path, "open") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ImageRefused("not a regular file")
        if stamp is not None and (found.st_size, found.st_mtime_ns) != stamp:
            raise ImageRefused("changed since it was listed")
        if found.st_size > limit:
            raise ImageRefused(f"file has {found.st_size} bytes, the limit is {limit}; raise --max-pixels")
        if found.st_size == 0:
            raise ImageRefused("empty file")
        yield descriptor, found.st_size
    except OSError as error:
        raise StorageError.of(error, path, "read") from error
    finally:
        os.close(descriptor)


def read_bytes(descriptor: int, size: int) -> bytes:
    """The whole file; a file that grows or shrinks meanwhile is refused."""
    data = os.read(descriptor, size + 1)
    if len(data) < size:  # the system may hand out large files in parts
        parts = [data]
        while len(data) and sum(map(len, parts)) <= size:
            data = os.read(descriptor, size + 1)
            parts.append(data)
        data = b"".join(parts)
    if len(data) != size:
        raise ImageRefused("changed while it was read")
    return data
