"""May these originals be deleted? Each source file held against its entry in an archive.

A file is safe when its name is in the archive, its bytes have the digest that was archived, the archive holds
all of it (every frame and all metadata, by the parsers of `images.content`, which look at the file again),
the basis is at hand, the pixels are good enough, and no block that they need is damaged. Errors were measured
while encoding; with `decode` they are measured again.

Good enough is what the caller says or, without a word, both of these for each image:
- not more than `SLACK_DB` below the PSNR, or `SLACK_QUALITY` below the quality, that was asked for
  (`PLAIN_DB` if that was neither), or, for a step, an error of at most one step;
- an error of at most `VARIANCE_SHARE` of the variance of the image itself, or of one gray level: a picture of
  little contrast can lose all of it at any PSNR. One that is nearly constant, within a gray level, has its
  color to lose, at less than `PLAIN_DB`. This holds beside a least quality as well, which forgives such
  losses, and for colors, where they are seen, and alpha apart: an archive has one error for both, so an image
  is decoded if that is too large for one of them.

What was archived exactly, or within a stated error, is held to that. Images that joined an archive of these
with a loss are held to `PLAIN_DB`: what was asked for them is not known.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tpca_cli import images, visual
from tpca_cli.archive.facts import image_psnr, image_quality
from tpca_cli.archive.format import any_exact
from tpca_cli.archive.items import require_pictures
from tpca_cli.archive.reader import Archive
from tpca_cli.errors import FileRefused, ImageRefused, StorageError, printable
from tpca_cli.interfaces import Pixels, Progress
from tpca_cli.parallel import ordered_map
from tpca_cli.quality import PLAIN_DB, Part, errors_of, loses_detail, parts_of, psnr
from tpca_cli.sources.scan import Ignored, ImageRef, Skipped, require_some, scan

WORST = 5
SLACK_DB = 6.0  # an image below the pooled quality by more is an outlier
SLACK_QUALITY = 30.0  # the same on the scale of SSIMULACRA 2, where images of one step differ more
VARIANCE_SHARE = 0.1
OWN_SHARE = (
    f"an error of at most {VARIANCE_SHARE:.0%} of the image's variance or a gray level, in colors and in "
    f"alpha ({PLAIN_DB:g} dB where they are nearly constant)"
)
IDENTICAL_BYTES, IDENTICAL_PIXELS = "identical bytes", "identical pixels"
LEVELS = 4095  # a gray level is one value, or 1/LEVELS of a larger range


@dataclass(frozen=True)
class SourceComparison:
    """How the sources fared: what may be deleted, what may not and why, the worst of those archived."""

    sources: int
    safe: tuple[bytes, ...]  # paths of files that go by their own name, not through a link
    failed: tuple[Skipped, ...]
    ignored: Ignored
    worst: tuple[tuple[bytes, float, float | None], ...]  # path, dB, and SSIMULACRA 2 if it is known
    floor: str = ""  # in words: the least quality that counts as safe
    verdicts: tuple[tuple[bytes, str], ...] = ()  # of each file that is safe: what comes back of it

    @property
    def identical_files(self) -> int:
        """How many of the safe ones are bit for bit in the archive."""
        return sum(verdict == IDENTICAL_BYTES for _, verdict in self.verdicts)

    @property
    def identical_pixels(self) -> int:
        """How many of the others come back without any error."""
        return sum(verdict == IDENTICAL_PIXELS for _, verdict in self.verdicts)


@dataclass(frozen=True)
class Requirements:
    """What an archived image has to reach; without a least value the archive's own target decides."""

    min_psnr: float | None = None
    min_quality: float | None = None
    allow_partial: bool = False
    decode: bool = False
    identical: bool = False  # only what comes back bit for bit counts


class Measured(NamedTuple):
    """What an archived image lost: PSNR, SSIMULACRA 2 where it is known, and the error of each part."""

    decibels: float
    seen: float | None
    parts: list[Part]


