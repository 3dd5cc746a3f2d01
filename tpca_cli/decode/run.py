"""From an archive back to a folder: every image under its name, with its mode, time and metadata.

Blocks are decoded side by side and written as they come; memory holds a few blocks. Names and formats are
settled before the first file is written (`plan`). Each file is read back before it gets its name. With
`salvage`, damaged blocks cost only their own images; with `resume`, files that are there already and are
exactly what would be written are left alone.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tpca_cli import images, store
from tpca_cli.archive.reader import Archive
from tpca_cli.codec.kernel_job import prepare
from tpca_cli.decode.plan import Target, extras_of, plan
from tpca_cli.errors import FileRefused, OutputExists, StorageError, TpcaError, UsageError, printable
from tpca_cli.interfaces import Pixels, Progress
from tpca_cli.names import check_names, folders_of
from tpca_cli.parallel import busy_map

TOO_COARSE = "a JPEG would add more error than the archive has: it is a PNG"


@dataclass(frozen=True)
class DecodeRequest:
    """What to restore, and how."""

    archive: Path
    output: Path
    select: Sequence[str] = ()
    components: int | None = None
    format: str = "png"
    force: bool = False
    salvage: bool = False
    workers: int = 1
    resume: bool = False


@dataclass
class Decoded:
    """What was restored: images, bytes, and by name what a damaged block cost or a format could not hold."""

    images: int = 0
    written_bytes: int = 0
    source_bytes: int = 0
    found: int = 0  # files that were there already
    lost: list[tuple[bytes, str]] = field(default_factory=list)
    converted: list[tuple[bytes, str]] = field(default_factory=list)
    left_out: list[tuple[bytes, str]] = field(default_factory=list)

    def add(self, other: Decoded) -> None:
        """Take in what was done elsewhere."""
        self.images += other.images
        self.written_bytes += other.written_bytes
        self.source_bytes += other.source_bytes
        self.found += other.found
        self.lost += other.lost
        self.converted += other.converted
        self.left_out += other.left_out


def decode(request: DecodeRequest, archive: Archive, progress: Progress | None = None) -> Decoded:
    """Restore the images of an open archive into a folder."""
    if request.force and request.resume:
        raise UsageError("--force replaces what --resume would keep: give one of them")
    chosen = selected(archive, request.select)
    targets = plan(archive, chosen, request.format)
    _check_output(request, [target.name for target in targets])
    blocks: dict[int, list[Target]] = {}
    for target in targets:
        first = archive.index.blocks_of(int(archive.alive[target.position]))[0]
        blocks.setdefault(first, []).append(target)

    def restore(work: list[Target]) -> Decoded:
        return _restore(archive, work, request)

    prepare()
    result, done = Decoded(), 0
    for work, part in zip(
        blocks.values(), busy_map(restore, list(blocks.values()), request.workers), strict=True
    ):
        result.add(part)
        done += len(work)
        if progress:
            progress("decoding", done, len(chosen))
    lost = {name for name, _ in result.lost}
    written = (t.name for t in targets if archive.names_bytes[t.position] not in lost)
    store.sync_folders(request.output, folders_of(written))
    return result


def _restore(archive: Archive, work: list[Target], request: DecodeRequest) -> Decoded:
    """The images of one block (or the bands of one image), written to the output."""
    index, result = archive.index, Decoded()
    for target in work:
        image, name = int(archive.alive[target.position]), archive.names_bytes[target.position]
        try:
            pixels = archive.read(target.position, components=request.components)
        except FileRefused as error:
            if not request.salvage:
                raise
            result.lost.append((name, str(error)))
            continue
        path, data, converted = _encoded(archive, target, pixels)
        if request.resume and store.holds(request.output, path, data):
            result.found += 1
        else:
            bits = index.mode_bits(image)
            store.write_file(
                path,
                data,
                force=request.force,
                mtime_ns=int(index.images["mtime"][image]) * 1000,
                mode=None if bits is None else bits & 0o777,
                durable=True,
                root=request.output,
            )
        result.images += 1
        result.written_bytes += len(data)
        result.source_bytes += int(index.images["source_size"][image])
        result.converted += [(name, converted)] if converted else []
        result.left_out += [(name, target.left_out)] if target.left_out else []
    return result


def _encoded(archive: Archive, target: Target, pixels: Pixels) -> tuple[bytes, bytes, str]:
    """Name and content of the file for an image and, where that is a PNG for want of better, why."""
    image, extras = int(archive.alive[target.position]), extras_of(archive, target.position)
    mode = archive.index.mode(image)
    if target.measured:
        allowed = int(archive.index.images["error"][image]) / pixels.size
        data = images.encode_jpeg(pixels, mode, allowed, extras)
        if data is not None:
            return target.name, data, ""
        return target.spare, images.encode_file(pixels, mode, extras=extras), TOO_COARSE
    data = images.encode_file(pixels, mode, format=target.format, extras=extras)
    return target.name, data, target.converted


def selected(archive: Archive, patterns: Sequence[str]) -> list[int]:
    """The positions whose names match one of the patterns; all of them without patterns."""
    if not patterns:
        return list(range(len(archive)))
    wanted = [os.fsencode(pattern) for pattern in patterns]
    chosen = [
        position
        for position, name in enumerate(archive.names_bytes)
        if any(fnmatch.fnmatchcase(name.decode("latin-1"), pattern.decode("latin-1")) for pattern in wanted)
    ]
    if not chosen:
        raise TpcaError(f"no image matches {', '.join(patterns)}; `tpca inspect --list` shows the names")
    return chosen


def _check_output(request: DecodeRequest, targets: Iterable[bytes]) -> None:
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
