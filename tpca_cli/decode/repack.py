"""The same images without the waste of many appends: replaced ones gone, small blocks joined, same pixels.

Images keep their group and their order. A block whose images stay together is copied; where images went, or
where blocks are smaller than need be, the coded integers are taken out and coded again, never the pixels.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tpca_cli import store
from tpca_cli.archive import exact
from tpca_cli.archive.index import BlockRecord, Index
from tpca_cli.archive.packing import Job, pack
from tpca_cli.archive.reader import Archive
from tpca_cli.archive.writer import Group, write_archive
from tpca_cli.checkpoint import Checkpoint, removed_unless_interrupted
from tpca_cli.codec.grid import Grid, grid_of
from tpca_cli.codec.kernel_run import Symbols, joined, read_symbols, write_symbols
from tpca_cli.decode.verify import images_of, verify_archive
from tpca_cli.errors import FileRefused, TpcaError, printable
from tpca_cli.interfaces import Progress
from tpca_cli.parallel import ordered_map

CACHED_BLOCKS = 16


@dataclass(frozen=True)
class Repacked:
    """What a repack did."""

    images: int
    dropped: int  # replaced images
    lost: tuple[bytes, ...]  # images of damaged blocks
    old_blocks: int
    new_blocks: int


@dataclass(frozen=True)
class _Task:
    """One job of one group; `images` are numbers in the old archive."""

    group: int
    job: Job
    images: tuple[int, ...]


def repack(
    archive: Archive,
    output: Path,
    progress: Progress | None = None,
    *,
    workers: int = 1,
    salvage: bool = False,
    force: bool = False,
    expect: store.Identity | None = None,
) -> Repacked:
    """Write the archive anew; `expect` when it is to replace itself. The caller holds the output's lock."""
    store.check_output(output, force)
    lost = _lost(archive, progress, workers) if salvage else set()
    tasks = list(_tasks(archive, lost))
    if not tasks:
        raise TpcaError(f"{printable(archive.path)}: no image is left to keep")
    with removed_unless_interrupted(output):
        checkpoint = Checkpoint(output, {"repack": archive.digest, "lost": sorted(lost)})
        recoder = _Recoder(archive)
        blocks: list[BlockRecord] = []
        first = done = 0
        total = sum(len(task.images) for task in tasks)
        for number, (task, parts) in enumerate(
            zip(tasks, ordered_map(recoder.run, tasks, workers), strict=True)
        ):
            bands = task.job.bands or ((0, 0),)
            blocks += [
                BlockRecord(len(data), task.group, first, len(task.images), row, rows, store.digest_of(data))
                for (row, rows), data in zip(bands, parts, strict=True)
            ]
            checkpoint.put(number, {}, b"".join(parts))
            first += len(task.images)
            done += len(task.images)
            if progress:
                progress("repacking", done, total)
        order = np.array([image for task in tasks for image in task.images])
        index, groups = _rebuilt(archive, order, blocks)
        payload = (_kept(checkpoint, number) for number in range(len(tasks)))
        target = archive.target
        write_archive(output, index, groups, payload, target_asked=target, force=force, expect=expect)
    names = tuple(archive.index.names[image] for image in sorted(lost) if archive.index.mode(image))
    kept, dropped = len(archive.alive) - len(lost), len(archive.index) - len(order) - len(lost)
    return Repacked(kept, dropped, names, len(archive.index.blocks["size"]), len(blocks))


def _lost(archive: Archive, progress: Progress | None, workers: int) -> set[int]:
    """The images that damaged blocks cost."""
    damage = verify_archive(archive, progress, workers=workers).damage
    names = {name for item in damage for name in images_of(archive, item.block)}
    return {int(image) for image in archive.alive if archive.index.names[image] in names}


def _tasks(archive: Archive, lost: set[int]) -> Iterator[_Task]:
    """The images that stay, packed anew: group by group, in the order they have."""
    index = archive.index
    starts = np.searchsorted(index.blocks["first"], archive.alive, side="right") - 1
    groups = index.blocks["group"][starts]
    for group in range(len(archive.groups)):
        chosen = [
            int(image)
            for image, its_group in zip(archive.alive, groups, strict=True)
            if int(its_group) == group and int(image) not in lost
        ]
        if chosen:
            if archive.is_exact(group):
                yield from _as_they_are(archive, group, chosen)
                continue
            framing = archive.coder(group).framing
            for job in pack([index.shape(image) for image in chosen], framing):
                yield _Task(group, job, tuple(chosen[job.first : job.first + job.count]))


