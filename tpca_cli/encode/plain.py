"""Images to plain coefficients: the one pass over the pixels that `encode --plain` makes, and what it writes.

A run of images is a pure function of the basis and the source files, so that runs are projected side by side,
in any order and anywhere, and a command that was killed takes finished ones from its checkpoint. BLAS has one
thread in every process: the bits of a product depend on that number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli import basisfile, images, store
from tpca_cli.archive.index import Entry, Index
from tpca_cli.archive.limits import usual_or_more
from tpca_cli.checkpoint import (
    Checkpoint,
    check_partial,
    remove_partial,
    removed_unless_interrupted,
)
from tpca_cli.encode.changes import changes, restorable_beside
from tpca_cli.errors import ImageRefused, StorageError, UsageError, counted, printable
from tpca_cli.framing import Framing
from tpca_cli.interfaces import Progress, Say
from tpca_cli.parallel import alone, busy_map, ordered_map
from tpca_cli.scores.format import DTYPES, VERSION
from tpca_cli.scores.project import MANY, Projector, runs_of
from tpca_cli.scores.reader import Scores
from tpca_cli.scores.writer import ScoresBasis, write_scores
from tpca_cli.sources.probe import (
    UNSEEN,
    Kind,
    Member,
    Probe,
    Survey,
    fitting,
    grouped,
    guess_members,
    nothing_usable,
    probe_members,
    restorable,
    source_plan,
    survey,
)
from tpca_cli.sources.read import read_member, read_unseen
from tpca_cli.sources.read_plan import Reading, WrongGuess, scan_or_fail, skip_or_fail
from tpca_cli.sources.scan import NOTHING_IGNORED, Ignored, Skipped
from tpca_cli.tensor_pca.basis import Rank1Basis, TensorBasis

Rows = npt.NDArray[Any]
HELD_BYTES = 1 << 26  # of rows; more are read from the checkpoint, and held to their digests once more


@dataclass(frozen=True)
class PlainPlan:
    """Images and the basis that they are projected on."""

    members: tuple[Member, ...]
    framing: Framing
    projector: Projector

    @property
    def basis(self) -> TensorBasis:
        """The basis that they are projected on."""
        return self.projector.basis

    @property
    def multiplies(self) -> bool:
        """Whether most of the time goes into products, which threads compute side by side without a fork."""
        return not isinstance(self.basis, Rank1Basis) and self.basis.components >= MANY

    @cached_property
    def counts(self) -> list[int]:
        """The frames of each image."""
        return [self.framing.count(member.height, member.width) for member in self.members]

    @property
    def small(self) -> bool:
        """Whether all rows may stay in memory until they are written."""
        width = self.basis.components * np.dtype(self.projector.dtype).itemsize
        return sum(self.counts) * width <= HELD_BYTES

    def runs(self) -> list[range]:
        """The images that are projected together."""
        return runs_of(self.counts, self.framing)


@dataclass(frozen=True)
class Projected:
    """What a run of images gave; `data` are the bytes of its rows, None if only the checkpoint has them."""

    entries: tuple[Entry, ...]
    data: bytes | None
    skipped: tuple[Skipped, ...]


Project = Callable[[PlainPlan, Reading, Checkpoint, Progress | None], Iterator[Projected]]


def project_run(plan: PlainPlan, run: range, reading: Reading) -> Projected:
    """Read the images of a run and project them."""
    entries: list[Entry] = []
    frames: list[Rows] = []
    skipped: list[Skipped] = []
    kind = Kind(plan.projector.samples, plan.framing.channels)
    for member in plan.members[run.start : run.stop]:
        try:
            if member.mode == UNSEEN:
                picture = read_unseen(member, kind, reading)
            else:
                picture = read_member(member, kind.channels, reading)
        except (ImageRefused, StorageError) as error:
            skipped.append(skip_or_fail(member.ref.path, error, reading.on_error))
            continue
        frames.append(plan.framing.split(picture.pixels))
        entries.append(_entry(member, picture))
    if not entries:
        return Projected((), b"", tuple(skipped))
    data = plan.projector.coefficients(frames).tobytes()
    return Projected(tuple(entries), data, tuple(skipped))


def _entry(member: Member, picture: images.Picture) -> Entry:
    ref = member.ref
    shape = (member.height, member.width, picture.mode)
    return Entry(ref.name, picture.digest, ref.mtime_ns, ref.size, *shape, 0, mode_bits=picture.mode_bits)


def project_all(
    plan: PlainPlan, reading: Reading, checkpoint: Checkpoint, progress: Progress | None = None
) -> Iterator[Projected]:
    """The results of all runs, in order, by threads or processes of this machine."""
    runs, hold = plan.runs(), plan.multiplies and plan.small

    def work(number: int) -> Projected:
        done = kept(checkpoint, number, plan, runs[number])
        if done is not None:
            return done
        result = project_run(plan, runs[number], reading)
        keep(checkpoint, number, result)
        return result if hold else replace(result, data=None)

    def weight(number: int) -> int:
        """Of the pictures, their frames and two forms of their coefficients."""
        chosen = slice(runs[number].start, runs[number].stop)
        pictures = sum(member.weight for member in plan.members[chosen])
        return pictures + 32 * sum(plan.counts[chosen]) * plan.basis.components

    room = reading.room
    with alone():
        spread = ordered_map if plan.multiplies else busy_map
        found = spread(work, range(len(runs)), room.workers, weight=weight, budget=room.size)
        for number, result in enumerate(found):
            if progress:
                progress("projecting", runs[number].stop, len(plan.members))
            yield result


def keep(checkpoint: Checkpoint, number: int, result: Projected) -> None:
    """Put a finished run into the checkpoint."""
    entries = [
        [e.name.hex(), e.digest.hex(), e.mtime_ns, e.source_size, e.height, e.width, e.mode, e.mode_bits]
        for e in result.entries
    ]
    skipped = [[item.path.hex(), item.reason] for item in result.skipped]
    checkpoint.put(number, {"entries": entries, "skipped": skipped}, result.data or b"")


def kept(checkpoint: Checkpoint, number: int, plan: PlainPlan, run: range) -> Projected | None:
    """A run of an earlier command, if every source is, byte for byte, the file that was projected."""
    found = checkpoint.get(number)
    if found is None:
        return None
    rows = found[0]["entries"]
    entries = tuple(
        Entry(bytes.fromhex(name), bytes.fromhex(digest), mtime, size, h, w, mode, 0, mode_bits=bits)
        for name, digest, mtime, size, h, w, mode, bits in rows
    )
    members = plan.members[run.start : run.stop]
    if found[0]["skipped"] or [e.name for e in entries] != [m.ref.name for m in members]:
        return None
    try:
        digests = [
            images.file_digest(m.ref.path, len(e.digest)) for m, e in zip(members, entries, strict=True)
        ]
    except (ImageRefused, StorageError):
        return None
    return Projected(entries, None, ()) if digests == [e.digest for e in entries] else None


@dataclass(frozen=True)
class PlainRequest:
    """Everything that decides the content of a scores file."""

    sources: Sequence[str]
    output: Path
    reading: Reading
    basis: Path | None = None
    link: bool = False
    components: int | None = None
    dtype: str = "float32"
    compress: bool = False
    force: bool = False
    append: bool = False
    on_change: str = "replace"
    probe: Probe = probe_members
    project: Project = project_all


@dataclass(frozen=True)
class Plain:
    """What was done."""

    added: int
    replaced: int
    unchanged: int
    skipped: tuple[Skipped, ...]
    facts: dict[str, Any]  # of the file
    ignored: Ignored = NOTHING_IGNORED


def encode_plain(request: PlainRequest, say: Say, progress: Progress | None = None) -> Plain:
    """Project the sources into `request.output`; the caller holds the lock."""
    check_partial(request.output)
    if request.append and request.output.exists():
        return _append(request, progress)
    store.check_output(request.output, request.force)
    of = given_basis(request)
    kind = Kind(of.samples, of.framing.channels)
    found = scan_or_fail(request.sources, request.reading.on_error)
    if request.probe is probe_members:
        guess = guess_members(found.refs, request.reading, kind, of.framing)
        if guess is not None:
            with suppress(WrongGuess):
                return _encode(request, of, guess, found.skipped, found.left_out, say, progress)
    probed, unread = request.probe(found.refs, request.reading, progress)
    usable = restorable(Survey(grouped(probed), (*found.skipped, *unread), found.left_out))
    everything = sorted((m for group in usable.groups.values() for m in group), key=lambda m: m.ref.name)
    members, misfits = fitting(everything, kind, of.framing)
    return _encode(request, of, members, (*usable.skipped, *misfits), found.left_out, say, progress)


def _encode(
    request: PlainRequest,
    of: ScoresBasis,
    members: Sequence[Member],
    skipped: tuple[Skipped, ...],
    ignored: Ignored,
    say: Say,
    progress: Progress | None,
) -> Plain:
    """Project the images and write them; WrongGuess where those that nobody looked at are not alike."""
    if not members:
        raise nothing_usable(request.sources, skipped, ignored)
    say(f"{counted(len(members), 'image')} on {of.basis.components} components ({of.basis.method})")
    with removed_unless_interrupted(request.output, WrongGuess):
        index, rows, lost = _projected(request, of, members, progress)
        skipped = (*skipped, *lost)
        if not len(index):
            raise nothing_usable(request.sources, skipped, ignored)
        facts = write(request, index, rows, of, skipped, DTYPES[request.dtype])
    return Plain(len(index), 0, 0, skipped, facts, ignored)


def plan_plain(request: PlainRequest, progress: Progress | None = None) -> dict[str, Any]:
    """What a run would do, from the headers: nothing is written."""
    of = given_basis(request)
    found = restorable(survey(request.sources, request.reading, progress, request.probe))
    everything = [member for group in found.groups.values() for member in group]
    members, misfits = fitting(everything, Kind(of.samples, of.framing.channels), of.framing)
    frames = sum(of.framing.count(member.height, member.width) for member in members)
    width = of.basis.components * np.dtype(DTYPES[request.dtype]).itemsize
    return {
        "images": len(members),
        "frames": frames,
        "components": of.basis.components,
        "dtype": request.dtype,
        "coefficient_bytes": frames * width,
        "skipped": len(found.skipped) + len(misfits),
        **found.ignored.facts,
        "workers": request.reading.workers,
    }


def given_basis(request: PlainRequest, tensors: bool = False) -> ScoresBasis:
    """The basis that was named, as far as it is used; an error unless it is one of images, or of tensors."""
    if request.basis is None:
        raise UsageError("--plain needs --basis BASIS.h5: `tpca fit-basis SOURCE -o BASIS.h5` makes one")
    stored = basisfile.read_basis(request.basis)
    item = stored.origin.item
    if (item is not None) != tensors:
        own, others = ("tensors", "images") if item else ("images", "tensors")
        raise UsageError(f"{printable(request.basis)} is a basis of {own}: fit one to the {others}")
    samples = stored.dtype if item is None else item.dtype
    of = ScoresBasis(stored.basis, stored.framing, samples, stored.digest, request.link, item, stored.leaves)
    if request.components is not None and request.components > stored.basis.components:
        raise UsageError(
            f"--components {request.components}: {printable(request.basis)} has {stored.basis.components}"
        )
    return of.truncate(request.components)


def _projected(
    request: PlainRequest, of: ScoresBasis, members: Sequence[Member], progress: Progress | None
) -> tuple[Index, Iterator[Rows], list[Skipped]]:
    """The images that could be read, their rows, and the others."""
    dtype = DTYPES.get(request.dtype, request.dtype)
    plan = PlainPlan(tuple(members), of.framing, Projector(of.basis, of.samples, dtype))
    of_basis = {"digest": of.digest, "components": of.basis.components}
    decided = {"scores": VERSION, "basis": of_basis, "dtype": dtype, "slices": plan.projector.slices}
    checkpoint = Checkpoint(request.output, {**decided, **source_plan(plan.members, request.reading)})
    entries: list[Entry] = []
    lost: list[Skipped] = []
    held: list[bytes | None] = []
    for result in request.project(plan, request.reading, checkpoint, progress):
        entries += result.entries
        lost += result.skipped
        held.append(result.data)

    def rows() -> Iterator[Rows]:
        for number, data in enumerate(held):
            found = checkpoint.get(number) if data is None else ({}, data)
            if found is None:
                raise RuntimeError(f"finished run {number} is gone from {printable(checkpoint.folder)}")
            yield np.frombuffer(found[1], dtype).reshape(-1, plan.basis.components)

    return Index.build(entries, []), rows(), lost


def write(
    request: PlainRequest,
    index: Index,
    rows: Iterator[Rows],
    of: ScoresBasis,
    skipped: Sequence[Skipped],
    dtype: str,
    expect: store.Identity | None = None,
) -> dict[str, Any]:
    """The file, in place of the one that was expected there if there was one; what there is to know of it."""
    noted = replace(index, skipped=tuple((printable(item.path), item.reason) for item in skipped))
    return write_scores(
        request.output,
        noted,
        rows,
        of,
        dtype,
        compress=request.compress,
        force=request.force or expect is not None,
        expect=expect,
    )


def basis_of(old: Scores, request: PlainRequest) -> ScoresBasis:
    """The basis of a file that is added to; an error where another is asked for."""
    of = old.of
    if request.basis is not None and basisfile.read_basis(request.basis).digest != of.digest:
        raise UsageError(
            f"{printable(request.output)} was made with another basis ({of.digest}): leave --basis out"
        )
    if request.components not in (None, old.components):
        raise UsageError(
            f"{printable(request.output)} has {old.components} components: leave --components out"
        )
    return of


def _append(request: PlainRequest, progress: Progress | None) -> Plain:
    """Rows for what is new in the sources, behind those that are there; the basis is that of the file."""
    limit = usual_or_more(request.reading.max_pixels)
    with Scores(request.output, basis=request.basis, max_pixels=limit) as old:
        of, dtype = basis_of(old, request), old.dtype.str
        found = scan_or_fail(request.sources, request.reading.on_error)
        news = changes(old, found.refs, request.reading)
        members, unread = request.probe(news.to_add(request.on_change), request.reading, progress)
        members, conflicts = restorable_beside(members, old.names_bytes)
        members, misfits = fitting(members, Kind(of.samples, of.framing.channels), of.framing)
        skipped = [*found.skipped, *news.skipped, *unread, *conflicts, *misfits]
        if not members:
            remove_partial(request.output)
            return Plain(0, 0, news.unchanged, tuple(skipped), old.info(), found.left_out)
        with removed_unless_interrupted(request.output):
            index, rows, lost = _projected(replace(request, dtype=dtype), of, members, progress)
            skipped += lost
            names = set(index.names)
            stay = [image for image, name in enumerate(old.names_bytes) if name not in names]
            replaced = len(old) - len(stay)
            facts = old.info()
            if len(index):
                joined = old.index.of_images(stay, []).joined(index)
                both = chain(old.rows_of(stay), rows)
                facts = write(request, joined, both, of, skipped, dtype, old.identity)
    return Plain(len(index) - replaced, replaced, news.unchanged, tuple(skipped), facts, found.left_out)
