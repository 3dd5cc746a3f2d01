"""Who does the work of an encoding: processes of this machine, or the workers of a cluster.

`Workers` is all that the flow asks for; `LocalWorkers` does it here, `ClusterWorkers` on a cluster. The
results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tpca_cli.checkpoint import Checkpoint
from tpca_cli.encode.choose_basis import Design, FittedGroup, fit_group
from tpca_cli.encode.code_blocks import Coded, GroupPlan, code_all
from tpca_cli.interfaces import Progress
from tpca_cli.sources.probe import Kind, Member, probe_members
from tpca_cli.sources.read_plan import Reading
from tpca_cli.sources.scan import ImageRef, Skipped


class Workers(Protocol):
    """The three passes over source files that an encoding may make."""

    def probe(
        self, refs: Sequence[ImageRef], reading: Reading, progress: Progress | None = None
    ) -> tuple[list[Member], list[Skipped]]:
        """The headers of all files, in order."""
        ...

    def fit(
        self,
        design: Design,
        members: Sequence[Member],
        kind: Kind,
        reading: Reading,
        progress: Progress | None = None,
    ) -> FittedGroup:
        """The basis of all images of a group."""
        ...

    def code(
        self,
        plans: Sequence[GroupPlan],
        reading: Reading,
        checkpoint: Checkpoint | None,
        progress: Progress | None = None,
    ) -> Iterator[Coded]:
        """The blocks of all groups, in order."""
        ...


class LocalWorkers:
    """Processes and threads of this machine, as many as `Reading.workers` says."""

    def probe(
        self, refs: Sequence[ImageRef], reading: Reading, progress: Progress | None = None
    ) -> tuple[list[Member], list[Skipped]]:
        """The headers of all files, in order."""
        return probe_members(refs, reading, progress)

    def fit(
        self,
        design: Design,
        members: Sequence[Member],
        kind: Kind,
        reading: Reading,
        progress: Progress | None = None,
    ) -> FittedGroup:
        """The basis of all images of a group."""
        return fit_group(design, members, kind, reading, progress)

    def code(
        self,
        plans: Sequence[GroupPlan],
        reading: Reading,
        checkpoint: Checkpoint | None,
        progress: Progress | None = None,
    ) -> Iterator[Coded]:
        """The blocks of all groups, in order."""
        return code_all(plans, reading, checkpoint, progress)
