"""What differs between two archives, or between an archive and a folder: names, source files, what was kept.

Two images of one name are the same when they were made from the same source file (by its digest) and, in two
archives, decode with the same size, mode and measured error. Nothing is decoded unless that is asked for.
"""

from __future__ import annotations

import glob
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tpca_cli import images
from tpca_cli.archive.facts import image_psnr
from tpca_cli.archive.format import any_exact
from tpca_cli.archive.items import require_pictures
from tpca_cli.archive.reader import Archive
from tpca_cli.errors import FileRefused, ImageRefused, StorageError, UsageError, printable
from tpca_cli.interfaces import Progress
from tpca_cli.parallel import ordered_map
from tpca_cli.sources.scan import ImageRef, Skipped, Sources, require_some, scan
from tpca_cli.store import is_remote

_HDF5 = b"\x89HDF\r\n\x1a\n"


@dataclass
class Difference:
    """How two sides differ, by name; `changed` says in what."""

    same: int = 0
    only: tuple[list[bytes], list[bytes]] = field(default_factory=lambda: ([], []))
    changed: list[tuple[bytes, tuple[str, ...]]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether nothing differs, as far as everything could be read."""
        return not (self.only[0] or self.only[1] or self.changed or self.skipped)


class _Held:
    """An archive by the names of its images, as far as the patterns choose them."""

    def __init__(self, archive: Archive, side: Sources) -> None:
        self.archive = archive
        self.positions = {
            name: position for position, name in enumerate(archive.names_bytes) if side.wants(name)
        }
        self._quality = image_psnr(archive.index)

    def names(self) -> set[bytes]:
        return set(self.positions)

    def digest(self, name: bytes) -> bytes:
        return bytes(self.archive.index.images["digest"][self.image(name)].tobytes())

    def image(self, name: bytes) -> int:
        return int(self.archive.alive[self.positions[name]])

    def facts(self, name: bytes) -> dict[str, str]:
        """What else an archive says of an image, in words."""
        index, image = self.archive.index, self.image(name)
        height, width = index.shape(image)
        kept = {**self.archive.metadata(self.positions[name])}
        return {
            "size": f"{height}x{width}",
            "mode": index.mode(image),
            "quality": f"{self._quality[self.positions[name]]:.2f} dB",
            "metadata": ", ".join(sorted(kept)) or "none",
            "left out": ", ".join(index.missing_reasons(image)) or "nothing",
        }


def is_archive(path: str) -> bool:
    """Whether a side is a file of ours, or an address; anything else is a source."""
    if is_remote(path):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(len(_HDF5)) == _HDF5
    except OSError:
        return False


def diff(
    first: Sources,
    second: Sources,
    *,
    basis: Path | None = None,
    decode: bool = False,
    max_pixels: int,
    workers: int = 1,
    progress: Progress | None = None,
) -> Difference:
    """Compare two sides, of which at least one is an archive; each is one file or source, with patterns."""
    sides = [first, second]
    archives = [is_archive(side[0]) for side in sides]
    if not any(archives):
        for side in sides:
            if not (side[0].startswith("@") or glob.has_magic(side[0]) or os.path.lexists(side[0])):
                raise UsageError(f"no such file or folder: {printable(side[0])}")
        raise UsageError(f"neither {first[0]} nor {second[0]} is an archive")
    with ExitStack() as stack:
        held = []
        for side, archive in zip(sides, archives, strict=True):
            if archive:
                opened = Archive(side[0], basis=basis, ready=False, max_pixels=max_pixels)
                held.append(_Held(stack.enter_context(opened), side))
        if len(held) == 2:
            return _archives(held[0], held[1], decode, progress)
        found = _folder(held[0], sides[archives.index(False)], workers, progress)
    return found if archives[0] else _turned(found)


def _turned(found: Difference) -> Difference:
    return Difference(found.same, (found.only[1], found.only[0]), found.changed, found.skipped)


def _archives(one: _Held, two: _Held, decode: bool, progress: Progress | None) -> Difference:
    result = Difference(only=_apart(one.names(), two.names()))
    common = sorted(one.names() & two.names())
    for done, name in enumerate(common, 1):
        changes = _changes(one, two, name)
        if decode and not changes and not _same_pixels(one, two, name):
            changes = ("pixels",)
        if changes:
            result.changed.append((name, changes))
        else:
            result.same += 1
        if progress:
            progress("comparing", done, len(common))
    return result


def _apart(one: set[bytes], two: set[bytes]) -> tuple[list[bytes], list[bytes]]:
    return sorted(one - two), sorted(two - one)


def _changes(one: _Held, two: _Held, name: bytes) -> tuple[str, ...]:
    """In words what differs; an older archive has shorter digests, and the common part decides."""
    digests = one.digest(name), two.digest(name)
    length = min(map(len, digests))
    found = [] if digests[0][:length] == digests[1][:length] else ["source file"]
    before, after = one.facts(name), two.facts(name)
    found += [f"{key} ({before[key]}, {after[key]})" for key in before if before[key] != after[key]]
    return tuple(found)


def _same_pixels(one: _Held, two: _Held, name: bytes) -> bool:
    sides = [(held.archive, held.positions[name]) for held in (one, two)]
    if all(archive.holds_file(position) for archive, position in sides):
        first, second = (archive.file(position) for archive, position in sides)
        return first == second
    one_picture, other_picture = (archive.read(position) for archive, position in sides)
    return bool(np.array_equal(one_picture, other_picture))


def _folder(held: _Held, sources: Sources, workers: int, progress: Progress | None) -> Difference:
    """An archive and source files: by the digests of the files."""
    require_pictures(printable(held.archive.path), held.archive.holds_tensors)
    found = scan(sources, whole=any_exact(held.archive.meta["groups"]))
    require_some(found, sources)
    refs = {ref.name: ref for ref in found.refs}
    result = Difference(only=_apart(held.names(), set(refs)), skipped=list(found.skipped))
    common = [refs[name] for name in sorted(held.names() & set(refs))]

    def verdict(ref: ImageRef) -> bool | Skipped:
        try:
            digest = images.file_digest(ref.path, held.archive.digest_bytes)
        except (ImageRefused, StorageError, FileRefused) as problem:
            return Skipped(ref.path, str(problem))
        return digest == held.digest(ref.name)

    for done, (ref, same) in enumerate(zip(common, ordered_map(verdict, common, workers), strict=True), 1):
        if isinstance(same, Skipped):
            result.skipped.append(same)
        elif same:
            result.same += 1
        else:
            result.changed.append((ref.name, ("source file",)))
        if progress and (done % 64 == 0 or done == len(common)):
            progress("comparing", done, len(common))
    return result
