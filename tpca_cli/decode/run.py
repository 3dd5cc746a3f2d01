"""From an archive back to a folder: every image under its name, with its mode, time, EXIF and ICC profile.

Blocks are decoded side by side and written as they come; memory holds a few blocks. All names are checked
before the first file is written. With `salvage`, damaged blocks cost only their own images.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpca_cli import images, store
from tpca_cli.archive.reader import Archive
from tpca_cli.codec.kernel_job import prepare
from tpca_cli.errors import FileRefused, OutputExists, StorageError, TpcaError, printable
from tpca_cli.interfaces import Progress
from tpca_cli.names import check_names, restored_names
from tpca_cli.parallel import busy_map

ENDINGS = {"jpeg": "jpg", "tiff": "tif"}


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


@dataclass(frozen=True)
class Decoded:
    """What was restored: count, bytes written, and images that a damaged block cost."""

    images: int
    written_bytes: int
    lost: tuple[tuple[bytes, str], ...]


def decode(request: DecodeRequest, archive: Archive, progress: Progress | None = None) -> Decoded:
    """Restore the images of an open archive into a folder."""
    chosen = selected(archive, request.select)
    # named as in a full restore, whatever is selected
    everything = restored_names(
        archive.names_bytes, b"." + ENDINGS.get(request.format, request.format).encode()
    )
    targets = [everything[position] for position in chosen]
    _check_output(request, targets)
    blocks: dict[int, list[tuple[int, bytes]]] = {}
    for position, target in zip(chosen, targets, strict=True):
        first = archive.index.blocks_of(int(archive.alive[position]))[0]
        blocks.setdefault(first, []).append((position, target))

    def restore(work: list[tuple[int, bytes]]) -> tuple[int, list[tuple[bytes, str]]]:
        return _restore(archive, work, request)

    prepare()
    written, lost, done = 0, [], 0
    for work, (size, damaged) in zip(
        blocks.values(), busy_map(restore, list(blocks.values()), request.workers), strict=True
    ):
        written += size
        lost += damaged
        done += len(work)
        if progress:
            progress("decoding", done, len(chosen))
    return Decoded(len(chosen) - len(lost), written, tuple(lost))


def _restore(
    archive: Archive, work: list[tuple[int, bytes]], request: DecodeRequest
) -> tuple[int, list[tuple[bytes, str]]]:
    """The images of one block (or the bands of one image), written to the output."""
    index, size = archive.index, 0
    lost: list[tuple[bytes, str]] = []
    for position, target in work:
        image = int(archive.alive[position])
        try:
            pixels = archive.read(position, components=request.components)
        except FileRefused as error:
            if not request.salvage:
                raise
            lost.append((archive.names_bytes[position], str(error)))
            continue
        data = images.encode_file(
            pixels,
            index.mode(image),
            format=request.format,
            exif=index.extra(image, "exif"),
            icc=index.extra(image, "icc"),
        )
        mtime_ns = int(index.images["mtime"][image]) * 1000
        store.write_file(target, data, force=request.force, mtime_ns=mtime_ns, root=request.output)
        size += len(data)
    return size, lost


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
        if os.path.lexists(os.path.join(root, target)):
            raise OutputExists(
                f"{printable(os.path.join(root, target))} exists: choose another folder or add --force"
            )
