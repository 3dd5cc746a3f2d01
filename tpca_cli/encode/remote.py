"""Coding on a cluster: shards of jobs go out, coded blocks come back in order, into the checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, TypeAlias

from tpca_cli.archive.packing import Job
from tpca_cli.checkpoint import Checkpoint
from tpca_cli.cluster.cluster import Cluster
from tpca_cli.cluster.connect import ASKED_BYTES, PROCESS, cluster_threads
from tpca_cli.cluster.paths import anchored, as_given, errors_as_given, meter, probes, shards_of
from tpca_cli.codec.basis_coding import arrays_of, coder_from_arrays, meta_of
from tpca_cli.encode.code_blocks import Coded, GroupPlan, Plan, Task, described, kept, restored, tasks_of
from tpca_cli.encode.exact_blocks import ExactPlan
from tpca_cli.encode.fit_design import Design, FittedGroup, design_operator, solve_design
from tpca_cli.encode.workers import Workers
from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.interfaces import Pixels, Progress
from tpca_cli.sources.probe import Kind, Member, probe_shard_members, sort_probed
from tpca_cli.sources.read import read_member
from tpca_cli.sources.read_plan import Reading, skip_or_fail
from tpca_cli.sources.scan import ImageRef, Skipped
from tpca_cli.tensor_pca.solve import add_state, add_states, state_of

SHARD_PIXELS = 2**20  # that a worker codes as one task


def cluster_workers(cluster: Cluster) -> Workers:
    """The passes of an encoding on the workers of a cluster."""

    def probe(
        refs: Sequence[ImageRef], reading: Reading, progress: Progress | None
    ) -> tuple[list[Member], list[Skipped]]:
        return sort_probed(probe_members_on(cluster, refs, reading), len(refs), progress)

    return Workers(probe, partial(fit_group_on, cluster), partial(code_on, cluster))


def _on_worker(reading: Reading) -> Reading:
    """The same for a worker of the cluster, which has one thread for it."""
    return replace(reading, workers=1)


@dataclass(frozen=True)
class Piece:
    """A job for a worker: its own images alone, and their group."""

    number: int
    group: int
    job: Job
    members: tuple[Member, ...]


Shared: TypeAlias = "tuple[Kind, dict[str, Any], dict[str, Pixels]] | ExactPlan"
"""A group without its images, in a form that travels."""


def _shared(plan: Plan) -> Shared:
    if isinstance(plan, ExactPlan):
        return replace(plan, members=())
    assert isinstance(plan, GroupPlan)
    return plan.kind, meta_of(plan.coder), arrays_of(plan.coder)


def _revived(shared: Shared) -> GroupPlan | ExactPlan:
    if isinstance(shared, ExactPlan):
        return shared
    kind, meta, arrays = shared
    return GroupPlan(kind, (), coder_from_arrays(meta, arrays))


def code_pieces(pieces: Sequence[Piece], groups: Sequence[Shared], reading: Reading) -> list[Coded]:
    """The jobs of a shard, one after the other: what a worker is asked for."""
    built = {group: _revived(groups[group]) for group in {piece.group for piece in pieces}}
    return [
        replace(built[each.group], members=each.members).code(Task(each.group, each.job), reading)
        for each in pieces
    ]


def code_on(
    cluster: Cluster,
    plans: Sequence[Plan],
    reading: Reading,
    checkpoint: Checkpoint | None,
    progress: Progress | None,
) -> Iterator[Coded]:
    """Shards of jobs on the workers of a cluster; their results come back in order, into the checkpoint."""
    tasks = tasks_of(plans)
    done = meter(progress, "encoding", sum(task.job.count for task in tasks))
    groups = cluster.share([_shared(plan) for plan in plans])
    waiting: deque[tuple[range, list[Piece]]] = deque()

    def shards() -> Iterator[list[Piece]]:
        for run in _runs(plans, tasks):
            missing = [
                _piece(plans, number, tasks[number])
                for number in run
                if kept(checkpoint, number, plans[tasks[number].group], tasks[number].job) is None
            ]
            if done is not None:
                done(sum(tasks[n].job.count for n in run) - sum(len(piece.members) for piece in missing))
            waiting.append((run, missing))
            yield missing

    results = cluster.map(
        code_pieces,
        shards(),
        groups,
        _on_worker(reading),
        weigh=lambda pieces: sum(len(piece.members) for piece in pieces),
        done=done,
    )
    with errors_as_given([member.ref for plan in plans for member in plan.members[:1]]):
        for result in results:
            run, missing = waiting.popleft()
            fresh = {piece.number: coded for piece, coded in zip(missing, result, strict=True)}
            for number in run:
                if number not in fresh:
                    yield _again(checkpoint, number)
                    continue
                coded = _named_as_given(fresh[number], plans[tasks[number].group], tasks[number].job)
                if checkpoint:
                    checkpoint.put(number, described(coded), coded.data)
                yield coded


def _again(checkpoint: Checkpoint | None, number: int) -> Coded:
    found = checkpoint.get(number) if checkpoint else None
    if found is None:
        raise RuntimeError(f"finished job {number} is gone")
    return restored(*found)


def _runs(plans: Sequence[Plan], tasks: Sequence[Task]) -> Iterator[range]:
    """Neighboring jobs of about SHARD_PIXELS together."""
    first, pixels = 0, 0
    for number, task in enumerate(tasks):
        members = plans[task.group].members[task.job.first : task.job.first + task.job.count]
        pixels += sum(member.height * member.width for member in members)
        if pixels >= SHARD_PIXELS or number + 1 == len(tasks):
            yield range(first, number + 1)
            first, pixels = number + 1, 0


def _piece(plans: Sequence[Plan], number: int, task: Task) -> Piece:
    plan, job = plans[task.group], task.job
    members = tuple(
        replace(member, ref=anchored(member.ref))
        for member in plan.members[job.first : job.first + job.count]
    )
    return Piece(number, task.group, replace(job, first=0), members)


def _named_as_given(coded: Coded, plan: Plan, job: Job) -> Coded:
    if not (coded.skipped or coded.raw):
        return coded
    refs = [member.ref for member in plan.members[job.first : job.first + job.count]]
    given = {anchored(ref).path: ref for ref in refs}

    def renamed(items: Sequence[Skipped]) -> tuple[Skipped, ...]:
        known = [(given[item.path], item.reason) for item in items]
        return tuple(Skipped(ref.path, as_given(ref, why)) for ref, why in known)

    return replace(coded, skipped=renamed(coded.skipped), raw=renamed(coded.raw))


@dataclass(frozen=True)
class FitPart:
    """Some images of a group on a worker, or what they came to."""

    first: int
    members: tuple[Member, ...] = ()
    state: tuple[Any, ...] = ()
    skipped: tuple[tuple[int, Skipped], ...] = ()


def fit_part(part: FitPart, design: Design, kind: Kind, reading: Reading) -> FitPart:
    """The operator of some images, and which of them could not be read."""
    total = design_operator(design, kind)
    skipped = []
    for position, member in enumerate(part.members, part.first):
        try:
            total.add(design.framing.split(read_member(member, kind.channels, reading).pixels))
        except (ImageRefused, StorageError) as error:
            skipped.append((position, skip_or_fail(member.ref.path, error, reading.on_error)))
    return FitPart(part.first, (), state_of(total), tuple(skipped))


def add_parts(one: FitPart, other: FitPart) -> FitPart:
    """Two neighboring parts as one."""
    return FitPart(one.first, (), add_states(one.state, other.state), one.skipped + other.skipped)


def fit_group_on(
    cluster: Cluster,
    design: Design,
    members: Sequence[Member],
    kind: Kind,
    reading: Reading,
    progress: Progress | None,
) -> FittedGroup:
    """The basis of all images of a group, from sums of operators that the workers added up."""
    total = design_operator(design, kind)
    counts = [design.framing.count(member.height, member.width) for member in members]
    shards = shards_of(counts, design.framing.frame_shape, kind.dtype, cluster.threads, design.method)
    parts = (
        FitPart(shard.start, tuple(replace(m, ref=anchored(m.ref)) for m in members[shard]))
        for shard in shards
    )
    with errors_as_given([member.ref for member in members[:1]]):
        result = cluster.reduce(
            fit_part,
            add_parts,
            parts,
            design,
            kind,
            _on_worker(reading),
            weigh=lambda part: len(part.members),
            done=meter(progress, "fitting the basis", len(members)),
        )
    add_state(total, result.state)
    lost = {i: Skipped(members[i].ref.path, as_given(members[i].ref, s.reason)) for i, s in result.skipped}
    return (
        solve_design(design, total),
        [m for i, m in enumerate(members) if i not in lost],
        list(lost.values()),
    )


def probe_members_on(
    cluster: Cluster, refs: Sequence[ImageRef], reading: Reading
) -> Iterator[Member | Skipped]:
    """The headers of all files, in order, read by the workers."""
    if refs:
        cluster.check_sees(anchored(refs[0]).path, refs[0].size)
    size = probes(len(refs), cluster.threads)
    shards = ([anchored(ref) for ref in refs[at : at + size]] for at in range(0, len(refs), size))
    with errors_as_given(refs):
        results = (
            item for some in cluster.map(probe_shard_members, shards, _on_worker(reading)) for item in some
        )
        for ref, item in zip(refs, results, strict=True):
            if isinstance(item, Member):
                yield replace(item, ref=ref)
            else:
                yield Skipped(ref.path, as_given(ref, item.reason))


CODING = 160 << 20  # a block of pixels with all its coefficients


def encode_cluster_costs(facts: Mapping[str, Any], address: str) -> dict[str, Any]:
    """An encoding with the facts of its plan: one pass over all images; a target may need several."""
    threads = cluster_threads(address)
    images = int(facts["images"])
    return {
        "cluster_threads": threads,
        "cluster_shards": min(images, ceil(int(facts["raw_bytes"]) / 3 / SHARD_PIXELS)),
        "cluster_bytes_to_workers": ASKED_BYTES * images,
        "cluster_bytes_to_client": int(facts["source_bytes"]),  # an archive is smaller than its sources
        "cluster_memory_per_worker": PROCESS + CODING,
    }
