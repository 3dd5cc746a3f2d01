"""From a folder to an archive: survey, design, rate, coding, writing.

The order of the stages is here and nowhere else; each stage is a module that does not know the others. One
relative step serves all groups (scaled by their range), so that a target is one search in one variable:
first on the samples, in memory, then confirmed by coding everything and measuring what came out.

The range of 16-bit values is first taken from a sample of the images. Coding sees them all: if a value is
larger than the range, the range grows and the search goes on, so that what is stored follows from all images.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tpca_cli import store
from tpca_cli.archive.facts import Contents, archive_facts, pooled_psnr, quality_facts
from tpca_cli.archive.format import CHANNELS
from tpca_cli.archive.index import BlockRecord, Entry, Index
from tpca_cli.archive.packing import check_components
from tpca_cli.archive.writer import Group, write_archive
from tpca_cli.checkpoint import Checkpoint, check_partial, removed_unless_interrupted
from tpca_cli.encode.choose_basis import GroupDraft, draft_fitted, draft_given
from tpca_cli.encode.code_blocks import Coded, GroupPlan, coding_digest
from tpca_cli.encode.default_target import target_for, target_with
from tpca_cli.encode.estimate import sample_value, truncation_step
from tpca_cli.encode.workers import LOCAL, Workers
from tpca_cli.errors import TargetError, UsageError, counted, human, printable
from tpca_cli.interfaces import Progress, Say
from tpca_cli.quality import decibel, loses_detail, peak_of, psnr
from tpca_cli.rate import EXACT_STEP, Range, StepSearch, Target, first_step
from tpca_cli.sources.probe import Survey, nothing_usable, require_images, restorable, survey
from tpca_cli.sources.read_plan import Reading
from tpca_cli.sources.scan import NOTHING_IGNORED, Ignored, Skipped

FINEST, COARSEST = 1 / 64, 2000.0
MAX_PASSES = 8
MAX_SAMPLE_STEPS = 16
FAR_DB = 1.0  # a result this far from what was asked for is worth a warning


@dataclass(frozen=True)
class EncodeRequest:
    """Everything that decides the bytes of an archive."""

    sources: Sequence[str]
    output: Path
    target: Target
    reading: Reading
    basis: Path | None = None
    link_basis: bool = False
    method: str = "auto"
    tile: int | None = None
    force: bool = False
    workers: Workers = LOCAL
    full_range: bool = False  # as archives of version 1 have it: 16-bit samples count up to 65535


def encode(request: EncodeRequest, say: Say, progress: Progress | None = None) -> Assembled:
    """Compress the sources into `request.output`; the caller holds the lock."""
    store.check_output(request.output, request.force)
    check_partial(request.output)
    found = survey(request.sources, request.reading, progress, request.workers.probe)
    found = restorable(found)
    require_images(found, request.sources)
    drafts, skipped, target = draft_groups(request, found, progress)
    request = replace(request, target=target)
    if target.detail:
        aim = f"a quality of {target.value:g}" if target.kind == "quality" else f"{target.value:g} dB"
        say(f"no target given: aiming at {aim} (--quality, --psnr, --max-bytes, .. choose another)")
    for draft in drafts:
        say(f"{counted(len(draft.members), f'{draft.kind} image')}: {draft.describe()}")
    skipped = [*found.skipped, *skipped]
    with removed_unless_interrupted(request.output):
        result = reach_target(request, drafts, skipped, found, say, progress)
        if not len(result.index):  # their headers were good, their pixels are not
            raise nothing_usable(request.sources, result.skipped, found.ignored)
        _refuse_growth(request, result, found)
        written = write_assembled(request.output, result, request.target, force=request.force)
    return replace(result, ignored=found.ignored, facts=archive_facts(written))


def draft_groups(
    request: EncodeRequest, found: Survey, progress: Progress | None = None
) -> tuple[list[GroupDraft], list[Skipped], Target]:
    """The groups with their bases, the given one or one fitted to each kind of image; their target."""
    request = replace(request, target=target_for(request.target, found, request.method, request.basis))
    drafts, skipped = _drafted(request, found, progress)
    return drafts, skipped, target_with(request.target, drafts)


def _drafted(
    request: EncodeRequest, found: Survey, progress: Progress | None
) -> tuple[list[GroupDraft], list[Skipped]]:
    if request.basis is not None:
        drafts, skipped = draft_given(
            request.basis, found, request.reading, request.target, link=request.link_basis
        )
        return _ranged(drafts, request), skipped
    if request.link_basis:
        raise UsageError("--link-basis needs --basis: there is no other file that would hold the basis")
    step = _starting_step(request.target)
    drafts, skipped = [], []
    for kind, members in found.groups.items():
        draft, lost = draft_fitted(
            kind,
            members,
            request.reading,
            request.method,
            request.tile,
            request.target,
            step,
            request.workers.fit,
            progress,
        )
        skipped += lost
        if draft is not None:
            asked = request.target.components or draft.basis.components
            check_components(draft.framing, min(asked, draft.basis.components))
            drafts.append(draft)
    return _ranged(drafts, request), skipped


def _ranged(drafts: list[GroupDraft], request: EncodeRequest) -> list[GroupDraft]:
    """The same with the widest range, if the archive knows no other."""
    for draft in drafts:
        if request.full_range:
            draft.range = replace(draft.range, peak=draft.kind.peak)
            draft.weights = None  # a coded basis is beyond version 1
    return drafts


def _starting_step(target: Target, reference: float = 255.0) -> float:
    if target.kind == "step":
        return target.value
    # near exactness all steps below a certain one give the same pixels
    guess = {"psnr": target.value, "quality": 21 + 0.2 * target.value}.get(target.kind, 34.0)  # in dB
    step = first_step(guess, 255)
    return max(step, EXACT_STEP * 255 / reference)


def reach_target(
    request: EncodeRequest,
    drafts: list[GroupDraft],
    skipped: list[Skipped],
    found: Survey,
    say: Say,
    progress: Progress | None,
) -> Assembled:
    """Code everything at a step that keeps the promise of the target."""
    target = request.target
    if target.kind in ("step", "components"):
        step = target.value if target.kind == "step" else truncation_step(drafts, int(target.value))
        result = _code_at(step, request, drafts, skipped, progress)
        if _grown(drafts, result):
            result = _code_at(step, request, drafts, skipped, progress)
        return replace(result, tried=(Tried(step, result.psnr, result.payload_bytes),))

    reference = max((draft.range.reference for draft in drafts), default=255.0)
    interval = target.interval(found.raw_bytes, math.inf if request.force else found.source_bytes, reference)
    finest = FINEST * min(1.0, 255 / reference)
    search = StepSearch(interval, _starting_step(target, reference), finest, COARSEST)
    _search_on_samples(search, target, drafts, progress, quick=True)
    search = StepSearch(interval, search.step, finest, COARSEST, search.local_slope)
    _search_on_samples(search, target, drafts, progress)
    # the samples found the neighborhood; from here on only what was really coded counts
    search = StepSearch(interval, search.step, finest, COARSEST, search.local_slope)
    best: tuple[float, Assembled] | None = None
    tried: list[Tried] = []
    for _ in range(MAX_PASSES):
        result = _code_at(search.step, request, drafts, skipped, progress)
        if _grown(drafts, result):
            say("some samples are larger than those of the sample: beginning anew with their range")
            search = StepSearch(interval, search.step, finest, COARSEST, search.local_slope)
            best = None
            continue
        value = _measured(target, result)
        tried.append(Tried(result.step, result.psnr, result.payload_bytes))
        if interval.keeps_promise(value) and (best is None or interval.miss(value) < best[0]):
            best = (interval.miss(value), result)
        if search.record(value):
            break
        say(f"step {result.step:.3f} gave {_shown(target, result, value)}: trying {search.step:.3f}")
    if best is None:
        raise TargetError(_unreachable(target, result, value))
    missed = ""
    if best[0] > 0:
        reached = best[1].psnr
        say(f"the closest that these images allow is {_shown(target, best[1], _measured(target, best[1]))}")
        if best[0] > FAR_DB and target.kind != "quality" and not interval.ceiling and math.isfinite(reached):
            word = "aimed at" if target.detail else "asked for"
            missed = f"{target.kind} {target.value:g} was {word}; no step comes closer than {reached:.2f} dB"
    return replace(best[1], tried=tuple(tried), missed=missed)


def _grown(drafts: Sequence[GroupDraft], result: Assembled) -> bool:
    """Whether a sample of a group is beyond its range, which then grows."""
    grown = False
    for draft, largest in zip(drafts, result.largest, strict=True):
        if largest > draft.range.peak:
            draft.range = replace(draft.range, peak=peak_of(largest, draft.kind.dtype))
            draft.forget_coders()
            grown = True
    return grown


def _search_on_samples(
    search: StepSearch,
    target: Target,
    drafts: list[GroupDraft],
    progress: Progress | None,
    *,
    quick: bool = False,
) -> None:
    for tried in range(MAX_SAMPLE_STEPS):
        if progress:
            progress("searching the step", tried, MAX_SAMPLE_STEPS)
        value = sample_value(target.kind, drafts, search.step, target.components, quick=quick)
        if search.record(value) or search.near(value):
            break
    if not quick:
        search.settle(value)
    if progress:
        progress("searching the step", MAX_SAMPLE_STEPS, MAX_SAMPLE_STEPS)


def _code_at(
    step: float,
    request: EncodeRequest,
    drafts: list[GroupDraft],
    skipped: list[Skipped],
    progress: Progress | None,
) -> Assembled:
    plans = [
        GroupPlan(draft.kind, draft.members, draft.coder(step, request.target.components)) for draft in drafts
    ]
    checkpoint = Checkpoint(request.output, coding_digest(plans, request.reading))
    groups = [
        Group.of(plan.coder, draft.method, link=draft.link, peak=draft.range.peak)
        for plan, draft in zip(plans, drafts, strict=True)
    ]
    coded = request.workers.code(plans, request.reading, checkpoint, progress)
    return assemble(coded, groups, checkpoint, [draft.range for draft in drafts], skipped, step)


def _measured(target: Target, result: Assembled) -> float:
    if target.kind not in ("max_bytes", "ratio"):
        return result.value(target.kind)
    # a budget is about the file itself: write it where only this run looks, and see
    probe = result.checkpoint.root / "candidate.h5"
    size = write_assembled(probe, result, target, force=True).size
    probe.unlink()
    return decibel(size)


def _shown(target: Target, result: Assembled, value: float) -> str:
    if target.kind in ("max_bytes", "ratio"):
        return f"{10 ** (value / 10):.0f} bytes"
    return f"a quality of {value:.2f}" if target.kind == "quality" else f"{result.quality:.3f} dB"


def _unreachable(target: Target, result: Assembled, value: float) -> str:
    if target.kind in ("max_bytes", "ratio"):
        return (
            f"{target.kind} {target.value:g} cannot be kept: the coarsest step still takes "
            f"{10 ** (value / 10):.0f} bytes; allow at least that many"
        )
    cap = "" if target.components is None else f" with {target.components} components"
    best = _shown(target, result, value) if target.kind == "quality" else f"{result.psnr:.2f} dB"
    return (
        f"{target.kind} {target.value:g} cannot be reached{cap}: the finest step gives {best}; "
        "ask for less or allow more components"
    )


def _refuse_growth(request: EncodeRequest, result: Assembled, found: Survey) -> None:
    """An archive larger than its sources is rarely what somebody wants: say so before it is written."""
    size = result.payload_bytes
    if size > found.source_bytes and not request.force:
        raise TargetError(
            f"the archive would take {human(size)}, more than the {human(found.source_bytes)} of the files: "
            "ask for a lower quality, or add --force"
        )


def plan_encoding(request: EncodeRequest, progress: Progress | None = None) -> dict[str, Any]:
    """What a run would do, from the headers and a sample: nothing is written."""
    found = restorable(survey(request.sources, request.reading, progress, request.workers.probe))
    require_images(found, request.sources)
    asked = target_for(request.target, found, request.method, request.basis)
    return {
        "images": found.count,
        "groups": {str(kind): len(members) for kind, members in found.groups.items()},
        "raw_bytes": found.raw_bytes,
        "source_bytes": found.source_bytes,
        "skipped": len(found.skipped),
        **found.ignored.to_dict(),
        "target": asked.to_dict(),
        "workers": request.reading.workers,
    }


@dataclass(frozen=True)
class Tried:
    """A step that all images were coded with, and what came out; steps count for samples up to 255."""

    step: float
    psnr: float
    payload_bytes: int


@dataclass(frozen=True)
class LowQuality:
    """An image whose error is a large share of its variance."""

    name: bytes
    share: float
    psnr: float


@dataclass(frozen=True)
class Assembled:
    """Everything an archive holds, its payload still in the checkpoint."""

    index: Index
    groups: tuple[Group, ...]
    checkpoint: Checkpoint
    jobs: int
    step: float
    energy: float  # of the samples, relative to the reference of their range
    quality: float  # PSNR, counted from the reference
    skipped: tuple[Skipped, ...]
    largest: tuple[int, ...] = ()  # sample of each group
    low_quality: tuple[LowQuality, ...] = ()
    tried: tuple[Tried, ...] = ()
    missed: str = ""  # what to say when the result is far from what was asked for
    ignored: Ignored = NOTHING_IGNORED
    raw: tuple[Skipped, ...] = ()  # files that are kept as they are, and why they cannot be more
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the archive, once it is written

    @property
    def payload_bytes(self) -> int:
        """The bytes of all coded blocks."""
        return int(self.index.offsets[-1])

    @property
    def psnr(self) -> float:
        """The PSNR over all returned samples."""
        return pooled_psnr(self.index)

    @property
    def seen(self) -> float:
        """The mean SSIMULACRA 2 of all images."""
        found = quality_facts(self.index)["quality"]
        return math.nan if found is None else float(found)

    @property
    def energy_db(self) -> float:
        """10 log10(energy / error) over all returned samples."""
        samples = float(self.index.samples().sum())
        return self.quality + decibel(self.energy / max(samples, 1.0))

    def value(self, kind: str) -> float:
        """What a target of this kind measures; a PSNR counts from the reference."""
        if kind == "quality":
            return self.seen
        return self.energy_db if kind == "energy" else self.quality

    def payload(self) -> Iterator[bytes]:
        """The coded blocks, one after another."""
        for job in range(self.jobs):
            kept = self.checkpoint.get(job)
            if kept is None:
                raise RuntimeError(f"finished job {job} is gone from {printable(self.checkpoint.folder)}")
            yield kept[1]


def assemble(
    coded: Iterable[Coded],
    groups: Sequence[Group],
    checkpoint: Checkpoint,
    ranges: Sequence[Range],
    skipped: Sequence[Skipped],
    step: float,
) -> Assembled:
    """Number the images and blocks of all jobs in their order."""
    entries: list[Entry] = []
    blocks: list[BlockRecord] = []
    low: list[LowQuality] = []
    raw: list[Skipped] = []
    lost = list(skipped)
    largest = [0] * len(ranges)
    energy, error, samples, jobs = 0.0, 0.0, 0, 0
    for item in coded:
        blocks += [replace(block, first=len(entries) + block.first) for block in item.blocks]
        lost += item.skipped
        raw += item.raw
        jobs += 1
        if not item.blocks:
            continue
        group = item.blocks[0].group
        scope = ranges[group]
        largest[group] = max(largest[group], item.largest)
        energy += item.energy / scope.reference**2
        for entry, deviation in zip(item.entries, item.deviations, strict=True):
            entries.append(replace(entry, peak=scope.peak))
            count = entry.height * entry.width * CHANNELS[entry.mode]
            samples += count
            error += entry.error / scope.reference**2
            if loses_detail(entry.error, count, deviation):
                share = entry.error / deviation if deviation else math.inf
                low.append(LowQuality(entry.name, share, psnr(entry.error, count, scope.peak)))
    index = Index.build(entries, blocks, [(printable(item.path), item.reason) for item in lost])
    return Assembled(
        index,
        tuple(groups),
        checkpoint,
        jobs,
        step,
        energy,
        psnr(error, samples),
        tuple(lost),
        tuple(largest),
        tuple(low),
        raw=tuple(raw),
    )


def write_assembled(path: Path, result: Assembled, target: Target, *, force: bool) -> Contents:
    """Commit the archive; what the file then holds."""
    return write_archive(
        path, result.index, result.groups, result.payload(), target_asked=target.to_dict(), force=force
    )
