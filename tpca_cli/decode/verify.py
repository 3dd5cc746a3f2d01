"""Is a file what was written? Every digest of an archive, a basis or a tensor file, without decoding pixels.

Opening a file already checks its structure and the digest over everything but the bulk data; what is added
here is the bulk: each block is read once and held to its digest. A damaged block is reported with the names
of the images that it costs, and the check goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tpca_cli import store
from tpca_cli.archive import exact
from tpca_cli.archive.batches import spans
from tpca_cli.archive.format import FORMAT
from tpca_cli.archive.limits import MAX_PIXELS
from tpca_cli.archive.reader import Archive
from tpca_cli.errors import FileRefused, printable
from tpca_cli.interfaces import Progress
from tpca_cli.parallel import ordered_map


@dataclass(frozen=True)
class Damage:
    """A block that is not what was written, and the images that cannot be restored because of it."""

    block: int
    reason: str
    images: tuple[bytes, ...]


@dataclass(frozen=True)
class Checked:
    """What was looked at, and what was found."""

    format: str
    digest: str
    size: int
    images: int
    blocks: int
    damage: tuple[Damage, ...] = ()


def verify(
    path: Path, progress: Progress | None = None, *, workers: int = 1, max_pixels: int = MAX_PIXELS
) -> Checked:
    """Check a tpca file of any kind; FileRefused when it cannot be opened as what it claims to be."""

    def archive_file(path: Path) -> Checked:
        with Archive(path, ready=False, max_pixels=max_pixels) as archive:
            return verify_archive(archive, progress, workers=workers)

    kinds: dict[str, Callable[[Path], Checked]] = {
        FORMAT: archive_file,
        "tpca-scores": lambda path: _scores_file(path, progress, max_pixels),
        "tpca-tensor": lambda path: _tensor_file(path, progress),
        "tpca-basis": _basis_file,
    }
    return store.open_as_it_is(path, kinds)


def verify_archive(
    archive: Archive, progress: Progress | None = None, *, workers: int = 1, decode: bool = False
) -> Checked:
    """Check every block of an open archive; with `decode`, that each also gives pixels."""
    index = archive.index
    for number, group in enumerate(archive.groups):
        if archive.is_exact(number):
            exact.coder(group)
        elif decode or group.basis is not None:  # a linked one is checked when its file is named
            archive.coder(number)
    blocks = len(index.blocks["size"])
    damage: list[Damage] = []
    done = 0
    for span, problems in ordered_map(
        lambda span: (span, _span_problems(archive, span, decode)), spans(archive), workers
    ):
        damage += [Damage(block, reason, images_of(archive, block)) for block, reason in problems]
        done += len(span)
        if progress:
            progress("verifying", done, blocks)
    return Checked(FORMAT, archive.digest, archive.file_bytes, len(archive), blocks, tuple(damage))


def _span_problems(archive: Archive, span: range, decode: bool) -> list[tuple[int, str]]:
    """The damaged blocks of a span; it is read in one piece, and block by block only if that fails."""
    offsets, digests = archive.index.offsets, archive.index.blocks["digest"]
    suspects = list(span)
    if not decode:
        try:
            start, stop = int(offsets[span.start]), int(offsets[span.stop])
            data = memoryview(archive.payload(start, stop))
            suspects = [
                block
                for block in span
                if store.digest_of(data[int(offsets[block]) - start : int(offsets[block + 1]) - start])
                != digests[block].tobytes()
            ]
        except FileRefused:
            pass  # somewhere in here: find out where
    problems = []
    for block in suspects:
        try:
            if decode:
                _decode(archive, block)
            else:
                archive.block_bytes(block)
        except FileRefused as error:
            problems.append((block, str(error)))
    return problems


def _decode(archive: Archive, block: int) -> None:
    """Refuse a block that gives no pixels or, where it holds files, other files than were archived."""
    if archive.holds_files(block):
        archive.block_files(block)
    else:
        archive.decode_block(block)


def images_of(archive: Archive, block: int) -> tuple[bytes, ...]:
    """The names of the images that need a block."""
    first, count = (int(archive.index.blocks[name][block]) for name in ("first", "count"))
    return tuple(
        archive.index.names[image] for image in range(first, first + count) if archive.index.mode(image)
    )


def _tensor_file(path: Path, progress: Progress | None) -> Checked:
    from tpca_cli.frames.tensor_file import TENSOR_SCHEMA, TensorFile

    with store.open_checked(path, TENSOR_SCHEMA) as reader:
        digest, size = reader.digest, reader.size
    file = TensorFile(path)
    try:
        done = 0
        for block in file.blocks(4096):
            done += len(block)
            if progress:
                progress("verifying", done, file.count)
        images = len(file.index.kept)
    finally:
        file.close()
    return Checked("tpca-tensor", digest, size, images, done)


def _scores_file(path: Path, progress: Progress | None, max_pixels: int) -> Checked:
    """Every piece of the coefficients, and whatever follows from the rest of the file."""
    from tpca_cli.scores.reader import Scores

    with Scores(path, max_pixels=max_pixels) as scores:
        for name, expected in scores.counters():
            if not scores.holds(name, expected):
                raise FileRefused(f"{printable(path)} was refused: {name!r} is not what the images say")
        if not scores.texts_agree():
            raise FileRefused(f"{printable(path)} was refused: a label is not the folder of its image")
        if scores.info()["basis"] == "embedded":  # a linked one is checked when its file is named
            _ = scores.of
        damage: list[Damage] = []
        pieces = scores.pieces()
        for number in range(pieces):
            try:
                scores.piece("coefficients", number)
            except FileRefused as error:
                lost = tuple(scores.names_bytes[image] for image in scores.images_in(number))
                damage.append(Damage(number, str(error), lost))
            if progress:
                progress("verifying", number + 1, pieces)
        return Checked(
            "tpca-scores", scores.digest, scores.info()["file_bytes"], len(scores), pieces, tuple(damage)
        )


def _basis_file(path: Path) -> Checked:
    from tpca_cli.basisfile import BASIS_SCHEMA, read_basis

    with store.open_checked(path, BASIS_SCHEMA) as reader:
        digest, size = reader.digest, reader.size
    read_basis(path)
    return Checked("tpca-basis", digest, size, 0, 1)
