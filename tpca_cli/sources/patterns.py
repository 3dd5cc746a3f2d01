"""Patterns that choose among the images of sources by their names: `--include` and `--exclude`."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Sequence


class Sources(tuple[str, ...]):
    """Sources as the user named them, with patterns for the names of the images that are found there.

    A tuple, so that whatever takes a list of sources takes these; `scan` looks for the patterns.
    """

    include: Patterns
    exclude: Patterns

    def __new__(cls, sources: Iterable[str], include: Sequence[str], exclude: Sequence[str]) -> Sources:
        """The same sources, without what the patterns leave out."""
        made = super().__new__(cls, sources)
        made.include, made.exclude = Patterns(include), Patterns(exclude)
        return made

    def wants(self, name: bytes) -> bool:
        """Whether an image of this name is chosen."""
        return not self.exclude.match(name) and (not self.include or self.include.match(name))


class Patterns:
    """Globs of which one must match: the whole name or a folder above it, or, without `/`, any part of it.

    `*` also stands for `/`: `holiday/*`, `*.gif`, `thumbs`, `*/thumbs/*`.
    """

    def __init__(self, globs: Sequence[str]) -> None:
        # bytes of any kind are text in this way, and matched one by one
        self._given = [os.fsencode(each).decode("latin-1").strip("/") for each in globs]
        self._whole = [re.compile(fnmatch.translate(each)) for each in self._given]
        self._part = [match for match, each in zip(self._whole, self._given, strict=True) if "/" not in each]

    def __bool__(self) -> bool:
        return bool(self._given)

    def match(self, name: bytes) -> bool:
        """Whether one of them matches a name, a folder above it or a part of it."""
        if not self._given:
            return False
        parts = name.decode("latin-1").split("/")
        paths = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        return any(each.match(path) for each in self._whole for path in paths) or any(
            each.match(part) for each in self._part for part in parts
        )
