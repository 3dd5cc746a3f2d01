"""An archive as training data: images with labels, and orders that shuffle and share out whole blocks.

Nothing here needs PyTorch; the module `torch` makes its datasets from these parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.archive import batches
from tpca_cli.archive.reader import Archive
from tpca_cli.errors import UsageError
from tpca_cli.formats import FILE

MIXED_BLOCKS = 8  # whose images are shuffled together
CACHED_BLOCKS = 32
Transform = Callable[[Any], Any]


def folder_of(name: str) -> str:
    """The label of an image: the folder that it is in, with those above it; empty at the top."""
    return name.rpartition("/")[0]


def channels_first(pixels: NDArray[Any]) -> NDArray[Any]:
    """(h, w, c) pixels as (c, h, w), as PyTorch has them."""
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


class LabeledImages:
    """The images of an archive, each with the number of its class: what a map-style dataset is.

    `classes` are the labels in alphabetical order, `class_to_idx` their numbers and `targets` the number of
    each image, as in torchvision's `ImageFolder`. Without a `transform` an image is a (c, h, w) array; a
    `transform` gets the (h, w, c) array of `Archive`. It can be pickled, and read in forked processes.
    """

    def __init__(
        self,
        source: Any,
        *,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        label: Callable[[str], str] = folder_of,
        mode: str | None = "RGB",
        basis: Any = None,
    ) -> None:
        """`source` is the path or address of an archive; `label` gives the label of a name; `mode` as in
        `Archive`. `target_transform` is given the number of a class.
        """
        self.archive = Archive(source, mode=mode, basis=basis, cache_blocks=CACHED_BLOCKS)
        if self.archive.holds_tensors:
            raise UsageError(f"{source} holds tensors, no images: read them with tpca_cli.Archive")
        self.transform = transform if transform is not None else channels_first
        self.target_transform = target_transform
        archive, names = self.archive, self.archive.names
        # an archive that keeps a folder exactly may hold files that are no pictures
        modes = [archive.index.mode(int(image)) for image in archive.alive]
        self.positions = [position for position, mode in enumerate(modes) if mode != FILE]
        self.numbers = {position: number for number, position in enumerate(self.positions)}
        labels = [label(names[position]) for position in self.positions]
        self.classes = sorted(set(labels))
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.targets = [self.class_to_idx[name] for name in labels]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        """An image and the number of its class, transformed."""
        return self.sample(number, self.archive[self.positions[number]])

    def __getitems__(self, numbers: Sequence[int]) -> list[tuple[Any, Any]]:
        """Those of a whole batch, for which PyTorch asks at once: every block is decoded once."""
        pixels = self.archive.read_many([self.positions[number] for number in numbers], workers=1)
        return [self.sample(number, one) for number, one in zip(numbers, pixels, strict=True)]

    def order(self, seed: Sequence[int], **shared: Any) -> Iterator[int]:
        """The images of an epoch by their numbers here; arguments as of `epoch_order`."""
        order = epoch_order(self.archive, seed, **shared)
        return (self.numbers[position] for position in order if position in self.numbers)

    def in_order(self, numbers: Sequence[int]) -> Iterator[tuple[Any, Any]]:
        """The images of these numbers one after another, read ahead."""
        pixels = self.archive.prefetch([self.positions[number] for number in numbers], workers=1)
        return (self.sample(number, one) for number, one in zip(numbers, pixels, strict=True))

    def sample(self, number: int, pixels: NDArray[Any]) -> tuple[Any, Any]:
        """What the dataset gives for an image that was read."""
        target = self.targets[number]
        return self.transform(pixels), self.target_transform(target) if self.target_transform else target


def share_of(machine: int, machines: int, worker: int, workers: int) -> dict[str, int]:
    """Which of the readers a worker of a machine is, as arguments of `epoch_order`.

    Machines take turns, so that each gets a block before any gets a second one for another of its workers.
    """
    return {"part": worker * machines + machine, "parts": machines * workers}


def epoch_order(
    archive: Archive,
    seed: Sequence[int],
    *,
    part: int = 0,
    parts: int = 1,
    mixed: int = MIXED_BLOCKS,
    shuffle: bool = True,
) -> Iterator[int]:
    """The positions that one of several readers takes in an epoch, in its order.

    Blocks come in random order and are dealt to the readers one by one: together they have every image once.
    Each reader shuffles the images of `mixed` blocks together, so that it decodes no block twice. Readers
    must have the same `seed`; another one is another epoch.
    """
    if not 0 <= part < parts:
        raise UsageError(f"part {part} of {parts}")
    if mixed < 1:
        raise UsageError(f"mixed is {mixed}: at least 1 block is shuffled at a time")
    members = batches.by_block(archive)
    blocks = (
        np.random.default_rng(list(seed)).permutation(len(members)) if shuffle else np.arange(len(members))
    )
    rng = np.random.default_rng([*seed, part + 1])
    mine = blocks[part::parts]
    for first in range(0, len(mine), mixed):
        positions = np.concatenate([members[block] for block in mine[first : first + mixed]])
        yield from (rng.permutation(positions) if shuffle else positions).tolist()
