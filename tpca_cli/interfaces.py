"""Types that packages share: callbacks, pixels, and what numeric code may ask of frames."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Progress: TypeAlias = Callable[[str, int, int], None]
"""(stage, done, total), called now and then during long work."""

Say: TypeAlias = Callable[[str], None]
"""Takes one line of text for the user."""

AnyPath: TypeAlias = str | bytes | os.PathLike[str]
Pixels: TypeAlias = NDArray[Any]
"""(h, w, c), uint8 or uint16."""
Block: TypeAlias = NDArray[Any]
"""Frames, (b, I_1, .., I_d)."""


class Frames(Protocol):
    """Frames of one shape in a fixed order; every method may be called again for another pass."""

    @property
    def count(self) -> int:
        """How many frames there are."""
        ...

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """(I_1, .., I_d)."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint8 or uint16."""
        ...

    def blocks(self, rows: int) -> Iterator[Block]:
        """All frames in order, in blocks (rows, *frame_shape) of which only the last may be shorter."""
        ...

    def only(self, keep: NDArray[np.bool_], counts: Sequence[int]) -> Frames:
        """The frames of some of the images; `counts` are the frames of each."""
        ...

    def add_to(self, operator: Any, progress: Progress | None = None) -> None:
        """Add all frames to an operator, where the frames are."""
        ...

    def fold(
        self,
        part: Callable[..., Any],
        combine: Callable[[Any, Any], Any],
        *given: Any,
        stage: str = "",
        progress: Progress | None = None,
    ) -> Any:
        """The sum of `part(at, run, *given)` over runs of frames, on the schedule of `tensor_pca.fold`."""
        ...

    def gram(self, rows: int | None = None) -> NDArray[np.int64]:
        """All inner products a_mn = X_im X_in, (N, N), exact; at most twice `rows` frames are held."""
        ...
