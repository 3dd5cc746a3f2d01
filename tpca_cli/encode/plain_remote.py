"""Projecting on a cluster: runs of images go out, rows come back in order, into the checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.checkpoint import Checkpoint
from tpca_cli.cluster.cluster import Cluster
from tpca_cli.cluster.paths import anchored, as_given, errors_as_given, meter
from tpca_cli.encode.plain import PlainPlan, Projected, keep, kept, project_run
from tpca_cli.framing import Framing
from tpca_cli.interfaces import Progress
from tpca_cli.sources.probe import Member
from tpca_cli.sources.read_plan import Reading
from tpca_cli.sources.scan import Skipped
from tpca_cli.tensor_pca.basis import from_arrays


@dataclass(frozen=True)
class SharedBasis:
    """What every run needs; it travels to each worker once."""

    method: str
    arrays: dict[str, npt.NDArray[np.generic]]
    framing: Framing
    samples: str
    dtype: str

    def plan(self, members: tuple[Member, ...]) -> PlainPlan:
        """These images with the basis."""
        basis = from_arrays(self.method, self.arrays)
        return PlainPlan(members, self.framing, basis, self.samples, self.dtype)


def project_members(members: tuple[Member, ...], shared: SharedBasis, reading: Reading) -> Projected:
    """The rows of a run: what a worker is asked for."""
    if not members:
        return Projected((), b"", ())
    return project_run(shared.plan(members), range(len(members)), reading)


def project_on(
    cluster: Cluster,
    plan: PlainPlan,
    reading: Reading,
    checkpoint: Checkpoint,
    progress: Progress | None,
) -> Iterator[Projected]:
    """The results of all runs, in order, by the workers of a cluster."""
    basis = plan.basis
    shared: Any = cluster.share(
        SharedBasis(basis.method, basis.to_arrays(), plan.framing, plan.samples, plan.dtype)
    )
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
            yield found or keep(checkpoint, number, _named_as_given(result, plan, run))


def _named_as_given(result: Projected, plan: PlainPlan, run: range) -> Projected:
    given = {anchored(member.ref).path: member.ref for member in plan.members[run.start : run.stop]}
    skipped = [(given[item.path], item.reason) for item in result.skipped]
    return replace(result, skipped=tuple(Skipped(ref.path, as_given(ref, why)) for ref, why in skipped))
