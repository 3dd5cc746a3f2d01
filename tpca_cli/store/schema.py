"""The table that a file must match: which datasets, of which type and shape. No HDF5 here.

A path is `a/b`. A component `*` stands for any decimal number without leading zeros (`group/*/step`), so
that a file may hold several of a kind; everything else in a file must be named in its table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_DTYPE = re.compile(r"\|?[ui]1|<?[uif][248]")


@dataclass(frozen=True)
class Field:
    """One dataset: numbers only, `None` in the shape for a free length.

    `bulk` data are read piece by piece and are not covered by the root digest: whoever writes them keeps
    digests of the pieces in another dataset, which is. All other data are read whenever the file is opened:
    what is large, or may deflate to next to nothing (a matrix of zeros), belongs to bulk.
    """

    dtype: str
    shape: tuple[int | None, ...]
    bulk: bool = False
    optional: bool = False

    def __post_init__(self) -> None:
        if not _DTYPE.fullmatch(self.dtype):
            raise ValueError(f"field type {self.dtype!r} is not a little-endian number")

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


def is_number(part: str) -> bool:
    """Whether a component may stand for `*`: each number has one spelling."""
    return _NUMBER.fullmatch(part) is not None
