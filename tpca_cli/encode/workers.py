"""Who does the work of an encoding: processes of this machine, or the workers of a cluster.

The flow asks for three passes over source files and does not know where they are made; the results are the
same to the bit. `LOCAL` makes them here, `remote.cluster_workers` on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tpca_cli.encode.code_blocks import Coded, code_all
from tpca_cli.encode.fit_design import FittedGroup, fit_group
from tpca_cli.sources.probe import Probe, probe_members


@dataclass(frozen=True)
class Workers:
    """The three passes over source files that an encoding may make."""

    probe: Probe  # the headers of all files, in order
    fit: Callable[..., FittedGroup]  # as `fit_group`: the basis of all images of a group
    code: Callable[..., Iterator[Coded]]  # as `code_all`: the blocks of all groups, in order


LOCAL = Workers(probe_members, fit_group, code_all)
