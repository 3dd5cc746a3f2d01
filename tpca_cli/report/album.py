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
from tpca_cli.archive.reader import Archive
from tpca_cli.basisfile import read_basis
from tpca_cli.codec.coder import Coder
from tpca_cli.errors import UsageError
from tpca_cli.report import charts, page, samples, sheets
from tpca_cli.report.describe import archive_facts, describe, image_list
from tpca_cli.report.facts import Facts, Spectrum
from tpca_cli.report.samples import SampleImage
from tpca_cli.report.scores import ScoresContents, basis_elements, scatter_chart
from tpca_cli.scores.reader import Scores
from tpca_cli.store import format_of
from tpca_cli.tensor_pca.basis import Rank1Basis
from tpca_cli.tensor_pca.fixed_basis import SCALE, FixedBasis

Progress = Callable[[str, int, int], None] | None
Floats = npt.NDArray[np.float64]
Trainer = tuple[Callable[[float], Coder], str]
SLIDER_COUNTS = 7  # component counts that the page's slider offers
GALLERY_COUNTS = 5  # and that a gallery shows
RATE_SAMPLE = 64  # images on which curves are measured
SPECTRUM_SAMPLE = 64  # images on which an archive's energies are measured


class Contents(Protocol):
    """What a kind of file must offer to be drawn."""

    facts: Facts

    def spectrum(self) -> Spectrum:
        """The strength of each component."""

    def elements(self, count: int) -> tuple[Floats, list[str]]:
        """The strongest basis elements, (k, h, w, c), with a label for each."""

    def sample(self, sources: Sequence[str], count: int) -> list[SampleImage]:
        """Some images, with their originals where `sources` has them."""

    def trainer(self, pictures: Sequence[Any]) -> Trainer | None:
        """What makes a coder of the pictures for a step, and the method of its basis; None without one."""

    def listing(self) -> list[dict[str, Any]]:
        """Every image with its quality; nothing where the file holds no images."""