@dataclass(frozen=True)
class Floor:
    """The least quality of an image, by group, and whether its variance counts as well."""

    decibels: tuple[float, ...]
    variance: bool
    text: str
    quality: float = -math.inf  # SSIMULACRA 2
    either: bool = False  # decibels count only where no quality is known
    exact: frozenset[int] = frozenset()  # groups that are held to their own error alone

    @classmethod
    def of(cls, archive: Archive, bar: Requirements) -> Floor:
        """What the caller said, or what the archive was asked for."""
        exact = frozenset(filter(archive.is_exact, range(len(archive.groups))))
        if bar.min_psnr is not None or bar.min_quality is not None:
            words = [] if bar.min_psnr is None else [f"{bar.min_psnr:g} dB (--min-psnr)"]
            words += [] if bar.min_quality is None else [f"quality {bar.min_quality:g} (--min-quality)"]
            decibels, quality = (
                -math.inf if least is None else least for least in (bar.min_psnr, bar.min_quality)
            )
            text, variance = f"at least {' and '.join(words)}", bar.min_psnr is None
            text += f" and {OWN_SHARE}, for each image" if variance else " for each image"
            floors = (decibels,) * len(archive.groups)
            return cls(floors, variance, text, quality, exact=exact)
        return cls._asked_for(archive)._with_exact(archive, exact)

    def _with_exact(self, archive: Archive, exact: frozenset[int]) -> Floor:
        """Groups that come back exactly are held to their own error, whatever the others were asked for."""
        found = list(self.decibels)
        for number, (group, peak) in enumerate(zip(archive.groups, archive.group_peaks, strict=True)):
            if archive.is_exact(number):
                found[number] = psnr(int(group.meta["coder"]["tolerance"]) ** 2, 1.0, peak)
        beside = "; identical, or within a stated error, where it was archived so"
        if "max_error" in archive.target:
            beside = f"; {PLAIN_DB:g} dB and {OWN_SHARE} for each image that was archived with a loss"
        mixed = len(exact) < len(found) and (exact or "max_error" in archive.target)
        return replace(self, decibels=tuple(found), exact=exact, text=self.text + (beside if mixed else ""))

    @classmethod
    def _asked_for(cls, archive: Archive) -> Floor:
        """What the archive was asked for."""
        metas = [group.meta for group in archive.groups]
        asked, share = archive.target, OWN_SHARE
        if "step" in asked:
            peaks = archive.group_peaks
            steps = [max(float(meta["step"]), 1 / 64) for meta in metas]
            floors = tuple(psnr(step**2, 1.0, peak) for step, peak in zip(steps, peaks, strict=True))
            shown = ", ".join(dict.fromkeys(f"{floor:.2f}" for floor in floors))
            return cls(floors, True, f"{shown} dB (an error of one step) and {share}, for each image")
        if "max_error" in asked:
            most = int(asked["max_error"])
            floors = (PLAIN_DB,) * len(metas)
            return cls(floors, True, f"every sample within {most}" if most else "identical files or pixels")
        if "quality" in asked:
            least = float(asked["quality"]) - SLACK_QUALITY
            why = f"{SLACK_QUALITY:g} less than the {asked['quality']:g} that was asked for"
            text = f"a quality of {least:g} ({why}; {PLAIN_DB:g} dB where it is not known) and {share}"
            return cls((PLAIN_DB,) * len(metas), True, f"{text}, for each image", least, either=True)
        if "psnr" in asked:
            floor = float(asked["psnr"]) - SLACK_DB
            told = "of the default" if asked.get("detail") else "that were asked for"
            why = f"{SLACK_DB:g} less than the {asked['psnr']:g} {told}"
        else:
            floor, why = PLAIN_DB, "the archive was asked for no quality"
        return cls((floor,) * len(metas), True, f"{floor:g} dB ({why}) and {share}, for each image")

    def problem(self, group: int, measured: Measured, peak: int) -> str | None:
        """Why an image is not good enough, or None."""
        decibels, seen, parts = measured
        if seen is not None and seen < self.quality:
            return f"archived with a quality of {seen:.2f}, less than {self.quality:g}"
        if decibels < self.decibels[group] and not (self.either and seen is not None):
            return f"archived with {decibels:.2f} dB, less than {self.decibels[group]:.4g}"
        if group in self.exact or not self.variance:
            return None
        level = max(1.0, peak / LEVELS) ** 2
        places = ("",) if len(parts) == 1 else (" in colors", " in alpha")
        for place, part in zip(places, parts, strict=True):
            error, samples, deviation = part
            if not loses_detail(*part, peak, share=VARIANCE_SHARE, level=level):
                continue
            if deviation <= level * samples:
                own = psnr(error, samples, peak)
                return f"plain, and archived with {own:.2f} dB{place}, less than {PLAIN_DB:g}"
            return (
                f"archived with {decibels:.2f} dB, an error of {error / deviation:.0%} of its variance{place}"
            )
        return None


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
    require_pictures(printable(archive.path), archive.holds_tensors)
    found = scan(sources, whole=any_exact(archive.meta["groups"]))
    require_some(found, sources)
    positions = {name: position for position, name in enumerate(archive.names_bytes)}
    judge = _Judge(archive, bar)

    def problem(ref: ImageRef) -> str | None:
        position = positions.get(ref.name)
        if position is None:
            return "not in the archive"
        if ref.name in lost:
            return "in a damaged block of the archive"
        return judge.problem(position, ref)

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
    safe = {ref.name for ref in found.refs if verdicts[os.path.realpath(ref.path)] and ref.name in positions}
    worst = sorted((judge.decibels[positions[ref.name]], ref.path, positions[ref.name]) for ref in known)
    return SourceComparison(
        sources=len(found.refs) + len(found.skipped),
        safe=tuple(ref.path for ref in found.refs if not ref.linked and verdicts[os.path.realpath(ref.path)]),
        failed=tuple(failed),
        ignored=found.left_out,
        worst=tuple(
            (path, decibels, judge.seen[position])
            for decibels, path, position in worst[:WORST]
            if decibels < math.inf
        ),
        floor=judge.floor.text,
        verdicts=tuple(
            (ref.path, judge.verdict(positions[ref.name])) for ref in found.refs if ref.name in safe
        ),
    )


