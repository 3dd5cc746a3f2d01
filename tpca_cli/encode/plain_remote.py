"""Projecting on a cluster: runs of images or tensors go out, rows come back in order, into the checkpoint."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tpca_cli.checkpoint import Checkpoint
from tpca_cli.cluster.cluster import Cluster
from tpca_cli.cluster.paths import anchored, as_given, errors_as_given, meter
from tpca_cli.encode.plain import PlainPlan, Projected, keep, kept, project_run
from tpca_cli.encode.plain_items import ItemsPlan, Keep, project_items
from tpca_cli.interfaces import Progress
from tpca_cli.sources.items import ItemRef
from tpca_cli.sources.probe import Member
from tpca_cli.sources.read_plan import Reading
from tpca_cli.sources.scan import Skipped


def project_members(members: tuple[Member, ...], shared: PlainPlan, reading: Reading) -> Projected:
    """The rows of a run: what a worker is asked for. The plan without its images travels to each once."""
    if not members:
        return Projected((), b"", ())
    return project_run(replace(shared, members=members), range(len(members)), reading)


def project_on(
    cluster: Cluster,
    plan: PlainPlan,
    reading: Reading,
    checkpoint: Checkpoint,
    progress: Progress | None,
) -> Iterator[Projected]:
    """The results of all runs, in order, by the workers of a cluster."""
    shared: Any = cluster.share(replace(plan, members=()))
    done = meter(progress, "projecting", len(plan.members))
    waiting: deque[tuple[int, range, Projected | None]] = deque()

    def runs() -> Iterator[tuple[Member, ...]]:
        for number, run in enumerate(plan.runs()):
            found = kept(checkpoint, number, plan, run)
            waiting.append((number, run, found))
            if found is not None and done is not None:
                done(len(run))
            members = () if found is not None else plan.members[run.start : run.stop]
            yield tuple(replace(member, ref=anchored(member.ref)) for member in members)

    results = cluster.map(project_members, runs(), shared, replace(reading, workers=1), weigh=len, done=done)
    with errors_as_given([member.ref for member in plan.members[:1]]):
        for result in results:
            number, run, found = waiting.popleft()
            if found is None:
                result = _named_as_given(result, plan, run)
                keep(checkpoint, number, result)
            yield found or replace(result, data=None)


def project_items_on(
    cluster: Cluster, plan: ItemsPlan, parts: Iterable[Sequence[ItemRef]], keep: Keep
) -> Iterator[bytes]:
    """The rows of tensors, product by product, by the workers of a cluster."""
    first: list[ItemRef] = []

    def anchored_parts() -> Iterator[tuple[ItemRef, ...]]:
        for refs in parts:
            if refs and not first:
                first.append(refs[0])
                some = anchored(refs[0])
                path = os.path.join(some.path, *some.slices[:1])
                cluster.check_sees(path, os.stat(path).st_size)
            yield tuple(map(anchored, refs))

    results = cluster.map(project_items, anchored_parts(), cluster.share(plan))
    with errors_as_given(first):
        for number, data in enumerate(results):
            keep(number, data)
            yield data


def _named_as_given(result: Projected, plan: PlainPlan, run: range) -> Projected:
    given = {anchored(member.ref).path: member.ref for member in plan.members[run.start : run.stop]}
    skipped = [(given[item.path], item.reason) for item in result.skipped]
    return replace(result, skipped=tuple(Skipped(ref.path, as_given(ref, why)) for ref, why in skipped))