class Album:
    """Draws the contents of a file."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.facts = contents.facts

    def listing(self) -> list[dict[str, Any]]:
        """Every image of an archive with its measured quality."""
        return self.contents.listing()

    def spectrum(self, format: str = "png") -> bytes:
        """A picture of the spectrum and the energy that the first M components hold."""
        found = self.contents.spectrum()
        title = f"{self.facts.name}: {len(found.values):,} components"
        return charts.to_file(charts.spectrum_charts(found.values, found.total, found.name), title, format)

    def basis_grid(self, count: int, format: str = "png") -> bytes:
        """A picture of the strongest basis elements."""
        tensors, labels = self.contents.elements(count)
        return images.encode_file(sheets.basis_sheet(tensors, labels), "RGB", format=format, quality=88)

    def gallery(self, sources: Sequence[str], count: int, format: str = "png") -> bytes:
        """A picture of originals over what comes back from more and more components."""
        chosen = self.contents.sample(sources, count)
        counts = samples.component_counts(max(each.most for each in chosen), GALLERY_COUNTS)
        return images.encode_file(samples.gallery(chosen, counts), "RGB", format=format, quality=88)

    def curves(self, sources: Sequence[str], progress: Progress = None) -> tuple[charts.Curve, ...]:
        """Curves on a sample of the sources: color images, gray ones where color has no basis, or none."""
        found = self.contents.sample(sources, 4 * RATE_SAMPLE)
        originals = [s.original for s in found if s.original is not None and s.original.dtype == np.uint8]
        for channels in (3, 1):
            alike = [pixels for pixels in originals if pixels.shape[2] == channels]
            pictures = alike[:RATE_SAMPLE]
            if alike and (found_coders := self.contents.trainer(pictures)) is not None:
                train, method = found_coders
                # the sample stands for all such images of the sources, and pays its share of their basis
                everything = len(alike) * max(1.0, samples.count(sources) / len(found))
                return samples.rate_curves(pictures, train, method, len(pictures) / everything, progress)
        return ()

    def rate_distortion(
        self, sources: Sequence[str], progress: Progress = None, format: str = "png"
    ) -> bytes:
        """A picture of the rate-distortion curves."""
        if isinstance(self.contents, ScoresContents):
            raise UsageError("a scores file has no rate-distortion curve: inspect its basis or an archive")
        measured = self.curves(sources, progress)
        if not measured:
            raise UsageError(
                "rate-distortion curves need 8-bit gray or color images in the source, and a basis for such"
            )
        return charts.to_file([charts.rate_chart(measured)], f"{self.facts.name}: bits and quality", format)

    def scatter(self, format: str = "png") -> bytes:
        """A picture of the images of a scores file by their first two components."""
        if not isinstance(self.contents, ScoresContents):
            raise UsageError("--scatter is for the scores of `tpca encode --plain`")
        chart = scatter_chart(self.contents.scores)
        return charts.to_file([chart], f"{self.facts.name}: first two components", format)

    def page(self, sources: Sequence[str], count: int, elements: int, progress: Progress = None) -> bytes:
        """The whole report; with sources, images are compared to their originals and to other codecs."""
        chosen = self.contents.sample(sources, count)
        listed = self.contents.listing()
        known = any(each.original is not None for each in chosen)
        beside = "Their originals are on the left." if known else "All components are on the left."
        if not getattr(self.contents, "has_basis", True):  # all that there is comes back exactly
            shown = samples.comparisons(chosen, SLIDER_COUNTS)
            told = "original" if known else "as archived"
            note = "The images come back exactly, or within the error that the archive states."
            return page.render(self.facts, page.Pictures(shown, told, note), listed).encode(
                "utf-8", "replace"
            )
        pictures = page.Pictures(
            comparisons=samples.comparisons(chosen, SLIDER_COUNTS),
            reference="original" if known else "all components",
            note=f"The first M components of the basis rebuild the images. {beside}",
            basis_sheet=self.basis_grid(elements),
            curves=self.curves(sources, progress) if sources else (),
        )
        if isinstance(self.contents, ScoresContents) and self.contents.scores.components > 1:
            pictures = replace(pictures, scatter=scatter_chart(self.contents.scores))
        found = self.contents.spectrum()
        facts = replace(self.facts, values=found.values, values_name=found.name, total=found.total)
        return page.render(facts, pictures, listed).encode("utf-8", "replace")


class ArchiveContents:
    """An archive: its images are rebuilt from what it stores, with the quantization it was made with."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.facts = archive_facts(archive)
        groups = archive.index.blocks["group"]
        based = [number for number in groups if not archive.is_exact(int(number))]
        self.group = int(np.bincount(based).argmax()) if based else 0  # with a basis, and most blocks
        self.has_basis = bool(based) or not len(groups)

    def listing(self) -> list[dict[str, Any]]:
        """Every image with its measured quality."""
        return image_list(self.archive)

    def sample(self, sources: Sequence[str], count: int) -> list[SampleImage]:
        """Images evenly spaced over the archive."""
        return samples.from_archive(self.archive, sources, count)

    def elements(self, count: int) -> tuple[Floats, list[str]]:
        """Basis elements of the largest group: what one coefficient adds to a frame."""
        basis = self.archive.coder(self.group).basis
        count = min(count, basis.components)
        unit = 4096.0 * SCALE * np.eye(basis.components, count)  # large: rounding must not show
        mean = basis.synthesize(np.zeros((basis.components, 1)))
        planes = basis.synthesize(unit) - mean  # (h, w, c, k)
        labels = [str(number + 1) for number in range(count)]
        if basis.indices is not None:
            labels = [",".join(str(j + 1) for j in index) for index in basis.indices[:count]]
        return np.moveaxis(planes, -1, 0), labels

    def spectrum(self) -> Spectrum:
        """The energy of each component, measured on decoded images of the largest group."""
        coder = self.archive.coder(self.group)
        energy = np.zeros(coder.basis.components)
        blocks = np.flatnonzero(self.archive.index.blocks["group"] == self.group)
        for at in samples.evenly_spaced(len(blocks), 4):
            for pixels in self.archive.block(int(blocks[at]))[:SPECTRUM_SAMPLE]:
                coefficients = coder.basis.project(coder.framing.split(pixels)) / SCALE  # (frames, M)
                energy += (coefficients.astype(np.float64) ** 2).sum(axis=0)
        return Spectrum("energies", np.sort(energy)[::-1], float(energy.sum()))

    def trainer(self, pictures: Sequence[Any]) -> Trainer | None:
        """Coders with the first basis of the archive that holds such pictures."""
        channels = pictures[0].shape[2]
        for number, group in enumerate(self.archive.groups):
            if self.archive.is_exact(number):  # it has no basis
                continue
            coder = self.archive.coder(number)
            if coder.framing.channels == channels and coder.basis.dtype == np.uint8:
                train = partial(_train, pictures, coder)
                return train, str(group.meta["method"])
        return None


def _train(pictures: Sequence[Any], like: Coder, step: float) -> Coder:
    return Coder.train(pictures, like.framing, like.basis, step)


class BasisContents:
    """A basis file: images come from the sources and are rebuilt without quantization."""

    def __init__(self, path: Path) -> None:
        self.facts = describe(path)
        self.stored = read_basis(path)
        self.basis = self.stored.basis

    def listing(self) -> list[dict[str, Any]]:
        """Nothing: a basis file holds no images."""
        return []

    def sample(self, sources: Sequence[str], count: int) -> list[SampleImage]:
        """Images evenly spaced over the sources, as the basis gives them back."""
        return samples.from_basis(self.basis, self.stored.framing, sources, count) if sources else []

    def elements(self, count: int) -> tuple[Floats, list[str]]:
        """Basis elements, each with its number and its share of the energy."""
        return basis_elements(self.basis, count)

    def spectrum(self) -> Spectrum:
        """The stored energies."""
        return Spectrum(self.facts.values_name, self.basis.energies, self.basis.total)

    def trainer(self, pictures: Sequence[Any]) -> Trainer | None:
        """Coders with the integers that an archive would store of this basis."""
        if pictures[0].shape[2] != self.stored.framing.channels:
            return None
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
def open_album(path: Path, basis: Path | None = None) -> Iterator[Album]:
    """The album of a file; `basis` is the file of the basis which it only links to."""
    kind = format_of(path)
    if kind == "tpca-archive":
        with Archive(path, basis=basis, ready=False) as archive:
            yield Album(ArchiveContents(archive))
        return
    if kind == "tpca-scores":
        with Scores(path, basis=basis) as scores:
            yield Album(ScoresContents(scores))
        return
    if kind == "tpca-basis":
        yield Album(BasisContents(path))
        return
    describe(path)  # a file that is none of ours is refused for what it is
    raise UsageError(f"a {kind} file has no pictures: inspect a basis or an archive")
