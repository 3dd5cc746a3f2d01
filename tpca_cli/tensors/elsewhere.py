"""What staging asks of other machines that are to read the files in our place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tpca_cli.images import Header
from tpca_cli.scan import ImageRef
from tpca_cli.tensors.choice import Recipe
from tpca_cli.tensors.frames import Frames
from tpca_cli.tensors.taken import Refusal, Taken

Progress = Callable[[str, int, int], None]


class Elsewhere(Protocol):
    """Other machines that see the same files."""

    def probe(self, refs: Sequence[ImageRef], max_pixels: int) -> Iterator[Header | Refusal]:
        """The header of every file, in order."""
        ...

    def read(
        self,
        refs: Sequence[ImageRef],
        chosen: Sequence[tuple[int, Header]],
        recipe: Recipe,
        fail: bool,
        progress: Progress | None,
    ) -> tuple[Sequence[Taken], Sequence[Refusal]]:
        """Decode the chosen files once: what was read and what was not; with `fail`, up to the first."""
        ...

    def frames(self, refs: Sequence[ImageRef], taken: Sequence[Taken], recipe: Recipe) -> Frames:
        """The frames of the files that were read."""
        ...
