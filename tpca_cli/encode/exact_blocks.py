"""The files of a job in blocks that give them back: JPEG files, pictures by their pixels, files as they are.

Each file goes the way that makes it smallest among those that give it back. Everything is decoded again and
compared before it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca_cli import images, store
from tpca_cli.archive.index import BlockRecord, Entry
from tpca_cli.archive.packing import BAND_PIXELS, BLOCK_PIXELS, Job, bands_of
from tpca_cli.encode.code_blocks import Coded, Task, weight_of
from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.exact.coders import TILE, ExactCoder, FileCoder, JpegCoder, PixelCoder
from tpca_cli.formats import EXTENSIONS, FILE, JPEG_ENDINGS, sniff
from tpca_cli.interfaces import Pixels
from tpca_cli.sources.probe import Kind, Member
from tpca_cli.sources.read_plan import Reading, skip_or_fail
from tpca_cli.sources.scan import Skipped

REWRITTEN = {"PNG": "png", "TIFF": "tiff", "BMP": "bmp", "PPM": "ppm", "WEBP": "webp"}
"""Formats that are written again with the same pixels."""
HELD = 2
"""Files and pictures come back before they count: they are there twice."""
DENSE = 0.35
"""Of the raw pixels: a file below this may be smaller than what its pixels take, and is tried by itself."""
FILE_BYTES_PER_PIXEL = 4
"""A file that has more counts for more than its pixels when blocks are packed."""
JOB_BLOCKS, JOBS = 8, 64
"""Blocks of a job, unless there were fewer than so many jobs."""
NOT_REBUILT = "its coefficients do not give the same bytes"


@dataclass(frozen=True)
class ExactPlan:
    """The images of one kind, the three coders that they may go by, and the numbers of their groups."""

    kind: Kind
    members: tuple[Member, ...]
    jpeg: JpegCoder
    pixels: PixelCoder
    files: FileCoder
    numbers: tuple[int, int, int]

    @property
    def coders(self) -> tuple[ExactCoder, ...]:
        """In the order of their groups."""
        return self.jpeg, self.pixels, self.files

    def jobs(self) -> list[Job]:
        """The images in order, those of a few blocks each: what is kept of a job is written once for it."""
        blocks = self.blocks(Job(0, len(self.members)))
        size = max(1, min(JOB_BLOCKS, len(blocks) // JOBS))
        runs = (blocks[at : at + size] for at in range(0, len(blocks), size))
        return [Job(run[0].first, sum(block.count for block in run)) for run in runs]

    def blocks(self, job: Job) -> list[Job]:
        """The images of a job in order, up to `BLOCK_PIXELS` together or one larger one."""
        blocks: list[Job] = []
        first, pixels, stop = job.first, 0, job.first + job.count
        for position, member in enumerate(self.members[first:stop], first):
            area = max(member.height * member.width, member.ref.size // FILE_BYTES_PER_PIXEL)
            if position > first and pixels + area > BLOCK_PIXELS:
                blocks.append(Job(first, position - first))
                first, pixels = position, 0
            pixels += area
        return [*blocks, Job(first, stop - first)] if job.count else blocks

    def weight(self, job: Job) -> int:
        """Bytes that a job takes while it is coded, one block after another."""
        return HELD * max(weight_of(self.members, block) for block in self.blocks(job))

    def code(self, task: Task, reading: Reading, helpers: int = 1) -> Coded:
        """The blocks of a job."""
        return code_exact_job(self, task.job, reading)

    def prepare(self) -> None:
        """Compile what is needed, before processes are forked."""
        self.jpeg.prepare()
        if not all(member.ref.name.lower().endswith(JPEG_ENDINGS) for member in self.members):
            self.pixels.prepare()


@dataclass
class _Item:
    """A file on its way: what it is, and the picture in it if it can go by its pixels."""

    member: Member
    source: images.Source
    picture: images.Picture | None = None
    error: int = 0
    as_file: bool = False  # no picture that can be read

    @property
    def shape(self) -> tuple[int, int]:
        return (1, 1) if self.as_file else (self.member.height, self.member.width)

    def entry(self) -> Entry:
        """How the index has it: files hold their metadata themselves."""
        picture, ref = self.picture, self.member.ref
        return Entry(
            name=ref.name,
            digest=images.source_digest(self.source.data),
            mtime_ns=ref.mtime_ns,
            source_size=len(self.source.data),
            height=self.shape[0],
            width=self.shape[1],
            mode=FILE if self.as_file else self.member.mode,
            error=self.error,
            exif=picture.exif if picture else b"",
            icc=picture.icc if picture else b"",
            mode_bits=self.source.mode_bits,
            metadata=picture.metadata if picture else {},
        )


def code_exact_job(plan: ExactPlan, job: Job, reading: Reading) -> Coded:
    """The files of a job in blocks, each decoded again and compared."""
    done = _Blocks()
    for block in plan.blocks(job):
        _code_block(plan, block, reading, done)
    return Coded(
        tuple(done.entries),
        tuple(done.records),
        b"".join(done.parts),
        tuple(done.skipped),
        0,
        (0,) * len(done.entries),
        raw=tuple(done.raw),
    )


def _code_block(plan: ExactPlan, block: Job, reading: Reading, done: _Blocks) -> None:
    """Files that are packed together, in up to three kinds of blocks."""
    items: list[_Item] = []
    for member in plan.members[block.first : block.first + block.count]:
        try:
            source = images.source_of(member.ref.path, reading.max_pixels)
            items.append(_Item(member, source, as_file=member.mode == FILE))
        except (ImageRefused, StorageError) as error:
            done.skipped.append(skip_or_fail(member.ref.path, error, reading.on_error))
    left = _code_jpeg(plan, items, done)
    left = _code_pixels(plan, left, reading, done)
    done.raw += [Skipped(item.member.ref.path, why) for item in left if (why := _why_raw(item, reading))]
    if left:
        files = [item.source.data for item in left]
        data, _ = plan.files.encode_files(files, [item.shape for item in left])
        if not plan.files.returns(data, files):
            raise RuntimeError("files do not come back from deflate")
        done.add(plan.numbers[2], left, data)


def _why_raw(item: _Item, reading: Reading) -> str:
    """Why nothing better than its bytes can be kept of a file; empty where they are simply the smallest."""
    if not item.as_file:
        try:
            images.picture_of(item.source, max_pixels=reading.max_pixels, deep=True)
        except (ImageRefused, StorageError) as error:
            item.as_file = True
            return str(error)
        return NOT_REBUILT if sniff(item.source.data) == "JPEG" else ""
    return item.member.why


class _Blocks:
    """The blocks of a job, its images in their order, and what could not be read or be more than a file."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.records: list[BlockRecord] = []
        self.parts: list[bytes] = []
        self.skipped: list[Skipped] = []
        self.raw: list[Skipped] = []

    def add(self, group: int, items: Sequence[_Item], data: bytes) -> None:
        """One more block, of whole images."""
        self.note(group, len(items), data)
        self.entries += [item.entry() for item in items]

    def note(self, group: int, count: int, data: bytes, row: int = 0, rows: int = 0) -> None:
        """One more block of images that are added later, or a band of one."""
        digest = store.digest_of(data)
        self.records.append(BlockRecord(len(data), group, len(self.entries), count, row, rows, digest))
        self.parts.append(data)


