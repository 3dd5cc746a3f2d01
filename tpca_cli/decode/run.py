"""From an archive back to a folder: every image under its name, with its mode, time and metadata.

Blocks are decoded side by side and written as they come, a few small files at a time: each waits for the
disk, is read back, and only then gets its name. Memory holds a few blocks. Names and formats are settled
before the first file is written (`plan`). With `salvage`, damaged blocks cost only their own images; with
`resume`, files that are there already and are exactly what would be written are left alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tpca_cli import images, store
from tpca_cli.decode.plan import AS_FILE, SAME, Restorable, Target, described, plan
from tpca_cli.errors import FileRefused, OutputExists, StorageError, TpcaError, UsageError, printable
from tpca_cli.formats import CHANNELS, DTYPES
from tpca_cli.interfaces import Pixels, Progress
from tpca_cli.memory import DEFAULT_MEMORY, Room, keeping_bytes, writing_bytes
from tpca_cli.names import check_names, folders_of, matching
from tpca_cli.parallel import busy_map, ordered_map

if TYPE_CHECKING:
    from tpca_cli.archive.reader import Archive

WRITERS, WAITING = 4, 96
"""Files of a worker that are on their way to the disk while it goes on, and with those that wait for it."""
LARGE = 1 << 20
"""Bytes of a file that is written before the next is decoded: memory has room for few of these."""
RUN, SHARE = 16, 16
"""Blocks that are decoded in one go, unless each worker then had less than so many of these."""
TOO_COARSE = "a JPEG would add more error than the archive has: it is a PNG"


@dataclass(frozen=True)
class DecodeRequest:
    """What to restore, and how."""

    archive: Path
    output: Path
    select: Sequence[str] = ()
    components: int | None = None
    format: str | None = None  # what suits the archive
    force: bool = False
    salvage: bool = False
    workers: int = 1
    resume: bool = False
    named: Sequence[bytes] | None = None  # besides those that `select` matches
    memory: int = DEFAULT_MEMORY  # of all processes


@dataclass
class Decoded:
    """What was restored: images, bytes, and by name what a damaged block cost or a format could not hold."""

    images: int = 0
    written_bytes: int = 0
    source_bytes: int = 0
    found: int = 0  # files that were there already
    identical: int = 0  # files that are bit for bit what was archived
    same_pixels: int = 0  # others that have every pixel of the file that was archived
    lost: list[tuple[bytes, str]] = field(default_factory=list)
    converted: list[tuple[bytes, str]] = field(default_factory=list)
    left_out: list[tuple[bytes, str]] = field(default_factory=list)
    unknown: list[bytes] = field(default_factory=list)  # asked for by name, and not in the archive

    def add(self, other: Decoded) -> None:
        """Take in what was done elsewhere."""
        self.images += other.images
        self.written_bytes += other.written_bytes
        self.source_bytes += other.source_bytes
        self.found += other.found
        self.identical += other.identical
        self.same_pixels += other.same_pixels
        self.lost += other.lost
        self.converted += other.converted
        self.left_out += other.left_out


def decode(request: DecodeRequest, archive: Restorable, progress: Progress | None = None) -> Decoded:
    """Restore the images of an open archive into a folder."""
    if request.force and request.resume:
        raise UsageError("--force replaces what --resume would keep: give one of them")
    chosen, unknown = selected(archive, request.select, request.named)
    targets = plan(archive, chosen, request.format)
    if request.salvage:
        _check_linked(archive, targets)
    check_output(request, [target.name for target in targets])
    blocks: dict[int, list[Target]] = {}
    for target in targets:
        blocks.setdefault(target.image.block, []).append(target)

    room = Room.within(request.memory, request.workers)
    works = _runs(list(blocks.values()), room.workers)
    weights = {id(work): max(map(_weight, work)) for work in works}
    _check_memory(archive, targets, room)

    def restore(work: list[Target]) -> Decoded:
        return _restore(archive, work, request, room.helpers(weights[id(work)]))

    archive.prepare()
    if len(blocks) == 1:  # of one large image, the workers share the bands
        archive.workers = request.workers
    result, done = Decoded(unknown=unknown), 0
    parts = busy_map(
        restore,
        works,
        room.workers,
        weight=lambda work: weights[id(work)],
        budget=room.size,
    )
    for work, part in zip(works, parts, strict=True):
        result.add(part)
        done += len(work)
        if progress:
            progress("decoding", done, len(chosen))
    lost = {name for name, _ in result.lost}
    written = [t.name for t in targets if archive.names_bytes[t.position] not in lost]
    store.sync_folders(request.output, folders_of(written))
    return result


def _check_linked(archive: Restorable, targets: Sequence[Target]) -> None:
    """Refuse images that need bases of other files of which none is at hand: nothing of them is damaged."""
    from tpca_cli.archive.reader import Archive

    if not isinstance(archive, Archive):
        return
    needed = sorted({int(archive.index.blocks["group"][target.image.block]) for target in targets})
    linked = [n for n in needed if archive.groups[n].basis is None and not archive.is_exact(n)]
    problems = []
    for number in linked:
        try:
            archive.coder(number)
        except FileRefused as error:
            problems.append(error)
    if problems and len(problems) == len(linked):
        raise problems[0]


def _runs(blocks: Sequence[list[Target]], workers: int) -> list[list[Target]]:
    """The images of some blocks each: files are written while the next block is decoded."""
    size = max(1, min(RUN, len(blocks) // (SHARE * workers)))
    runs = (blocks[at : at + size] for at in range(0, len(blocks), size))
    return [[target for block in run for target in block] for run in runs]


def _weight(target: Target) -> int:
    """Bytes that writing an image takes."""
    image = target.image
    pixels = image.height * image.width
    if target.format == AS_FILE:  # of a JPEG the coefficients as well
        return keeping_bytes(image.source_size) + 2 * pixels
    return writing_bytes(pixels, CHANNELS[image.mode], int(DTYPES[image.mode][1]))


def _check_memory(archive: Restorable, targets: Sequence[Target], room: Room) -> None:
    """Refuse, before anything is written, pixels that take more memory than there is; files go alone."""
    heaviest = max((one for one in targets if one.format != AS_FILE), key=_weight, default=None)
    if heaviest is not None and (weight := _weight(heaviest)) > room.most:
        name = printable(archive.names_bytes[heaviest.position])
        raise UsageError(
            f"{name} takes about {weight >> 20} MB to write, and --memory leaves {room.most >> 20} MB for "
            "images: raise --memory, or leave it out by --select"
        )


def _restore(archive: Restorable, work: list[Target], request: DecodeRequest, threads: int = 1) -> Decoded:
    """The images of a few blocks (or the bands of one image), written to the output."""
    result = Decoded()

    def write(file: tuple[Target, bytes, bytes]) -> bool:
        """Write a file, unless it was there: whether it was."""
        target, path, data = file
        if request.resume and store.holds(request.output, path, data):
            return True
        bits = target.image.mode_bits
        store.write_file(
            path,
            data,
            force=request.force,
            mtime_ns=int(archive.index.images["mtime"][target.image.number]) * 1000,
            mode=None if bits is None else bits & 0o777,
            durable=True,
            root=request.output,
        )
        return False

    def small() -> Iterator[tuple[Target, bytes, bytes]]:
        for file in _files(archive, work, request, threads, result):
            if len(file[2]) < LARGE:
                yield file
            else:
                result.found += write(file)

    waiting = ordered_map(
        write, small(), WRITERS, window=WAITING, weight=lambda file: len(file[2]), budget=WRITERS * LARGE
    )
    found = sum(waiting)  # meanwhile the result counts large ones
    result.found += found
    return result


def _files(
    archive: Restorable, work: list[Target], request: DecodeRequest, threads: int, result: Decoded
) -> Iterator[tuple[Target, bytes, bytes]]:
    """The images with the names and contents of their files, counted in the result."""
    images_of, names = archive.index.images, archive.names_bytes
    for planned in work:
        image, name = planned.image.number, names[planned.position]
        try:
            target = described(archive, planned) if planned.exact else planned
            path, data, converted = _content(archive, target, request.components, threads)
        except FileRefused as error:
            if not request.salvage:
                raise
            result.lost.append((name, str(error)))
            continue
        result.images += 1
        if target.exact:
            digest = images_of["digest"][image].tobytes()
            identical = images.source_digest(data, len(digest)) == digest
            result.identical += identical
            same = not identical and target.format != "jpeg" and not int(images_of["error"][image])
            result.same_pixels += same
        result.written_bytes += len(data)
        result.source_bytes += int(images_of["source_size"][image])
        result.converted += [(name, converted)] if converted else []
        result.left_out += [(name, target.left_out)] if target.left_out else []
        yield target, path, data


def _content(
    archive: Restorable, target: Target, components: int | None, threads: int = 1
) -> tuple[bytes, bytes, str]:
    """Name and content of the file for an image and, where that is a PNG for want of better, why."""
    if target.format == AS_FILE:
        data = archive.file(target.position)
        assert data is not None
        return target.name, data, ""
    pixels = archive.read(target.position, components=components, threads=threads)
    return _encoded(archive, target, pixels)


def _encoded(archive: Restorable, target: Target, pixels: Pixels) -> tuple[bytes, bytes, str]:
    """The same for an image that is written from its pixels."""
    extras, mode = target.extras, target.image.mode
    if target.measured:
        allowed = int(archive.index.images["error"][target.image.number]) / pixels.size
        data = images.encode_jpeg(pixels, mode, allowed, extras)
        if data is not None:
            return target.name, data, ""
        return target.spare, images.encode_file(pixels, mode, extras=extras), TOO_COARSE
    data = images.encode_file(pixels, mode, format=target.format, extras=extras)
    return target.name, data, target.converted


def selected(
    archive: Restorable, globs: Sequence[str], named: Sequence[bytes] | None = None
) -> tuple[list[int], list[bytes]]:
    """The positions of images that match a glob or are named, and the names that are not in the archive.

    All images where neither is given.
    """
    if not globs and named is None:
        return list(range(len(archive.names_bytes))), []
    wanted = None if named is None else set(named)
    chosen = matching(archive.names_bytes, globs, wanted)
    return chosen, sorted((wanted or set()).difference(archive.names_bytes))


@dataclass(frozen=True)
class OneFile:
    """One image as a file that was not written anywhere."""

    name: bytes
    target: bytes  # what decode would call it
    data: bytes
    mode: str
    height: int
    width: int
    notes: tuple[str, ...]


def one_file(archive: Archive, name: str, format: str | None, components: int | None = None) -> OneFile:
    """One image of an open archive, encoded as `decode` would write it."""
    wanted = os.fsencode(name)
    if wanted not in archive.names_bytes:
        raise TpcaError(
            f"no image {printable(wanted)} in {printable(archive.path)}; `tpca ls` shows the names"
        )
    position = archive.names_bytes.index(wanted)
    if archive.holds_tensors:
        return _tensor_file(archive, position, format, components)
    (target,) = plan(archive, [position], format)
    archive.prepare()
    return file_of(archive, target, components)


def _tensor_file(archive: Archive, position: int, format: str | None, components: int | None) -> OneFile:
    """One tensor in the form that it had."""
    from tpca_cli.images import arrays

    name, form = archive.names_bytes[position], archive.about_tensor(position)["form"]
    if form == "slices":
        raise UsageError(
            f"{printable(name)} is a folder of slices, not one file: "
            f"tpca decode {printable(archive.path)} --select {printable(name)} -o FOLDER"
        )
    if format not in (None, SAME, form):
        raise UsageError(f"{printable(name)} is a tensor and comes as {form}: leave --format out")
    write = arrays.tiff_bytes if form == "tiff" else arrays.npy_bytes
    data, number = write(archive.tensor(position, components=components)), int(archive.alive[position])
    return OneFile(name, name, data, archive.index.mode(number), *archive.index.shape(number), ())


def file_of(archive: Restorable, target: Target, components: int | None = None) -> OneFile:
    """The file for an image of which name and format are settled."""
    target = described(archive, target) if target.exact else target
    path, data, converted = _content(archive, target, components)
    image, name = target.image, archive.names_bytes[target.position]
    notes = tuple(note for note in (converted, target.left_out) if note)
    return OneFile(name, path, data, image.mode, image.height, image.width, notes)


def check_output(request: DecodeRequest, targets: Iterable[bytes]) -> None:
    """Before anything is written: the folder is a folder, all names are safe and, without force, free."""
    root, targets = os.fsencode(request.output), list(targets)
    check_names(targets)
    if os.path.islink(root):
        raise OutputExists(f"{printable(root)} is a link: name the folder itself (or add '/.')")
    try:
        os.makedirs(root, exist_ok=True)
    except FileExistsError:
        raise OutputExists(f"{printable(root)} is a file: choose another output folder") from None
    except OSError as error:
        raise StorageError.of(error, root, "make the folder") from error
    if request.force:
        return
    for target in targets:
        path = os.path.join(root, target)
        if os.path.lexists(path) and not (request.resume and stat.S_ISREG(os.lstat(path).st_mode)):
            raise OutputExists(
                f"{printable(path)} exists: choose another folder, add --resume to go on with a decode that "
                "was stopped, or --force to replace it"
            )
    if request.resume:
        store.remove_abandoned(request.output, targets)
