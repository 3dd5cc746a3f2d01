"""Opens an input file without trusting it: no link, no device, no surprise in size, read once."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from typing import NamedTuple

from tpca_cli.errors import ImageRefused, StorageError

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 20
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


DIGEST_BYTES = 16


class Stamp(NamedTuple):
    """What a file looked like when it was listed."""

    size: int
    mtime_ns: int


class Source(NamedTuple):
    """A whole file as it was read."""

    data: bytes
    mode_bits: int  # its permissions, 12 bits


def source_digest(data: bytes, size: int = DIGEST_BYTES) -> bytes:
    """The bytes that name the content of a source file: 16, or 8 in archives of version 1."""
    return hashlib.blake2b(data, digest_size=size).digest()


def open_source(path: bytes, limit: int, stamp: Stamp | None = None) -> tuple[int, int]:
    """A descriptor of a regular file no larger than `limit` bytes, and its size; the caller closes it."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno in _GONE:
            raise ImageRefused("no longer the file that was listed") from None
        raise StorageError.of(error, path, "open") from error
    try:
        found = os.fstat(descriptor)
        size = found.st_size
        if not stat.S_ISREG(found.st_mode):
            raise ImageRefused("not a regular file")
        if stamp is not None and (size != stamp.size or found.st_mtime_ns != stamp.mtime_ns):
            raise ImageRefused("changed since it was listed")
        if size > limit:
            raise ImageRefused(f"file has {size} bytes, the limit is {limit}; raise --max-pixels")
        if size == 0:
            raise ImageRefused("empty file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, size


def read_source(path: bytes, limit: int, stamp: Stamp | None = None) -> Source:
    """The whole file; one that grows or shrinks meanwhile is refused."""
    descriptor, size = open_source(path, limit, stamp)
    try:
        mode_bits = stat.S_IMODE(os.fstat(descriptor).st_mode)
        data = os.read(descriptor, size + 1)
        if len(data) < size:  # the system may hand out large files in parts
            parts = [data]
            while data and sum(map(len, parts)) <= size:
                data = os.read(descriptor, size + 1)
                parts.append(data)
            data = b"".join(parts)
    except OSError as error:
        raise StorageError.of(error, path, "read") from error
    finally:
        os.close(descriptor)
    if len(data) != size:
        raise ImageRefused("changed while it was read")
    return Source(data, mode_bits)


def file_digest(path: bytes, size: int = DIGEST_BYTES) -> bytes:
    """The same bytes for a file of any length, read piece by piece."""
    descriptor, _ = open_source(path, sys.maxsize)
    try:
        whole = hashlib.blake2b(digest_size=size)
        while piece := os.read(descriptor, _PIECE):
            whole.update(piece)
    except OSError as error:
        raise StorageError.of(error, path, "read") from error
    finally:
        os.close(descriptor)
    return whole.digest()
