"""Samples of a file's images: rebuilt from fewer and more components, and measured beside other codecs.

Galleries and the page's sliders show how images come back from the first M components; rate-distortion curves
put whole archives at several steps beside JPEG and WebP files of the same images.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli import images
from tpca_cli.archive.index import BlockRecord, Entry, Index
from tpca_cli.archive.reader import Archive
from tpca_cli.archive.writer import Group, write_archive
from tpca_cli.codec.coder import Coder
from tpca_cli.errors import ImageRefused, TpcaError, UsageError, printable
from tpca_cli.formats import FILE
from tpca_cli.framing import Framing
from tpca_cli.quality import psnr as psnr_of
from tpca_cli.report.charts import Curve
from tpca_cli.report.page import Comparison, Step
from tpca_cli.report.sheets import Cell, Pixels, contact_sheet, to_rgb
from tpca_cli.scores.reader import Scores
from tpca_cli.sources.scan import ImageRef, scan
from tpca_cli.store import digest_of
from tpca_cli.tensor_pca.basis import TensorBasis

AnyPixels = npt.NDArray[Any]
CROP = 256  # the page shows at most this much of an image, from its middle
# where the curves are measured: steps of the quantizer, and qualities of the other codecs
RATE_STEPS = (96.0, 48.0, 24.0, 12.0, 6.0)
RATE_QUALITIES = {"JPEG": (15, 40, 70, 88, 95), "WebP": (10, 40, 70, 90, 97)}
BLOCK_PIXELS = 2**17  # about as many as a block of an archive holds


@dataclass(frozen=True)
class SampleImage:
    """One image: what it was, where known, and what it is when rebuilt from the first M components."""

    name: str
    original: AnyPixels | None
    most: int
    rebuild: Callable[[int], AnyPixels]


def evenly_spaced(total: int, count: int) -> list[int]:
    """`count` positions at equal distances in a list of `total`: every subfolder has its chance."""
    count = min(count, total)
    return [(2 * k + 1) * total // (2 * count) for k in range(count)]


def component_counts(most: int, count: int) -> list[int]:
    """At most `count` rising, round component counts in nearly equal ratios; `most` is the last."""
    round_numbers = [lead * 10**power for power in range(len(str(most))) for lead in (1, 2, 5)]
    below = [number for number in round_numbers if most / 400 <= number < 0.6 * most]
    return sorted({below[at] for at in evenly_spaced(len(below), count - 1)} | {most})


def psnr(one: AnyPixels, other: AnyPixels) -> float:
    """The quality of one picture against another, in dB; infinite when every sample is equal."""
    peak = 65535.0 if one.dtype == np.uint16 else 255.0
    return psnr_of(squared_error(one, other), one.size, peak)


def squared_error(one: AnyPixels, other: AnyPixels) -> float:
    """The sum of squared differences of all samples."""
    return float(((one.astype(np.float64) - other) ** 2).sum())


def from_archive(archive: Archive, sources: Sequence[str], count: int) -> list[SampleImage]:
    """Some images of an archive, with their originals where `sources` still has them."""
    refs = {ref.name: ref for ref in scan(sources).refs} if sources else {}
    pictures = [at for at, image in enumerate(archive.alive) if archive.index.mode(int(image)) != FILE]
    known = [position for position in pictures if not sources or archive.names_bytes[position] in refs]
    if not known:
        raise TpcaError("none of the archive's images is in the source: names are relative to the folder")
    return [_archive_sample(archive, known[at], refs) for at in evenly_spaced(len(known), count)]


def from_scores(scores: Scores, sources: Sequence[str], count: int) -> list[SampleImage]:
    """Some images of a scores file, with their originals where `sources` still has them."""
    refs = {ref.name: ref for ref in scan(sources).refs} if sources else {}
    known = [position for position, name in enumerate(scores.names_bytes) if not refs or name in refs]
    if not known:
        raise TpcaError("none of the images is in the source: names are relative to the folder")
    chosen = [known[at] for at in evenly_spaced(len(known), count)]
    return [_sample(scores, position, refs, scores.components) for position in chosen]


def _archive_sample(archive: Archive, position: int, refs: dict[bytes, ImageRef]) -> SampleImage:
    block = archive.index.blocks_of(int(archive.index.alive[position]))[0]
    most = int(archive.groups[int(archive.index.blocks["group"][block])].meta["coder"]["components"])
    return _sample(archive, position, refs, most)


def _sample(archive: Archive | Scores, position: int, refs: dict[bytes, ImageRef], most: int) -> SampleImage:
    name, image = archive.names_bytes[position], int(archive.alive[position])
    original = None
    if name in refs:
        header = images.probe(refs[name].path, deep=True)
        shape = archive.index.shape(image)
        size = None if (header.height, header.width) == shape else shape
        original = images.read(refs[name].path, size=size, deep=True).pixels
    return SampleImage(
        printable(name), original, most, lambda components: archive.read(position, components=components)
    )


def from_basis(basis: TensorBasis, framing: Framing, sources: Sequence[str], count: int) -> list[SampleImage]:
    """Some images of `sources` that fit a basis, as the basis gives them back without quantization."""
    refs = scan(sources).refs
    size = (framing.height, framing.width) if framing.kind == "whole" else None
    found: list[SampleImage] = []
    for at in evenly_spaced(len(refs), 4 * count):
        try:
            picture = images.read(refs[at].path, size=size, channels=framing.channels)
        except ImageRefused:
            continue
        found.append(_basis_sample(basis, framing, printable(refs[at].name), picture.pixels))
    if not found:
        raise TpcaError("no image of the source fits the basis")
    return [found[at] for at in evenly_spaced(len(found), count)]


def _basis_sample(basis: TensorBasis, framing: Framing, name: str, pixels: AnyPixels) -> SampleImage:
    h, w, _ = pixels.shape
    coefficients = basis.project(framing.split(pixels))  # (frames, M)
    peak = np.iinfo(pixels.dtype).max

    def rebuild(components: int) -> AnyPixels:
        frames = basis.reconstruct(coefficients[:, :components])
        rounded: AnyPixels = np.clip(np.rint(frames), 0, peak).astype(pixels.dtype)
        return framing.join(rounded, h, w)

    return SampleImage(name, pixels, basis.components, rebuild)


def gallery(samples: Sequence[SampleImage], counts: Sequence[int], side: int = 128) -> Pixels:
    """Originals over their reconstructions at several M, with the PSNR under each."""
    rows, titles = [], []
    if any(sample.original is not None for sample in samples):
        rows.append([Cell(to_rgb(_reference(sample)), sample.name) for sample in samples])
        titles.append("original")
    for count in counts:
        cells = []
        for sample in samples:
            rebuilt = sample.rebuild(min(count, sample.most))
            original = sample.original
            caption = sample.name if original is None else decibels(psnr(original, rebuilt))
            cells.append(Cell(to_rgb(rebuilt), caption))
        rows.append(cells)
        titles.append(f"M={count}")
    return contact_sheet(rows, titles=titles, side=side)


def _reference(sample: SampleImage) -> AnyPixels:
    return sample.rebuild(sample.most) if sample.original is None else sample.original


def decibels(value: float) -> str:
    """A PSNR as words: `37.6 dB`, or `identical`."""
    return "identical" if math.isinf(value) else f"{value:.1f} dB"


def comparisons(samples: Sequence[SampleImage], count: int) -> tuple[Comparison, ...]:
    """The same images for the page's sliders; without an original, all components are the reference."""
    return tuple(_comparison(sample, count) for sample in samples)


