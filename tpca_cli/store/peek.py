"""A first look at a file: is it one, which kind, which exactly. Content is not read here."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpca_cli.errors import FileRefused, OutputExists, StorageError, printable
from tpca_cli.store.digest import Attribute
from tpca_cli.store.files import AnyPath
from tpca_cli.store.guard import check_header, read_attributes
from tpca_cli.store.hdf5 import Refusal, close_all, guarded, h5g, open_file
from tpca_cli.store.schema import Schema
from tpca_cli.store.sink import Latched


@dataclass(frozen=True)
class Identity:
    """Which file, with which content: to find out whether it is still the same."""

    device: int
    inode: int
    digest: str


def identity(path: AnyPath) -> Identity:
    """Device, inode and root digest of a file of any format, without reading more of it."""
    fd = open_regular(path)
    try:
        digest = text_of(_attributes(fd, path), "digest")
        found = os.fstat(fd)
        return Identity(found.st_dev, found.st_ino, digest)
    finally:
        os.close(fd)


def format_of(path: AnyPath) -> str:
    """The `format` that a file claims; `open_checked` then decides whether to believe it."""
    fd = open_regular(path)
    try:
        return text_of(_attributes(fd, path), "format")
    finally:
        os.close(fd)


def _attributes(fd: int, path: AnyPath) -> dict[str, Attribute]:
    stream = Latched(fd)
    with guarded(stream, path, "read"):
        check_header(fd, stream)
        found = _root(stream)
        for name in ("format", "digest"):
            text_of(found, name)
        return found


def _root(stream: Latched) -> dict[str, Attribute]:
    file = open_file(stream, write=False)
    try:
        return read_attributes(h5g.open(file, b"/"))
    finally:
        close_all(file)


def open_regular(path: AnyPath) -> int:
    """A descriptor of a regular file that nobody is writing."""
    try:
        # opening a device can have effects of its own: look first, and again once it is open
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FileRefused(f"{printable(path)} was refused: not a regular file")
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError.of(error, path, "open") from error
    try:
        # other programs that write HDF5 lock the file exclusively; file systems without locks are fine
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            os.close(fd)
            raise OutputExists(f"{printable(path)} is in use: another program is writing it") from error
    return fd


def match(found: Mapping[str, Attribute], schemas: tuple[Schema, ...]) -> Schema:
    """The one of these tables that the file claims to follow."""
    name, version = text_of(found, "format"), found.get("format_version")
    wanted = " or ".join(sorted({schema.format for schema in schemas}))
    versions = [schema.version for schema in schemas if schema.format == name]
    if not versions:
        raise Refusal(f"format {name[:40]!r}, not {wanted}")
    if not isinstance(version, int):
        raise Refusal("no format_version")
    if version > max(versions):
        raise Refusal(
            f"{name} version {version} is newer than this program reads ({max(versions)}): upgrade tpca"
        )
    for schema in schemas:
        if (schema.format, schema.version) == (name, version):
            return schema
    raise Refusal(f"{name} version {version} is not one that this program reads")


def text_of(found: Mapping[str, Attribute], name: str) -> str:
    """A text attribute that every file has."""
    value = found.get(name)
    if not isinstance(value, str):
        raise Refusal(f"not a tpca file (no attribute {name!r})")
    return value


def meta_of(text: str) -> dict[str, Any]:
    """Structured metadata: a JSON object without surprises."""

    def constant(name: str) -> None:
        raise Refusal(f"attribute 'meta' holds {name}")

    try:
        value = json.loads(text, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise Refusal("attribute 'meta' is not JSON") from error
    if not isinstance(value, dict):
        raise Refusal("attribute 'meta' is not a JSON object")
    return value
