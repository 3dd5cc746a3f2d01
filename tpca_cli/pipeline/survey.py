"""What is there to encode: the images of the sources, read as far as their headers, sorted into groups.

A group is a set of images that share a basis: same sample type, same number of channels. A few gray images
beside many in color join them, because a basis and tables of their own would cost more than they save; they
come back as gray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tpca_cli import images
from tpca_cli.cluster import Cluster
from tpca_cli.errors import ImageRefused, StorageError, TpcaError, printable
from tpca_cli.framing import Framing
from tpca_cli.names import name_problem, restored_names
from tpca_cli.parallel import ordered_map
from tpca_cli.pipeline.abroad import anchored, as_given, errors_as_given, probes
from tpca_cli.scan import ImageRef, Skipped, scan

Progress = Callable[[str, int, int], None] | None

FEW_GRAY = 64  # so many gray images, or a tenth of the color images, join the color group


@dataclass(frozen=True)
class Member:
    """An image that passed its header: where it is and what it will be."""

    ref: ImageRef
    height: int
    width: int
    mode: str
    resized: bool = False


@dataclass(frozen=True)
class Kind:
    """What the images of a group have in common."""

    dtype: str
    channels: int

    @property
    def peak(self) -> int:
        return 65535 if self.dtype == "u2" else 255

    def __str__(self) -> str:
        names = {1: "gray", 2: "gray and alpha", 3: "color", 4: "color and alpha"}
        return f"{'16' if self.dtype == 'u2' else '8'}-bit {names[self.channels]}"


@dataclass(frozen=True)
class Reading:
    """How source files are read, the same in every pass."""

    size: tuple[int, int] | None = None
    max_pixels: int = images.MAX_PIXELS
    on_error: str = "skip"
    workers: int = 1
    cluster: Cluster | None = None  # whose workers read and code, in the place of this process

    @property
    def on_worker(self) -> Reading:
        """The same for a worker of the cluster, which has one thread for it."""
        return replace(self, workers=1, cluster=None)


@dataclass(frozen=True)
class Survey:
    """The usable images by group, in name order, and what was left out."""

    groups: dict[Kind, tuple[Member, ...]]
    skipped: tuple[Skipped, ...]
    ignored: int

    @property
    def count(self) -> int:
        return sum(len(members) for members in self.groups.values())

    @property
    def raw_bytes(self) -> int:
        return sum(raw_bytes(member) for members in self.groups.values() for member in members)

    @property
    def source_bytes(self) -> int:
        return sum(member.ref.size for members in self.groups.values() for member in members)


def raw_bytes(member: Member) -> int:
    sample = 2 if member.mode == "I;16" else 1
    return member.height * member.width * images.CHANNELS[member.mode] * sample


def survey(sources: Sequence[str], reading: Reading, progress: Progress = None) -> Survey:
    """Scan the sources and read every header."""
    found = scan(sources)
    if found.skipped and reading.on_error == "fail":
        first = found.skipped[0]
        raise TpcaError(f"{printable(first.path)}: {first.reason} (--on-error skip would leave it out)")
    members, skipped = probe_all(found.refs, reading, progress)
    return Survey(grouped(members), found.skipped + tuple(skipped), len(found.ignored))


def probe_all(
    refs: Sequence[ImageRef], reading: Reading, progress: Progress = None
) -> tuple[list[Member], list[Skipped]]:
    """The headers of all files, in order; what cannot be used is skipped or, on request, fatal."""
    if reading.cluster is not None:
        found = _probed_on(reading.cluster, refs, reading)
    else:
        found = ordered_map(lambda ref: probe(ref, reading), refs, reading.workers)
    members: list[Member] = []
    skipped: list[Skipped] = []
    for done, item in enumerate(found, 1):
        if isinstance(item, Member):
            members.append(item)
        else:
            skipped.append(item)
        if progress and (done % 64 == 0 or done == len(refs)):
            progress("reading headers", done, len(refs))
    return members, skipped


def probe(ref: ImageRef, reading: Reading) -> Member | Skipped:
    """What the header of a file says it will be."""
    try:
        header = images.probe(ref.path, reading.max_pixels)
    except (ImageRefused, StorageError) as error:
        return refusal(ref, error, reading)
    height, width = reading.size or (header.height, header.width)
    return Member(ref, height, width, header.mode, (height, width) != (header.height, header.width))


def probe_some(refs: Sequence[ImageRef], reading: Reading) -> list[Member | Skipped]:
    """The headers of some files: what a worker is asked for."""
    return [probe(ref, reading) for ref in refs]


def _probed_on(cluster: Cluster, refs: Sequence[ImageRef], reading: Reading) -> Iterator[Member | Skipped]:
    if refs:
        cluster.check_sees(anchored(refs[0]).path, refs[0].size)
    size = probes(len(refs), cluster.threads)
    shards = ([anchored(ref) for ref in refs[at : at + size]] for at in range(0, len(refs), size))
    with errors_as_given(refs):
        results = (item for some in cluster.map(probe_some, shards, reading.on_worker) for item in some)
        for ref, item in zip(refs, results, strict=True):
            if isinstance(item, Member):
                yield replace(item, ref=ref)
            else:
                yield Skipped(ref.path, as_given(ref, item.reason))


def refusal(ref: ImageRef, error: TpcaError, reading: Reading) -> Skipped:
    """A failed input as a note, or as the end of the run."""
    if reading.on_error == "fail":
        kind = type(error) if isinstance(error, StorageError) else TpcaError
        raise kind(f"{printable(ref.path)}: {error} (--on-error skip would leave it out)") from error
    return Skipped(ref.path, str(error))


def read_member(member: Member, channels: int, reading: Reading) -> images.Picture:
    """Decode one image into the channels of its group; its header must still be what the survey saw."""
    picture = images.read(
        member.ref.path, max_pixels=reading.max_pixels, size=reading.size, channels=channels
    )
    if (picture.pixels.shape[:2], picture.mode) != ((member.height, member.width), member.mode):
        raise ImageRefused("changed while it was read")
    return picture


def fitting(members: Sequence[Member], kind: Kind, framing: Framing) -> tuple[list[Member], list[Skipped]]:
    """Those images that a given basis can hold without losing anything, and why the others cannot."""
    kept: list[Member] = []
    skipped: list[Skipped] = []
    for member in members:
        reason = _misfit(member, kind, framing)
        if reason is None:
            kept.append(member)
        else:
            skipped.append(Skipped(member.ref.path, reason))
    return kept, skipped


def _misfit(member: Member, kind: Kind, framing: Framing) -> str | None:
    dtype = "u2" if member.mode == "I;16" else "u1"
    channels = images.CHANNELS[member.mode]
    if dtype != kind.dtype:
        return f"{member.mode} image does not fit a basis of {kind} images"
    if channels != kind.channels and not (channels == 1 and kind.channels in (3, 4)):
        return f"{member.mode} image does not fit a basis of {kind} images without loss"
    if framing.kind == "whole" and (member.height, member.width) != (framing.height, framing.width):
        return (
            f"size {member.height}x{member.width} does not fit a basis of {framing.height}x{framing.width} "
            f"frames; --size {framing.height}x{framing.width} would resize it"
        )
    return None


def grouped(members: Sequence[Member]) -> dict[Kind, tuple[Member, ...]]:
    """The images by kind, a few gray ones among those in color."""
    groups: dict[Kind, list[Member]] = {}
    for member in members:
        kind = Kind("u2" if member.mode == "I;16" else "u1", images.CHANNELS[member.mode])
        groups.setdefault(kind, []).append(member)
    gray, color = groups.get(Kind("u1", 1), []), groups.get(Kind("u1", 3), [])
    if gray and color and len(gray) <= max(min(FEW_GRAY, len(color)), len(color) // 10):
        groups[Kind("u1", 3)] = sorted(gray + color, key=lambda member: member.ref.name)
        del groups[Kind("u1", 1)]
    return {kind: tuple(groups[kind]) for kind in sorted(groups, key=lambda k: (k.dtype, k.channels))}


def restorable(found: Survey) -> Survey:
    """Without the images whose restored file name would be too long: they must not be archived unnoticed."""
    members = [member for group in found.groups.values() for member in group]
    names = restored_names([member.ref.name for member in members], b".png")
    bad = {
        member.ref.name: Skipped(member.ref.path, f"cannot be restored: {problem}")
        for member, name in zip(members, names, strict=True)
        if (problem := name_problem(name))
    }
    if not bad:
        return found
    groups = {
        kind: tuple(member for member in group if member.ref.name not in bad)
        for kind, group in found.groups.items()
    }
    kept = {kind: group for kind, group in groups.items() if group}
    return Survey(kept, (*found.skipped, *bad.values()), found.ignored)


def require_images(found: Survey, sources: Sequence[str]) -> None:
    """Nothing to work on is an error that says what was seen."""
    if not found.count:
        raise nothing_usable(sources, found.skipped, found.ignored)


def nothing_usable(sources: Sequence[str], skipped: Sequence[Skipped], ignored: int) -> TpcaError:
    """The error for sources of which no image is left, with the reason for each."""
    where = ", ".join(printable(source) for source in sources)
    error = TpcaError(f"no usable image in {where} ({len(skipped)} skipped, {ignored} ignored)")
    error.skipped = tuple((printable(item.path), item.reason) for item in skipped)
    return error