def _comparison(sample: SampleImage, count: int) -> Comparison:
    original = sample.original
    steps = []
    for components in component_counts(sample.most, count):
        rebuilt = sample.rebuild(components)
        quality = None if original is None else psnr(original, rebuilt)
        steps.append(Step(components, _png(rebuilt), quality))
    return Comparison(sample.name, _png(_reference(sample)), sample.most, tuple(steps))


def _png(pixels: AnyPixels) -> bytes:
    """The middle of a picture as a PNG file for looking at."""
    top, left = (max(0, (side - CROP) // 2) for side in pixels.shape[:2])
    return images.encode_file(to_rgb(pixels[top : top + CROP, left : left + CROP]), "RGB")


def rate_curves(
    pictures: Sequence[AnyPixels],
    train: Callable[[float], Coder],
    method: str,
    share: float = 1.0,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Curve, ...]:
    """Curves of a basis (`train` makes its coder for a step) and of the other codecs on 8-bit pictures.

    The pictures are the `share` of a folder: that much of the basis is theirs to pay.
    """
    if any(pixels.dtype != np.uint8 or pixels.shape[2] not in (1, 3) for pixels in pictures):
        raise UsageError("rate-distortion curves need 8-bit gray or color images: JPEG holds nothing else")
    area = sum(pixels.shape[0] * pixels.shape[1] for pixels in pictures)
    done, total = 0, len(RATE_STEPS) + sum(map(len, RATE_QUALITIES.values()))

    def advance() -> None:
        nonlocal done
        done += 1
        if progress:
            progress("measuring", done, total)

    points = []
    for step in RATE_STEPS:
        size, error = _archive_size(pictures, train(step), method, share)
        points.append((8.0 * size / area, error))
        advance()
    curves = [_curve("tpca, basis included", points, pictures)]
    for codec in images.LOSSY_CODECS:
        points = []
        for quality in RATE_QUALITIES[codec]:
            results = [images.lossy_copy(pixels, codec, quality) for pixels in pictures]
            error = sum(squared_error(a, b) for a, (_, b) in zip(pictures, results, strict=True))
            points.append((8.0 * sum(size for size, _ in results) / area, error))
            advance()
        curves.append(_curve(codec, points, pictures))
    return tuple(curves)


def _curve(name: str, points: Sequence[tuple[float, float]], pictures: Sequence[AnyPixels]) -> Curve:
    count = sum(pixels.size for pixels in pictures)
    # nothing lost has no PSNR: such a point is left out
    known = [(bits, psnr_of(error, count, 255.0)) for bits, error in points if error > 0]
    return Curve(name, tuple(bits for bits, _ in known), tuple(quality for _, quality in known))


def charged(size: int, fixed: int, share: float) -> float:
    """The bytes of a sample: `fixed` are in the file whatever the number of images, and are shared by all."""
    return size - fixed + share * fixed


def count(sources: Sequence[str]) -> int:
    """How many images the sources hold."""
    return len(scan(sources).refs)


def _archive_size(
    pictures: Sequence[AnyPixels], coder: Coder, method: str, share: float
) -> tuple[float, float]:
    """Bytes of an archive of the pictures, with their share of basis and tables, and the squared error."""
    entries, blocks, payload, total = [], [], [], 0.0
    for first, count in _blocks(pictures):
        encoded = coder.encode(pictures[first : first + count])
        digest = digest_of(encoded.data)
        blocks.append(BlockRecord(len(encoded.data), 0, first, count, 0, 0, digest))
        payload.append(encoded.data)
        total += float(encoded.sse.sum())
    mode = "L" if coder.framing.channels == 1 else "RGB"
    for number, pixels in enumerate(pictures):
        h, w, _ = pixels.shape
        digest = images.source_digest(pixels.tobytes())
        entries.append(Entry(b"%d" % number, digest, 0, pixels.size, h, w, mode, 0))
    index = Index.build(entries, blocks)
    with tempfile.TemporaryDirectory() as folder:
        group = Group.of(coder, method)
        size = write_archive(Path(folder) / "curve.h5", index, [group], payload, target_asked={}).size
    own = sum(map(len, payload)) + sum(array.nbytes for array in index.to_arrays().values())
    return charged(size, max(0, size - own), share), total


def _blocks(pictures: Sequence[AnyPixels]) -> list[tuple[int, int]]:
    """(first, count) of runs of pictures that fill about a block."""
    runs, first, area = [], 0, 0
    for number, pixels in enumerate(pictures):
        size = pixels.shape[0] * pixels.shape[1]
        if number > first and area + size > BLOCK_PIXELS:
            runs.append((first, number - first))
            first, area = number, 0
        area += size
    return [*runs, (first, len(pictures) - first)]
