"""The three experiments of the paper on the folders that are there; writes docs/EXPERIMENTS.md.

    python tests/benchmarks/paper.py DATA [--tiny FOLDER] [--caltech FOLDER] [--flowers FOLDER]
        [--only tiny] [--docs docs] [--work build/paper]

DATA holds `tiny/`, `caltech/` and `flowers/`, or the options say where they are; a folder that is missing is
left out and the page says so. Of a folder with more images than the paper used, as many are taken, evenly
spaced. Bases and archives are made by the command line, in processes of their own. Whatever is finished is
kept in --work with what it took: a run that was interrupted goes on where it was, and one that is complete
only writes the page. Remove the folder to measure anew.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from paper_measure import (
    Cost,
    Pixels,
    Rebuilt,
    evenly,
    jpeg_at,
    kept,
    load,
    mean_ssim,
    pooled_psnr,
    rebuild,
    run,
    spectrum_of,
)
from paper_page import Result, Truncation, write_page

from tpca_cli import images
from tpca_cli.basisfile import read_basis
from tpca_cli.report import charts, sheets
from tpca_cli.report.samples import decibels, evenly_spaced, psnr
from tpca_cli.sources.scan import scan
from tpca_cli.tensor_pca.basis import TensorBasis

Floats = NDArray[np.float64]
SHOWN, SHOWN_LARGE, ELEMENTS = 12, 8, 28
QUALITY = 80  # of the sheets, which are for looking
JUDGED = 10_000  # images that SSIM and JPEG are measured on, evenly spaced


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper; `figures` are its labels, in the order of `draw`.

    `truncations` are the ways to M components, with the options that ask for them; the last one is what the
    paper shows. `single`: all components are multiplied in float32, for want of hours.
    """

    title: str
    folder: str
    method: str
    size: tuple[int, int]
    components: int
    paper_images: int
    memory: str
    spectrum: str
    truncations: tuple[tuple[str, tuple[str, ...]], ...]
    figures: tuple[str, str, str, str, str]
    single: bool = False


