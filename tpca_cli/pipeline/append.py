"""New images into an archive that exists: what is there is copied byte for byte, never coded again.

A new image goes to the newest group that holds it without loss, with that group's basis, step and tables;
images that no group holds, and all of them with `refit`, get groups of their own. A changed file becomes a
new image and its old entry is marked as replaced. The caller holds the lock from before the archive is opened
until this returns, and the store refuses to replace any other file than the one that was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tpca_cli import store
from tpca_cli.archive import Archive, Index
from tpca_cli.errors import TpcaError, UsageError, printable
from tpca_cli.pipeline.assemble import assemble
from tpca_cli.pipeline.changes import changes, restorable_beside
from tpca_cli.pipeline.coding import GroupPlan, code_all
from tpca_cli.pipeline.encode import EncodeRequest, Say, draft_groups, reach_target
from tpca_cli.pipeline.extend import Extended, Part, extend
from tpca_cli.pipeline.groups import linked_basis
from tpca_cli.pipeline.spool import Spool, plan_digest, remove_partial, removed_unless_interrupted
from tpca_cli.pipeline.survey import Kind, Member, Progress, Survey, fitting, grouped, probe_all
from tpca_cli.rate import Target
from tpca_cli.scan import Scan, Skipped, scan


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


def append(request: AppendRequest, say: Say, progress: Progress = None) -> Appended:
    """Add what is new in the sources to the archive; the caller holds the lock."""
    asked = request.encode
    basis = None if asked.basis is None else linked_basis(asked.basis)
    with Archive(asked.output, basis=basis, ready=False) as archive:
        target = Target.from_dict(archive.target)
        if request.target is not None and request.target != target:
            raise UsageError(
                f"{printable(asked.output)} was made with the target {archive.target}: "
                "leave the target out, or encode into another file"
            )
        found = _scanned(asked)
        news = changes(archive, found.refs, asked.reading)
        members, unread = probe_all(news.to_add(request.on_change), asked.reading, progress)
        members, conflicts = restorable_beside(members, archive.names)
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


def planned(request: AppendRequest) -> dict[str, int]:
    """What an append would do, by the number of files; nothing is decoded or written."""
    with Archive(request.encode.output, ready=False) as archive:
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
    if found.skipped and request.reading.on_error == "fail":
        first = found.skipped[0]
        raise TpcaError(f"{printable(first.path)}: {first.reason} (--on-error skip would leave it out)")
    return found


@dataclass(frozen=True)
class _Work:
    """Coding the new images of one append."""

    archive: Archive
    request: EncodeRequest
    given: str  # digest of the basis on the command line, or ""
    say: Say
    progress: Progress

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
        spool = Spool(self.request.output, plan_digest(plan))
        coded = code_all(plans, self.request.reading, spool, self.progress)
        result = assemble(coded, (), spool, [each.kind.peak for each in plans], (), 0.0)
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
