"""The table that a file must match, and the digest over what it holds. No HDF5 here.

The table says which datasets there are, of which type and shape. A path is `a/b`. A component `*` stands for
any decimal number without leading zeros (`group/*/step`), so that a file may hold several of a kind;
everything else in a file must be named in its table.

Digests find rot and mistakes, not forgery: whoever can write the file can also write its digest.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Attribute = str | int | float | bytes

TEXT_BYTES = 4096  # no text is longer
BUNDLE = "bundle"
"""Where a file may hold its metadata and all datasets but bulk ones, if its table has this: see `columns`."""
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_DTYPE = re.compile(r"\|?[ui]1|<?[uif][248]|S[0-9]*")


@dataclass(frozen=True)
class Field:
    """One dataset: numbers, or text of one length, with `None` in the shape for a free length.

    `dtype` may name several types, of which a file takes one: `<f4 <f8`. `S` is text of any one length,
    filled up with NUL. `scales` are the paths of datasets that count rows and columns, one for each axis, for
    programs that know HDF5's dimension scales; we write them and never read them.

    `bulk` data are read piece by piece and are not covered by the root digest: whoever writes them keeps
    digests of the pieces in another dataset, which is. All other data are read whenever the file is opened:
    what is large, or may deflate to next to nothing (a matrix of zeros), belongs to bulk.
    """

    dtype: str
    shape: tuple[int | None, ...]
    bulk: bool = False
    optional: bool = False
    scales: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(_DTYPE.fullmatch(each) for each in self.dtype.split()) or not self.dtype:
            raise ValueError(f"field type {self.dtype!r} is not a little-endian number")

    def narrowed(self, dtype: str) -> Field | None:
        """The field with the one type that a file has, such as `f4` or `S12`; None if it may not have it."""
        for each in self.dtype.split():
            if each.lstrip("<|") == dtype or (each == "S" and is_text(dtype)):
                return self if each == self.dtype != "S" else replace(self, dtype=dtype)
        return None

    @property
    def kind(self) -> np.dtype[Any]:
        """The numpy type of the elements: little-endian on every machine."""
        import numpy as np

        found: np.dtype[Any] = np.dtype(self.dtype).newbyteorder("<")
        return found

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape may stand here."""
        return len(shape) == len(self.shape) and all(
            want is None or want == have for want, have in zip(self.shape, shape, strict=True)
        )


@dataclass(frozen=True)
class Schema:
    """A format by name and version, with every dataset that it may hold."""

    format: str
    version: int
    fields: Mapping[str, Field]

    def __post_init__(self) -> None:
        for path in self.fields:
            if not all(part == "*" or _NAME.fullmatch(part) for part in path.split("/")):
                raise ValueError(f"bad path {path!r} in the table of {self.format}")

    def has_scales(self, path: str) -> bool:
        """Whether a dataset has dimension scales, or is one."""
        field = self.field(path)
        return bool(field and field.scales) or any(path in each.scales for each in self.fields.values())

    def field(self, path: str) -> Field | None:
        """The field that a concrete path belongs to, or None."""
        general = "/".join("*" if is_number(part) else part for part in path.split("/"))
        return self.fields.get(general)

    def children(self, group: str) -> frozenset[str]:
        """Names (or `*`) that may stand directly in a group; `group` is general, "" for the root."""
        depth = len(group.split("/")) if group else 0
        prefix = group + "/" if group else ""
        return frozenset(path.split("/")[depth] for path in self.fields if path.startswith(prefix))

    def missing(self, names: frozenset[str]) -> str | None:
        """A required path that is not among these, or None. A `*` family requires nothing unless begun."""
        begun: set[tuple[str, ...]] = {()}
        for name in names:
            parts = tuple(name.split("/"))
            begun.update(parts[:end] for end in range(1, len(parts)))
        for path, field in self.fields.items():
            if field.optional:
                continue
            for instance in _instances(tuple(path.split("/")), begun):
                if "/".join(instance) not in names:
                    return "/".join(instance)
        return None


def _instances(parts: tuple[str, ...], begun: set[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The concrete forms of a path, one for each numbered group that is there."""
    if "*" not in parts:
        return [parts]
    star = parts.index("*")
    heads = [group for group in begun if len(group) == star + 1 and group[:star] == parts[:star]]
    numbered = sorted(head for head in heads if is_number(head[-1]))
    return [whole for head in numbered for whole in _instances(head + parts[star + 1 :], begun)]


def is_text(dtype: str) -> bool:
    """Whether a type is text of some length that is allowed."""
    return dtype[:1] == "S" and dtype[1:].isdecimal() and 1 <= int(dtype[1:]) <= TEXT_BYTES


def is_number(part: str) -> bool:
    """Whether a component may stand for `*`: each number has one spelling."""
    return _NUMBER.fullmatch(part) is not None


def digest_of(data: Any) -> bytes:
    """Eight bytes that name a piece of data (any contiguous buffer)."""
    return piece_digest(data).digest()


def piece_digest(data: Any = b"") -> blake2b:
    """The digest of a piece of data, to be updated where it comes in parts."""
    return blake2b(data, digest_size=8)


def dataset_digest() -> blake2b:
    """The digest of one dataset, to be updated with its bytes in C order, piece by piece."""
    return blake2b(digest_size=16)


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
