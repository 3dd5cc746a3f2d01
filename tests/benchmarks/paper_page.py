"""The page that the paper's experiments become: docs/EXPERIMENTS.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paper_measure import Cost, table

from tpca_cli.errors import human

RIVALS = "<!-- rivals -->"  # from here on the page is that of rivals.py
INTRO = """# The paper's experiments

Written by `make paper`; every number was measured, on one machine. The experiments are those of
*tensor PCA from a basis in tensor space* (Turchetti and Falaschetti): a basis from a self-adjoint operator
(Algorithm 1) on TinyImageNet, a rank-1 basis (Algorithm 2) on CALTECH-101, a basis of a subspace
(Algorithm 3) on FLOWERS. Figures carry the labels of the paper's. Added here: PSNR, SSIM, bytes on disk
with the basis counted, time, peak memory, and JPEG at the same PSNR.

- *Identical*: all components give every 8-bit sample back, after rounding.
- *Error / promise - 1*: the squared error of M components, measured before rounding, against what the dropped
  eigenvalues (or the measured energies, for chosen rank-1 tensors) promise.
- PSNR is pooled over all samples; SSIM is the mean over channels, Gaussian window of 1.5 pixels.
- CPU time is that of all threads. Elapsed time also counts waiting for a processor that others use.
- Pictures on this page are JPEG files, for looking; the numbers come from the pixels themselves.
"""


@dataclass(frozen=True)
class Truncation:
    """M components: `excess` is the error against what the dropped energies promise, minus 1."""

    form: str
    components: int
    psnr: float
    ssim: float
    excess: float


@dataclass(frozen=True)
class Result:
    """All that the page says of one experiment."""

    title: str
    method: str
    size: str
    images: int
    paper_images: int
    judged: int
    single: bool
    figures: tuple[str, ...]
    spectrum: str
    raw_bytes: int
    differing: int
    all_components: int
    truncations: tuple[Truncation, ...]
    fits: tuple[tuple[str, Cost], ...]
    memory: str
    encode_paper: Cost
    encode_auto: Cost
    jpeg_scale: float
    jpeg: Mapping[str, Any]


def write_page(path: Path, results: Sequence[Result], missing: Sequence[str]) -> None:
    parts = [INTRO, *map(_experiment, results)]
    if missing:
        parts.append(f"Not run, for want of their images: {', '.join(missing)}.\n")
    _, mark, rivals = (path.read_text(encoding="utf-8") if path.exists() else "").partition(RIVALS)
    path.write_text("\n".join(parts) + mark + rivals, encoding="utf-8")


def _experiment(r: Result) -> str:
    identical = "identical" if r.differing == 0 else f"{r.differing:,} samples differ"
    rows = [[f"all ({r.all_components:,})", "", identical, "", ""]]
    rows += [
        [t.form, f"{t.components:,}", f"{t.psnr:.2f} dB", f"{t.ssim:.4f}", f"{t.excess:+.1e}"]
        for t in r.truncations
    ]
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
            _figures(r, r.truncations[-1].components),
        ]
    )


def _differs(r: Result) -> str:
    words = (
        "As many as the paper used; which ones it took is not known."
        if r.images == r.paper_images
        else "The images are a subset."
    )
    if r.images != r.paper_images and r.method == "operator" and r.images < r.all_components:
        words += f" With fewer images than {r.all_components:,} pixels, the last eigenvalues are zero."
    if r.single:
        words += " All components are multiplied and rebuilt in float32, M of them in float64."
    if r.judged < r.images:
        words += f" SSIM and JPEG are those of {r.judged:,} of the images, evenly spaced."
    return words


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
            f"JPEG, quality {r.jpeg['quality']}", round(r.jpeg["size"] * r.jpeg_scale),
            f"{r.jpeg['psnr']:.2f} dB", f"SSIM {r.jpeg['ssim']:.4f}",
        ),
    ]  # fmt: skip
    return table(["file", "bytes", "raw / file", "bits per pixel", "PSNR", "of which"], rows)


def _costs(r: Result) -> str:
    rows = [
        [name, f"{cost.cpu_seconds:.1f} s", f"{cost.seconds:.1f} s", human(cost.peak_bytes)]
        for name, cost in (
            *((f"`fit-basis --method {r.method} {wish} --memory {r.memory}`", cost) for wish, cost in r.fits),
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
