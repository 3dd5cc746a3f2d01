"""The pictures that a report compares: some images of a file, rebuilt from fewer and from more components."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli import images
from tpca_cli.archive.reader import Archive
from tpca_cli.errors import ImageRefused, TpcaError, printable
from tpca_cli.framing import Framing
from tpca_cli.quality import psnr as psnr_of
from tpca_cli.report.page import Comparison, Step
from tpca_cli.report.sheets import Cell, Pixels, contact_sheet, to_rgb
from tpca_cli.sources.scan import ImageRef, scan
from tpca_cli.tensor_pca.basis import TensorBasis

AnyPixels = npt.NDArray[Any]
CROP = 256  # the page shows at most this much of an image, from its middle


@dataclass(frozen=True)
class Specimen:
    """One image: what it was, where known, and what it is when rebuilt from the first M components."""

    name: str
    original: AnyPixels | None
    most: int
    rebuild: Callable[[int], AnyPixels]


def spread(total: int, count: int) -> list[int]:
    """`count` positions, evenly spread over a list, so that every class of a folder has its chance."""
    count = min(count, total)
    return [(2 * k + 1) * total // (2 * count) for k in range(count)]


def ladder(most: int, count: int) -> list[int]:
    """At most `count` rising, round component counts in nearly equal ratios; `most` is the last."""
    round_ones = [lead * 10**power for power in range(len(str(most))) for lead in (1, 2, 5)]
    below = [number for number in round_ones if most / 400 <= number < 0.6 * most]
    return sorted({below[at] for at in spread(len(below), count - 1)} | {most})


def psnr(one: AnyPixels, other: AnyPixels) -> float:
    """The quality of one picture against another, in dB; infinite when every sample is equal."""
    peak = 65535.0 if one.dtype == np.uint16 else 255.0
    return psnr_of(float(((one.astype(np.float64) - other) ** 2).sum()), one.size, peak)


def from_archive(archive: Archive, sources: Sequence[str], count: int) -> list[Specimen]:
    """Some images of an archive, with their originals where `sources` still has them."""
    refs = {ref.name: ref for ref in scan(sources).refs} if sources else {}
    known = [position for position, name in enumerate(archive.names) if not refs or name in refs]
    if not known:
        raise TpcaError("none of the archive's images is in the source: names are relative to the folder")
    return [_archived(archive, known[at], refs) for at in spread(len(known), count)]


def _archived(archive: Archive, position: int, refs: dict[bytes, ImageRef]) -> Specimen:
    name = archive.names[position]
    image = int(archive.index.alive()[position])
    block = archive.index.blocks_of(image)[0]
    most = archive.coder(int(archive.index.blocks["group"][block])).components
    original = None
    if name in refs:
        header = images.probe(refs[name].path)
        shape = archive.index.shape(image)
        size = None if (header.height, header.width) == shape else shape
        original = images.read(refs[name].path, size=size).pixels
    return Specimen(
        printable(name), original, most, lambda components: archive.read(position, components=components)
    )


def from_basis(basis: TensorBasis, framing: Framing, sources: Sequence[str], count: int) -> list[Specimen]:
    """Some images of `sources` that fit a basis, as the basis gives them back without quantization."""
    refs = scan(sources).refs
    size = (framing.height, framing.width) if framing.kind == "whole" else None
    found: list[Specimen] = []
    for at in spread(len(refs), 4 * count):
        try:
            picture = images.read(refs[at].path, size=size, channels=framing.channels)
        except ImageRefused:
            continue
        found.append(_projected(basis, framing, printable(refs[at].name), picture.pixels))
    if not found:
        raise TpcaError("no image of the source fits the basis")
    return [found[at] for at in spread(len(found), count)]


def _projected(basis: TensorBasis, framing: Framing, name: str, pixels: AnyPixels) -> Specimen:
    h, w, _ = pixels.shape
    coefficients = basis.project(framing.split(pixels))  # (frames, M)
    peak = np.iinfo(pixels.dtype).max

    def rebuild(components: int) -> AnyPixels:
        frames = basis.reconstruct(coefficients[:, :components])
        rounded: AnyPixels = np.clip(np.rint(frames), 0, peak).astype(pixels.dtype)
        return framing.join(rounded, h, w)

    return Specimen(name, pixels, basis.components, rebuild)


def gallery(specimens: Sequence[Specimen], counts: Sequence[int], side: int = 128) -> Pixels:
    """Originals over their reconstructions at several M, with the PSNR under each."""
    rows, titles = [], []
    if any(specimen.original is not None for specimen in specimens):
        rows.append([Cell(to_rgb(_known(specimen)), specimen.name) for specimen in specimens])
        titles.append("original")
    for count in counts:
        cells = []
        for specimen in specimens:
            rebuilt = specimen.rebuild(min(count, specimen.most))
            original = specimen.original
            caption = specimen.name if original is None else decibels(psnr(original, rebuilt))
            cells.append(Cell(to_rgb(rebuilt), caption))
        rows.append(cells)
        titles.append(f"M={count}")
    return contact_sheet(rows, titles=titles, side=side)


def _known(specimen: Specimen) -> AnyPixels:
    return specimen.rebuild(specimen.most) if specimen.original is None else specimen.original


def decibels(value: float) -> str:
    return "identical" if math.isinf(value) else f"{value:.1f} dB"


def comparisons(specimens: Sequence[Specimen], count: int) -> tuple[Comparison, ...]:
    """The same images for the page's sliders; without an original, all components are the reference."""
    return tuple(_comparison(specimen, count) for specimen in specimens)


def _comparison(specimen: Specimen, count: int) -> Comparison:
    original = specimen.original
    steps = []
    for components in ladder(specimen.most, count):
        rebuilt = specimen.rebuild(components)
        quality = None if original is None else psnr(original, rebuilt)
        steps.append(Step(components, _png(rebuilt), quality))
    return Comparison(specimen.name, _png(_known(specimen)), specimen.most, tuple(steps))


def _png(pixels: AnyPixels) -> bytes:
    """The middle of a picture as a PNG file for looking at."""
    top, left = (max(0, (side - CROP) // 2) for side in pixels.shape[:2])
    return images.encode_file(to_rgb(pixels[top : top + CROP, left : left + CROP]), "RGB")
