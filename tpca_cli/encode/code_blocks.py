"""Images to coded blocks: the one pass over the pixels that `encode` makes once its coders are known.

Each job is a pure function of the coder and the source files, so jobs run side by side, in any order, and a
run that was killed takes finished ones from its checkpoint. What could not be read is left out of its block.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tpca_cli import images, store, visual
from tpca_cli.archive.format import RESIZED, STRIPPED, VERSION
from tpca_cli.archive.index import BlockRecord, Entry
from tpca_cli.archive.packing import BAND_PIXELS, Job, check_work, pack
from tpca_cli.archive.writer import Group
from tpca_cli.checkpoint import Checkpoint
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.kernel_job import prepare
from tpca_cli.codec.tuning import PSNR
from tpca_cli.encode.sample import moments
from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.formats import CHANNELS
from tpca_cli.interfaces import Pixels, Progress
from tpca_cli.parallel import busy_map, ordered_map
from tpca_cli.quality import Part, errors_of, parts_of
from tpca_cli.sources.probe import Kind, Member, source_plan
from tpca_cli.sources.read import read_member
from tpca_cli.sources.read_plan import Reading, skip_or_fail
from tpca_cli.sources.scan import Skipped

if TYPE_CHECKING:
    from tpca_cli.encode.exact_blocks import ExactPlan

Band = tuple[int, int]
SEEN_ROWS = 256  # that are looked at together: in fewer, the largest scales of what people see are missing


class Share(NamedTuple):
    """Jobs of a pass: every `apart`-th from the `first` on."""

    first: int = 0
    apart: int = 1

    def after(self, jobs: int) -> Share:
        """The same where so many jobs come before the first that is counted."""
        return Share((self.first - jobs) % self.apart, self.apart)


ALL = Share()


@dataclass(frozen=True)
class GroupPlan:
    """One group of images, the coder for them, and which of their jobs a pass is about."""

    kind: Kind
    members: tuple[Member, ...]
    coder: Coder
    share: Share = ALL

    def jobs(self) -> list[Job]:
        """The images dealt into blocks."""
        shapes = [(member.height, member.width) for member in self.members]
        jobs = pack(shapes, self.coder.framing)
        check_work(jobs, shapes, self.coder.framing, self.coder.components)
        return jobs[self.share.first :: self.share.apart]

    def weight(self, job: Job) -> int:
        """Bytes that a job takes while it is coded."""
        return weight_of(self.members, job)

    def code(self, task: Task, reading: Reading, helpers: int = 1) -> Coded:
        """The blocks of a job."""
        return code_job(self, task, reading, helpers)

    def prepare(self) -> None:
        """Compile what is needed, before processes are forked."""
        prepare(anew=True)


Plan: TypeAlias = "GroupPlan | ExactPlan"
"""The images of a group, their jobs, and how one is coded."""


@dataclass(frozen=True)
class Task:
    """A job of one group."""

    group: int
    job: Job


@dataclass(frozen=True)
class Coded:
    """What a job gave: entries and blocks with `first` counted inside the job, their bytes, what failed."""

    entries: tuple[Entry, ...]
    blocks: tuple[BlockRecord, ...]
    data: bytes
    skipped: tuple[Skipped, ...]
    energy: int  # sum of squared samples
    deviations: tuple[int, ...] = ()  # of each image: squared distances of samples from their channel's mean
    largest: int = 0  # sample
    raw: tuple[Skipped, ...] = ()  # files that are kept as they are, and why they cannot be more
    apart: tuple[tuple[Part, ...], ...] = ()  # of images coded with a loss: colors and alpha, if it has both


def tasks_of(plans: Sequence[Plan]) -> list[Task]:
    """The blocks of all groups as tasks, in the order of the file."""
    return [Task(number, job) for number, plan in enumerate(plans) for job in plan.jobs()]


def coding_checkpoint(
    output: Path, plans: Sequence[GroupPlan], groups: Sequence[Group], reading: Reading
) -> Checkpoint:
    """The finished work of all that decides the coded bytes: the images, and the groups that they go to."""
    described = [
        {**source_plan(plan.members, reading), "share": plan.share, "group": dict(group.meta)}
        for plan, group in zip(plans, groups, strict=True)
    ]
    tables = [group.tables.tobytes() for group in groups]
    return Checkpoint(output, {"format": VERSION, "groups": described}, tables)


def code_all(
    plans: Sequence[Plan],
    reading: Reading,
    checkpoint: Checkpoint | None,
    progress: Progress | None = None,
) -> Iterator[Coded]:
    """The results of all jobs, in order."""
    tasks = tasks_of(plans)
    total = sum(task.job.count for task in tasks)
    room = reading.room

    def run(numbered: tuple[int, Task]) -> Coded:
        number, task = numbered
        plan = plans[task.group]
        coded = kept(checkpoint, number, plan, task.job)
        if coded is not None:
            return coded
        job, kind = task.job, plan.kind
        pixels = sum(m.height * m.width for m in plan.members[job.first : job.first + job.count])
        helpers = room.helpers(plan.weight(job), pixels * kind.channels * int(kind.dtype[1]), kind.channels)
        coded = plan.code(task, reading, helpers)
        if checkpoint:
            checkpoint.put(number, described(coded), coded.data)
        return coded

    def weight(numbered: tuple[int, Task]) -> int:
        task = numbered[1]
        return plans[task.group].weight(task.job)

    for plan in plans:
        plan.prepare()
    done = 0
    results = busy_map(run, list(enumerate(tasks)), room.workers, weight=weight, budget=room.size)
    for task, coded in zip(tasks, results, strict=True):
        done += task.job.count
        if progress:
            progress("encoding", done, total)
        yield coded


def weight_of(members: Sequence[Member], job: Job) -> int:
    """Bytes that the pictures of a job take while they are read."""
    return sum(member.weight for member in members[job.first : job.first + job.count])


def kept(checkpoint: Checkpoint | None, number: int, plan: Plan, job: Job) -> Coded | None:
    """A result of an earlier run, if it still holds."""
    found = checkpoint.get(number) if checkpoint else None
    if found is None or "apart" not in found[0]:  # an older version did not measure them
        return None
    coded = restored(*found)
    return coded if _still_true(coded, plan, job) else None


def code_job(plan: GroupPlan, task: Task, reading: Reading, threads: int = 1) -> Coded:
    """Read the images of a job, code them, and measure the error of what a reader will get back.

    The bands of a large image are coded side by side in so many threads.
    """
    job = task.job
    members: list[Member] = []
    pictures: list[images.Picture] = []
    flags: list[int] = []
    skipped: list[Skipped] = []
    for member in plan.members[job.first : job.first + job.count]:
        try:
            picture = read_member(member, plan.kind.channels, reading, content=True)
            bare = _stripped(picture) if reading.strip_metadata else picture
            pictures.append(bare)
            flags.append(STRIPPED * (bare is not picture))
            members.append(member)
        except (ImageRefused, StorageError) as error:
            skipped.append(skip_or_fail(member.ref.path, error, reading.on_error))
    blocks, lost, errors = _code_pictures(plan, task, pictures, members, threads)
    entries = tuple(
        Entry(
            name=member.ref.name,
            digest=picture.digest,
            mtime_ns=member.ref.mtime_ns,
            source_size=member.ref.size,
            height=member.height,
            width=member.width,
            mode=member.mode,
            error=error,
            exif=picture.exif,
            icc=picture.icc,
            flags=RESIZED * member.resized | picture_flags,
            mode_bits=picture.mode_bits,
            metadata=picture.metadata,
            reasons=picture.reasons,
            quality=score,
            peak=plan.kind.peak,
        )
        for member, picture, picture_flags, (error, score) in zip(members, pictures, flags, lost, strict=True)
    )
    returned = [images.narrow(p.pixels, m.mode) for p, m in zip(pictures, members, strict=True)]
    seen = [moments(pixels) for pixels in returned]
    return Coded(
        entries,
        tuple(block.record for block in blocks),
        b"".join(block.data for block in blocks),
        tuple(skipped),
        sum(one.energy for one in seen),
        tuple(one.deviation for one in seen),
        max((one.largest for one in seen), default=0),
        apart=tuple(tuple(parts_of(*one)) if one[1] else () for one in zip(returned, errors, strict=True)),
    )


def _code_pictures(
    plan: GroupPlan,
    task: Task,
    pictures: Sequence[images.Picture],
    members: Sequence[Member],
    threads: int,
) -> tuple[list[CodedBlock], list[tuple[int, float | None]], list[tuple[int, ...]]]:
    """The blocks of a job's pictures; of each picture the squared error and the SSIMULACRA 2; the errors of
    its colors and its alpha, if it has both."""
    if not pictures:
        return [], [], []
    coder = plan.coder
    if not task.job.bands:
        block = _code(coder, task.group, [picture.pixels for picture in pictures], members)
        seen = [(one.error, pooled_score([one.evidence])) for one in block.lost]
        return [block], seen, [one.apart for one in block.lost]
    pixels, member = pictures[0].pixels, members[0]

    def code_bands(bands: Sequence[Band]) -> tuple[list[CodedBlock], Measured]:
        coded = [coder.encode([pixels[row : row + rows]]) for row, rows in bands]
        blocks = [
            CodedBlock(_record(one.data, task.group, 1, *band), one.data, [])
            for one, band in zip(coded, bands, strict=True)
        ]
        source = pixels[bands[0][0] : sum(bands[-1])]
        back = np.concatenate([one.decoded[0] for one in coded])
        return blocks, _lost(coder, source, back, member, sum(int(one.sse[0]) for one in coded))

    rows = SEEN_ROWS if coder.tune != PSNR else 0
    found = list(ordered_map(code_bands, _together(task.job.bands, rows), threads))
    lost = [measured for _, measured in found]
    score = pooled_score([part.evidence for part in lost])
    apart = tuple(map(sum, zip(*(part.apart for part in lost), strict=True)))
    return (
        [block for blocks, _ in found for block in blocks],
        [(sum(part.error for part in lost), score)],
        [apart],
    )


def _together(bands: Sequence[Band], rows: int) -> list[list[Band]]:
    """Bands that follow one another, with at least so many rows together; the last has what is left."""
    parts: list[list[Band]] = []
    for band in bands:
        if parts and sum(count for _, count in parts[-1]) < rows:
            parts[-1].append(band)
        else:
            parts.append([band])
    if len(parts) > 1 and sum(count for _, count in parts[-1]) < rows:
        last = parts.pop()
        parts[-1] += last
    return parts


# What strip_metadata leaves: without them colors would look different.
COLOR_KINDS = frozenset({"png"})


def _stripped(picture: images.Picture) -> images.Picture:
    """The picture itself if there is nothing to leave out."""
    kept = {kind: blob for kind, blob in picture.metadata.items() if kind in COLOR_KINDS}
    exif = images.orientation_only(picture.exif)
    if (exif, kept) == (picture.exif, picture.metadata):
        return picture
    return replace(picture, exif=exif, metadata=kept)


@dataclass(frozen=True)
class Measured:
    """What a picture lost: its squared error, and, where steps are made for people, what they see of it."""

    error: int
    evidence: tuple[visual.Evidence, ...] = ()
    apart: tuple[int, ...] = ()  # the error of the colors that are seen, and of alpha


@dataclass(frozen=True)
class CodedBlock:
    """A block, its place in the file and what each picture in it lost."""

    record: BlockRecord
    data: bytes
    lost: list[Measured]


def pooled_score(parts: Sequence[tuple[visual.Evidence, ...]]) -> float | None:
    """SSIMULACRA 2 of a picture from what was seen of its bands; None if nobody looked."""
    if not parts or not parts[0]:
        return None
    return min(float(functools.reduce(operator.add, bands).score) for bands in zip(*parts, strict=True))


def _code(
    coder: Coder,
    group: int,
    pixels: list[Pixels],
    members: Sequence[Member],
) -> CodedBlock:
    """Code one block of whole pictures."""
    coded = coder.encode(pixels)
    each = zip(pixels, coded.decoded, members, coded.sse, strict=True)
    found = [_lost(coder, source, back, member, int(error)) for source, back, member, error in each]
    return CodedBlock(_record(coded.data, group, len(pixels)), coded.data, found)


def _record(data: bytes, group: int, count: int, row: int = 0, rows: int = 0) -> BlockRecord:
    return BlockRecord(len(data), group, 0, count, row, rows, store.digest_of(data))


def _lost(coder: Coder, source: Pixels, back: Pixels, member: Member, error: int) -> Measured:
    """What an image lost; of a gray one in a color group, what counts is the gray that comes back."""
    if CHANNELS[member.mode] != coder.framing.channels:
        source, back = images.narrow(source, member.mode), images.narrow(back, member.mode)
        difference = np.subtract(source, back, dtype=np.int64)
        error = int(np.vdot(difference, difference))
    apart = tuple(errors_of(source, back)) if source.shape[2] in (2, 4) else ()
    if coder.tune == PSNR:
        return Measured(error, apart=apart)
    peak, (height, width) = 2**coder.basis.depth - 1, source.shape[:2]
    count = max(1, min(width // SEEN_ROWS, height * width // BAND_PIXELS))  # side by side: for the memory
    edges = [width * k // count for k in range(count + 1)]
    found = [visual.evidence(source[:, a:b], back[:, a:b], peak) for a, b in itertools.pairwise(edges)]
    evidence = tuple(functools.reduce(operator.add, parts) for parts in zip(*found, strict=True))
    return Measured(error, evidence, apart)


def _still_true(coded: Coded, plan: Plan, job: Job) -> bool:
    """A kept result counts only while every source is, byte for byte, the file that was coded."""
    members = plan.members[job.first : job.first + job.count]
    entries = {entry.name: entry for entry in coded.entries}
    if coded.skipped or entries.keys() != {member.ref.name for member in members}:
        return False
    try:
        return all(
            images.file_digest(member.ref.path, len(digest)) == digest
            for member in members
            if (digest := entries[member.ref.name].digest)
        )
    except (ImageRefused, StorageError):
        return False


def described(coded: Coded) -> dict[str, object]:
    """A result as JSON, without its bytes."""

    def plain(record: Entry | BlockRecord) -> list[object]:
        return [
            {kind: blob.hex() for kind, blob in value.items()}
            if isinstance(value, Mapping)
            else (value.hex() if isinstance(value, bytes) else value)
            for value in vars(record).values()
        ]

    return {
        "entries": [plain(entry) for entry in coded.entries],
        "blocks": [plain(block) for block in coded.blocks],
        "skipped": [[item.path.hex(), item.reason] for item in coded.skipped],
        "energy": coded.energy,
        "deviations": list(coded.deviations),
        "largest": coded.largest,
        "raw": [[item.path.hex(), item.reason] for item in coded.raw],
        "apart": coded.apart,
    }


def _unpacked(value: object) -> object:
    if isinstance(value, dict):
        return {kind: bytes.fromhex(blob) for kind, blob in value.items()}
    return tuple(value) if isinstance(value, list) else value


def restored(header: dict[str, Any], data: bytes) -> Coded:
    """The inverse of `described`."""

    def record(kind: Callable[..., Entry | BlockRecord], values: list[object], raw: set[str]) -> object:
        names = kind.__dataclass_fields__  # type: ignore[attr-defined]
        return kind(
            **{
                name: bytes.fromhex(str(value)) if name in raw else _unpacked(value)
                for name, value in zip(names, values, strict=True)
            }
        )

    entries = [record(Entry, values, {"name", "digest", "exif", "icc"}) for values in header["entries"]]
    blocks = [record(BlockRecord, values, {"digest"}) for values in header["blocks"]]
    skipped, raw = (
        tuple(Skipped(bytes.fromhex(str(path)), str(reason)) for path, reason in header[name])
        for name in ("skipped", "raw")
    )
    return Coded(
        tuple(entries),  # type: ignore[arg-type]
        tuple(blocks),  # type: ignore[arg-type]
        data,
        skipped,
        int(header["energy"]),
        tuple(header["deviations"]),
        int(header["largest"]),
        raw,
        tuple(tuple(Part(*part) for part in parts) for parts in header["apart"]),
    )
