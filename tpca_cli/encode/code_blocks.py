"""Images to coded blocks: the one pass over the pixels that `encode` makes once its coders are known.

Each job is a pure function of the coder and the source files, so jobs run side by side, in any order, and a
run that was killed takes finished ones from its checkpoint. What could not be read is left out of its block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tpca_cli import images, store
from tpca_cli.archive.format import RESIZED, STRIPPED, VERSION
from tpca_cli.archive.index import BlockRecord, Entry
from tpca_cli.archive.packing import Job, check_work, pack
from tpca_cli.checkpoint import Checkpoint, plan_digest
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.kernel_job import prepare
from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.interfaces import Pixels, Progress
from tpca_cli.parallel import busy_map
from tpca_cli.sources.probe import Kind, Member
from tpca_cli.sources.read import read_member
from tpca_cli.sources.read_plan import Reading, skip_or_fail
from tpca_cli.sources.scan import Skipped


@dataclass(frozen=True)
class GroupPlan:
    """One group of images and the coder for them."""

    kind: Kind
    members: tuple[Member, ...]
    coder: Coder


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
    deviations: tuple[
        int, ...
    ] = ()  # of each image: its samples' squared distances from their channel's mean
    largest: int = 0  # sample


def tasks_of(plans: Sequence[GroupPlan]) -> list[Task]:
    """The blocks of all groups as tasks, in the order of the file."""
    tasks = []
    for number, plan in enumerate(plans):
        shapes = [(member.height, member.width) for member in plan.members]
        jobs = pack(shapes, plan.coder.framing)
        check_work(jobs, shapes, plan.coder.framing, plan.coder.components)
        tasks += [Task(number, job) for job in jobs]
    return tasks


def coding_digest(plans: Sequence[GroupPlan], reading: Reading) -> str:
    """The name of all that decides the coded bytes: the images, how they are read, and their coders."""
    groups = [
        {
            "kind": [plan.kind.dtype, plan.kind.channels],
            "coder": plan.coder.meta,
            "members": [
                [m.ref.name.hex(), m.ref.size, m.ref.mtime_ns, m.height, m.width, m.mode, m.resized]
                for m in plan.members
            ],
        }
        for plan in plans
    ]
    options = {name: value for name, value in vars(reading).items() if name != "workers"}
    arrays = [array.tobytes() for plan in plans for _, array in sorted(plan.coder.to_arrays().items())]
    return plan_digest({"format": VERSION, "reading": options, "groups": groups}, *arrays)


def code_all(
    plans: Sequence[GroupPlan],
    reading: Reading,
    checkpoint: Checkpoint | None,
    progress: Progress | None = None,
) -> Iterator[Coded]:
    """The results of all jobs, in order."""
    tasks = tasks_of(plans)
    total = sum(len(plan.members) for plan in plans)

    def run(numbered: tuple[int, Task]) -> Coded:
        number, task = numbered
        plan = plans[task.group]
        coded = kept(checkpoint, number, plan, task.job)
        if coded is not None:
            return coded
        coded = code_job(plan, task, reading)
        if checkpoint:
            checkpoint.put(number, described(coded), coded.data)
        return coded

    prepare()
    done = 0
    for task, coded in zip(tasks, busy_map(run, list(enumerate(tasks)), reading.workers), strict=True):
        done += task.job.count
        if progress:
            progress("encoding", done, total)
        yield coded


def kept(checkpoint: Checkpoint | None, number: int, plan: GroupPlan, job: Job) -> Coded | None:
    """A result of an earlier run, if it still holds."""
    found = checkpoint.get(number) if checkpoint else None
    if found is None:
        return None
    coded = restored(*found)
    return coded if _still_true(coded, plan, job) else None


def code_job(plan: GroupPlan, task: Task, reading: Reading) -> Coded:
    """Read the images of a job, code them, and measure the error of what a reader will get back."""
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
    blocks: list[BlockRecord] = []
    parts: list[bytes] = []
    errors = [0] * len(pictures)
    if pictures and job.bands:
        pixels = pictures[0].pixels
        for row, rows in job.bands:
            band = [pixels[row : row + rows]]
            errors[0] += _code(plan.coder, task.group, band, members, row, rows, blocks, parts)[0]
    elif pictures:
        whole = [picture.pixels for picture in pictures]
        errors = _code(plan.coder, task.group, whole, members, 0, 0, blocks, parts)
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
            peak=plan.kind.peak,
        )
        for member, picture, picture_flags, error in zip(members, pictures, flags, errors, strict=True)
    )
    returned = [images.narrow(p.pixels, m.mode) for p, m in zip(pictures, members, strict=True)]
    return Coded(
        entries,
        tuple(blocks),
        b"".join(parts),
        tuple(skipped),
        sum(map(_squares, returned)),
        tuple(map(deviation, returned)),
        max((int(pixels.max()) for pixels in returned), default=0),
    )


# What strip_metadata leaves: without them colors would look different.
COLOR_KINDS = frozenset({"png"})


def _stripped(picture: images.Picture) -> images.Picture:
    """The picture itself if there is nothing to leave out."""
    kept = {kind: blob for kind, blob in picture.metadata.items() if kind in COLOR_KINDS}
    exif = images.orientation_only(picture.exif)
    if (exif, kept) == (picture.exif, picture.metadata):
        return picture
    return replace(picture, exif=exif, metadata=kept)


def _code(
    coder: Coder,
    group: int,
    pixels: list[Pixels],
    members: Sequence[Member],
    row: int,
    rows: int,
    blocks: list[BlockRecord],
    parts: list[bytes],
) -> list[int]:
    """Code one block, note it in `blocks` and `parts`, and return each picture's squared error."""
    coded = coder.encode(pixels)
    blocks.append(BlockRecord(len(coded.data), group, 0, len(pixels), row, rows, store.digest_of(coded.data)))
    parts.append(coded.data)
    if all(images.CHANNELS[member.mode] == coder.framing.channels for member in members):
        return [int(error) for error in coded.sse]
    # gray images in a color group: what counts is the gray that comes back
    shapes = [source.shape[:2] for source in pixels]
    return [
        _squares(images.narrow(source, member.mode), images.narrow(back, member.mode))
        for source, back, member in zip(pixels, coder.decode(coded.data, shapes), members, strict=True)
    ]


