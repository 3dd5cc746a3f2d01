"""The three experiments of the paper on the folders that are there; writes docs/EXPERIMENTS.md.

    python tests/benchmarks/paper.py DATA [--only tiny] [--docs docs] [--work FOLDER]

DATA holds `tiny/`, `caltech/` and `flowers/`; a folder that is missing is left out and the page says so.
Bases are fitted by the command line, in processes of their own; with --work they are kept, with what they
took, for the next run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from paper_measure import Cost, Jpeg, Pixels, jpeg_at, load, mean_ssim, pooled_psnr, run, squared
from paper_page import Result, write_page

from tpca_cli import images
from tpca_cli.basisfile import read_basis
from tpca_cli.report import charts, sheets
from tpca_cli.report.samples import decibels, evenly_spaced, psnr

Floats = NDArray[np.float64]
BLOCK = 256
SHOWN, SHOWN_LARGE, ELEMENTS = 12, 8, 28
QUALITY = 80  # of the sheets, which are for looking


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper; `figures` are its labels, in the order of `draw`."""

    title: str
    folder: str
    method: str
    size: tuple[int, int]
    components: int
    paper_images: int
    spectrum: str
    figures: tuple[str, str, str, str, str]


EXPERIMENTS = (
    Experiment(
        "TinyImageNet", "tiny", "operator", (64, 64), 500, 100_000, "eigenvalues",
        ("TINYeigenvalues", "TINYbasis", "TINY", "TINYreconstructed", "TINYtruncatedRecon"),
    ),
    Experiment(
        "CALTECH-101", "caltech", "rank1", (64, 64), 500, 2_990, "singular values",
        ("caltech101singularValues", "caltech101basis", "caltech101", "caltech101reconstructed",
         "caltech101truncatedRecon"),
    ),
    Experiment(
        "FLOWERS", "flowers", "subspace", (128, 128), 300, 3_660, "eigenvalues",
        ("FLOWERSeigenvalues", "FLOWERSbasis", "FLOWERS", "FLOWERSreconstructed", "FLOWERStruncatedRecon"),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Truncation:
    """M components: the error that was measured and the one that the eigenvalues promise."""

    form: str
    components: int
    error: float
    dropped: float
    rebuilt: Pixels


def rounded(frames: Floats) -> Pixels:
    return np.clip(np.rint(frames), 0, 255).astype(np.uint8)


def rebuild(frames: Pixels, coefficients: Floats, back: Callable[[Floats], Floats]) -> tuple[float, Pixels]:
    """The frames from their coefficients, block by block: the error before rounding, and the pixels."""
    error, rebuilt = 0.0, np.empty_like(frames)
    for start in range(0, len(frames), BLOCK):
        part = slice(start, start + BLOCK)
        values = back(coefficients[part])
        error += float(((values - frames[part]) ** 2).sum())
        rebuilt[part] = rounded(values)
    return error, rebuilt


def study(experiment: Experiment, data: Path, work: Path, figures: Path) -> Result:
    """Fit, rebuild with all and with M components, compare, draw."""
    folder, (h, w) = data / experiment.folder, experiment.size
    size = f"{h}x{w}"
    frames, names = load(folder, experiment.size)
    every, few = work / f"{experiment.folder}-all.h5", work / f"{experiment.folder}.h5"
    fit = ("fit-basis", folder, "--method", experiment.method, "--size", size, "--memory", "8G")
    all_cost = run(*fit, "--all", "-o", every, "--force", keep=every.with_suffix(".json"))

    basis = read_basis(every).basis
    coefficients = np.empty((len(frames), basis.components))
    for start in range(0, len(frames), BLOCK):
        coefficients[start : start + BLOCK] = basis.project(frames[start : start + BLOCK])
    _, whole = rebuild(frames, coefficients, basis.reconstruct)
    values = measured = (coefficients**2).sum(axis=0)
    total = float((frames.astype(np.float64) ** 2).sum())

    m = min(experiment.components, len(frames))
    cut: list[Truncation] = []
    if experiment.method == "rank1":
        kept = np.argsort(-measured, kind="stable")[:m]
        masked = np.zeros_like(coefficients)
        masked[:, kept] = coefficients[:, kept]
        error, pixels = rebuild(frames, masked, basis.reconstruct)
        cut.append(Truncation("chosen rank-1 tensors (4B15)", m, error, total - measured[kept].sum(), pixels))
        # D = U S Z' (eq 4B14), from the small side: D D' = U S^2 U'
        squares, left = np.linalg.eigh(coefficients @ coefficients.T)
        values, left = np.maximum(squares[::-1], 0.0), left[:, ::-1]
        error, pixels = rebuild(frames, left[:, :m] @ (left[:, :m].T @ coefficients), basis.reconstruct)
        cut.append(Truncation("singular values (4B14)", m, error, float(values[m:].sum()), pixels))
        right = (left[:, :ELEMENTS].T @ coefficients) / np.sqrt(values[:ELEMENTS, None])
        elements = basis.reconstruct(right)
    else:
        # where M is already every image there is, a third of them shows what truncation does
        for count in (m,) if m < len(frames) else (m, m // 3):
            error, pixels = rebuild(frames, coefficients[:, :count], basis.reconstruct)
            dropped = total - float(basis.energies[:count].sum())
            cut.append(Truncation("eigentensors", count, error, dropped, pixels))
        values = basis.energies
        elements = basis.reconstruct(np.eye(ELEMENTS, basis.components))

    few_cost = run(
        *fit, "--components", cut[-1].components, "-o", few, "--force", keep=few.with_suffix(".json")
    )
    draw(experiment, figures, values, total, elements, frames, whole, cut[-1].rebuilt, names)
    target = pooled_psnr(squared(frames, cut[-1].rebuilt), frames)
    return summary(experiment, frames, whole, cut, (all_cost, few_cost), few, folder, target, work)


def summary(
    experiment: Experiment,
    frames: Pixels,
    whole: Pixels,
    cut: list[Truncation],
    fits: tuple[Cost, Cost],
    basis: Path,
    folder: Path,
    target: float,
    work: Path,
) -> Result:
    """The numbers of one experiment: quality, files, time and memory."""
    size = "x".join(map(str, experiment.size))
    total = float((frames.astype(np.float64) ** 2).sum())
    paper = run(
        "encode", folder, "-o", work / "paper.h5", "--basis", basis, "--components", cut[-1].components,
        "--size", size, "--force",
    )  # fmt: skip
    chosen = run(
        "encode", folder, "-o", work / "auto.h5", "--psnr", f"{target:.2f}", "--size", size, "--force"
    )
    jpeg: Jpeg = jpeg_at(frames, target)
    return Result(
        title=experiment.title,
        method=experiment.method,
        size=size,
        images=len(frames),
        paper_images=experiment.paper_images,
        figures=experiment.figures,
        spectrum=experiment.spectrum,
        raw_bytes=frames.size,
        differing=int((whole != frames).sum()),
        all_components=int(fits[0].data["components"]),
        truncations=tuple(
            (
                t.form,
                t.components,
                pooled_psnr(squared(frames, t.rebuilt), frames),
                mean_ssim(frames, t.rebuilt),
                (t.error - t.dropped) / max(t.dropped, 1e-6 * total),
            )
            for t in cut
        ),
        fit_all=fits[0],
        fit_few=fits[1],
        encode_paper=paper,
        encode_auto=chosen,
        jpeg=jpeg,
    )


def draw(
    experiment: Experiment,
    figures: Path,
    values: Floats,
    total: float,
    elements: Floats,
    frames: Pixels,
    whole: Pixels,
    cut: Pixels,
    names: list[str],
) -> None:
    """The paper's five figures, under the paper's labels."""
    spectrum, basis, originals, reconstructed, truncated = (figures / f"{f}.png" for f in experiment.figures)
    shown = np.sqrt(values) if experiment.spectrum == "singular values" else values
    title = f"{experiment.title}, {len(frames):,} images: {experiment.spectrum}"
    energy = values[values > values[0] * 1e-14] / total
    drawn = charts.spectrum_charts(shown[: len(energy)], 0.0, experiment.spectrum)
    spectrum.write_bytes(charts.to_file(drawn, title))
    labels = [str(number + 1) for number in range(len(elements))]
    sheet = sheets.basis_sheet(elements, labels, side=64)
    basis.with_suffix(".jpg").write_bytes(images.encode_file(sheet, "RGB", format="jpeg", quality=QUALITY))
    at = evenly_spaced(len(frames), SHOWN if frames.shape[1] <= 64 else SHOWN_LARGE)
    half = len(at) // 2
    for path, pixels in ((originals, frames), (reconstructed, whole), (truncated, cut)):
        captions = [
            names[k].split("/")[0] if pixels is frames else decibels(psnr(frames[k], pixels[k])) for k in at
        ]
        cells = [sheets.Cell(pixels[k], caption) for k, caption in zip(at, captions, strict=True)]
        sheet = sheets.contact_sheet([cells[:half], cells[half:]], side=frames.shape[1])
        path.with_suffix(".jpg").write_bytes(images.encode_file(sheet, "RGB", format="jpeg", quality=QUALITY))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", help="run one experiment, by its folder")
    parser.add_argument("--work", type=Path, help="keep the bases here")
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    given = parser.parse_args()
    figures = given.docs / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    results, missing = [], []
    with tempfile.TemporaryDirectory() as private:
        work = given.work or Path(private)
        work.mkdir(parents=True, exist_ok=True)
        for experiment in EXPERIMENTS:
            if given.only not in (None, experiment.folder):
                continue
            if (given.data / experiment.folder).is_dir():
                results.append(study(experiment, given.data, work, figures))
            else:
                missing.append(experiment.title)
    write_page(given.docs / "EXPERIMENTS.md", results, missing)


if __name__ == "__main__":
    main()
