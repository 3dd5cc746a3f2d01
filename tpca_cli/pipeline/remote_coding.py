"""Coding on a cluster: shards of jobs go out, coded blocks come back in order, into the spool."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpca_cli.cluster import Cluster
from tpca_cli.codec.coder import Coder
from tpca_cli.pipeline.abroad import anchored, as_given, errors_as_given, meter
from tpca_cli.pipeline.blocks import Job
from tpca_cli.pipeline.coding import Coded, GroupPlan, Pixels, Task, code_job, described, kept, restored
from tpca_cli.pipeline.spool import Spool
from tpca_cli.pipeline.survey import Kind, Member, Progress, Reading
from tpca_cli.scan import Skipped

SHARD_PIXELS = 2**20  # that a worker codes as one task


@dataclass(frozen=True)
class Piece:
    """A job for a worker: its own images alone, and their group."""

    number: int
    group: int
    kind: Kind
    job: Job
    members: tuple[Member, ...]


def code_pieces(
    pieces: Sequence[Piece], coders: Sequence[tuple[dict[str, Any], dict[str, Pixels]]], reading: Reading
) -> list[Coded]:
    """The jobs of a shard, one after the other: what a worker is asked for."""
    built = {group: Coder.from_arrays(*coders[group]) for group in {piece.group for piece in pieces}}
    return [
        code_job(GroupPlan(each.kind, each.members, built[each.group]), Task(each.group, each.job), reading)
        for each in pieces
    ]


def code_on(
    cluster: Cluster,
    plans: Sequence[GroupPlan],
    tasks: Sequence[Task],
    reading: Reading,
    spool: Spool | None,
    progress: Progress,
) -> Iterator[Coded]:
    """Shards of jobs on the workers of a cluster; their results come back in order, into the spool."""
    done = meter(progress, "encoding", sum(len(plan.members) for plan in plans))
    coders = cluster.share([(plan.coder.meta, plan.coder.to_arrays()) for plan in plans])
    waiting: deque[tuple[range, list[Piece]]] = deque()

    def shards() -> Iterator[list[Piece]]:
        for run in _runs(plans, tasks):
            missing = [
                _piece(plans, number, tasks[number])
                for number in run
                if kept(spool, number, plans[tasks[number].group], tasks[number].job) is None
            ]
            if done is not None:
                done(sum(tasks[n].job.count for n in run) - sum(len(piece.members) for piece in missing))
            waiting.append((run, missing))
            yield missing

    results = cluster.map(
        code_pieces,
        shards(),
        coders,
        reading.on_worker,
        weigh=lambda pieces: sum(len(piece.members) for piece in pieces),
        done=done,
    )
    with errors_as_given([member.ref for plan in plans for member in plan.members[:1]]):
        for result in results:
            run, missing = waiting.popleft()
            fresh = {piece.number: coded for piece, coded in zip(missing, result, strict=True)}
            for number in run:
                if number not in fresh:
                    yield _again(spool, number)
                    continue
                coded = _named_as_given(fresh[number], plans[tasks[number].group], tasks[number].job)
                if spool:
                    spool.put(number, described(coded), coded.data)
                yield coded


def _again(spool: Spool | None, number: int) -> Coded:
    found = spool.get(number) if spool else None
    if found is None:
        raise RuntimeError(f"finished job {number} is gone")
    return restored(*found)


def _runs(plans: Sequence[GroupPlan], tasks: Sequence[Task]) -> Iterator[range]:
    """Neighboring jobs of about SHARD_PIXELS together."""
    first, pixels = 0, 0
    for number, task in enumerate(tasks):
        members = plans[task.group].members[task.job.first : task.job.first + task.job.count]
        pixels += sum(member.height * member.width for member in members)
        if pixels >= SHARD_PIXELS or number + 1 == len(tasks):
            yield range(first, number + 1)
            first, pixels = number + 1, 0


def _piece(plans: Sequence[GroupPlan], number: int, task: Task) -> Piece:
    plan, job = plans[task.group], task.job
    members = tuple(
        replace(member, ref=anchored(member.ref))
        for member in plan.members[job.first : job.first + job.count]
    )
    return Piece(number, task.group, plan.kind, replace(job, first=0), members)


def _named_as_given(coded: Coded, plan: GroupPlan, job: Job) -> Coded:
    if not coded.skipped:
        return coded
    refs = [member.ref for member in plan.members[job.first : job.first + job.count]]
    given = {anchored(ref).path: ref for ref in refs}
    skipped = [(given[item.path], item.reason) for item in coded.skipped]
    return replace(coded, skipped=tuple(Skipped(ref.path, as_given(ref, why)) for ref, why in skipped))
