"""Frames that are tensors of any order, read from their files in every pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tpca_cli.errors import ImageRefused, StorageError, TpcaError, printable
from tpca_cli.frames.arrays import LocalFrames
from tpca_cli.images.arrays import largest_of
from tpca_cli.interfaces import Block, Progress
from tpca_cli.sources.items import Items
from tpca_cli.sources.scan import Skipped
from tpca_cli.tensors import LARGEST, SMALLEST


class ItemFrames(LocalFrames):
    """Every item is one frame."""

    def __init__(self, items: Items, max_values: int) -> None:
        self._items = items
        self._max_values = max_values
        self.count = len(items.refs)
        self.frame_shape = items.item.shape
        self.dtype = np.dtype(items.item.dtype)

    def blocks(self, rows: int) -> Iterator[Block]:
        """The frames in blocks of at most `rows`."""
        for start in range(0, self.count, rows):
            refs = self._items.refs[start : start + rows]
            block = np.empty((len(refs), *self.frame_shape), self.dtype)
            for row, ref in zip(block, refs, strict=True):
                try:
                    row[...] = ref.read(self._max_values)
                except (ImageRefused, ValueError) as error:
                    raise TpcaError(f"{printable(ref.path)} changed while it was used: {error}") from None
            yield block


@dataclass(frozen=True)
class Checked:
    """Items whose samples can all be read, and between which values they lie."""

    items: Items
    smallest: float
    largest: float


def check_items(items: Items, max_values: int, on_error: str, progress: Progress | None = None) -> Checked:
    """Read every item once: what cannot be read is left out, with the reason."""
    refs, skipped, low, high = [], list(items.skipped), 0.0, 0.0
    for number, ref in enumerate(items.refs, 1):
        try:
            smallest, largest = largest_of(ref.read(max_values))
            size = max(-smallest, largest)
            if size > LARGEST:
                raise ImageRefused(
                    f"samples up to {size:.3g} in magnitude, more than {LARGEST:g}; scale them"
                )
        except (ImageRefused, StorageError) as error:
            if on_error == "fail":
                raise TpcaError(f"{printable(ref.path)}: {error}; --on-error skip leaves it out") from None
            skipped.append(Skipped(ref.path, str(error)))
            continue
        low, high = min(low, smallest), max(high, largest)
        refs.append(ref)
        if progress is not None:
            progress("read items", number, len(items.refs))
    if not refs:
        nothing = TpcaError(
            f"none of {len(items.refs)} tensors can be used; the first is "
            f"{printable(skipped[0].path)}: {skipped[0].reason}"
        )
        nothing.skipped = tuple((item.path, item.reason) for item in skipped)
        raise nothing
    if 0 < max(-low, high) < SMALLEST:  # of all together: small ones beside others do no harm
        raise TpcaError(
            f"{printable(refs[0].path)} and all others have samples up to {max(-low, high):.3g} in "
            f"magnitude, less than {SMALLEST:g}: scale them"
        )
    return Checked(replace(items, refs=tuple(refs), skipped=tuple(skipped)), low, high)