class _Judge:
    """Holds single files to an archive."""

    def __init__(self, archive: Archive, bar: Requirements) -> None:
        self.archive = archive
        self.bar = bar
        self.floor = Floor.of(archive, bar)
        self.decibels = image_psnr(archive.index)
        self.seen = image_quality(archive.index)
        self.groups = archive.index.group_of
        self.unusable = _unusable_groups(archive)

    def verdict(self, position: int) -> str:
        """What comes back of a file that is safe."""
        if self.archive.holds_file(position):
            return IDENTICAL_BYTES
        if self.decibels[position] == math.inf:
            return IDENTICAL_PIXELS
        tolerance = self._tolerance(position)
        within = f"every sample within {tolerance}, " if tolerance else ""
        return f"{within}{self.decibels[position]:.2f} dB"

    def _tolerance(self, position: int) -> int | None:
        """What the samples of an image may be off by, where the archive says so."""
        group = int(self.groups[int(self.archive.alive[position])])
        if not self.archive.is_exact(group):
            return None
        return int(self.archive.groups[group].meta["coder"]["tolerance"])

    def problem(self, position: int, ref: ImageRef) -> str | None:
        """Why one source file must be kept, or None."""
        archive, index = self.archive, self.archive.index
        image = int(archive.alive[position])
        group = int(self.groups[image])
        if group in self.unusable:
            return self.unusable[group]
        if archive.holds_file(position):
            return self._file_problem(position, ref)
        if self.bar.identical:
            return "its pixels are in the archive, not its file (--identical)"
        try:
            picture = images.read(
                ref.path,
                max_pixels=2**40,
                size=index.shape(image),
                digest_bytes=archive.digest_bytes,
                content=True,
                deep=True,
            )
        except (ImageRefused, StorageError) as refused:
            return str(refused)
        if picture.digest != index.images["digest"][image].tobytes():
            return "differs from the file that was archived"
        missing = [*index.missing_reasons(image), *_not_kept(picture, archive.metadata(position))]
        if missing and not self.bar.allow_partial:
            return f"archived in part only, without: {', '.join(dict.fromkeys(missing))}"
        return self._loss(position, group, picture.pixels)

    def _loss(self, position: int, group: int, source: Pixels) -> str | None:
        """Why what comes back is not good enough, or None."""
        index, image = self.archive.index, int(self.archive.alive[position])
        error, peak = int(index.images["error"][image]), int(index.images["peak"][image])
        seen = self.seen[position] if error else 100.0
        # both parts together lost this: each of them no more, its samples counted as often as they can be
        most = [error] if source.shape[2] in (1, 3) else [error * int(np.iinfo(source.dtype).max), error]
        parts = parts_of(source, most)
        problem = self.floor.problem(group, Measured(self.decibels[position], seen, parts), peak)
        doubtful = problem is not None and len(parts) > 1
        if not (self.bar.decode or doubtful or (seen is None and self.bar.min_quality is not None)):
            return problem
        back = self.archive.read(position)
        if back.shape != source.shape:
            return f"decodes to {back.shape}, and the file to {source.shape}"
        if self.bar.min_quality is not None:
            seen = self.seen[position] = visual.score(source, back, peak)
        if len(parts) > 1:
            own = errors_of(source, back)
            parts = [part._replace(error=each) for part, each in zip(parts, own, strict=True)]
        measured = Measured(self.decibels[position], seen, parts)
        return self.floor.problem(group, measured, peak) or self._pixel_problem(position, source, back)

    def _file_problem(self, position: int, ref: ImageRef) -> str | None:
        """The same for a file that the archive holds bit for bit."""
        digest = self.archive.index.images["digest"][int(self.archive.alive[position])].tobytes()
        try:
            if images.file_digest(ref.path, len(digest)) != digest:
                return "differs from the file that was archived"
            if self.bar.decode:
                self.archive.file(position)  # refuses unless it has the digest
        except (ImageRefused, StorageError, FileRefused) as refused:
            return str(refused)
        return None

    def _pixel_problem(self, position: int, source: Pixels, back: Pixels) -> str | None:
        """Compare the error of the decoded image with the one that the archive claims."""
        error, worst, tolerance = 0, 0, self._tolerance(position)
        for rows in _bands(source):
            difference: np.ndarray[Any, np.dtype[np.int64]] = source[rows].astype(np.int64) - back[rows]
            error += int(np.vdot(difference, difference))
            worst = max(worst, int(np.abs(difference).max(initial=0)))
        if tolerance is not None and worst > tolerance:
            return f"decodes with a sample that is off by {worst}, more than {tolerance}"
        claimed = int(self.archive.index.images["error"][int(self.archive.alive[position])])
        if error == claimed:
            return None
        return f"decodes with a squared error of {error}, not {claimed} as archived"


