"""The pictures of one open file, whatever its kind: bytes of PNG and HTML files for the caller to write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tpca_cli import images
from tpca_cli.archive import Archive
from tpca_cli.bases import Rank1Basis
from tpca_cli.basisfile import read_basis
from tpca_cli.codec.coder import Coder
from tpca_cli.errors import UsageError
from tpca_cli.fixed import SCALE, FixedBasis
from tpca_cli.report import curves, page, plots, samples, sheets
from tpca_cli.report.facts import describe
from tpca_cli.report.model import Facts
from tpca_cli.report.of_archive import archive_facts, image_list
from tpca_cli.report.samples import Specimen
from tpca_cli.store.peek import format_of

Progress = Callable[[str, int, int], None] | None
Floats = npt.NDArray[np.float64]
STEPS = 7  # component counts that the page's slider offers
ROWS = 5  # and that a gallery shows
RATE_SAMPLE = 64  # images on which curves are measured
SPECTRUM_SAMPLE = 64  # images on which an archive's energies are measured


class Contents(Protocol):
    """What a kind of file must offer to be drawn."""

    facts: Facts

    def spectrum(self) -> tuple[Floats, float]: ...
    def elements(self, count: int) -> tuple[Floats, list[str]]: ...
    def specimens(self, sources: Sequence[str], count: int) -> list[Specimen]: ...
    def trainer(self, pictures: Sequence[Any]) -> tuple[Callable[[float], Coder], str]: ...
    def listing(self) -> list[dict[str, Any]]: ...


class Album:
    """Draws the contents of a file."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.facts = contents.facts

    def listing(self) -> list[dict[str, Any]]:
        return self.contents.listing()

    def spectrum(self) -> bytes:
        values, total = self.contents.spectrum()
        title = f"{self.facts.name}: {len(values):,} components"
        return plots.spectrum_png(values, total, name=self.facts.values_name, title=title)

    def basis_grid(self, count: int, format: str = "png") -> bytes:
        tensors, labels = self.contents.elements(count)
        return images.encode_file(sheets.basis_sheet(tensors, labels), "RGB", format=format, quality=88)

    def gallery(self, sources: Sequence[str], count: int, format: str = "png") -> bytes:
        specimens = self.contents.specimens(sources, count)
        counts = samples.ladder(max(specimen.most for specimen in specimens), ROWS)
        return images.encode_file(samples.gallery(specimens, counts), "RGB", format=format, quality=88)

    def curves(self, sources: Sequence[str], progress: Progress = None) -> tuple[plots.Curve, ...]:
        """Curves on a sample of the sources: color images, or gray ones where there is no color."""
        found = self.contents.specimens(sources, 4 * RATE_SAMPLE)
        originals = [s.original for s in found if s.original is not None and s.original.dtype == np.uint8]
        for channels in (3, 1):
            pictures = [pixels for pixels in originals if pixels.shape[2] == channels][:RATE_SAMPLE]
            if pictures:
                train, method = self.contents.trainer(pictures)
                return curves.measure(pictures, train, method, progress)
        raise UsageError("rate-distortion curves need 8-bit gray or color images in the source")

    def rate_distortion(self, sources: Sequence[str], progress: Progress = None) -> bytes:
        measured = self.curves(sources, progress)
        return plots.rate_distortion_png(measured, title=f"{self.facts.name}: bits and quality")

    def page(self, sources: Sequence[str], count: int, elements: int, progress: Progress = None) -> bytes:
        """The whole report; with sources, images are compared to their originals and to other codecs."""
        specimens = self.contents.specimens(sources, count)
        listed = self.contents.listing()
        known = any(specimen.original is not None for specimen in specimens)
        against = "Their originals are on the left." if known else "All components are on the left."
        pictures = page.Pictures(
            comparisons=samples.comparisons(specimens, STEPS),
            reference="original" if known else "all components",
            note=f"The first M components of the basis rebuild the images. {against}",
            basis_sheet=self.basis_grid(elements),
            curves=self.curves(sources, progress) if sources else (),
        )
        values, total = self.contents.spectrum()
        facts = replace(self.facts, values=values, total=total)
        return page.render(facts, pictures, listed).encode("utf-8", "replace")