def _code_jpeg(plan: ExactPlan, items: Sequence[_Item], blocks: _Blocks) -> list[_Item]:
    """The JPEG files among the items; returns all others, and JPEG files that would not come back."""
    jpegs = [item for item in items if not item.as_file and sniff(item.source.data) == "JPEG"]
    if not jpegs:
        return list(items)
    files, shapes = [item.source.data for item in jpegs], [item.shape for item in jpegs]
    data, taken = plan.jpeg.encode_files(files, shapes)
    good = [item for item, fine in zip(jpegs, taken, strict=True) if fine]
    if good:
        blocks.add(plan.numbers[0], good, data)
    chosen = {id(item) for item in good}
    return [item for item in items if id(item) not in chosen]


def _code_pixels(plan: ExactPlan, items: Sequence[_Item], reading: Reading, blocks: _Blocks) -> list[_Item]:
    """The pictures that can be written again; returns the items that are smaller, or only whole, as files."""
    for item in items:
        item.picture = _rewritable(item, reading)
    by_pixels = [item for item in items if item.picture is not None]
    left = [item for item in items if item.picture is None]
    if len(by_pixels) == 1 and by_pixels[0].member.height * by_pixels[0].member.width > BAND_PIXELS:
        item = by_pixels[0]
        bands = bands_of(*item.shape, TILE)
        parts = [_pixel_block(plan, [item], slice(row, row + rows)) for row, rows in bands]
        if sum(map(len, parts)) < len(item.source.data):
            for (row, rows), data in zip(bands, parts, strict=True):
                blocks.note(plan.numbers[1], 1, data, row, rows)
            blocks.entries.append(item.entry())
            return left
    elif by_pixels:
        gain = [_gains(plan, item) for item in by_pixels]
        good = [item for item, smaller in zip(by_pixels, gain, strict=True) if smaller]
        if good:
            blocks.add(plan.numbers[1], good, _pixel_block(plan, good))
        by_pixels = [item for item, smaller in zip(by_pixels, gain, strict=True) if not smaller]
    for item in by_pixels:
        item.picture, item.error = None, 0
    return left + by_pixels