def _unusable_groups(archive: Archive) -> dict[int, str]:
    """Groups whose basis is in a file that is not at hand, or is another one."""
    problems = {}
    for number, group in enumerate(archive.groups):
        if group.basis is None and not archive.is_exact(number):
            try:
                archive.coder(number)
            except FileRefused as error:
                problems[number] = str(error)
    return problems


def _not_kept(picture: images.Picture, kept: Mapping[str, bytes]) -> list[str]:
    """What the file holds, by a new look at it, and the archive does not."""
    lost = [kind for kind, blob in picture.metadata.items() if kept.get(kind) != blob]
    lost += [kind for kind in ("exif", "icc") if getattr(picture, kind) and kind not in kept]
    return [*picture.reasons, *(NAMES.get(kind, kind) for kind in lost)]


NAMES = {
    "exif": "EXIF",
    "icc": "its color profile",
    "xmp": "XMP",
    "iptc": "IPTC",
    "text": "its texts",
    "density": "its density",
    "png": "a description of its colors",
}


BAND_SAMPLES = 2**20
"""That are compared together: numbers of 64 bits take many times the memory of a picture."""


def _bands(pixels: Pixels) -> Iterator[slice]:
    """Rows of a picture (h, w, c), some at a time."""
    rows = max(1, BAND_SAMPLES // max(pixels[0].size, 1))
    return (slice(top, top + rows) for top in range(0, len(pixels), rows))