def _as_they_are(archive: Archive, group: int, chosen: Sequence[int]) -> Iterator[_Task]:
    """Blocks of exact groups keep their images together; a block that lost some is coded anew.

    Samples within an error cannot be, without another error: such a block stays as it is.
    """
    index = archive.index
    fixed = archive.groups[group].meta["coder"].get("tolerance", 0) > 0
    for block, together in itertools.groupby(chosen, key=lambda image: index.blocks_of(image)[0]):
        images = tuple(together)
        if fixed:
            first = int(index.blocks["first"][block])
            images = tuple(range(first, first + int(index.blocks["count"][block])))
        rows = [index.blocks["rows"][block] for block in index.blocks_of(images[0])]
        starts = np.concatenate([[0], np.cumsum(rows)[:-1]])
        bands = tuple((int(row), int(height)) for row, height in zip(starts, rows, strict=True))
        yield _Task(group, Job(0, len(images), bands if rows[0] else ()), images)


class _Recoder:
    """Old blocks into new ones; keeps the symbols of a few blocks at hand."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._symbols = functools.lru_cache(CACHED_BLOCKS)(self._read)

    def run(self, task: _Task) -> list[bytes]:
        """The coded blocks of a task: one, or one for each band of a large image."""
        index = self.archive.index
        blocks = index.blocks_of(task.images[0])
        first, count = int(index.blocks["first"][blocks[0]]), int(index.blocks["count"][blocks[0]])
        if task.images == tuple(range(first, first + count)):  # as it is, bands included
            return [self.archive.block_bytes(block) for block in blocks]
        if self.archive.is_exact(task.group):
            first = int(index.blocks["first"][blocks[0]])
            kept = [image - first for image in task.images]
            data, shapes = self.archive.block_bytes(blocks[0]), index.block_shapes(blocks[0])
            return [exact.recoded(self.archive.groups[task.group], data, shapes, kept)]
        model, shapes = self.archive.coder(task.group).model, [index.shape(image) for image in task.images]
        symbols = [self._image(image) for image in task.images]
        return [write_symbols(model, self._grid(task.group, shapes), joined(symbols))]

    def _image(self, image: int) -> Symbols:
        index = self.archive.index
        block = index.blocks_of(image)[0]
        framing = self.archive.coder(int(index.blocks["group"][block])).framing
        counts = [framing.count(*shape) for shape in index.block_shapes(block)]
        ends = np.concatenate([[0], np.cumsum(counts)])
        position = image - int(index.blocks["first"][block])
        return self._symbols(block).of(int(ends[position]), int(ends[position + 1]))

    def _read(self, block: int) -> Symbols:
        group = int(self.archive.index.blocks["group"][block])
        grid = self._grid(group, self.archive.index.block_shapes(block))
        return read_symbols(self.archive.coder(group).model, grid, self.archive.block_bytes(block))

    def _grid(self, group: int, shapes: Sequence[tuple[int, int]]) -> Grid:
        framing = self.archive.coder(group).framing
        return grid_of(tuple(framing.grid(h, w) for h, w in shapes))


def _rebuilt(archive: Archive, order: Any, blocks: Sequence[BlockRecord]) -> tuple[Index, list[Group]]:
    """The index of the images that stay, and the groups that they need."""
    old = archive.index
    used = sorted({block.group for block in blocks})
    numbers = {group: number for number, group in enumerate(used)}
    index = old.of_images(order, [replace(block, group=numbers[block.group]) for block in blocks])
    return index, [archive.groups[group] for group in used]


def _kept(checkpoint: Checkpoint, number: int) -> bytes:
    kept = checkpoint.get(number)
    if kept is None:
        raise FileRefused(f"a finished block is gone from {printable(checkpoint.folder)}")
    return kept[1]
