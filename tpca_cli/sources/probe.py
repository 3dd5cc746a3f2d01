"""What is there to encode: the images of the sources, read as far as their headers, sorted into groups.

A group is a set of images that share a basis: same sample type, same number of channels. A few gray images
beside many in color join them, because a basis and tables of their own would cost more than they save; they
come back as gray.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeAlias

from tpca_cli import images
from tpca_cli.errors import ImageRefused, StorageError, TpcaError
from tpca_cli.formats import CHANNELS, DTYPES, FILE
from tpca_cli.framing import WHOLE, Framing
from tpca_cli.images import Header, Stamp, probe
from tpca_cli.interfaces import Progress
from tpca_cli.memory import keeping_bytes, reading_bytes
from tpca_cli.names import name_problem, restored_names
from tpca_cli.parallel import ordered_map
from tpca_cli.sources.read_plan import (
    GUESSED_PIXELS,
    MACHINE,
    FramingOptions,
    Reading,
    ReadPlan,
    after_resize,
    plan_reading,
    scan_or_fail,
    skip_or_fail,
)
from tpca_cli.sources.scan import NOTHING_IGNORED, Ignored, ImageRef, Skipped, no_image
from tpca_cli.sources.transfer import Refusal

UNSEEN = ""  # the mode of an image whose header nobody looked at
FEW_GRAY = 64  # so many gray images, or a tenth of the color images, join the color group


@dataclass(frozen=True)
class Member:
    """An image that passed its header: where it is and what it will be."""

    ref: ImageRef
    height: int
    width: int
    mode: str
    resized: bool = False
    weight: int = 0  # bytes that reading it takes
    why: str = ""  # it is kept as a file: the reason that it cannot be read


def source_plan(members: Sequence[Member], reading: Reading) -> dict[str, Any]:
    """What decides pixels, for a checkpoint: which files these are, and how they are read."""
    return {
        "reading": {name: value for name, value in vars(reading).items() if name not in MACHINE},
        "members": [
            [m.ref.name.hex(), m.ref.size, m.ref.mtime_ns, m.height, m.width, m.mode, m.resized]
            for m in members
        ],
    }


@dataclass(frozen=True)
class Kind:
    """What the images of a group have in common."""

    dtype: str
    channels: int
    peak: int = field(init=False)  # the largest sample value of the type

    def __post_init__(self) -> None:
        object.__setattr__(self, "peak", 65535 if self.dtype == "u2" else 255)

    def __str__(self) -> str:
        names = {1: "gray", 2: "gray and alpha", 3: "color", 4: "color and alpha"}
        return f"{'16' if self.dtype == 'u2' else '8'}-bit {names[self.channels]}"


@dataclass(frozen=True)
class Survey:
    """The usable images by group, in name order, and what was left out."""

    groups: dict[Kind, tuple[Member, ...]]
    skipped: tuple[Skipped, ...]
    ignored: Ignored = NOTHING_IGNORED
    count: int = field(init=False)  # of the images that can go in
    raw_bytes: int = field(init=False)  # that their pixels take uncompressed
    source_bytes: int = field(init=False)  # of their files

    def __post_init__(self) -> None:
        members = [member for group in self.groups.values() for member in group]
        object.__setattr__(self, "count", len(members))
        object.__setattr__(self, "raw_bytes", sum(map(raw_bytes, members)))
        object.__setattr__(self, "source_bytes", sum(member.ref.size for member in members))


def kind_of(member: Member) -> Kind:
    """The kind of an image; files that are no picture go with gray ones."""
    if member.mode == FILE:
        return Kind("u1", 1)
    return Kind(DTYPES[member.mode], CHANNELS[member.mode])


def raw_bytes(member: Member) -> int:
    """What the pixels of an image take uncompressed."""
    if member.mode == FILE:
        return 0
    kind = kind_of(member)
    return member.height * member.width * kind.channels * int(kind.dtype[1])


_SAMPLE = 64  # headers that tell whether all images seem alike
_PROBES = 64  # files that a thread looks at in one go: to hand over one takes as long as to read its header


def probe_members(
    refs: Sequence[ImageRef], reading: Reading, progress: Progress | None = None
) -> tuple[list[Member], list[Skipped]]:
    """The headers of all files, in order; what cannot be used is skipped or, on request, fatal."""
    runs = [refs[start : start + _PROBES] for start in range(0, len(refs), _PROBES)]
    found = ordered_map(lambda run: probe_shard_members(run, reading), runs, reading.workers)
    return sort_probed(chain.from_iterable(found), len(refs), progress)


def sort_probed(
    found: Iterable[Member | Skipped], total: int, progress: Progress | None = None
) -> tuple[list[Member], list[Skipped]]:
    """What can be used and what cannot, from one answer per file."""
    members: list[Member] = []
    skipped: list[Skipped] = []
    for done, item in enumerate(found, 1):
        if isinstance(item, Member):
            members.append(item)
        else:
            skipped.append(item)
        if progress and (done % 64 == 0 or done == total):
            progress("reading headers", done, total)
    return members, skipped


Probe: TypeAlias = Callable[
    [Sequence[ImageRef], Reading, Progress | None], tuple[list[Member], list[Skipped]]
]


def survey(
    sources: Sequence[str], reading: Reading, progress: Progress | None = None, probe: Probe = probe_members
) -> Survey:
    """Scan the sources and read every header."""
    found = scan_or_fail(sources, reading.on_error, whole=reading.whole)
    members, skipped = probe(found.refs, reading, progress)
    return Survey(grouped(members), found.skipped + tuple(skipped), found.left_out)


def probe_member(ref: ImageRef, reading: Reading, most: int) -> Member | Skipped:
    """What the header of a file says it will be."""
    try:
        header = images.probe(ref.path, reading.max_pixels, deep=reading.whole)
        weight = _weight(header, ref.size, most)
    except (ImageRefused, StorageError) as error:
        if reading.whole and isinstance(error, ImageRefused):
            return Member(ref, 1, 1, FILE, weight=keeping_bytes(ref.size), why=str(error))
        return skip_or_fail(ref.path, error, reading.on_error)
    height, width = reading.size or (header.height, header.width)
    resized = (height, width) != (header.height, header.width)
    return Member(ref, height, width, header.mode, resized, weight)


def _weight(header: Header, file_bytes: int, most: int) -> int:
    """What reading an image takes, if there is so much."""
    h, w = header.height, header.width
    weight = reading_bytes(h * w, header.channels, int(header.dtype[1]), file_bytes)
    if weight > most:
        raise ImageRefused(
            f"{h}x{w} pixels take about {weight >> 20} MB to read, and --memory leaves {most >> 20} MB for "
            "images; raise --memory"
        )
    return weight


def probe_shard_members(refs: Sequence[ImageRef], reading: Reading) -> list[Member | Skipped]:
    """The headers of some files: what a worker is asked for."""
    most = reading.room.most
    return [probe_member(ref, reading, most) for ref in refs]


def fitting(members: Sequence[Member], kind: Kind, framing: Framing) -> tuple[list[Member], list[Skipped]]:
    """Those images that a given basis can hold without losing anything, and why the others cannot."""
    kept: list[Member] = []
    skipped: list[Skipped] = []
    for member in members:
        reason = _member_misfit(member, kind, framing)
        if reason is None:
            kept.append(member)
        else:
            skipped.append(Skipped(member.ref.path, reason))
    return kept, skipped


def guess_members(
    refs: Sequence[ImageRef], reading: Reading, kind: Kind, framing: Framing
) -> list[Member] | None:
    """The images without a look at every header, where a few of them are all of the size of a basis.

    None where they are not, or where a name cannot be restored. The mode is UNSEEN until an image is read.
    """
    if framing.kind != WHOLE:
        return None
    some = refs[:: max(1, len(refs) // _SAMPLE)]
    seen = probe_shard_members(some, replace(reading, on_error="skip"))
    known = [member for member in seen if isinstance(member, Member) and not member.resized]
    if len(known) < len(some) or fitting(known, kind, framing)[1]:
        return None
    shape, most = (framing.height, framing.width), reading.room.most
    values = (shape[0] * shape[1], kind.channels, int(kind.dtype[1]))
    members = [Member(ref, *shape, UNSEEN, weight=reading_bytes(*values, ref.size)) for ref in refs]
    heavy = any(member.weight > most for member in members)
    return None if heavy or _unrestorable(members) else members


def _mode_misfit(mode: str, kind: Kind) -> str | None:
    dtype, channels = DTYPES[mode], CHANNELS[mode]
    if dtype != kind.dtype:
        return f"{mode} image does not fit a basis of {kind} images"
    if channels != kind.channels and not (channels == 1 and kind.channels in (3, 4)):
        return f"{mode} image does not fit a basis of {kind} images without loss: fit one to others like it"
    return None


def _member_misfit(member: Member, kind: Kind, framing: Framing) -> str | None:
    problem = _mode_misfit(member.mode, kind)
    if problem is not None:
        return problem
    if framing.kind == "whole" and (member.height, member.width) != (framing.height, framing.width):
        return (
            f"size {member.height}x{member.width} does not fit a basis of {framing.height}x{framing.width} "
            f"frames; --size {framing.height}x{framing.width} would resize it"
        )
    return None


@functools.cache
def mode_fits(mode: str, kind: Kind) -> bool:
    """Whether a basis of images of a kind can hold an image of this mode without losing anything."""
    return _mode_misfit(mode, kind) is None


def grouped(members: Sequence[Member]) -> dict[Kind, tuple[Member, ...]]:
    """The images by kind, a few gray ones among those in color."""
    groups: dict[Kind, list[Member]] = {}
    for member in members:
        groups.setdefault(kind_of(member), []).append(member)
    gray, color = groups.get(Kind("u1", 1), []), groups.get(Kind("u1", 3), [])
    if gray and color and len(gray) <= max(min(FEW_GRAY, len(color)), len(color) // 10):
        groups[Kind("u1", 3)] = sorted(gray + color, key=lambda member: member.ref.name)
        del groups[Kind("u1", 1)]
    return {kind: tuple(groups[kind]) for kind in sorted(groups, key=lambda k: (k.dtype, k.channels))}


def restorable(found: Survey) -> Survey:
    """Without the images whose restored file name would be too long: they must not be archived unnoticed."""
    bad = _unrestorable([member for group in found.groups.values() for member in group])
    if not bad:
        return found
    groups = {
        kind: tuple(member for member in group if member.ref.name not in bad)
        for kind, group in found.groups.items()
    }
    kept = {kind: group for kind, group in groups.items() if group}
    return Survey(kept, (*found.skipped, *bad.values()), found.ignored)


def _unrestorable(members: Sequence[Member]) -> dict[bytes, Skipped]:
    names = restored_names([member.ref.name for member in members], b".png")
    return {
        member.ref.name: Skipped(member.ref.path, f"cannot be restored: {problem}")
        for member, name in zip(members, names, strict=True)
        if (problem := name_problem(name))
    }


def require_images(found: Survey, sources: Sequence[str]) -> None:
    """Nothing to work on is an error that says what was seen."""
    if not found.count:
        raise nothing_usable(sources, found.skipped, found.ignored)


def nothing_usable(sources: Sequence[str], skipped: Sequence[Skipped], ignored: Ignored) -> TpcaError:
    """The error for sources of which no image is left, with the reason for each."""
    return no_image("no usable image", sources, skipped, ignored)


def probe_headers(refs: Sequence[ImageRef], max_pixels: int, workers: int) -> Iterator[Header | Refusal]:
    """The header of every file, in order."""

    def probe_some(start: int) -> list[Header | Refusal]:
        return [probe_one(index) for index in range(start, min(start + _PROBES, len(refs)))]

    def probe_one(index: int) -> Header | Refusal:
        ref = refs[index]
        try:
            return probe(ref.path, max_pixels, stamp=Stamp(ref.size, ref.mtime_ns))
        except (ImageRefused, StorageError) as error:
            return Refusal(index, error)

    same: dict[Header, Header] = {}  # many images, few kinds: one object for each kind
    for results in ordered_map(probe_some, range(0, len(refs), _PROBES), workers):
        for result in results:
            yield result if isinstance(result, Refusal) else same.setdefault(result, result)


def guess_plan(
    refs: Sequence[ImageRef], wish: FramingOptions
) -> tuple[list[tuple[int, Header]], ReadPlan] | None:
    """The plan for images that end up in one size, from a few headers; None where they may not.

    Opening every file twice costs more than a small image; the first that is another tells us so.
    """
    if wish.framing is not None:
        return None
    headers = list(probe_headers(refs[:: max(1, len(refs) // _SAMPLE)], wish.max_pixels, 1))
    known = [header for header in headers if isinstance(header, Header)]
    frames = {after_resize(header, wish.size) for header in known}
    if len({(header.height, header.width, header.dtype) for header in frames}) != 1:
        return None
    largest = max(known, key=lambda header: header.height * header.width)
    if largest.height * largest.width > GUESSED_PIXELS:
        return None
    return [(index, largest) for index in range(len(refs))], replace(plan_reading(known, wish), guessed=True)
