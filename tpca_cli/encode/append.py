"""New images into an archive that exists: what is there is copied byte for byte, never coded again.

A new image goes to the newest group that holds it without loss, with that group's basis. Where the target is
a quality, the step is one that reaches it for the new images: that of a group with this basis if one does and
wastes little, otherwise their own, in one more group with the same basis. Images that no group holds, and all
of them with `refit`, get groups and bases of their own. A changed file becomes a
new image and its old entry is marked as replaced. The caller holds the lock from before the archive is opened
until this returns, and the store refuses to replace any other file than the one that was read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tpca_cli import store
from tpca_cli.archive.format import PEAK, any_exact, coding_of
from tpca_cli.archive.index import Index
from tpca_cli.archive.items import require_pictures
from tpca_cli.archive.limits import usual_or_more
from tpca_cli.archive.reader import Archive
from tpca_cli.archive.writer import linked_basis
from tpca_cli.checkpoint import (
    check_partial,
    remove_partial,
    removed_unless_interrupted,
)
from tpca_cli.codec.basis_coding import stored_bytes
from tpca_cli.codec.tuning import PSNR
from tpca_cli.encode.assemble import Assembled, LowQuality, assemble
from tpca_cli.encode.changes import changes, restorable_beside
from tpca_cli.encode.choose_basis import GroupDraft, tune_of
from tpca_cli.encode.code_blocks import GroupPlan, coding_checkpoint
from tpca_cli.encode.estimate import sampled, target_for, target_with
from tpca_cli.encode.exact import check_request, code_exactly
from tpca_cli.encode.extend import Extended, Part, extend
from tpca_cli.encode.run import EncodeRequest, draft_groups, reach_target
from tpca_cli.encode.sample import take_sample
from tpca_cli.errors import TargetError, UsageError, counted, printable
from tpca_cli.framing import TILE
from tpca_cli.interfaces import Progress, Say
from tpca_cli.rate import Range, Target
from tpca_cli.sources.probe import Kind, Member, Survey, fitting, grouped
from tpca_cli.sources.read_plan import scan_or_fail
from tpca_cli.sources.scan import NOTHING_IGNORED, Ignored, Scan, Skipped


@dataclass(frozen=True)
class AppendRequest:
    """An encode request whose output exists, and what to do about changes."""

    encode: EncodeRequest
    on_change: str = "replace"
    refit: bool = False
    target: Target | None = None  # what the command line asks for: it must be what the archive was made with
    coding: str | None = None  # the same; that of `encode` is for an archive that has none yet


@dataclass(frozen=True)
class Appended:
    """What an append did; `extended` is None when there was nothing to add and the file was left alone."""

    unchanged: int
    changed: tuple[bytes, ...]  # files that differ from their archived version
    skipped: tuple[Skipped, ...]
    extended: Extended | None = None
    low_quality: tuple[LowQuality, ...] = ()
    ignored: Ignored = NOTHING_IGNORED
    raw: tuple[Skipped, ...] = ()  # files that are kept as they are, and why they cannot be more


def append(request: AppendRequest, say: Say, progress: Progress | None = None) -> Appended:
    """Add what is new in the sources to the archive; the caller holds the lock."""
    asked = request.encode
    check_partial(asked.output)
    basis = None if asked.basis is None else linked_basis(asked.basis)
    limit = usual_or_more(asked.reading.max_pixels)
    with Archive(asked.output, basis=basis, ready=False, max_pixels=limit) as archive:
        require_pictures(printable(archive.path), archive.holds_tensors)
        target = Target.from_dict(archive.target)
        added = _target_of_new(archive, target, request.target)
        asked = replace(asked, coding=_coding_of_new(archive, request))
        reading = replace(asked.reading, digest_bytes=archive.digest_bytes, whole=added.kind == "max_error")
        asked = replace(asked, reading=reading)
        found = scanned(asked, whole=any_exact(archive.meta["groups"]))
        news = changes(archive, found.refs, asked.reading)
        members, unread = asked.workers.probe(news.to_add(request.on_change), asked.reading, progress)
        members, conflicts = restorable_beside(members, archive.names_bytes)
        skipped = (*found.skipped, *news.skipped, *unread, *conflicts)
        result = Appended(news.unchanged, tuple(ref.path for ref in news.changed), skipped)
        result = replace(result, ignored=found.left_out)
        if not members:
            remove_partial(asked.output)  # of a run that was killed after its commit
            return result
        given = "" if basis is None else store.digest_of(basis.tobytes()).hex()
        full_range = archive.version == 1
        work = _Work(archive, replace(asked, target=added, full_range=full_range), given, say, progress)
        with removed_unless_interrupted(asked.output):
            parts = list(work.coded(members, request.refit))
            lost = (*skipped, *(item for part in parts for item in part.skipped))
            result = replace(
                result,
                low_quality=tuple(item for part in parts for item in part.low_quality),
                raw=tuple(item for part in parts for item in part.raw),
            )
            parts = [part for part in parts if len(part.index)]
            if not parts:
                return replace(result, skipped=lost)
            extended = extend(archive, parts, lost, (target, added), asked.output, force=asked.force)
            return replace(result, skipped=lost, extended=extended)


MIXED = ("psnr", "quality", "energy", "step", "components")
"""Targets that images may be added with to an archive that comes back exactly: none about its whole size."""


def _target_of_new(archive: Archive, target: Target, asked: Target | None) -> Target:
    """What the new images are coded for: the target of the archive, or exactly beside lossy ones, or lossy
    beside exact ones; groups keep them apart."""
    if asked is None or asked == target:
        return target
    was_exact, is_exact = (each.kind == "max_error" for each in (target, asked))
    if archive.version > 1 and was_exact != is_exact and (is_exact or asked.kind in MIXED):
        return asked
    raise UsageError(
        f"{printable(archive.path)} was made with the target {target}: "
        "leave the target out, or encode into another file"
    )


def _coding_of_new(archive: Archive, request: AppendRequest) -> str | None:
    """How new images are coded: as those that are there."""
    lossy = [group.meta for n, group in enumerate(archive.groups) if not archive.is_exact(n)]
    held = ("fast" if "fast" in map(coding_of, lossy) else "small") if lossy else request.encode.coding
    if request.coding in (None, held):
        return held
    raise UsageError(
        f"{printable(archive.path)} was made with --coding {held}: "
        "leave --coding out, or encode into another file"
    )


def plan_append(request: AppendRequest) -> dict[str, Any]:
    """What an append would do, by the number of files; nothing is decoded or written."""
    limit = usual_or_more(request.encode.reading.max_pixels)
    with Archive(request.encode.output, ready=False, max_pixels=limit) as archive:
        require_pictures(printable(archive.path), archive.holds_tensors)
        added = _target_of_new(archive, Target.from_dict(archive.target), request.target)
        _coding_of_new(archive, request)
        reading = replace(request.encode.reading, whole=added.kind == "max_error")
        found = scanned(replace(request.encode, reading=reading), whole=any_exact(archive.meta["groups"]))
        news = changes(archive, found.refs, reading)
        if added.kind == "max_error" and (news.new or (news.changed and request.on_change == "replace")):
            check_request(request.encode)
        return {
            "new": len(news.new),
            "changed": len(news.changed),
            "unchanged": news.unchanged,
            "skipped": len(found.skipped) + len(news.skipped),
            **found.left_out.facts,
        }


def scanned(request: EncodeRequest, *, whole: bool = False) -> Scan:
    """The sources of an append. No image at all is an error: a disk that is not mounted looks like that."""
    whole = whole or request.reading.whole
    return scan_or_fail(request.sources, request.reading.on_error, whole=whole)


MOST_TRIED = 8  # groups whose step is tried on a sample
SIZE_PER_DB = 0.88  # by which the bytes fall when the quality falls by a decibel, about
SIZE_PER_UNIT = {"quality": 0.97}  # the same for other scales
GROUP_BYTES = 1500  # that a group takes in the file besides its arrays, about
MANY_GROUPS = 1024  # beyond which a step that wastes some bytes is good enough


@dataclass
class _Work:
    """Coding the new images of one append."""

    archive: Archive
    request: EncodeRequest
    given: str  # digest of the basis on the command line, or ""
    say: Say
    progress: Progress | None
    made: int = 0  # groups so far

    def coded(self, members: Sequence[Member], refit: bool) -> Iterator[Part]:
        """First the images for groups that exist, then those for new ones."""
        if self.request.target.kind == "max_error":
            check_request(self.request)
            done = code_exactly(self.request, members, self.archive.groups, (), self.progress)
            yield Part(done.index, done.groups, done.payload, done.skipped, raw=done.raw)
            return
        chosen, rest = ({}, list(members)) if refit else self._assigned(members)
        for number in sorted(chosen):
            yield from self._with_basis_of(number, chosen[number])
        if rest and self.given and not refit:
            group = next(n for n in self._groups() if self._usable(n))
            misfits = fitting(rest, self._kind(group), self.archive.coder(group).framing)[1]
            yield Part(Index.build([], []), (), (), tuple(misfits))
        elif rest:
            yield from self._with_new_groups(rest)

    def _assigned(self, members: Sequence[Member]) -> tuple[dict[int, list[Member]], list[Member]]:
        """The newest group that holds each image without loss, and the images that none does."""
        groups = [number for number in self._groups() if self._usable(number)]
        if not groups and not self.given:  # all that there is comes back exactly
            return {}, list(members)
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

    def _groups(self) -> list[int]:
        """Numbers of the groups that have a basis, newest first."""
        return [n for n in range(len(self.archive.groups) - 1, -1, -1) if not self.archive.is_exact(n)]

    def _usable(self, number: int) -> bool:
        if self.given:
            return self.archive.groups[number].made_with(self.given)
        target, coder = self.request.target, self.archive.coder(number)
        if target == Target.from_dict(self.archive.target):
            return True
        # lossy images beside exact ones: the group may be of another target, and no search finds a step
        if target.kind == "step":
            return math.isclose(coder.step, target.value, rel_tol=0.01)
        return target.kind != "components" or coder.components == target.components

    def _kind(self, number: int) -> Kind:
        meta = self.archive.groups[number].meta
        return Kind(str(meta["dtype"]), int(meta["channels"]))

    def _with_basis_of(self, number: int, members: Sequence[Member]) -> Iterator[Part]:
        """Images coded with the basis of a group, at a step that reaches the target for them."""
        kind = self._kind(number)
        found = Survey({kind: tuple(members)}, ())
        target = target_for(self.request.target, found, "auto", None)
        if target.kind not in ("psnr", "energy", "quality"):
            yield self._with_group(number, members)[0]
            return
        draft = self._draft(number, members, target)
        if not draft.sample:  # nothing of them can be read
            yield self._with_group(number, members)[0]
            return
        target = target_with(target, [draft])
        if target.kind == "quality" and not self._for_people(number):
            yield from self._with_new_groups(members)
            return
        low = target.interval(0, reference=draft.range.reference).low
        reused = self._suitable(draft, number, target.kind, low)
        if reused is not None:
            part, result = self._with_group(reused, members, draft.range)
            if result.measured[target.kind] >= low and result.largest[0] <= self._peak(reused):
                yield replace(part, target=target)
                return
        request = replace(self.request, target=target)
        try:
            result = reach_target(request, [draft], [], found, self.say, self.progress)
        except TargetError as problem:  # the archive goes on; `extend` says what misses its target
            self.say(str(problem))
            yield replace(self._with_group(number, members)[0], target=target, missed=str(problem))
            return
        new = counted(len(members), f"new {draft.kind} image")
        self.say(f"a step of its own for {new}")
        yield self._in_new_groups(result, target)

    def _in_new_groups(self, result: Assembled, target: Target) -> Part:
        """What was coded in groups of its own, which come after all that there are."""
        first = len(self.archive.groups) + self.made
        index = _renumbered(result.index, range(first, first + len(result.groups)))
        self.made += len(result.groups)
        parts = result.groups, result.payload, result.skipped, result.low_quality
        return Part(index, *parts, target=target)

    def _for_people(self, number: int) -> bool:
        """Whether the basis of a group allows steps for a quality, which is not measured at others."""
        framing, basis = self.archive.coder(number).framing, self.archive.coder(number).basis
        spans = basis.indices is not None and basis.components == math.prod(framing.frame_shape)
        return spans and framing.kind == TILE and basis.depth == 8

    def _with_group(
        self, number: int, members: Sequence[Member], scope: Range | None = None
    ) -> tuple[Part, Assembled]:
        """Images coded as a group codes them, and what came out."""
        plans = [GroupPlan(self._kind(number), tuple(members), self.archive.coder(number))]
        groups, reading = [self.archive.groups[number]], self.request.reading
        checkpoint = coding_checkpoint(self.request.output, plans, groups, reading)
        coded = self.request.workers.code(plans, reading, checkpoint, self.progress)
        scope = replace(scope or Range(self._peak(number)), peak=self._peak(number))
        result = assemble(coded, (), checkpoint, [scope], (), 0.0)
        index = _renumbered(result.index, [number])
        return Part(index, (), result.payload, result.skipped, result.low_quality), result

    def _draft(self, number: int, members: Sequence[Member], target: Target) -> GroupDraft:
        """The new images with the basis of a group, their step still open."""
        coder, kind, reading = self.archive.coder(number), self._kind(number), self.request.reading
        group = self.archive.groups[number]
        seen = target.kind == "quality"
        windows = coder.framing.kind == TILE and not seen
        sample = take_sample(members, kind, reading, windows=windows, seen_area=seen)
        scope = sample.range(kind, target)
        # what fits the range of the group is measured by it
        scope = replace(scope, peak=max(scope.peak, self._peak(number)))
        method, link = str(group.meta["method"]), group.basis is None
        framing, basis, pictures = coder.framing, coder.basis, sample.pictures
        tune = tune_of(target, kind, members) if target.kind == "quality" else coder.tune
        draft = GroupDraft(kind, tuple(members), method, framing, basis, pictures, scope, link, tune)
        return replace(draft, predictor=coder.predictor)

    def _suitable(self, draft: GroupDraft, number: int, kind: str, low: float) -> int | None:
        """The group with this basis whose step reaches the target for a sample and wastes least, or None.

        A step that is finer than needed costs bytes with every image, a new group costs its tables once.
        """
        digest = self.archive.groups[number].meta["basis_digest"]
        alike = [
            n
            for n in self._groups()
            if self.archive.groups[n].meta["basis_digest"] == digest
            and self._kind(n) == draft.kind
            and self._peak(n) >= draft.range.peak
        ]
        best: tuple[float, int, float] | None = None  # value, group, bytes of all images
        tried = set()
        for n in alike[:MOST_TRIED]:
            coder = self.archive.coder(n)
            if coder.step in tried or (kind == "quality" and coder.tune == PSNR):
                continue
            tried.add(coder.step)
            value, size = sampled(kind, draft, coder)
            if value >= low and (best is None or value < best[0]):
                best = (value, n, size)
        if best is None:
            return None
        value, found, size = best
        waste = size * (1 - SIZE_PER_UNIT.get(kind, SIZE_PER_DB) ** (value - low))
        own = stored_bytes(self.archive.coder(found)) + GROUP_BYTES
        return found if waste <= own or len(self.archive.groups) >= MANY_GROUPS else None

    def _peak(self, number: int) -> int:
        meta = self.archive.groups[number].meta
        return int(meta.get("peak", PEAK[meta["dtype"]]))

    def _with_new_groups(self, members: Sequence[Member]) -> Iterator[Part]:
        found = Survey(grouped(members), ())
        request = replace(self.request, target=self._own_target())
        drafts, skipped, target = draft_groups(request, found, self.progress)
        request = replace(request, target=target)
        for draft in drafts:
            new = counted(len(draft.members), f"new {draft.kind} image")
            self.say(f"a basis of its own for {new}: {draft.describe()}")
        if not drafts:
            yield Part(Index.build([], []), (), (), tuple(skipped))
            return
        try:
            result = reach_target(request, drafts, skipped, found, self.say, self.progress)
        except TargetError as problem:  # of the whole archive: another cannot be asked for
            those = [member.ref.path for draft in drafts for member in draft.members]
            more = f" and {counted(len(those) - 1, 'other new image')}" if those[1:] else ""
            raise TargetError(
                f"{printable(those[0])}{more}: {str(problem).partition(';')[0]}; --exact adds them as they "
                "are, --exclude leaves them out, and another file can have another target"
            ) from None
        yield self._in_new_groups(result, target)

    def _own_target(self) -> Target:
        """What new groups aim at; a budget is about the whole file, so they take the archive's step."""
        target = self.request.target
        if target.kind not in ("max_bytes", "ratio"):
            return target
        newest = self._groups()[0]
        step = float(self.archive.groups[newest].meta["step"]) * 255 / self._peak(newest)
        return Target("step", step, target.components, relative=True, visual=target.visual)


def _renumbered(index: Index, numbers: Sequence[int]) -> Index:
    """The same index with its groups numbered as in the whole archive."""
    return replace(index, blocks={**index.blocks, "group": np.array(numbers)[index.blocks["group"]]})
