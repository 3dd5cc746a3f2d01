"""Many images at once: which is where, orders that keep blocks together, and threads that decode ahead.

A block is the unit of decoding, so whoever wants many images should not ask for them one by one. Positions
are looked at some time before their images are due; those of one block are decoded together, and only the
pictures that somebody wants are made from it. The kernel runs without the interpreter's lock, so threads use
all cores; images come out in the order in which they were asked for, whatever thread was first.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpca_cli.errors import UsageError, printable
from tpca_cli.interfaces import Pixels
from tpca_cli.parallel import ordered_map

if TYPE_CHECKING:
    from pathlib import Path

    from tpca_cli.archive.reader import Archive
    from tpca_cli.store import Address

SPAN_BYTES = 2**22  # blocks are read together up to this many bytes


class Named:
    """Images in order, each with a name: what `Archive` and `Scores` have in common."""

    path: Path | Address
    names_bytes: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.names_bytes)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names as text; bytes that are not UTF-8 become surrogates, as in names that Python gives."""
        return tuple(name.decode("utf-8", "surrogateescape") for name in self.names_bytes)

    @cached_property
    def _positions(self) -> dict[bytes, int]:
        return {name: position for position, name in enumerate(self.names_bytes)}

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str | bytes) and self._named(name) is not None

    def _named(self, name: str | bytes) -> int | None:
        return self._positions.get(name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name)

    def place_of(self, item: int | str | bytes) -> int:
        """The position of an image, counted from the start; IndexError or KeyError where there is none."""
        if isinstance(item, str | bytes):
            named = self._named(item)
            if named is None:
                raise KeyError(f"no image {printable(item)} in {printable(self.path)}")
            return named
        position = operator.index(item)  # a TypeError for what is no whole number
        if not -len(self) <= position < len(self):
            raise IndexError(f"image {position} of {len(self)}")
        return position % len(self)


def component_count(components: int | None) -> int | None:
    """The number of components that was asked for; UsageError for one below zero, None for all of them."""
    if components is not None and components < 0:
        raise UsageError(f"components is {components}: at least 0 of them make an image")
    return components


class _Task(NamedTuple):
    """A block, and what is wanted of it: pictures by their place in it, each with the turns it is due at."""

    block: int
    wanted: dict[int, list[int]]


class _Turn(NamedTuple):
    """An image that is due, and the pictures that it consists of: one, or a band from each of its blocks."""

    position: int
    blocks: int


def spans(archive: Archive) -> Iterator[range]:
    """Consecutive blocks, together about `SPAN_BYTES`."""
    offsets, first = archive.index.offsets, 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + SPAN_BYTES, side="right")) - 1
        stop = max(first + 1, last)
        yield range(first, stop)
        first = stop


def coefficients(archive: Archive, position: int) -> NDArray[np.float64]:
    """What the blocks of an image store of it, (frames, M)."""
    image, index = int(archive.alive[position]), archive.index
    parts = []
    for block in index.blocks_of(image):
        coder = archive.coder(int(index.blocks["group"][block]))
        pictures = coder.coefficients(archive.block_bytes(block), index.block_shapes(block))
        parts.append(pictures[image - int(index.blocks["first"][block])])
    return np.concatenate(parts)


def shuffled(archive: Archive, seed: int) -> Iterator[int]:
    """Every position once: blocks in random order, and the images of each in random order."""
    rng = np.random.default_rng(seed)
    members = by_block(archive)
    for block in rng.permutation(len(members)):
        yield from rng.permutation(members[block]).tolist()


def by_block(archive: Archive) -> list[NDArray[np.int64]]:
    """The positions of the images of each block; an image in bands counts where its first band is."""
    if not len(archive):
        return []
    block_of = np.searchsorted(archive.index.blocks["first"], archive.alive, side="right")
    order = np.argsort(block_of, kind="stable")  # positions, block by block
    firsts = np.flatnonzero(np.diff(block_of[order], prepend=-1))
    return np.split(order, firsts[1:])


def in_advance(archive: Archive, positions: Iterable[int] | None, workers: int, most: float) -> Iterator[Any]:
    """The images at these positions, or all, in this order, decoded ahead by `workers` threads.

    Positions are taken in runs of images of at most `most` bytes; of each run a block is decoded once.
    """
    due: dict[int, _Turn] = {}
    parts: dict[int, list[Pixels]] = {}
    turn = 0

    def tasks() -> Iterator[_Task]:
        first = 0
        for run in _runs(archive, range(len(archive)) if positions is None else positions, most):
            wanted: dict[int, dict[int, list[int]]] = {}
            for at, position in enumerate(run, first):
                image = int(archive.alive[position])
                blocks = archive.index.blocks_of(image)
                due[at] = _Turn(position, len(blocks))
                for block in blocks:
                    place = image - int(archive.index.blocks["first"][block])
                    wanted.setdefault(block, {}).setdefault(place, []).append(at)
            first += len(run)
            yield from (_Task(block, places) for block, places in wanted.items())

    def pictures(task: _Task) -> tuple[_Task, list[Pixels]]:
        return task, archive.pictures(task.block, list(task.wanted))

    for task, found in ordered_map(pictures, tasks(), workers):
        for turns, part in zip(task.wanted.values(), found, strict=True):
            for at in turns:
                parts.setdefault(at, []).append(_own(part) if at == turns[0] else part.copy())
        while turn in due and len(parts.get(turn, ())) == due[turn].blocks:
            position = due.pop(turn).position
            yield archive.samples(position, archive.picture(position, parts.pop(turn)))
            turn += 1


def _own(picture: Pixels) -> Pixels:
    """The same without the rest of its block, which a view would keep in memory."""
    return picture if getattr(picture.base, "nbytes", picture.nbytes) == picture.nbytes else picture.copy()


def _runs(archive: Archive, positions: Iterable[int], most: float) -> Iterator[list[int]]:
    """Positions, counted from the start, in runs of one image or of at most `most` bytes together."""
    run: list[int] = []
    room = most
    for given in positions:
        position = archive.place_of(given)
        shape = archive.index.shape(int(archive.alive[position]))
        size = 4 * shape[0] * shape[1]  # of most pixels
        if run and size > room:
            yield run
            run, room = [], most
        run.append(position)
        room -= size
    if run:
        yield run
