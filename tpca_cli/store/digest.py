"""Digests: of a piece of data, and of a whole file's meaning.

They find rot and mistakes, not forgery: whoever can write the file can also write its digest.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from tpca_cli.store.schema import Field

Attribute = str | int | float | bytes


def digest_of(data: Any) -> bytes:
    """Eight bytes that name a piece of data (any contiguous buffer)."""
    return blake2b(data, digest_size=8).digest()


class DatasetDigest:
    """The digest of one dataset: its bytes in C order, added piece by piece."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def add(self, data: Any) -> None:
        """Another piece, any contiguous buffer."""
        self._hash.update(data)

    def value(self) -> bytes:
        """The digest so far."""
        return self._hash.digest()


def root_digest(
    attributes: Mapping[str, Attribute], leaves: Mapping[str, tuple[Field, tuple[int, ...], bytes]]
) -> str:
    """One digest over attributes and, for each dataset, path, type, shape and content (bulk: no content).

    Every part goes in with its length, so that no two different files spell the same sequence.
    """
    whole = blake2b(digest_size=16)

    def part(data: bytes) -> None:
        whole.update(struct.pack("<Q", len(data)))
        whole.update(data)

    for name in sorted(attributes):
        value = attributes[name]
        part(name.encode())
        part(type(value).__name__.encode())
        part(_bytes(value))
    part(b"datasets")
    for path in sorted(leaves):
        field, shape, leaf = leaves[path]
        part(path.encode())
        part(field.dtype.lstrip("<|").encode())
        part(struct.pack(f"<{len(shape)}Q", *shape))
        part(b"" if field.bulk else leaf)
    return whole.hexdigest()


def _bytes(value: Attribute) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    return struct.pack("<q", value) if isinstance(value, int) else struct.pack("<d", value)
