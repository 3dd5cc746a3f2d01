"""Which images an operator has counted: by the digest of their files, so that none is counted twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.basisfile import StoredBasis
from tpca_cli.errors import UsageError, printable
from tpca_cli.operators import Frames
from tpca_cli.tensors import Staged


def new_images(staged: Staged, base: StoredBasis | None, on_duplicate: str) -> npt.NDArray[np.bool_]:
    """Which images to count: with a base, none that it has counted before, and each only once."""
    keep = np.ones(len(staged.refs), bool)
    if base is None:
        return keep
    seen = {row.tobytes() for row in base.origin.digests}
    for i, row in enumerate(staged.digests):
        keep[i] = row.tobytes() not in seen
        seen.add(row.tobytes())
    if on_duplicate == "refuse" and not keep.all():
        first = staged.refs[int(np.argmin(keep))]
        raise UsageError(
            f"{int((~keep).sum())} of {len(keep)} images are counted already, the first is "
            f"{printable(first.path)}; --on-duplicate skip leaves them out"
        )
    return keep


def chosen(staged: Staged, keep: npt.NDArray[np.bool_]) -> Frames:
    """The frames of the images to keep."""
    apart = getattr(staged.frames, "only", None)
    return Chosen(staged, keep) if apart is None else apart(keep)


class Chosen:
    """The frames of some of the staged images."""

    def __init__(self, staged: Staged, keep: npt.NDArray[np.bool_]) -> None:
        counts = [staged.framing.count(header.height, header.width) for header in staged.headers]
        self._frames = staged.frames
        self._mask = np.repeat(keep, counts)
        self.count = int(self._mask.sum())
        self.frame_shape: tuple[int, ...] = staged.frames.frame_shape
        self.dtype: np.dtype[Any] = np.dtype(staged.frames.dtype)

    def blocks(self, rows: int) -> Iterator[npt.NDArray[Any]]:
        """The chosen frames in order."""
        at = 0
        for block in self._frames.blocks(rows):
            chosen = block[self._mask[at : at + len(block)]]
            at += len(block)
            if len(chosen):
                yield chosen


def sorted_digests(*parts: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """All digests in one order, whatever order the images came in."""
    rows = np.ascontiguousarray(np.concatenate(parts)).view(">u8").reshape(-1)
    return np.sort(rows).view(np.uint8).reshape(-1, 8)
