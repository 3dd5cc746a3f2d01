"""From a folder to an archive: survey, design, rate, coding, writing.

The order of the stages is here and nowhere else; each stage is a module that does not know the others. One
relative step serves all groups (scaled by their range), so that a target is one search in one variable:
first on the samples, in memory, then confirmed by coding everything and measuring what came out.

The range of 16-bit values is first taken from a sample of the images. Coding sees them all: if a value is
larger than the range, the range grows and the search goes on, so that what is stored follows from all images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpca_cli import store
from tpca_cli.archive.facts import archive_facts, raw_bytes
from tpca_cli.archive.packing import check_components
from tpca_cli.archive.writer import Group
from tpca_cli.checkpoint import check_partial, removed_unless_interrupted
from tpca_cli.codec.contexts import CODINGS, PREDICTORS
from tpca_cli.encode.assemble import Assembled, Tried, assemble, mend, share_for, write_assembled
from tpca_cli.encode.choose_basis import GroupDraft, draft_fitted, draft_given
from tpca_cli.encode.choose_design import candidates
from tpca_cli.encode.code_blocks import ALL, GroupPlan, Share, coding_checkpoint
from tpca_cli.encode.estimate import sample_value, target_for, target_with, truncation_step
from tpca_cli.encode.workers import LOCAL, Workers
from tpca_cli.errors import TargetError, UsageError, counted, human
from tpca_cli.formats import JPEG_ENDINGS
from tpca_cli.interfaces import Progress, Say
from tpca_cli.quality import decibel, peak_of
from tpca_cli.rate import EXACT_STEP, StepSearch, Target, first_step
from tpca_cli.sources.probe import Survey, nothing_usable, require_images, restorable, survey
from tpca_cli.sources.read_plan import Reading
from tpca_cli.sources.scan import Skipped

if TYPE_CHECKING:
    from tpca_cli.basisfile import FittedBasis

FINEST, COARSEST = 1 / 64, 2000.0
MAX_PASSES = 8
MAX_SAMPLE_STEPS = 16
EXACT_SHARE = 0.77  # of JPEG files, that keeping them bit for bit takes: 0.57 to 0.77 were measured
MENDINGS = 4  # steps that are tried for a share of the jobs
BUDGET_MARGIN = 1.1  # for the least size: what the coarsest step takes differs with the budget, by 6 %
NO_BASIS_TO_LINK = "--link-basis needs --basis: there is no other file that would hold the basis"
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
    coding: str | None = None  # one of CODINGS; None: small, or as the archive that is appended to
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
        if not result.index.names:  # their headers were good, their pixels are not
            raise nothing_usable(request.sources, result.skipped, found.ignored)
        _refuse_growth(request, result, found)
        written = write_assembled(request.output, result, request.target, force=request.force)
    facts = archive_facts(written)
    _tell_of_exact(facts, found, say)
    return replace(result, ignored=found.ignored, facts=facts)


def draft_groups(
    request: EncodeRequest, found: Survey, progress: Progress | None = None
) -> tuple[list[GroupDraft], list[Skipped], Target]:
    """The groups with their bases, the given one or one fitted to each kind of image; their target."""
    given = _given(request)
    request = replace(request, target=target_for(request.target, found, request.method, given))
    drafts, skipped = _drafted(request, given, found, progress)
    return drafts, skipped, target_with(request.target, drafts)


def _given(request: EncodeRequest) -> FittedBasis | None:
    if request.basis is None:
        return None
    from tpca_cli.basisfile import read_basis

    return read_basis(request.basis)


def _drafted(
    request: EncodeRequest, given: FittedBasis | None, found: Survey, progress: Progress | None
) -> tuple[list[GroupDraft], list[Skipped]]:
    step = _starting_step(request.target)
    if request.basis is not None and given is not None:
        drafts, skipped = draft_given(
            request.basis,
            given,
            found,
            request.reading,
            request.target,
            step,
            link=request.link_basis,
            first_version=request.full_range,
        )
        return _ranged(drafts, request), skipped
    if request.link_basis:
        raise UsageError(NO_BASIS_TO_LINK)
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
            first_version=request.full_range,
        )
        skipped += lost
        if draft is not None:
            asked = request.target.components or draft.basis.components
            check_components(draft.framing, min(asked, draft.basis.components))
            drafts.append(draft)
    return _ranged(drafts, request), skipped


def _ranged(drafts: list[GroupDraft], request: EncodeRequest) -> list[GroupDraft]:
    """The same as they are to be coded, with the widest range if the archive knows no other."""
    for draft in drafts:
        draft.predictor = CODINGS[request.coding or "small"]
        if request.full_range:
            draft.range = replace(draft.range, peak=draft.kind.peak)
            draft.weights, draft.predictor = None, PREDICTORS[0]  # others are beyond version 1
    return drafts


def _starting_step(target: Target, reference: float = 255.0) -> float:
    if target.kind == "step":
        return target.value
    if target.kind == "quality":  # as photographs of several kinds have it
        step = 0.33 * math.pow(max(100 - target.value, 1), 1.24)
    else:
        step = first_step(target.value if target.kind == "psnr" else 34.0, 255)  # dB
    # near exactness all steps below a certain one give the same pixels
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
    most = math.inf if request.force else found.source_bytes
    interval = target.interval(found.raw_bytes, most, reference)
    finest = FINEST * min(1.0, 255 / reference)
    search = StepSearch(interval, _starting_step(target, reference), finest, COARSEST)
    _search_on_samples(search, target, drafts, progress, quick=True)
    search = StepSearch(interval, search.step, finest, COARSEST, search.local_slope)
    _search_on_samples(search, target, drafts, progress)
    # the samples found the neighborhood; from here on only what was really coded counts
    search = StepSearch(interval, search.step, finest, COARSEST, search.local_slope)
    passes = _Passes(request, drafts, skipped, search, say, progress)
    passes.run()
    return passes.result(most)


@dataclass
class _Passes:
    """Passes over the images until what came out keeps the promise of the target."""

    request: EncodeRequest
    drafts: list[GroupDraft]
    skipped: list[Skipped]
    search: StepSearch
    say: Say
    progress: Progress | None
    _tried: list[Tried] = field(default_factory=list)
    _best: tuple[float, Assembled] | None = None
    _last: tuple[Assembled, float] | None = None

    def run(self) -> None:
        """Code everything, and, where that misses, another step for all of it, or for a part."""
        for _ in range(MAX_PASSES):
            result = _code_at(self.search.step, self.request, self.drafts, self.skipped, self.progress)
            if _grown(self.drafts, result):
                self.say("some samples are larger than those of the sample: beginning anew with their range")
                self.search = self._searching(self.search.step, self.search.local_slope)
                self._best = None
                continue
            value = self._noted(result, result.step)
            if self.search.record(value) or self._mended(result, value):
                break
            self._tell(result.step, f"trying {self.search.step:.3f}")

    def result(self, most: float) -> Assembled:
        """The best of them; `most`: bytes that a file with a budget may take, whatever the budget is."""
        target, interval = self.request.target, self.search.interval
        if self._best is None:
            assert self._last is not None
            size = 10 ** (self._last[1] / 10)
            larger = interval.ceiling and size > most
            raise TargetError(_growth(size, most) if larger else _unreachable(target, *self._last))
        missed, (miss, best) = "", self._best
        if miss > 0:
            value = _measured(target, best)
            if best.index.names:
                self.say(f"the closest that these images allow is {_shown(target, best, value)}")
            if miss > FAR_DB and target.kind != "quality" and not interval.ceiling and math.isfinite(value):
                word = "aimed at" if target.detail else "asked for"
                closest = f"{value:.2f} dB" if target.kind == "psnr" else f"{1 - 10 ** (-value / 10):.6g}"
                missed = f"{target.kind} {target.value:g} was {word}; no step comes closer than {closest}"
                if target.kind == "psnr" and round(value, 2) != round(best.psnr, 2):
                    missed += f", counted from the contrast that images have: {best.psnr:.2f} dB of the range"
        return replace(best, tried=tuple(self._tried), missed=missed)

    def _mended(self, result: Assembled, value: float) -> bool:
        """Whether another step for a share of the jobs is enough: most misses are small."""
        first, jump = result.step, self.search.at_a_jump
        move = math.log(self.search.step / first)
        if jump:  # steps between say nothing of how far it is to the aim
            move = (self.search.interval.aim - value) / self.search.local_slope
        found = share_for(result, move, needed=jump)
        if found is None or self.request.full_range:
            return False
        share, weight = found
        search = self._searching(first, self.search.local_slope * weight)
        search.record(value)
        for _ in range(MENDINGS):
            self._tell(first, f"trying {search.step:.3f} for one block of {share.apart}")
            mended = _code_at(
                search.step, self.request, self.drafts, self.skipped, self.progress, share, result
            )
            value = self._noted(mended, search.step)
            if search.interval.holds(value):
                return True
            search.record(value)
        return False

    def _searching(self, step: float, slope: float) -> StepSearch:
        return StepSearch(self.search.interval, step, self.search.finest, self.search.coarsest, slope)

    def _noted(self, result: Assembled, step: float) -> float:
        target, interval = self.request.target, self.search.interval
        value = _measured(target, result)
        self._tried.append(Tried(step, result.psnr, result.payload_bytes))
        self._last = result, value
        if interval.keeps_promise(value) and (self._best is None or interval.miss(value) < self._best[0]):
            self._best = interval.miss(value), result
        return value

    def _tell(self, step: float, then: str) -> None:
        assert self._last is not None
        self.say(f"step {step:.3f} gave {_shown(self.request.target, *self._last)}: {then}")


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
    # where the sample is all there is, a step more spares a pass, and what was measured is what comes out
    sampled_whole = all(draft.scale <= 1 for draft in drafts)
    for tried in range(MAX_SAMPLE_STEPS):
        if progress:
            progress("searching the step", tried, MAX_SAMPLE_STEPS)
        value = sample_value(target.kind, drafts, search.step, target.components, quick=quick)
        if search.record(value) or (search.near(value) and (quick or not sampled_whole)):
            break
    if not quick and not sampled_whole:
        search.settle(value)
    if progress:
        progress("searching the step", MAX_SAMPLE_STEPS, MAX_SAMPLE_STEPS)


def _code_at(
    step: float,
    request: EncodeRequest,
    drafts: list[GroupDraft],
    skipped: list[Skipped],
    progress: Progress | None,
    share: Share = ALL,
    before: Assembled | None = None,
) -> Assembled:
    """All images coded at a step, or a share of the jobs, in place of what was there `before`."""
    plans: list[GroupPlan] = []
    jobs = 0
    for draft in drafts:
        coder = draft.coder(step, request.target.components)
        plans.append(GroupPlan(draft.kind, draft.members, coder, share.after(jobs)))
        jobs += len(replace(plans[-1], share=ALL).jobs()) if before else 0
    groups = [
        Group.of(plan.coder, draft.method, link=draft.link, peak=draft.range.peak)
        for plan, draft in zip(plans, drafts, strict=True)
    ]
    checkpoint = coding_checkpoint(request.output, plans, groups, request.reading)
    ranges = [draft.range for draft in drafts]
    coded = request.workers.code(plans, request.reading, checkpoint, progress)
    if before:
        return mend(before, share, coded, groups, checkpoint, ranges, skipped)
    return assemble(coded, groups, checkpoint, ranges, skipped, step)


def _measured(target: Target, result: Assembled) -> float:
    if target.kind not in ("max_bytes", "ratio"):
        return result.measured[target.kind]
    # a budget is about the file itself: write it where only this run looks, and see
    probe = result.checkpoint.root / "candidate.h5"
    size = write_assembled(probe, result, target, force=True).size
    probe.unlink()
    return decibel(size)


def _shown(target: Target, result: Assembled, value: float) -> str:
    if target.kind in ("max_bytes", "ratio"):
        return f"{10 ** (value / 10):.0f} bytes"
    if math.isinf(result.psnr):
        return "identical pixels"
    return f"a quality of {value:.2f}" if target.kind == "quality" else f"{result.measured['psnr']:.3f} dB"


def _unreachable(target: Target, result: Assembled, value: float) -> str:
    asked = f"--{target.kind.replace('_', '-')} {target.value:g}"
    size, raw = 10 ** (value / 10), raw_bytes(result.index)
    if target.kind == "ratio":
        return (
            f"{asked} cannot be kept: the coarsest step still takes 1/{raw / size:.4g} of the pixels; "
            f"ask for about {raw / size / BUDGET_MARGIN:.3g}"
        )
    if target.kind == "max_bytes":
        return (
            f"{asked} cannot be kept: the coarsest step still takes {size:.0f} bytes; "
            f"allow about {math.ceil(size * BUDGET_MARGIN)}"
        )
    cap = "" if target.components is None else f" with {target.components} components"
    best = _shown(target, result, value) if target.kind == "quality" else f"{result.psnr:.2f} dB"
    return (
        f"{asked} cannot be reached{cap}: the finest step gives {best}; ask for less or allow more components"
    )


def _growth(size: float, most: float) -> str:
    return (
        f"the archive would take {human(round(size))}, more than the {human(round(most))} of the files: "
        "ask for a lower quality, try --exact, or add --force"
    )


def _refuse_growth(request: EncodeRequest, result: Assembled, found: Survey) -> None:
    """An archive larger than its sources is rarely what somebody wants: say so before it is written."""
    if result.payload_bytes > found.source_bytes and not request.force:
        raise TargetError(_growth(result.payload_bytes, found.source_bytes))


def _tell_of_exact(facts: Mapping[str, Any], found: Survey, say: Say) -> None:
    """Nearly as many bytes as JPEG files take bit for bit are rarely well spent on less."""
    members = [member for group in found.groups.values() for member in group]
    jpeg = sum(member.ref.size for member in members if member.ref.name.lower().endswith(JPEG_ENDINGS))
    resized = any(member.resized for member in members)
    size, files = facts["archive_bytes"], facts["source_bytes"]
    if not resized and jpeg > 0.9 * found.source_bytes and size > EXACT_SHARE * jpeg:
        say(
            f"this takes {size / files:.0%} of the files: `--exact` keeps JPEG files bit for bit, usually in "
            f"about {EXACT_SHARE:.0%} of their bytes"
        )


def plan_encoding(request: EncodeRequest, progress: Progress | None = None) -> dict[str, Any]:
    """What a run would do, from the headers and a sample: nothing is written."""
    found = restorable(survey(request.sources, request.reading, progress, request.workers.probe))
    require_images(found, request.sources)
    asked = target_for(request.target, found, request.method, _given(request))
    if request.basis is None:
        if request.link_basis:
            raise UsageError(NO_BASIS_TO_LINK)
        for kind, members in found.groups.items():
            candidates(members, kind, request.method, request.tile, False, False)  # may be refused
    return {
        "images": found.count,
        "groups": {str(kind): len(members) for kind, members in found.groups.items()},
        "raw_bytes": found.raw_bytes,
        "source_bytes": found.source_bytes,
        "skipped": len(found.skipped),
        **found.ignored.facts,
        "target": asked.to_dict(),
        "workers": request.reading.workers,
    }
