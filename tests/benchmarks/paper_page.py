"""The page that the paper's experiments become: docs/EXPERIMENTS.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paper_measure import Cost, Jpeg, table

from tpca_cli.report.facts import human

INTRO = """# The paper's experiments

Written by `make paper`; every number was measured, on one machine. The experiments are those of
*tensor PCA from a basis in tensor space* (Turchetti and Falaschetti): a basis from a self-adjoint operator
(Algorithm 1) on TinyImageNet, a rank-1 basis (Algorithm 2) on CALTECH-101, a basis of a subspace
(Algorithm 3) on FLOWERS. Figures carry the labels of the paper's. Added here: PSNR, SSIM, bytes on disk
with the basis counted, time, peak memory, and JPEG at the same PSNR.

- *Identical*: all components give every 8-bit sample back, after rounding.
- *Error / promise - 1*: the squared error of M components, measured before rounding, against what the dropped
  eigenvalues (or the measured energies, for chosen rank-1 tensors) promise; where nothing is dropped, in
  millionths of the total energy.
- PSNR is pooled over all samples; SSIM is the mean over channels, Gaussian window of 1.5 pixels.
- CPU time is that of all threads. Elapsed time also counts waiting for a processor that others use.
- Pictures on this page are JPEG files, for looking; the numbers come from the pixels themselves.
"""


@dataclass(frozen=True)
class Result:
    """All that the page says of one experiment."""

    title: str
    method: str
    size: str
    images: int
    paper_images: int
    figures: tuple[str, ...]
    spectrum: str
    raw_bytes: int
    differing: int
    all_components: int
    truncations: tuple[tuple[str, int, float, float, float], ...]
    fit_all: Cost
    fit_few: Cost
    encode_paper: Cost
    encode_auto: Cost
    jpeg: Jpeg


def write_page(path: Path, results: Sequence[Result], missing: Sequence[str]) -> None:
    parts = [INTRO, *map(_experiment, results)]
    if missing:
        parts.append(f"Not run, for want of their images: {', '.join(missing)}.\n")
    path.write_text("\n".join(parts), encoding="utf-8")


def _experiment(r: Result) -> str:
    identical = "identical" if r.differing == 0 else f"{r.differing:,} samples differ"
    rows = [[f"all ({r.all_components:,})", "", identical, "", ""]]
    for form, components, psnr, ssim, excess in r.truncations:
        quality = "identical" if psnr == float("inf") else f"{psnr:.2f} dB"
        rows.append([form, f"{components:,}", quality, f"{ssim:.4f}", f"{excess:+.1e}"])
    m = r.truncations[-1][1]
    return "\n".join(
        [
            f"## {r.title}: `--method {r.method}` at {r.size}\n",
            f"{r.images:,} images; the paper used {r.paper_images:,}. {_differs(r)}\n",
            table(["components", "M", "PSNR", "SSIM", "error / promise - 1"], rows),
            "",
            _bytes(r),
            "",
            _costs(r),
            "",
            _figures(r, m),
        ]
    )


def _differs(r: Result) -> str:
    if r.images == r.paper_images:
        return "Nothing differs but the machine."
    fewer = "The images are a subset, evenly over the classes."
    if r.method == "operator":
        return f"{fewer} With fewer images than {r.all_components:,} pixels, the last eigenvalues are zero."
    if r.method == "subspace":
        return f"{fewer} There are as many basis elements as images: M = {r.truncations[0][1]} is all."
    return (
        f"{fewer} `fit-basis --components` chooses rank-1 tensors by products of mode eigenvalues, the row "
        "4B15 by the energies measured in this study; hence the different PSNR."
    )


def _bytes(r: Result) -> str:
    paper, auto = r.encode_paper.data, r.encode_auto.data

    def row(name: str, size: int, psnr: str, note: str) -> list[str]:
        return [
            name,
            human(size),
            f"{r.raw_bytes / size:.1f}",
            f"{8 * size / (r.raw_bytes / 3):.2f}",
            psnr,
            note,
        ]

    rows = [
        row("raw pixels", r.raw_bytes, "", ""),
        row(
            "the paper's basis, archive", paper["archive_bytes"], f"{paper['psnr']:.2f} dB",
            f"basis {human(paper['basis_bytes'])}, coefficients {human(paper['coefficient_bytes'])}",
        ),
        row(
            "`tpca encode --psnr`", auto["archive_bytes"], f"{auto['psnr']:.2f} dB",
            f"{auto['method']}, {auto['framing']}; basis {human(auto['basis_bytes'])}",
        ),
        row(
            f"JPEG, quality {r.jpeg.quality}", r.jpeg.size, f"{r.jpeg.psnr:.2f} dB",
            f"SSIM {r.jpeg.ssim:.4f}",
        ),
    ]  # fmt: skip
    return table(["file", "bytes", "raw / file", "bits per pixel", "PSNR", "of which"], rows)


def _costs(r: Result) -> str:
    rows = [
        [name, f"{cost.cpu_seconds:.1f} s", f"{cost.seconds:.1f} s", human(cost.peak_bytes)]
        for name, cost in (
            (f"`fit-basis --method {r.method} --all`", r.fit_all),
            (f"`fit-basis --method {r.method} --components {r.truncations[-1][1]}`", r.fit_few),
            ("`encode --basis`", r.encode_paper),
            ("`encode --psnr` (fits its own basis)", r.encode_auto),
        )
    ]
    return table(["command", "CPU time", "elapsed", "peak memory"], rows)


def _figures(r: Result, m: int) -> str:
    spectrum, basis, originals, reconstructed, truncated = r.figures
    captions = (
        (f"{spectrum}.png", spectrum, f"The {r.spectrum}."),
        (f"{basis}.jpg", basis, "Basis elements of the largest ones, each scaled to its own range."),
        (f"{originals}.jpg", originals, "Several images."),
        (f"{reconstructed}.jpg", reconstructed, "The same images from all components."),
        (f"{truncated}.jpg", truncated, f"The same images from M = {m} components."),
    )
    return "\n".join(
        f"**{label}.** {words}\n\n![{label}: {words}](figures/{file})\n" for file, label, words in captions
    )
