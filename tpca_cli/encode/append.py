"""New images into an archive that exists: what is there is copied byte for byte, never coded again.

A new image goes to the newest group that holds it without loss, with that group's basis, step and tables;
images that no group holds, and all of them with `refit`, get groups of their own. A changed file becomes a
new image and its old entry is marked as replaced. The caller holds the lock from before the archive is opened
until this returns, and the store refuses to replace any other file than the one that was read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tpca_cli import store
from tpca_cli.archive.index import Index
from tpca_cli.archive.limits import usual_or_more
from tpca_cli.archive.reader import Archive, linked_basis, pooled_psnr, spans
from tpca_cli.archive.writer import Group, write_archive
from tpca_cli.checkpoint import (
    Checkpoint,
    partial_folder,
    plan_digest,
    remove_partial,
    removed_unless_interrupted,
)
from tpca_cli.encode.changes import changes, restorable_beside
from tpca_cli.encode.code_blocks import GroupPlan
from tpca_cli.encode.run import EncodeRequest, assemble, draft_groups, reach_target
from tpca_cli.errors import FileRefused, TargetError, UsageError, printable
from tpca_cli.interfaces import Progress, Say
from tpca_cli.rate import Target
from tpca_cli.sources.probe import Kind, Member, Survey, fitting, grouped
from tpca_cli.sources.read_plan import check_scanned
from tpca_cli.sources.scan import Scan, Skipped, scan


@dataclass(frozen=True)
class AppendRequest:
    """An encode request whose output exists, and what to do about changes."""

    encode: EncodeRequest
    on_change: str = "replace"
    refit: bool = False
    target: Target | None = None  # what the command line asks for: it must be what the archive was made with


@dataclass(frozen=True)
class Appended:
    """What an append did; `extended` is None when there was nothing to add and the file was left alone."""

    unchanged: int
    changed: tuple[bytes, ...]  # files that differ from their archived version
    skipped: tuple[Skipped, ...]
    extended: Extended | None = None


def append(request: AppendRequest, say: Say, progress: Progress | None = None) -> Appended:
    """Add what is new in the sources to the archive; the caller holds the lock."""
    asked = request.encode
    basis = None if asked.basis is None else linked_basis(asked.basis)
    limit = usual_or_more(asked.reading.max_pixels)
    with Archive(asked.output, basis=basis, ready=False, max_pixels=limit) as archive:
        target = Target.from_dict(archive.target)
        if request.target is not None and request.target != target:
            raise UsageError(
                f"{printable(asked.output)} was made with the target {archive.target}: "
                "leave the target out, or encode into another file"
            )
        found = _scanned(asked)
        news = changes(archive, found.refs, asked.reading)
        members, unread = asked.workers.probe(news.to_add(request.on_change), asked.reading, progress)
        members, conflicts = restorable_beside(members, archive.names_bytes)
        skipped = (*found.skipped, *news.skipped, *unread, *conflicts)
        result = Appended(news.unchanged, tuple(ref.path for ref in news.changed), skipped)
        if not members:
            remove_partial(asked.output)  # of a run that was killed after its commit
            return result
        given = "" if basis is None else store.digest_of(basis.tobytes()).hex()
        work = _Work(archive, replace(asked, target=target), given, say, progress)
        with removed_unless_interrupted(asked.output):
            parts = list(work.coded(members, request.refit))
            lost = (*skipped, *(item for part in parts for item in part.skipped))
            parts = [part for part in parts if len(part.index)]
            if not parts:
                return replace(result, skipped=lost)
            extended = extend(archive, parts, lost, target, asked.output, force=asked.force)
            return replace(result, skipped=lost, extended=extended)


def plan_append(request: AppendRequest) -> dict[str, int]:
    """What an append would do, by the number of files; nothing is decoded or written."""
    limit = usual_or_more(request.encode.reading.max_pixels)
    with Archive(request.encode.output, ready=False, max_pixels=limit) as archive:
        found = _scanned(request.encode)
        news = changes(archive, found.refs, request.encode.reading)
        return {
            "new": len(news.new),
            "changed": len(news.changed),
            "unchanged": news.unchanged,
            "skipped": len(found.skipped) + len(news.skipped),
            "ignored": len(found.ignored),
        }


def _scanned(request: EncodeRequest) -> Scan:
    found = scan(request.sources)
    check_scanned(found, request.reading.on_error)
    return found


@dataclass(frozen=True)
class _Work:
    """Coding the new images of one append."""

    archive: Archive
    request: EncodeRequest
    given: str  # digest of the basis on the command line, or ""
    say: Say
    progress: Progress | None

    def coded(self, members: Sequence[Member], refit: bool) -> Iterator[Part]:
        """First the images for groups that exist, then those for new ones."""
        chosen, rest = ({}, list(members)) if refit else self._assigned(members)
        if chosen:
            yield self._with_old_groups(chosen)
        if rest and self.given and not refit:
            group = next(n for n in self._groups() if self._usable(n))
            misfits = fitting(rest, self._kind(group), self.archive.coder(group).framing)[1]
            yield Part(Index.build([], []), (), (), tuple(misfits))
        elif rest:
            yield from self._with_new_groups(rest)

    def _assigned(self, members: Sequence[Member]) -> tuple[dict[int, list[Member]], list[Member]]:
        """The newest group that holds each image without loss, and the images that none does."""
        groups = [number for number in self._groups() if self._usable(number)]
        if not groups:
            held = ", ".join(sorted({str(group.meta["basis_digest"]) for group in self.archive.groups}))
            raise UsageError(
                f"{printable(self.archive.path)} was made with basis {held}, and --basis holds {self.given}: "
                "leave it out, or add --refit to use it for new images"
            )
        chosen: dict[int, list[Member]] = {}
        rest = list(members)
        for number in groups:
            fits, _ = fitting(rest, self._kind(number), self.archive.coder(number).framing)
            if fits:
                chosen[number] = fits
                names = {member.ref.name for member in fits}
                rest = [member for member in rest if member.ref.name not in names]
        return chosen, rest

    def _groups(self) -> range:
        """Numbers of the groups, newest first."""
        return range(len(self.archive.groups) - 1, -1, -1)

    def _usable(self, number: int) -> bool:
        return not self.given or self.archive.groups[number].meta["basis_digest"] == self.given

    def _kind(self, number: int) -> Kind:
        meta = self.archive.groups[number].meta
        return Kind(str(meta["dtype"]), int(meta["channels"]))

    def _with_old_groups(self, chosen: dict[int, list[Member]]) -> Part:
        numbers = sorted(chosen)
        plans = [GroupPlan(self._kind(n), tuple(chosen[n]), self.archive.coder(n)) for n in numbers]
        members = [[m.ref.name.hex(), m.ref.size, m.ref.mtime_ns] for plan in plans for m in plan.members]
        plan = {"archive": self.archive.digest, "groups": numbers, "members": members}
        checkpoint = Checkpoint(self.request.output, plan_digest(plan))
        coded = self.request.workers.code(plans, self.request.reading, checkpoint, self.progress)
        result = assemble(coded, (), checkpoint, [each.kind.peak for each in plans], (), 0.0)
        return Part(_renumbered(result.index, numbers), (), result.payload, result.skipped)

    def _with_new_groups(self, members: Sequence[Member]) -> Iterator[Part]:
        found = Survey(grouped(members), (), 0)
        request = replace(self.request, target=self._own_target())
        drafts, skipped = draft_groups(request, found, self.progress)
        for draft in drafts:
            self.say(
                f"{len(draft.members)} new {draft.kind} images get a basis of their own: {draft.describe()}"
            )
        if not drafts:
            yield Part(Index.build([], []), (), (), tuple(skipped))
            return
        result = reach_target(request, drafts, skipped, found, self.say, self.progress)
        first = len(self.archive.groups)
        index = _renumbered(result.index, range(first, first + len(result.groups)))
        yield Part(index, result.groups, result.payload, result.skipped)

    def _own_target(self) -> Target:
        """What new groups aim at; a budget is about the whole file, so they take the archive's step."""
        target = self.request.target
        if target.kind not in ("max_bytes", "ratio"):
            return target
        newest = len(self.archive.groups) - 1
        step = float(self.archive.groups[newest].meta["step"]) * 255 / self._kind(newest).peak
        return Target("step", step, target.components)