class ArchiveContents:
    """An archive: its images are rebuilt from what it stores, with the quantization it was made with."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.facts = replace(archive_facts(archive), values_name="energies")
        groups = archive.index.blocks["group"]
        self.group = int(np.bincount(groups).argmax()) if len(groups) else 0  # the group with most blocks

    def listing(self) -> list[dict[str, Any]]:
        return image_list(self.archive)

    def specimens(self, sources: Sequence[str], count: int) -> list[Specimen]:
        return samples.from_archive(self.archive, sources, count)

    def elements(self, count: int) -> tuple[Floats, list[str]]:
        """Basis elements of the largest group: what one coefficient adds to a frame."""
        basis = self.archive.coder(self.group).basis
        count = min(count, basis.components)
        unit = 4096.0 * SCALE * np.eye(basis.components, count)  # large: rounding must not show
        silent = basis.synthesize(np.zeros((basis.components, 1)))
        planes = basis.synthesize(unit) - silent  # (h, w, c, k)
        labels = [str(number + 1) for number in range(count)]
        if basis.indices is not None:
            labels = [",".join(str(j + 1) for j in index) for index in basis.indices[:count]]
        return np.moveaxis(planes, -1, 0), labels

    def spectrum(self) -> tuple[Floats, float]:
        """The energy of each component, measured on decoded images of the largest group."""
        coder = self.archive.coder(self.group)
        energy = np.zeros(coder.basis.components)
        blocks = np.flatnonzero(self.archive.index.blocks["group"] == self.group)
        for at in samples.spread(len(blocks), 4):
            for pixels in self.archive.block(int(blocks[at]))[:SPECTRUM_SAMPLE]:
                coefficients = coder.basis.project(coder.framing.split(pixels)) / SCALE  # (frames, M)
                energy += (coefficients.astype(np.float64) ** 2).sum(axis=0)
        return np.sort(energy)[::-1], float(energy.sum())

    def trainer(self, pictures: Sequence[Any]) -> tuple[Callable[[float], Coder], str]:
        channels = pictures[0].shape[2]
        coders = [self.archive.coder(number) for number in range(len(self.archive.groups))]
        for coder, group in zip(coders, self.archive.groups, strict=True):
            if coder.framing.channels == channels and coder.basis.dtype == np.uint8:
                train = partial(_train, pictures, coder)
                return train, str(group.meta["method"])
        raise UsageError("the archive has no basis for 8-bit images of this kind")


def _train(pictures: Sequence[Any], like: Coder, step: float) -> Coder:
    return Coder.train(pictures, like.framing, like.basis, step)


class BasisContents:
    """A basis file: images come from the sources and are rebuilt without quantization."""

    def __init__(self, path: Path) -> None:
        self.facts = describe(path)
        self.stored = read_basis(path)
        self.basis = self.stored.basis

    def listing(self) -> list[dict[str, Any]]:
        return []

    def specimens(self, sources: Sequence[str], count: int) -> list[Specimen]:
        return samples.from_basis(self.basis, self.stored.framing, sources, count) if sources else []

    def elements(self, count: int) -> tuple[Floats, list[str]]:
        count = min(count, self.basis.components)
        tensors = self.basis.reconstruct(np.eye(count, self.basis.components))  # (k, h, w, c)
        if self.basis.mean is not None:
            tensors = tensors - self.basis.mean
        shares = 100.0 * self.basis.energies[:count] / (self.basis.total or 1.0)
        return tensors, [f"{number + 1}: {share:.2g} %" for number, share in enumerate(shares)]

    def spectrum(self) -> tuple[Floats, float]:
        return self.basis.energies, self.basis.total

    def trainer(self, pictures: Sequence[Any]) -> tuple[Callable[[float], Coder], str]:
        if pictures[0].shape[2] != self.stored.framing.channels:
            raise UsageError("the images have another number of channels than the basis")
        fixed = self._fixed()
        return lambda step: Coder.train(pictures, self.stored.framing, fixed, step), self.basis.method

    def _fixed(self) -> FixedBasis:
        """The integers that an archive would store."""
        basis = self.basis
        if isinstance(basis, Rank1Basis) and basis.rotation is None:
            return FixedBasis.from_modes(basis.modes, basis.indices, mean=basis.mean)
        matrix = self.elements(basis.components)[0].reshape(basis.components, -1).T  # (L, M)
        return FixedBasis.from_dense(matrix, basis.frame_shape, mean=basis.mean)


@contextmanager
def open_album(path: Path, basis: npt.NDArray[np.uint8] | None = None) -> Iterator[Album]:
    """The album of a file; `basis` is that of an archive which only links to one."""
    kind = format_of(path)
    if kind == "tpca-archive":
        with Archive(path, basis=basis, ready=False) as archive:
            yield Album(ArchiveContents(archive))
        return
    if kind == "tpca-basis":
        yield Album(BasisContents(path))
        return
    describe(path)  # a file that is none of ours is refused for what it is
    raise UsageError(f"a {kind} file has no pictures: inspect a basis or an archive")
