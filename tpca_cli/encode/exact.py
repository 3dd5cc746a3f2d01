"""A folder that comes back exactly: JPEG files bit for bit, pictures pixel for pixel, the rest as files.

There is nothing to choose and nothing to search. Each file goes the way that makes it smallest among those
that give it back: a JPEG file by its coefficients; a picture that can be written again in its own format,
with nothing lost, by its pixels; whatever is left, pictures that cannot be read included, as the file that it
is (`exact_blocks`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tpca_cli import images, store
from tpca_cli.archive import exact
from tpca_cli.archive.facts import archive_facts
from tpca_cli.archive.format import VERSION
from tpca_cli.archive.writer import Group, exact_group
from tpca_cli.checkpoint import Checkpoint, check_partial, removed_unless_interrupted
from tpca_cli.encode.assemble import Assembled, assemble, used_only, write_assembled
from tpca_cli.encode.exact_blocks import ExactPlan
from tpca_cli.encode.run import EncodeRequest
from tpca_cli.errors import ImageRefused, StorageError, UsageError
from tpca_cli.exact.coders import FileCoder, JpegCoder, PixelCoder
from tpca_cli.formats import sniff
from tpca_cli.interfaces import Progress, Say
from tpca_cli.rate import Range
from tpca_cli.sources.probe import (
    Kind,
    Member,
    kind_of,
    nothing_usable,
    require_images,
    restorable,
    source_plan,
    survey,
)
from tpca_cli.sources.read_plan import Reading
from tpca_cli.sources.scan import Skipped

TEMPLATE_SAMPLE = 128


def encode_exactly(request: EncodeRequest, say: Say, progress: Progress | None = None) -> Assembled:
    """Pack the sources into `request.output`; no sample is off by more than the target says."""
    check_request(request)
    store.check_output(request.output, request.force)
    check_partial(request.output)
    found = restorable(survey(request.sources, request.reading, progress, request.workers.probe))
    require_images(found, request.sources)
    members = [member for group in found.groups.values() for member in group]
    with removed_unless_interrupted(request.output):
        result = code_exactly(request, members, (), found.skipped, progress)
        if not len(result.index):
            raise nothing_usable(request.sources, result.skipped, found.ignored)
        written = write_assembled(request.output, result, request.target, force=request.force)
    return replace(result, ignored=found.ignored, facts=archive_facts(written))


def check_request(request: EncodeRequest) -> None:
    """Refuse options that make no sense where images stay what they are."""
    if (
        request.basis
        or request.link_basis
        or request.method != "auto"
        or request.tile
        or request.reading.size
    ):
        raise UsageError(
            "--exact and --max-error keep images as they are: leave out --basis, --method, --tile and --size"
        )
    if request.reading.strip_metadata:
        raise UsageError("--exact and --max-error keep whole files: leave out --strip-metadata")


def code_exactly(
    request: EncodeRequest,
    members: Sequence[Member],
    known: Sequence[Group],
    skipped: Sequence[Skipped],
    progress: Progress | None,
) -> Assembled:
    """Code images into groups that an archive has, or else into new ones: the result has these."""
    plans = _plans(members, int(request.target.value), request.reading, known)
    checkpoint = _checkpoint(request.output, plans, request.reading)
    coded = request.workers.code(plans, request.reading, checkpoint, progress)
    count = max((number for plan in plans for number in plan.numbers), default=-1) + 1
    groups, ranges = [*known] + [_UNUSED] * (count - len(known)), [Range(255)] * max(count, len(known))
    for plan in plans:
        for coder, number in zip(plan.coders, plan.numbers, strict=True):
            ranges[number] = Range(plan.kind.peak)
            if number >= len(known):
                groups[number] = exact_group(coder, plan.kind.dtype, plan.kind.channels, plan.kind.peak)
    result = assemble(coded, groups, checkpoint, ranges, skipped, 2 * request.target.value + 1)
    return used_only(result, len(known))


_UNUSED = Group({}, None, np.zeros(0, np.uint8))


def _plans(
    members: Sequence[Member], tolerance: int, reading: Reading, known: Sequence[Group]
) -> list[ExactPlan]:
    """The images by kind; gray ones stay by themselves."""
    kinds: dict[Kind, list[Member]] = {}
    for member in members:
        kinds.setdefault(kind_of(member), []).append(member)
    held = {
        (
            *(group.meta[name] for name in ("dtype", "channels", "method")),
            group.meta["coder"].get("tolerance", 0),
        ): number
        for number, group in enumerate(known)
    }
    plans: list[ExactPlan] = []
    fresh = itertools.count(len(known))
    for kind in sorted(kinds, key=lambda each: (each.dtype, each.channels)):
        own = tuple(sorted(kinds[kind], key=lambda member: member.ref.name))
        most = min(tolerance, kind.peak - 1)  # what is asked for 16 bits may be more than 8 bits can be off
        ways = (("jpeg", 0), ("pixels", most), ("files", 0))
        at = [held.get((kind.dtype, kind.channels, *way)) for way in ways]
        jpeg = _headers(own, reading) if at[0] is None else exact.coder(known[at[0]])
        assert isinstance(jpeg, JpegCoder)
        known_pixels = None if at[1] is None else exact.coder(known[at[1]])
        pixels = known_pixels or PixelCoder(kind.channels, kind.peak, most)
        assert isinstance(pixels, PixelCoder)
        first, second, third = (next(fresh) if number is None else number for number in at)
        plans.append(ExactPlan(kind, own, jpeg, pixels, FileCoder(), (first, second, third)))
    return plans


def _headers(members: Sequence[Member], reading: Reading) -> JpegCoder:
    """A coder that knows the headers which the JPEG files among some of these share."""

    def sample() -> Iterator[bytes]:
        for member in members[:: -(-len(members) // TEMPLATE_SAMPLE)]:
            try:
                data = images.source_of(member.ref.path, reading.max_pixels).data
            except (ImageRefused, StorageError):
                continue  # whoever codes it says so
            if sniff(data) == "JPEG":
                yield data

    return JpegCoder.train(sample())


def _checkpoint(output: Path, plans: Sequence[ExactPlan], reading: Reading) -> Checkpoint:
    """The finished work of all that decides the coded bytes."""
    groups = [{**source_plan(plan.members, reading), "tolerance": plan.pixels.tolerance} for plan in plans]
    templates = [array.tobytes() for plan in plans for array in plan.jpeg.to_arrays().values()]
    return Checkpoint(output, {"format": VERSION, "exact": groups}, templates)
