"""What each image of an archive becomes: its file name and its format, decided before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from tpca_cli import images
from tpca_cli.errors import ImageRefused, UsageError, printable
from tpca_cli.formats import EXTENSIONS, FILE
from tpca_cli.names import restored_names

if TYPE_CHECKING:
    from tpca_cli.archive.reader import Archive
    from tpca_cli.scores.reader import Scores

ENDINGS = {"jpeg": "jpg", "tiff": "tif"}
SAME = "same"
CONVERTED = "converted"
"""The reason for a PNG where nothing else was expected: it is not told."""
AS_FILE = "file"
"""The format of an image whose file the archive holds bit for bit."""
# Formats of sources that can be written, by the endings that stand for them and nothing else.
_WRITTEN = {"JPEG": "jpeg", "PNG": "png", "TIFF": "tiff", "WEBP": "webp", "BMP": "bmp", "PPM": "ppm"}
_BILEVEL = b".pbm"


Restorable: TypeAlias = "Archive | Scores"
"""A file whose images are restored."""


@dataclass(frozen=True)
class Image:
    """What the index says of an image that is to be written."""

    number: int
    mode: str
    height: int
    width: int
    mode_bits: int | None  # permissions of the source; None where the archive has none
    block: int  # that holds it, or its first band
    source_size: int  # bytes of the file that it came from


@dataclass(frozen=True)
class Target:
    """One image: where it is in the archive, its file, and why that is a PNG where another was asked for."""

    position: int
    image: Image
    name: bytes
    format: str
    spare: bytes  # the name it takes if it turns out to need a PNG
    converted: str = ""
    left_out: str = ""
    measured: bool = False  # the file must add less error than the archive has
    exact: bool = False  # it was archived exactly, or within a stated error
    extras: images.Extras = field(default_factory=images.Extras)  # what travels with it


def plan(archive: Restorable, chosen: Sequence[int], format: str | None) -> list[Target]:
    """The files of the chosen images, named as in a full restore; UsageError if a format cannot hold one.

    Unless a format is asked for, what was archived exactly is what it was, and anything else a PNG.
    """
    exact = [archive.came_exactly(position) for position in range(len(archive.names_bytes))]
    if format is None or format == SAME:
        own = [format == SAME or exactly for exactly in exact]
        ways = [_own_format(archive, at) if known else ("png", CONVERTED) for at, known in enumerate(own)]
        targets = _own(archive, chosen, ways)
    else:
        targets = _uniform(archive, chosen, format)
    return [replace(target, exact=exact[target.position]) for target in targets]


def _extras_of(archive: Restorable, position: int) -> images.Extras:
    """What travels with an image."""
    known = archive.metadata(position)
    return images.Extras(known.pop("exif", b""), known.pop("icc", b""), known)


def _image(archive: Restorable, position: int) -> Image:
    number, index = int(archive.alive[position]), archive.index
    block = index.blocks_of(number)[0]
    size = int(index.images["source_size"][number])
    return Image(number, index.mode(number), *index.shape(number), index.mode_bits(number), block, size)


def _uniform(archive: Restorable, chosen: Sequence[int], format: str) -> list[Target]:
    """Every image in one format, or none at all."""
    alive, modes = archive.alive, archive.index.mode
    files = {name for name, image in zip(archive.names_bytes, alive, strict=True) if modes(image) == FILE}
    names = restored_names(archive.names_bytes, b"." + ENDINGS.get(format, format).encode(), files)
    targets, refused = [], []
    for position in chosen:
        image = _image(archive, position)
        if image.mode == FILE:  # no picture: it is what it was
            own = archive.names_bytes[position]
            targets.append(Target(position, image, own, AS_FILE, own))
            continue
        extras = _extras_of(archive, position)
        reason = images.obstacle(format, image.mode, image.height, image.width, extras)
        if reason is not None:
            refused.append(f"{printable(archive.names_bytes[position])}: {reason}")
        name = names[position]
        left = _left_out(format, extras)
        targets.append(Target(position, image, name, format, name, left_out=left, extras=extras))
    if refused:
        raise UsageError(
            f"{len(refused)} of {len(chosen)} images cannot be written as {format} ({refused[0]}); "
            "nothing was written: choose png or tiff, --format same, or --select others"
        )
    return targets


def _own(archive: Restorable, chosen: Sequence[int], formats: Sequence[tuple[str, str]]) -> list[Target]:
    """Every image in its own format: those with a reason under the name of a PNG."""
    kept = {name for name, (_, reason) in zip(archive.names_bytes, formats, strict=True) if not reason}
    spare = restored_names(archive.names_bytes, b".png", kept)
    targets = []
    for position in chosen:
        format, reason = formats[position]
        name = spare[position] if reason else archive.names_bytes[position]
        extras = images.Extras() if format == AS_FILE else _extras_of(archive, position)
        told, left = "" if reason == CONVERTED else reason, _left_out(format, extras)
        target = Target(position, _image(archive, position), name, format, spare[position], told, left)
        targets.append(replace(target, measured=format == "jpeg", extras=extras))
    return targets


def _own_format(archive: Restorable, position: int) -> tuple[str, str]:
    """The format for one image and, if it is not its own, why."""
    name = archive.names_bytes[position]
    if archive.holds_file(position):
        return AS_FILE, ""
    stem, dot, ending = name.rpartition(b"/")[2].rpartition(b".")
    own = EXTENSIONS.get(b"." + ending.lower()) if stem and dot else None
    format = _WRITTEN.get(own or "")
    if own is None:
        return "png", "its name does not say which format: it is a PNG"
    if format is None or b"." + ending.lower() == _BILEVEL:
        return "png", f"{own if format is None else 'bilevel PBM'} is not written: it is a PNG"
    extras = _extras_of(archive, position)
    image = _image(archive, position)
    reason = images.obstacle(format, image.mode, image.height, image.width, extras)
    if reason is None and format == "jpeg" and not archive.index.images["error"][image.number]:
        reason = "it was archived exactly, and a JPEG would change it"
    return ("png", f"{reason}: it is a PNG") if reason else (format, "")


def described(archive: Restorable, target: Target) -> Target:
    """The target with all that travels with its image: what is inside, where the archive holds its file."""
    file = None if target.format == AS_FILE else archive.file(target.position)
    if file is None:
        return target
    most = target.image.height * target.image.width
    try:
        found = images.picture_of(images.Source(file, 0), max_pixels=most, content=True, deep=True)
    except ImageRefused:
        return target  # who asks for its pixels is told
    extras, lost = images.Extras(found.exif, found.icc, dict(found.metadata)), list(found.reasons)
    if images.obstacle(target.format, target.image.mode, 1, 1, extras) is not None:
        extras = replace(extras, exif=b"")
        lost.append("EXIF of that length")
    words = [_left_out(target.format, extras), *(f"{target.format} is without {one}" for one in lost)]
    return replace(target, extras=extras, left_out="; ".join(filter(None, words)))


def _left_out(format: str, extras: images.Extras) -> str:
    parts = images.left_out(format, extras)
    return f"{format} has no place for its {', '.join(parts)}" if parts else ""
