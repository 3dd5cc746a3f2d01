"""An archive written anew with more images: what is there is copied byte for byte, never coded again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tpca_cli import store
from tpca_cli.archive.batches import spans
from tpca_cli.archive.facts import archive_facts, pooled_psnr, quality_facts, raw_bytes
from tpca_cli.archive.index import Index
from tpca_cli.archive.reader import Archive
from tpca_cli.archive.writer import Contents, Group, write_archive
from tpca_cli.checkpoint import partial_folder
from tpca_cli.encode.assemble import LowQuality
from tpca_cli.errors import FileRefused, TargetError, human, printable
from tpca_cli.rate import Target
from tpca_cli.sources.scan import Skipped

BADLY_DB = 1.0  # new images so much worse than what the archive has fit badly


@dataclass(frozen=True)
class Part:
    """Coded images, the new groups that they need, and what failed; groups are numbered as in the whole."""

    index: Index
    groups: tuple[Group, ...]
    payload: Callable[[], Iterable[bytes]] | tuple[()]
    skipped: tuple[Skipped, ...] = ()
    low_quality: tuple[LowQuality, ...] = ()
    raw: tuple[Skipped, ...] = ()
    target: Target | None = None  # what these images were coded for, where it is not that of the append
    missed: str = ""  # why no step reached it

    def pieces(self) -> Iterable[bytes]:
        """The bytes of the blocks, piece by piece."""
        return self.payload() if callable(self.payload) else ()


@dataclass(frozen=True)
class Extended:
    """What was added, how good it is, and whether that is worth a warning."""

    added: int
    replaced: int
    psnr: float  # of the new images
    facts: Mapping[str, Any]  # of the archive as it is now
    warning: str = ""


def extend(
    archive: Archive,
    parts: Sequence[Part],
    skipped: Sequence[Skipped],
    targets: tuple[Target, Target],
    output: Path,
    *,
    force: bool,
) -> Extended:
    """Replace the archive by itself with the parts; entries of the same name count as replaced.

    The `targets` are that of the archive and that of the parts.
    """
    target, added = targets
    names = {name for part in parts for name in part.index.names}
    replaced = [int(image) for image in archive.alive if archive.index.names[image] in names]
    new = parts[0].index
    for part in parts[1:]:
        new = new.joined(part.index)
    index = replace(
        archive.index.without(replaced).joined(new),
        skipped=tuple((printable(item.path), item.reason) for item in skipped),
    )
    groups = [*archive.groups, *(group for part in parts for group in part.groups)]
    _refuse_growth(index, force or added.kind == "max_error")

    def write(path: Path, expect: store.Identity | None) -> Contents:
        payload = _payload(archive, parts)
        asked = target.to_dict()
        return write_archive(path, index, groups, payload, target_asked=asked, force=True, expect=expect)

    budget = _budget(index, target)
    if budget < math.inf:
        candidate = partial_folder(output) / "candidate.h5"
        size = write(candidate, None).size
        candidate.unlink()
        if size > budget:
            raise TargetError(
                f"with the new images {printable(output)} would take {size} bytes, more than its budget of "
                f"{budget:.0f}: encode all images anew with another target, or the new ones into another file"
            )
    facts = archive_facts(write(output, archive.identity))
    quality = pooled_psnr(new)
    warnings = [_misfit(archive, index, part, part.target or added) for part in parts]
    warning = next(filter(None, warnings), "")
    return Extended(len(names) - len(replaced), len(replaced), quality, facts, warning)


def _payload(archive: Archive, parts: Sequence[Part]) -> Iterator[bytes]:
    """The old blocks as they are on the disk, each held to its digest on the way, then the new ones."""
    offsets, digests = archive.index.offsets, archive.index.blocks["digest"]
    for span in spans(archive):
        start = int(offsets[span.start])
        data = archive.payload(start, int(offsets[span.stop]))
        for block in span:
            coded = memoryview(data)[int(offsets[block]) - start : int(offsets[block + 1]) - start]
            if store.digest_of(coded) != digests[block].tobytes():
                raise FileRefused(
                    f"{printable(archive.path)}: block {block} is damaged, nothing was added; "
                    "`tpca verify` names the images it costs, `tpca repack --salvage` keeps all others"
                )
        yield data
    for part in parts:
        yield from part.pieces()


def _budget(index: Index, target: Target) -> float:
    """The bytes that the file may take."""
    if target.kind == "max_bytes":
        return target.value
    if target.kind == "ratio":
        return raw_bytes(index) / target.value
    return math.inf


def _refuse_growth(index: Index, force: bool) -> None:
    size, source = int(index.offsets[-1]), int(index.images["source_size"].sum())
    if size > source and not force:
        raise TargetError(
            f"the archive would take {human(size)}, more than the {human(source)} of its sources: "
            "replaced images may take the room (`tpca repack`); --force appends all the same"
        )


def _misfit(archive: Archive, index: Index, part: Part, target: Target) -> str:
    """What to say when new images are worse than what they were coded for, or than the archive is; or
    nothing."""
    fix = "--refit gives new images a basis of their own"
    quality, seen = pooled_psnr(part.index), quality_facts(part.index)["quality"]
    if target.kind == "quality" and (seen is None or seen < target.value):
        got = "no quality that was measured" if seen is None else f"a quality of {seen:.2f}"
        return f"the new images have {got}, where {target.value:g} was asked for: {fix}"
    if target.kind == "psnr" and quality < target.value:
        return (
            f"the new images have {quality:.2f} dB, and all together now {pooled_psnr(index):.2f} dB, "
            f"where {target.value:g} dB were asked for: {fix}"
        )
    if part.missed:
        return f"{part.missed}; {fix}"
    if part.groups or target.kind in ("step", "psnr", "quality"):  # a step is all that was asked for
        return ""
    usual = pooled_psnr(archive.index)
    if quality < usual - BADLY_DB:
        return f"the new images fit the basis badly, {quality:.2f} dB where {usual:.2f} are usual: {fix}"
    return ""