def deviation(pixels: Pixels) -> int:
    """The squared distances of all samples from the mean of their channel, as a whole number."""
    total = 0
    for channel in range(pixels.shape[2]):
        plane = pixels[:, :, channel]
        total += (plane.size * _squares(plane) - int(plane.sum(dtype=np.int64)) ** 2) // plane.size
    return total


def _squares(one: Pixels, other: Pixels | None = None) -> int:
    """The sum of squares, or of squared differences, exactly."""
    difference = one.astype(np.int64)
    if other is not None:
        difference -= other
    return int(np.vdot(difference, difference))


def _still_true(coded: Coded, plan: GroupPlan, job: Job) -> bool:
    """A kept result counts only while every source is, byte for byte, the file that was coded."""
    members = plan.members[job.first : job.first + job.count]
    if coded.skipped or [entry.name for entry in coded.entries] != [member.ref.name for member in members]:
        return False
    try:
        digests = [
            images.file_digest(member.ref.path, len(entry.digest))
            for member, entry in zip(members, coded.entries, strict=True)
        ]
    except (ImageRefused, StorageError):
        return False
    return digests == [entry.digest for entry in coded.entries]


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
    skipped = [Skipped(bytes.fromhex(str(path)), str(reason)) for path, reason in header["skipped"]]
    return Coded(
        tuple(entries),  # type: ignore[arg-type]
        tuple(blocks),  # type: ignore[arg-type]
        data,
        tuple(skipped),
        int(header["energy"]),
        tuple(header["deviations"]),
        int(header["largest"]),
    )
