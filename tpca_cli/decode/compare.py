"""May these originals be deleted? Each source file held against its entry in an archive.

A file is safe when its name is in the archive, its bytes have the digest that was archived, the archive holds
all of its pixels (not resized, not the first of several frames), they are good enough, and no block that
they need is damaged. Errors were measured while encoding; with `decode` they are measured again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca_cli import images
from tpca_cli.archive.reader import Archive, image_psnr
from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.interfaces import Progress
from tpca_cli.parallel import ordered_map
from tpca_cli.sources.scan import ImageRef, Skipped, scan

WORST = 5


@dataclass(frozen=True)
class SourceComparison:
    """How the sources fared: what may be deleted, what may not and why, the worst of those archived."""

    sources: int
    safe: tuple[bytes, ...]  # paths of files that go by their own name, not through a link
    failed: tuple[Skipped, ...]
    ignored: int
    worst: tuple[tuple[bytes, float], ...]


@dataclass(frozen=True)
class Requirements:
    """What an archived image has to reach."""

    min_psnr: float = 0.0
    allow_partial: bool = False
    decode: bool = False


def compare_sources(
    archive: Archive,
    sources: Sequence[str],
    bar: Requirements,
    lost: Collection[bytes] = (),
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> SourceComparison:
    """Hold every file of the sources to the archive; `lost` are the images in damaged blocks."""
    found = scan(sources)
    positions = {name: position for position, name in enumerate(archive.names_bytes)}
    quality = image_psnr(archive.index)

    def problem(ref: ImageRef) -> str | None:
        position = positions.get(ref.name)
        if position is None:
            return "not in the archive"
        if ref.name in lost:
            return "in a damaged block of the archive"
        return _problem(archive, position, quality[position], ref, bar)

    failed: list[Skipped] = list(found.skipped)
    verdicts: dict[bytes, bool] = {}  # by file: several names may lead to one, and all must be safe
    for done, (ref, reason) in enumerate(
        zip(found.refs, ordered_map(problem, found.refs, workers), strict=True), 1
    ):
        file = os.path.realpath(ref.path)
        verdicts[file] = verdicts.get(file, True) and reason is None
        if reason is not None:
            failed.append(Skipped(ref.path, reason))
        if progress and (done % 64 == 0 or done == len(found.refs)):
            progress("comparing", done, len(found.refs))
    known = [ref for ref in found.refs if ref.name in positions]
    worst = sorted((quality[positions[ref.name]], ref.path) for ref in known)[:WORST]
    return SourceComparison(
        sources=len(found.refs) + len(found.skipped),
        safe=tuple(ref.path for ref in found.refs if not ref.linked and verdicts[os.path.realpath(ref.path)]),
        failed=tuple(failed),
        ignored=len(found.ignored),
        worst=tuple((path, psnr) for psnr, path in worst),
    )


def _problem(archive: Archive, position: int, psnr: float, ref: ImageRef, bar: Requirements) -> str | None:
    """Why one source file must be kept, or None."""
    index, image = archive.index, int(archive.alive[position])
    digest = images.file_digest(ref.path)
    if digest is None:
        return "cannot be read"
    if digest != index.images["digest"][image].tobytes():
        return "differs from the file that was archived"
    if psnr < bar.min_psnr:
        return f"archived with {psnr:.2f} dB, less than {bar.min_psnr:g}"
    missing = index.missing(image)
    if missing and not bar.allow_partial:
        return f"archived in part only: {missing}"
    return _pixel_problem(archive, position, ref) if bar.decode else None


def _pixel_problem(archive: Archive, position: int, ref: ImageRef) -> str | None:
    """Decode both and compare the error with the one that the archive claims."""
    image = int(archive.alive[position])
    size = archive.index.shape(image)
    try:
        source = images.read(ref.path, max_pixels=2**40, size=size).pixels
    except (ImageRefused, StorageError) as refused:
        return str(refused)
    difference: np.ndarray[Any, np.dtype[np.int64]] = source.astype(np.int64) - archive.read(position)
    error = int(np.vdot(difference, difference))
    claimed = int(archive.index.images["error"][image])
    return None if error == claimed else f"decodes with a squared error of {error}, not {claimed} as archived"