EXPERIMENTS = (
    Experiment(
        "TinyImageNet", "tiny", "operator", (64, 64), 500, 100_000, "8G", "eigenvalues",
        (("`--solver fast`", ("--solver", "fast")),),
        ("TINYeigenvalues", "TINYbasis", "TINY", "TINYreconstructed", "TINYtruncatedRecon"),
        single=True,
    ),
    Experiment(
        "CALTECH-101", "caltech", "rank1", (64, 64), 500, 2_990, "2G", "singular values",
        (("chosen rank-1 tensors (4B15)", ("--truncation", "indices")),
         ("singular values (4B14)", ("--truncation", "svd"))),
        ("caltech101singularValues", "caltech101basis", "caltech101", "caltech101reconstructed",
         "caltech101truncatedRecon"),
    ),
    Experiment(
        "FLOWERS", "flowers", "subspace", (128, 128), 300, 3_660, "2G", "eigenvalues",
        (("eigentensors of a fit of M", ()),),
        ("FLOWERSeigenvalues", "FLOWERSbasis", "FLOWERS", "FLOWERSreconstructed", "FLOWERStruncatedRecon"),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """The images of an experiment: the argument that names them to `tpca`, their pixels and names."""

    argument: str
    frames: Pixels
    names: list[str]

    @property
    def total(self) -> float:
        """The energy of all frames."""
        return float(sum(int(np.einsum("i,i", x, x)) for x in self._rows()))

    def _rows(self) -> Any:
        return (frame.reshape(-1).astype(np.int64) for frame in self.frames)


def source_of(experiment: Experiment, folder: Path, work: Path) -> Source:
    """The folder, or as many of its images as the paper used, evenly spaced, as a list of files."""
    refs = scan([str(folder)]).refs
    argument = str(folder)
    if len(refs) > experiment.paper_images:
        refs = [refs[k] for k in evenly(len(refs), experiment.paper_images)]
        listing = work / f"{experiment.folder}.txt"
        listing.write_text("\n".join(os.fsdecode(ref.path) for ref in refs) + "\n")
        argument = f"@{listing}"
    frames, names = load(refs, experiment.size)
    return Source(argument, frames, names)


@dataclass(frozen=True)
class Fit:
    """A basis file and what it took."""

    path: Path
    cost: Cost

    def basis(self) -> TensorBasis:
        return read_basis(self.path).basis


class Study:
    """One experiment: every step is done once, and kept."""

    def __init__(self, experiment: Experiment, folder: Path, work: Path) -> None:
        self.experiment, self.work = experiment, work
        self.source = source_of(experiment, folder, work)
        self.frames = self.source.frames
        self.size = "x".join(map(str, experiment.size))
        count = len(self.frames)
        # where M is every image there is, a third of them shows what truncation does
        self.m = experiment.components if experiment.components < count else count // 3

    def fit(self, name: str, *wish: object) -> Fit:
        e = self.experiment
        path = self.work / f"{e.folder}-{name}.h5"
        words = ("fit-basis", self.source.argument, "--method", e.method, "--size", self.size)
        cost = run(*words, "--memory", e.memory, *wish, "-o", path, "--force", keep=path.with_suffix(".json"))
        return Fit(path, cost)

    def fits(self) -> tuple[Fit, list[Fit]]:
        """The basis of all components, and one for each way to M of them."""
        every = self.fit("all", "--all")
        few = [
            self.fit(str(number), "--components", self.m, *wish)
            for number, (_, wish) in enumerate(self.experiment.truncations)
        ]
        return every, few

    def whole(self, every: Fit) -> dict[str, Any]:
        """Samples that all components do not give back."""

        def compute() -> dict[str, Any]:
            dtype = np.float32 if self.experiment.single else np.float64
            return asdict(rebuild(every.basis(), self.frames, dtype))

        return kept(self.work / f"{self.experiment.folder}-whole.json", every.cost.key, compute)

    def cuts(self, every: Fit, few: Sequence[Fit]) -> tuple[Truncation, ...]:
        """M components in every way: the first of all, where these are in order, and those of each fit."""
        found = []
        if self.experiment.method != "rank1":
            found.append(self.truncated("first", "the first eigentensors of all", every))
        for number, (fit, (form, _)) in enumerate(zip(few, self.experiment.truncations, strict=True)):
            found.append(self.truncated(str(number), form, fit))
        return tuple(found)

    def truncated(self, name: str, form: str, fit: Fit) -> Truncation:
        """M components: their error before rounding, and what the dropped energies promise."""

        def compute() -> dict[str, Any]:
            basis, total = fit.basis().truncate(self.m), self.source.total
            found: Rebuilt = rebuild(basis, self.frames, np.float64)
            judged = evenly(len(self.frames), JUDGED)
            back = pixels_of(basis, self.frames[judged])
            return {
                "form": form,
                "components": basis.components,
                "psnr": pooled_psnr(found.squared, self.frames),
                "ssim": mean_ssim(self.frames[judged], back),
                "excess": (found.error - (total - float(basis.energies.sum()))) / found.error,
            }

        kept_at = self.work / f"{self.experiment.folder}-{name}-quality.json"
        return Truncation(**kept(kept_at, [form, self.m, *fit.cost.key], compute))

    def values(self, every: Fit) -> Floats:
        """All eigenvalues, from the basis, or by a second way where it has none."""
        if self.experiment.method != "rank1":
            return np.asarray(every.basis().energies)
        known = self.work / f"{self.experiment.folder}-spectrum.npy"
        if not known.exists():
            np.save(known, spectrum_of(self.frames))
        return np.asarray(np.load(known))

    def encode(self, name: str, *words: object) -> Cost:
        path = self.work / f"{self.experiment.folder}-{name}-archive.h5"
        fixed = ("encode", self.source.argument, "-o", path, "--size", self.size, "--force")
        return run(*fixed, *words, keep=path.with_suffix(".json"))

    def result(self, figures: Path) -> Result:
        """Everything that the page says."""
        e = self.experiment
        every, few = self.fits()
        whole = self.whole(every)
        cuts = self.cuts(every, few)
        shown = few[-1].basis()
        self.draw(figures, self.values(every), every.basis(), shown)
        target = cuts[-1].psnr
        paper = self.encode("paper", "--basis", few[-1].path, "--components", cuts[-1].components)
        auto = self.encode("auto", "--psnr", f"{target:.2f}")
        judged = self.frames[evenly(len(self.frames), JUDGED)]
        jpeg = kept(
            self.work / f"{e.folder}-jpeg.json",
            [target, len(judged)],
            lambda: asdict(jpeg_at(judged, target)),
        )
        return Result(
            title=e.title,
            method=e.method,
            size=self.size,
            images=len(self.frames),
            paper_images=e.paper_images,
            judged=len(judged),
            single=e.single,
            figures=e.figures,
            spectrum=e.spectrum,
            raw_bytes=self.frames.size,
            differing=whole["differing"],
            all_components=int(every.cost.data["components"]),
            truncations=cuts,
            fits=(
                ("--all", every.cost),
                *(
                    (" ".join(["--components", str(self.m), *wish]), fit.cost)
                    for fit, (_, wish) in zip(few, e.truncations, strict=True)
                ),
            ),
            memory=e.memory,
            encode_paper=paper,
            encode_auto=auto,
            jpeg_scale=len(self.frames) / len(judged),
            jpeg=jpeg,
        )  # fmt: skip

    def draw(self, figures: Path, values: Floats, whole: TensorBasis, few: TensorBasis) -> None:
        """The paper's five figures, under the paper's labels."""
        e, frames = self.experiment, self.frames
        spectrum, basis, originals, reconstructed, truncated = (figures / f for f in e.figures)
        shown = np.sqrt(values) if e.spectrum == "singular values" else values
        above = int(np.count_nonzero(values > values[0] * 1e-14))
        title = f"{e.title}, {len(frames):,} images: {e.spectrum}"
        drawn = charts.spectrum_charts(shown[:above], 0.0, e.spectrum)
        spectrum.with_suffix(".png").write_bytes(charts.to_file(drawn, title))
        elements = few.reconstruct(np.eye(min(ELEMENTS, few.components), few.components))
        _write(basis, sheets.basis_sheet(elements, [str(k + 1) for k in range(len(elements))], side=64))
        at = evenly_spaced(len(frames), SHOWN if frames.shape[1] <= 64 else SHOWN_LARGE)
        half = len(at) // 2
        some = frames[at]
        for path, pixels in ((originals, some), (reconstructed, pixels_of(whole, some)),
                             (truncated, pixels_of(few, some))):  # fmt: skip
            captions = [
                class_of(self.source.names[at[k]]) if pixels is some else decibels(psnr(some[k], pixels[k]))
                for k in range(len(at))
            ]
            cells = [sheets.Cell(picture, caption) for picture, caption in zip(pixels, captions, strict=True)]
            _write(path, sheets.contact_sheet([cells[:half], cells[half:]], side=frames.shape[1]))


def pixels_of(basis: TensorBasis, frames: Pixels) -> Pixels:
    """Frames from their components, as pixels."""
    back = [
        basis.reconstruct(basis.project(frames[start : start + 256])) for start in range(0, len(frames), 256)
    ]
    return np.clip(np.rint(np.concatenate(back)), 0, 255).astype(np.uint8)


def class_of(name: str) -> str:
    """The folder that an image is in, unless that is only called `images`."""
    folders = [part for part in name.split("/")[:-1] if part != "images"]
    return folders[-1] if folders else name


def _write(path: Path, sheet: Pixels) -> None:
    data = images.encode_file(sheet, "RGB", format="jpeg", quality=QUALITY)
    path.with_suffix(".jpg").write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", default=Path())
    for experiment in EXPERIMENTS:
        parser.add_argument(f"--{experiment.folder}", type=Path, help=f"the images of {experiment.title}")
    parser.add_argument("--only", help="run one experiment, by its folder")
    parser.add_argument("--work", type=Path, default=Path("build/paper"), help="keep what is finished here")
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    given = parser.parse_args()
    figures = given.docs / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    given.work.mkdir(parents=True, exist_ok=True)
    results, missing = [], []
    for experiment in EXPERIMENTS:
        if given.only not in (None, experiment.folder):
            continue
        folder = getattr(given, experiment.folder) or given.data / experiment.folder
        if folder.is_dir():
            results.append(Study(experiment, folder, given.work).result(figures))
        else:
            missing.append(experiment.title)
    write_page(given.docs / "EXPERIMENTS.md", results, missing)


if __name__ == "__main__":
    main()