def _gains(plan: ExactPlan, item: _Item) -> bool:
    """Whether the pixels of an image take less than its file."""
    assert item.picture is not None
    pixels, size = item.picture.pixels, len(item.source.data)
    return size > DENSE * pixels.nbytes or len(plan.pixels.encode([pixels])[0]) < size


def _rewritable(item: _Item, reading: Reading) -> images.Picture | None:
    """The picture of a file, if it can be written again with the same pixels and all that the file holds."""
    data, name = item.source.data, item.member.ref.name
    kind = None if item.as_file else sniff(data)
    ending = b"." + name.rpartition(b".")[2].lower()
    if kind not in REWRITTEN or EXTENSIONS.get(ending) != kind or ending == b".pbm":
        return None
    try:
        picture = images.picture_of(item.source, max_pixels=reading.max_pixels, content=True, deep=True)
    except (ImageRefused, StorageError):
        return None
    extras = images.Extras(picture.exif, picture.icc, dict(picture.metadata))
    height, width = item.shape
    if picture.pixels.shape[:2] != item.shape or picture.mode != item.member.mode:
        return None
    if picture.reasons or picture.converted or images.left_out(REWRITTEN[kind], extras):
        return None
    obstacle = images.obstacle(REWRITTEN[kind], picture.mode, height, width, extras)
    return None if obstacle else picture


def _pixel_block(plan: ExactPlan, items: Sequence[_Item], rows: slice = slice(None)) -> bytes:
    """Pixels of the items as a block; what is lost is added to their errors."""
    pictures: list[Pixels] = []
    for item in items:
        assert item.picture is not None
        pictures.append(np.ascontiguousarray(item.picture.pixels[rows]))
    data, _ = plan.pixels.encode(pictures)
    back = plan.pixels.decode(data, [picture.shape[:2] for picture in pictures])
    for item, one, other in zip(items, pictures, back, strict=True):
        difference = one.astype(np.int64) - other
        if one.dtype != other.dtype or np.abs(difference).max(initial=0) > plan.pixels.tolerance:
            raise RuntimeError("pixels do not come back within their tolerance")
        item.error += int(np.vdot(difference, difference))
    return data
