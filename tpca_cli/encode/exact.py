"""A folder that comes back exactly: JPEG files bit for bit, pictures pixel for pixel, the rest as files.

There is nothing to choose and nothing to search. Each file goes the way that makes it smallest among those
that give it back: a JPEG file by its coefficients; a picture that can be written again in its own format,
with nothing lost, by its pixels; whatever is left as the file that it is. Everything is decoded again and
compared before it counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tpca_cli import images, store
from tpca_cli.archive import exact
from tpca_cli.archive.facts import archive_facts
from tpca_cli.archive.format import VERSION
from tpca_cli.archive.index import BlockRecord, Entry, Index
from tpca_cli.archive.packing import BAND_PIXELS, BLOCK_PIXELS, Job, bands_of
from tpca_cli.archive.writer import Group, exact_group
from tpca_cli.checkpoint import Checkpoint, check_partial, plan_digest, removed_unless_interrupted
from tpca_cli.encode.code_blocks import Coded, described, restored, weight_of
from tpca_cli.encode.run import Assembled, EncodeRequest, assemble, write_assembled
from tpca_cli.encode.workers import LOCAL
from tpca_cli.errors import ImageRefused, StorageError, UsageError
from tpca_cli.exact.coders import TILE, ExactCoder, FileCoder, JpegCoder, PixelCoder
from tpca_cli.formats import EXTENSIONS, sniff
from tpca_cli.interfaces import Pixels, Progress, Say
from tpca_cli.parallel import busy_map
from tpca_cli.rate import Range
from tpca_cli.sources.probe import Kind, Member, nothing_usable, require_images, restorable, survey
from tpca_cli.sources.read_plan import Reading, skip_or_fail
from tpca_cli.sources.scan import Skipped

TEMPLATE_SAMPLE = 128
REWRITTEN = {"PNG": "png", "TIFF": "tiff", "BMP": "bmp", "PPM": "ppm", "WEBP": "webp"}
"""Formats that are written again with the same pixels."""
HELD = 2
"""Files and pictures come back before they count: they are there twice."""
DENSE = 0.35
"""Of the raw pixels: a file below this may be smaller than what its pixels take, and is tried by itself."""


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


def encode_exactly(request: EncodeRequest, say: Say, progress: Progress | None = None) -> Assembled:
    """Pack the sources into `request.output`; no sample is off by more than the target says."""
    check_request(request)
    store.check_output(request.output, request.force)
    check_partial(request.output)
    found = restorable(survey(request.sources, request.reading, progress, request.workers.probe))
    require_images(found, request.sources)
    members = [member for group in found.groups.values() for member in group]
    with removed_unless_interrupted(request.output):
        result = code_exactly(request, members, (), found.skipped, progress)
        if not len(result.index):
            raise nothing_usable(request.sources, result.skipped, found.ignored)
        written = write_assembled(request.output, result, request.target, force=request.force)
    return replace(result, ignored=found.ignored, facts=archive_facts(written))


def check_request(request: EncodeRequest) -> None:
    """Refuse options that make no sense where images stay what they are."""
    if (
        request.basis
        or request.link_basis
        or request.method != "auto"
        or request.tile
        or request.reading.size
    ):
        raise UsageError(
            "--exact and --max-error keep images as they are: leave out --basis, --method, --tile and --size"
        )
    if request.workers is not LOCAL:
        raise UsageError("--exact and --max-error work on this machine only: leave out --cluster")
    if request.reading.strip_metadata:
        raise UsageError("--exact and --max-error keep whole files: leave out --strip-metadata")


def code_exactly(
    request: EncodeRequest,
    members: Sequence[Member],
    known: Sequence[Group],
    skipped: Sequence[Skipped],
    progress: Progress | None,
) -> Assembled:
    """Code images into groups that an archive has, or else into new ones: the result has these."""
    plans = _plans(members, int(request.target.value), request.reading, known)
    tasks = [(plan, job) for plan in plans for job in _jobs(plan.members)]
    checkpoint = Checkpoint(request.output, _digest(plans, request.reading))
    coded = _code_all(tasks, request.reading, checkpoint, progress)
    count = max((number for plan in plans for number in plan.numbers), default=-1) + 1
    groups, ranges = [*known] + [_UNUSED] * (count - len(known)), [Range(255)] * max(count, len(known))
    for plan in plans:
        for coder, number in zip(plan.coders, plan.numbers, strict=True):
            ranges[number] = Range(plan.kind.peak)
            if number >= len(known):
                groups[number] = exact_group(coder, plan.kind.dtype, plan.kind.channels, plan.kind.peak)
    result = assemble(coded, groups, checkpoint, ranges, skipped, 2 * request.target.value + 1)
    return _used(result, len(known))


_UNUSED = Group({}, None, np.zeros(0, np.uint8))


def _plans(
    members: Sequence[Member], tolerance: int, reading: Reading, known: Sequence[Group]
) -> list[ExactPlan]:
    """The images by kind; gray ones stay by themselves."""
    kinds: dict[Kind, list[Member]] = {}
    for member in members:
        kind = Kind("u2" if member.mode == "I;16" else "u1", images.CHANNELS[member.mode])
        kinds.setdefault(kind, []).append(member)
    held = {
        (str(group.meta["dtype"]), int(group.meta["channels"]), str(group.meta["method"])): number
        for number, group in enumerate(known)
    }
    plans: list[ExactPlan] = []
    fresh = itertools.count(len(known))
    for kind in sorted(kinds, key=lambda each: (each.dtype, each.channels)):
        own = tuple(sorted(kinds[kind], key=lambda member: member.ref.name))
        at = [held.get((kind.dtype, kind.channels, method)) for method in ("jpeg", "pixels", "files")]
        jpeg = _headers(own, reading) if at[0] is None else exact.coder(known[at[0]])
        assert isinstance(jpeg, JpegCoder)
        pixels = PixelCoder(kind.channels, kind.peak, tolerance)
        first, second, third = (next(fresh) if number is None else number for number in at)
        plans.append(ExactPlan(kind, own, jpeg, pixels, FileCoder(), (first, second, third)))
    return plans


def _headers(members: Sequence[Member], reading: Reading) -> JpegCoder:
    """A coder that knows the headers which the JPEG files among some of these share."""
    sample = []
    for member in members[:: -(-len(members) // TEMPLATE_SAMPLE)]:
        try:
            data = images.source_of(member.ref.path, reading.max_pixels).data
        except (ImageRefused, StorageError):
            continue  # whoever codes it says so
        if sniff(data) == "JPEG":
            sample.append(data)
    return JpegCoder.train(sample)


def _jobs(members: Sequence[Member]) -> list[Job]:
    """The images in order, up to `BLOCK_PIXELS` together or one larger one."""
    jobs: list[Job] = []
    first, pixels = 0, 0
    for position, member in enumerate(members):
        area = member.height * member.width
        if position > first and pixels + area > BLOCK_PIXELS:
            jobs.append(Job(first, position - first))
            first, pixels = position, 0
        pixels += area
    return [*jobs, Job(first, len(members) - first)] if members else jobs


def _digest(plans: Sequence[ExactPlan], reading: Reading) -> str:
    """The name of all that decides the coded bytes."""
    groups = [
        {
            "kind": [plan.kind.dtype, plan.kind.channels],
            "tolerance": plan.pixels.tolerance,
            "members": [
                [m.ref.name.hex(), m.ref.size, m.ref.mtime_ns, m.height, m.width, m.mode]
                for m in plan.members
            ],
        }
        for plan in plans
    ]
    templates = [array.tobytes() for plan in plans for array in plan.jpeg.to_arrays().values()]
    return plan_digest({"format": VERSION, "exact": groups, "max_pixels": reading.max_pixels}, *templates)


def _code_all(
    tasks: Sequence[tuple[ExactPlan, Job]],
    reading: Reading,
    checkpoint: Checkpoint,
    progress: Progress | None,
) -> Iterator[Coded]:
    """The results of all jobs, in order; those of an earlier run if its sources are unchanged."""

    def run(numbered: tuple[int, tuple[ExactPlan, Job]]) -> Coded:
        number, (plan, job) = numbered
        kept = checkpoint.get(number)
        if kept is not None:
            return restored(*kept)
        coded = code_exact_job(plan, job, reading)
        checkpoint.put(number, described(coded), coded.data)
        return coded

    def weight(numbered: tuple[int, tuple[ExactPlan, Job]]) -> int:
        plan, job = numbered[1]
        return HELD * weight_of(plan.members, job)

    room = reading.room
    total, done = sum(job.count for _, job in tasks), 0
    results = busy_map(run, list(enumerate(tasks)), room.workers, weight=weight, budget=room.size)
    for (_, job), coded in zip(tasks, results, strict=True):
        done += job.count
        if progress:
            progress("encoding", done, total)
        yield coded


@dataclass
class _Item:
    """A file on its way: what it is, and the picture in it if it can go by its pixels."""

    member: Member
    source: images.Source
    picture: images.Picture | None = None
    error: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        return self.member.height, self.member.width

    def entry(self) -> Entry:
        """How the index has it: files hold their metadata themselves."""
        picture, ref = self.picture, self.member.ref
        return Entry(
            name=ref.name,
            digest=images.source_digest(self.source.data),
            mtime_ns=ref.mtime_ns,
            source_size=len(self.source.data),
            height=self.member.height,
            width=self.member.width,
            mode=self.member.mode,
            error=self.error,
            exif=picture.exif if picture else b"",
            icc=picture.icc if picture else b"",
            mode_bits=self.source.mode_bits,
            metadata=picture.metadata if picture else {},
        )


def code_exact_job(plan: ExactPlan, job: Job, reading: Reading) -> Coded:
    """The files of a job in up to three kinds of blocks, each decoded again and compared."""
    items: list[_Item] = []
    skipped: list[Skipped] = []
    for member in plan.members[job.first : job.first + job.count]:
        try:
            items.append(_Item(member, images.source_of(member.ref.path, reading.max_pixels)))
        except (ImageRefused, StorageError) as error:
            skipped.append(skip_or_fail(member.ref.path, error, reading.on_error))
    blocks = _Blocks()
    left = _code_jpeg(plan, items, blocks)
    left = _code_pixels(plan, left, reading, blocks)
    if left:
        data, _ = plan.files.encode_files([item.source.data for item in left], [item.shape for item in left])
        if plan.files.decode_files(data, [item.shape for item in left]) != [i.source.data for i in left]:
            raise RuntimeError("files do not come back from deflate")
        blocks.add(plan.numbers[2], left, data)
    entries = tuple(item.entry() for item in blocks.items)
    return Coded(
        entries, tuple(blocks.records), b"".join(blocks.parts), tuple(skipped), 0, (0,) * len(entries)
    )


class _Blocks:
    """The blocks of a job, and the items in their order."""

    def __init__(self) -> None:
        self.items: list[_Item] = []
        self.records: list[BlockRecord] = []
        self.parts: list[bytes] = []

    def add(self, group: int, items: Sequence[_Item], data: bytes) -> None:
        """One more block, of whole images."""
        self.note(group, len(items), data)
        self.items += items

    def note(self, group: int, count: int, data: bytes, row: int = 0, rows: int = 0) -> None:
        """One more block of images that are added later, or a band of one."""
        digest = store.digest_of(data)
        self.records.append(BlockRecord(len(data), group, len(self.items), count, row, rows, digest))
        self.parts.append(data)


def _code_jpeg(plan: ExactPlan, items: Sequence[_Item], blocks: _Blocks) -> list[_Item]:
    """The JPEG files among the items; returns all others, and JPEG files that would not come back."""
    jpegs = [item for item in items if sniff(item.source.data) == "JPEG"]
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
            blocks.items.append(item)
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
    kind = sniff(data)
    ending = b"." + name.rpartition(b".")[2].lower()
    if kind not in REWRITTEN or EXTENSIONS.get(ending) != kind or ending == b".pbm":
        return None
    try:
        picture = images.picture_of(item.source, max_pixels=reading.max_pixels, content=True)
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


def _used(result: Assembled, known: int) -> Assembled:
    """With those new groups that have a block, and no others."""
    used = np.unique(result.index.blocks["group"])
    new = used[used >= known]
    numbers = np.arange(max(len(result.groups), known))
    numbers[new] = known + np.arange(len(new))
    blocks = {**result.index.blocks, "group": numbers[result.index.blocks["group"]]}
    index: Index = replace(result.index, blocks=blocks)
    return replace(result, index=index, groups=tuple(result.groups[number] for number in new))
