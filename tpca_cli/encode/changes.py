"""What is new in the sources of an archive: files to add, files that replace an entry, files as they were.

Size and time decide first, as they do for other tools that copy what changed; where they differ, the digest
of the file does. A file that is gone from the sources changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tpca_cli import images
from tpca_cli.errors import ImageRefused, StorageError, TpcaError, printable
from tpca_cli.names import folders_of, name_problem, restored_names
from tpca_cli.parallel import ordered_map
from tpca_cli.sources.probe import Member
from tpca_cli.sources.read_plan import Reading, skip_or_fail
from tpca_cli.sources.scan import ImageRef, Skipped

if TYPE_CHECKING:
    from tpca_cli.archive.reader import Archive
    from tpca_cli.scores.reader import Scores


@dataclass(frozen=True)
class Changes:
    """The files of the sources, sorted by what they mean for the archive."""

    new: tuple[ImageRef, ...]
    changed: tuple[ImageRef, ...]  # the archive has another version
    unchanged: int
    skipped: tuple[Skipped, ...]  # of those that had to be read to tell

    def to_add(self, on_change: str) -> tuple[ImageRef, ...]:
        """What is to be coded, in the order of the names."""
        if on_change == "fail" and self.changed:
            raise differing([ref.path for ref in self.changed])
        chosen = self.new + (self.changed if on_change == "replace" else ())
        return tuple(sorted(chosen, key=lambda ref: ref.name))


def differing(paths: Sequence[bytes]) -> TpcaError:
    """An error about sources of which the archive has other versions."""
    return TpcaError(
        f"{printable(paths[0])} differs from its version in the archive ({len(paths)} files do): "
        "--on-change replace takes the new version, keep the archived one"
    )


def changes(archive: Archive | Scores, refs: Sequence[ImageRef], reading: Reading) -> Changes:
    """Compare the sources with the archive; only files whose size or time differ are read."""
    positions = {name: int(image) for name, image in zip(archive.names_bytes, archive.alive, strict=True)}
    columns = archive.index.images
    sizes, times = columns["source_size"], columns["mtime"]

    def differs(ref: ImageRef) -> bool | Skipped:
        image = positions[ref.name]
        if (ref.size, ref.mtime_ns // 1000) == (int(sizes[image]), int(times[image])):
            return False
        try:
            digest = images.file_digest(ref.path, archive.digest_bytes)
        except (ImageRefused, StorageError) as problem:  # gone since it was listed, or unreadable
            return skip_or_fail(ref.path, problem, reading.on_error)
        return bool(digest != np.asarray(columns["digest"][image]).tobytes())

    known = [ref for ref in refs if ref.name in positions]
    verdicts = list(ordered_map(differs, known, reading.workers))
    return Changes(
        new=tuple(ref for ref in refs if ref.name not in positions),
        changed=tuple(ref for ref, verdict in zip(known, verdicts, strict=True) if verdict is True),
        unchanged=verdicts.count(False),
        skipped=tuple(verdict for verdict in verdicts if isinstance(verdict, Skipped)),
    )


def restorable_beside(
    members: Sequence[Member], names: Iterable[bytes]
) -> tuple[list[Member], list[Skipped]]:
    """Without the images that could not be restored beside those that the archive already holds."""
    held = set(names)
    folders = folders_of(held)
    everything = sorted(held | {member.ref.name for member in members})
    targets = dict(zip(everything, restored_names(everything, b".png"), strict=True))
    kept: list[Member] = []
    skipped: list[Skipped] = []
    for member in members:
        name = member.ref.name
        problem = name_problem(targets[name])
        if name in folders:
            problem = "the archive holds images in a folder of this name"
        elif (above := folders_of([name]) & held) and not problem:
            problem = f"the archive holds an image named {printable(min(above))}"
        if problem:
            skipped.append(Skipped(member.ref.path, f"cannot be restored: {problem}"))
        else:
            kept.append(member)
    return kept, skipped
