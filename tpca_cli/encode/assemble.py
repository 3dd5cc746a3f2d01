"""What passes over the images gave, as one: numbered images and blocks, their quality, their bytes.

A pass codes all jobs, or a share of them: every third, say, where a result is so close to what was asked for
that another step for these is enough. What it gave takes the place of what an earlier pass gave for the same
jobs, in groups of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tpca_cli.archive.facts import pooled_psnr, quality_facts
from tpca_cli.archive.format import CHANNELS
from tpca_cli.archive.index import BlockRecord, Entry, Index
from tpca_cli.archive.writer import Contents, Group, write_archive
from tpca_cli.checkpoint import Checkpoint
from tpca_cli.encode.code_blocks import Coded, Share, restored
from tpca_cli.errors import printable
from tpca_cli.quality import NEGLIGIBLE, Part, decibel, loses_detail, psnr
from tpca_cli.rate import Range, Target
from tpca_cli.sources.scan import NOTHING_IGNORED, Ignored, Skipped


@dataclass(frozen=True)
class Tried:
    """A step that images were coded with, and what came out of all; steps count for samples up to 255."""

    step: float
    psnr: float
    payload_bytes: int


@dataclass(frozen=True)
class LowQuality:
    """An image whose error is a large share of its variance, or of that of its colors or alpha alone."""

    name: bytes
    share: float
    psnr: float


@dataclass(frozen=True)
class Assembled:
    """Everything an archive holds, its payload still in the checkpoint."""

    index: Index
    groups: tuple[Group, ...]
    checkpoint: Checkpoint | Mended
    jobs: int
    step: float
    measured: Mapping[str, float]  # by a target of each kind: decibels from the reference, SSIMULACRA 2
    psnr: float  # over all returned samples
    payload_bytes: int  # of all coded blocks
    skipped: tuple[Skipped, ...]
    largest: tuple[int, ...] = ()  # sample of each group
    low_quality: tuple[LowQuality, ...] = ()
    tried: tuple[Tried, ...] = ()
    missed: str = ""  # what to say when the result is far from what was asked for
    ignored: Ignored = NOTHING_IGNORED
    raw: tuple[Skipped, ...] = ()  # files that are kept as they are, and why they cannot be more
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the archive, once it is written
    errors: tuple[float, ...] = ()  # squared, of each job, relative to the reference

    def payload(self) -> Iterator[bytes]:
        """The coded blocks, one after another."""
        for job in range(self.jobs):
            yield self.kept(job)[1]

    def kept(self, job: int) -> tuple[dict[str, Any], bytes]:
        """What a job gave: its description and its bytes."""
        found = self.checkpoint.get(job)
        if found is None:
            raise RuntimeError(f"finished job {job} is gone from {printable(self.checkpoint.folder)}")
        return found


def assemble(
    coded: Iterable[Coded],
    groups: Sequence[Group],
    checkpoint: Checkpoint | Mended,
    ranges: Sequence[Range],
    skipped: Sequence[Skipped],
    step: float,
) -> Assembled:
    """Number the images and blocks of all jobs in their order."""
    entries: list[Entry] = []
    blocks: list[BlockRecord] = []
    low: list[LowQuality] = []
    raw: list[Skipped] = []
    lost = list(skipped)
    largest = [0] * len(ranges)
    errors: list[float] = []
    energy, samples = 0.0, 0
    for item in coded:
        blocks += [replace(block, first=len(entries) + block.first) for block in item.blocks]
        lost += item.skipped
        raw += item.raw
        errors.append(0.0)
        if not item.blocks:
            continue
        group = item.blocks[0].group
        scope = ranges[group]
        largest[group] = max(largest[group], item.largest)
        energy += item.energy / scope.reference**2
        each = zip(item.entries, item.deviations, strict=True)
        for (entry, deviation), apart in itertools.zip_longest(each, item.apart):
            entries.append(replace(entry, peak=scope.peak))
            count = entry.height * entry.width * CHANNELS[entry.mode]
            samples += count
            errors[-1] += entry.error / scope.reference**2
            if apart is not None:  # otherwise it is held to an error of its own
                share = _share_lost(apart or (Part(entry.error, count, deviation),), scope.peak)
                if share:
                    low.append(LowQuality(entry.name, share, psnr(entry.error, count, scope.peak)))
    index = Index.build(entries, blocks, [(printable(item.path), item.reason) for item in lost])
    level, seen = psnr(sum(errors), samples), quality_facts(index)["quality"]
    measured = {
        "psnr": level,
        "energy": level + decibel(energy / max(float(index.samples.sum()), 1.0)),
        "quality": math.nan if seen is None else float(seen),
    }
    return Assembled(
        index,
        tuple(groups),
        checkpoint,
        len(errors),
        step,
        measured,
        pooled_psnr(index),
        int(index.offsets[-1]),
        tuple(lost),
        tuple(largest),
        tuple(low),
        raw=tuple(raw),
        errors=tuple(errors),
    )


def _share_lost(parts: Sequence[Part], peak: int) -> float:
    """The largest error by its variance, or by a gray level, of parts that lose too much; 0 if none does."""
    return max(
        (
            error / max(deviation, NEGLIGIBLE * samples)
            for error, samples, deviation in parts
            if loses_detail(error, samples, deviation, peak)
        ),
        default=0.0,
    )


def write_assembled(path: Path, result: Assembled, target: Target, *, force: bool) -> Contents:
    """Commit the archive; what the file then holds."""
    return write_archive(
        path, result.index, result.groups, result.payload(), target_asked=target.to_dict(), force=force
    )


SHARES = (6, 5, 4, 3, 2)
"""Of all jobs, how many there are for one that is coded again."""
MOST_MOVE = 0.12  # of ln(step): steps that differ by this cost a thousandth more than one between them
GROUP_SHARE = 500  # of the payload, new groups may take one part in so many
GROUP_BYTES = 600  # that a group takes besides its tables


def share_for(result: Assembled, move: float, needed: bool = False) -> tuple[Share, float] | None:
    """The fewest jobs that move a result as far as `move`, in ln(step), does for all, and their share of the
    error; None where all of them are needed, or, unless there is no other way, are so few that the group
    would cost more than it saves."""
    errors, total = result.errors, sum(result.errors)
    stored = sum(group.tables.nbytes + GROUP_BYTES for group in result.groups)
    if not total or (not needed and GROUP_SHARE * stored > result.payload_bytes):
        return None
    for apart in SHARES:
        if abs(move) * apart <= MOST_MOVE and len(errors) >= 2 * apart:
            parts = [sum(errors[first::apart]) / total for first in range(apart)]
            first = min(range(apart), key=lambda k: abs(parts[k] * apart - 1))
            if abs(move) <= 2 * MOST_MOVE * parts[first]:
                return Share(first, apart), parts[first]
    return None


@dataclass(frozen=True)
class Mended:
    """The jobs of a pass, of which some were coded again."""

    before: Checkpoint | Mended
    after: Checkpoint
    share: Share

    @property
    def root(self) -> Path:
        """The folder of the run."""
        return self.after.root

    @property
    def folder(self) -> Path:
        """The folder of what was coded last."""
        return self.after.folder

    def get(self, number: int) -> tuple[dict[str, Any], bytes] | None:
        """The result of a job."""
        position, other = divmod(number - self.share.first, self.share.apart)
        return self.before.get(number) if other else self.after.get(position)


def mend(
    before: Assembled,
    share: Share,
    coded: Iterable[Coded],
    groups: Sequence[Group],
    checkpoint: Checkpoint,
    ranges: Sequence[Range],
    skipped: Sequence[Skipped],
) -> Assembled:
    """An earlier result with jobs that were coded again, in groups of their own."""
    known = len(before.groups)

    def jobs() -> Iterator[Coded]:
        fresh = iter(coded)
        for number in range(before.jobs):
            if number % share.apart == share.first:
                item = next(fresh)
                blocks = tuple(replace(block, group=block.group + known) for block in item.blocks)
                yield replace(item, blocks=blocks)
            else:
                yield restored(*before.kept(number))

    joined = (*before.groups, *groups)
    spool = Mended(before.checkpoint, checkpoint, share)
    return used_only(assemble(jobs(), joined, spool, [*ranges, *ranges], skipped, before.step), 0)


def used_only(result: Assembled, known: int) -> Assembled:
    """With those new groups that have a block, and no others; the first `known` are not new."""
    used = np.unique(result.index.blocks["group"])
    new = used[used >= known]
    numbers = np.arange(max(len(result.groups), known))
    numbers[new] = known + np.arange(len(new))
    blocks = {**result.index.blocks, "group": numbers[result.index.blocks["group"]]}
    index: Index = replace(result.index, blocks=blocks)
    return replace(result, index=index, groups=tuple(result.groups[number] for number in new))
