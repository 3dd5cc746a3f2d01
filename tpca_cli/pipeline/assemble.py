"""Coded jobs put together: the index, the groups, the measured quality, and the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tpca_cli.archive import BlockRecord, Entry, Group, Index, pooled_error, pooled_psnr, write_archive
from tpca_cli.errors import printable
from tpca_cli.pipeline.coding import Coded
from tpca_cli.pipeline.spool import Spool
from tpca_cli.quality import decibel
from tpca_cli.rate import Target
from tpca_cli.scan import Skipped


@dataclass(frozen=True)
class Assembled:
    """Everything an archive holds, its payload still in the spool."""

    index: Index
    groups: tuple[Group, ...]
    spool: Spool
    jobs: int
    step: float
    energy: float  # of the samples, relative to the peak
    skipped: tuple[Skipped, ...]

    @property
    def payload_bytes(self) -> int:
        return int(self.index.offsets[-1])

    @property
    def psnr(self) -> float:
        return pooled_psnr(self.index)

    @property
    def energy_db(self) -> float:
        """10 log10(energy / error) over all returned samples."""
        error = pooled_error(self.index)
        return float("inf") if error <= 0 else decibel(self.energy / error)

    def payload(self) -> Iterator[bytes]:
        for job in range(self.jobs):
            kept = self.spool.get(job)
            if kept is None:
                raise RuntimeError(f"finished job {job} is gone from {printable(self.spool.folder)}")
            yield kept[1]


def assemble(
    coded: Iterable[Coded],
    groups: Sequence[Group],
    spool: Spool,
    peaks: Sequence[int],
    skipped: Sequence[Skipped],
    step: float,
) -> Assembled:
    """Number the images and blocks of all jobs in their order."""
    entries: list[Entry] = []
    blocks: list[BlockRecord] = []
    lost = list(skipped)
    energy, jobs = 0.0, 0
    for item in coded:
        blocks += [replace(block, first=len(entries) + block.first) for block in item.blocks]
        entries += item.entries
        lost += item.skipped
        if item.blocks:
            energy += item.energy / peaks[item.blocks[0].group] ** 2
        jobs += 1
    index = Index.build(entries, blocks, [(printable(item.path), item.reason) for item in lost])
    return Assembled(index, tuple(groups), spool, jobs, step, energy, tuple(lost))


def write(path: Path, result: Assembled, target: Target, *, force: bool) -> int:
    """Commit the archive; returns its size."""
    return write_archive(
        path, result.index, result.groups, result.payload(), target_asked=target.to_dict(), force=force
    )
