"""What staging hands over: the frames, and what is known of every image behind them."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tpca_cli.errors import FileRefused, printable
from tpca_cli.framing import Framing
from tpca_cli.images import Header
from tpca_cli.scan import ImageRef, Skipped
from tpca_cli.tensors.frames import Frames
from tpca_cli.tensors.tensorfile import Index, TensorFile

AnyPath = str | bytes | os.PathLike[str]


class Closes(Protocol):
    def close(self) -> None: ...


@dataclass
class Staged:
    """The frames of the images that could be read, and what is known of each; close it when done.

    `place` is "memory", "file" (private), "cache" or "source" (decoded again in every pass).
    """

    frames: Frames
    framing: Framing
    refs: tuple[ImageRef, ...]
    headers: tuple[Header, ...]
    digests: NDArray[np.uint8]
    skipped: tuple[Skipped, ...]
    warnings: tuple[Skipped, ...]
    place: str
    reused: bool = False
    _owned: Closes | None = field(default=None, repr=False)

    def close(self) -> None:
        """Let go of the staging file; a private one is gone with this."""
        if self._owned is not None:
            owned, self._owned = self._owned, None
            owned.close()

    def __enter__(self) -> Staged:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def describe(
    refs: Sequence[ImageRef],
    index: Index,
    frames: Frames,
    framing: Framing,
    place: str,
    owned: Closes | None,
) -> Staged:
    return Staged(
        frames=frames,
        framing=framing,
        refs=tuple(refs[i] for i in index.kept),
        headers=index.headers,
        digests=index.digests,
        skipped=tuple(Skipped(refs[i].path, reason) for i, reason in index.skipped),
        warnings=tuple(Skipped(refs[i].path, text) for i, text in index.warnings),
        place=place,
        _owned=owned,
    )


def reuse(refs: Sequence[ImageRef], cache: AnyPath, key: str, on_error: str) -> Staged | None:
    """The cache, if it was made from this very list in this very way; None if it may be replaced."""
    try:
        file = TensorFile(cache)
    except FileRefused as error:
        raise FileRefused(f"{error} (given as cache)") from error
    if file.key != key or (on_error == "fail" and file.index.skipped):
        file.close()
        return None
    try:
        staged = describe(refs, file.index, file, file.framing, "cache", file)
    except IndexError:
        file.close()
        raise FileRefused(f"{printable(cache)} does not belong to its list of files; delete it") from None
    staged.reused = True
    return staged


def list_key(refs: Sequence[ImageRef], request: Mapping[str, Any]) -> str:
    """A digest of which files, unchanged since when, read how."""
    whole = hashlib.blake2b(json.dumps(dict(request), sort_keys=True).encode(), digest_size=16)
    for ref in refs:
        path = ref.path if ref.path.startswith(b"/") else os.path.abspath(ref.path)
        whole.update(struct.pack("<QQq", len(path), ref.size, ref.mtime_ns))
        whole.update(path)
    return whole.hexdigest()