def _renumbered(index: Index, numbers: Sequence[int]) -> Index:
    """The same index with its groups numbered as in the whole archive."""
    return replace(index, blocks={**index.blocks, "group": np.array(numbers)[index.blocks["group"]]})


BADLY_DB = 1.0  # new images so much worse than the target, or than what the archive has, fit badly


@dataclass(frozen=True)
class Part:
    """Coded images, the new groups that they need, and what failed; groups are numbered as in the whole."""

    index: Index
    groups: tuple[Group, ...]
    payload: Callable[[], Iterable[bytes]] | tuple[()]
    skipped: tuple[Skipped, ...] = ()

    def pieces(self) -> Iterable[bytes]:
        """The bytes of the blocks, piece by piece."""
        return self.payload() if callable(self.payload) else ()


@dataclass(frozen=True)
class Extended:
    """What was added, how good it is, and whether that is worth a warning."""

    added: int
    replaced: int
    psnr: float  # of the new images
    warning: str = ""


def extend(
    archive: Archive,
    parts: Sequence[Part],
    skipped: Sequence[Skipped],
    target: Target,
    output: Path,
    *,
    force: bool,
) -> Extended:
    """Replace the archive by itself with the parts; entries of the same name count as replaced."""
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
    _refuse_growth(index, force)

    def write(path: Path, expect: store.Identity | None) -> int:
        payload = _payload(archive, parts)
        asked = target.to_dict()
        return write_archive(path, index, groups, payload, target_asked=asked, force=True, expect=expect)

    budget = _budget(index, target)
    if budget < math.inf:
        candidate = partial_folder(output) / "candidate.h5"
        size = write(candidate, None)
        candidate.unlink()
        if size > budget:
            raise TargetError(
                f"with the new images {printable(output)} would take {size} bytes, more than its budget of "
                f"{budget:.0f}: encode all images anew with another target, or the new ones into another file"
            )
    write(output, archive.identity)
    quality = pooled_psnr(new)
    warning = "" if any(part.groups for part in parts) else _misfit(archive, index, quality, target)
    return Extended(len(names) - len(replaced), len(replaced), quality, warning)


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
        return int((index.samples() * np.where(index.peaks() > 255, 2, 1)).sum()) / target.value
    return math.inf


def _refuse_growth(index: Index, force: bool) -> None:
    size, source = int(index.offsets[-1]), int(index.images["source_size"].sum())
    if size > source and not force:
        raise TargetError(
            f"the archive would take {size} bytes, more than the {source} bytes of its sources: "
            "replaced images may take the room (`tpca repack`); --force appends all the same"
        )


def _misfit(archive: Archive, index: Index, quality: float, target: Target) -> str:
    """What to say when the new images are worse than the archive promises, or nothing."""
    if target.kind == "step":  # which is all that was asked for
        return ""
    fix = "--refit gives new images a basis of their own"
    if target.kind == "psnr":
        whole = pooled_psnr(index)
        if whole < target.value:
            return (
                f"the new images have {quality:.2f} dB, and all together now {whole:.2f} dB, "
                f"less than the {target.value:g} dB that were asked for: {fix}"
            )
    wanted = target.value if target.kind == "psnr" else pooled_psnr(archive.index)
    if quality < wanted - BADLY_DB:
        return f"the new images fit the basis badly, {quality:.2f} dB where {wanted:.2f} are usual: {fix}"
    return ""
