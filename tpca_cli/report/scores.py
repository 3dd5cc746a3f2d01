"""What a scores file says of itself, and its pictures: images as dots over their first two components."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.errors import UsageError, counted, human, printable
from tpca_cli.report.charts import COLORS, Chart, Series
from tpca_cli.report.facts import (
    ALGORITHMS,
    Facts,
    Section,
    Spectrum,
    energy_text,
    samples_text,
    shape_text,
)
from tpca_cli.report.samples import SampleImage, evenly_spaced, from_scores
from tpca_cli.scores.reader import Scores
from tpca_cli.tensor_pca.basis import TensorBasis

Floats = npt.NDArray[np.float64]
DOTS = 2000  # frames that a chart shows
PIECES = 32  # pieces of the file that they come from
SHOWN_LABELS = 6


def scores_facts(scores: Scores) -> Facts:
    """The facts of scores that are open; no coefficient is read."""
    data = scores.info()
    size, labels = data["file_bytes"], data["labels"]
    shown = [f"{name or '(top)'} {count:,}" for name, count in list(labels.items())[:SHOWN_LABELS]]
    more = f" and {len(labels) - SHOWN_LABELS} more" if len(labels) > SHOWN_LABELS else ""
    images = (
        ("images", f"{data['images']:,}"),
        ("folders", ", ".join(shown) + more),
        ("samples", str(scores.item or samples_text(data["sample_type"], scores.framing.channels))),
        ("framing", data["framing"]),
        ("source files", human(data["source_bytes"])),
    )
    numbers = (
        ("tensor", f"{shape_text([data['frames'], data['components']])} of {data['dtype']}"),
        ("method", ALGORITHMS.get(data["method"], data["method"])),
        ("energy", energy_text(scores.eigenvalues, data["total"]) if data["measured"] else "not measured"),
        ("basis", f"{data['basis']}, {data['basis_digest']}"),
        ("digest", data["digest"]),
    )
    stored = [("coefficients", data["coefficient_bytes"]), ("basis", data["basis_bytes"])]
    parts = [part for part in stored if part[1]]
    return Facts(
        "scores",
        printable(scores.path.name),
        f"scores of {counted(data['images'], 'image')} on {counted(data['components'], 'component')}, "
        f"{human(size)}",
        (Section("images", images), Section("coefficients", numbers)),
        (*parts, ("index and HDF5", size - sum(count for _, count in parts))),
        values=scores.eigenvalues,
        values_name="eigenvalues" if data["measured"] else "products of mode eigenvalues",
        total=data["total"],
        data=data,
    )


def scores_file(path: Path) -> Facts:
    """The facts of a scores file."""
    with Scores(path, skim=True) as scores:
        return scores_facts(scores)


def scatter_chart(scores: Scores) -> Chart:
    """Frames as dots over their first two components, in the color of their folder."""
    if scores.components < 2:
        raise UsageError("a chart of the first two components needs two of them")
    points: dict[str, list[tuple[float, float]]] = {}
    pieces = evenly_spaced(scores.pieces(), PIECES)
    for number in pieces:
        rows = scores.piece("coefficients", number)[:, :2].astype(np.float64)
        first = scores.first_row(number)
        for at in evenly_spaced(len(rows), -(-DOTS // len(pieces))):
            label = scores.labels[scores.image_of(first + at)]
            points.setdefault(printable(label) or "(top)", []).append(
                (float(rows[at, 0]), float(rows[at, 1]))
            )
    order = sorted(points, key=lambda label: (-len(points[label]), label))
    named = order if len(order) <= COLORS else order[: COLORS - 1]
    series = [Series(label, tuple(points[label])) for label in named]
    others = [point for label in order[len(named) :] for point in points[label]]
    if others:
        series.append(Series(f"{len(order) - len(named)} others", tuple(others)))
    shown = sum(len(each.points) for each in series)
    summary = f"{shown} of {scores.frames} frames over their first two components, by folder"
    return Chart(tuple(series), "component 0", "component 1", False, False, summary, dots=True)


class ScoresContents:
    """A scores file: its images are rebuilt from their coefficients."""

    def __init__(self, scores: Scores) -> None:
        self.scores = scores
        self.facts = scores_facts(scores)

    def listing(self) -> list[dict[str, Any]]:
        """Nothing: the quality of the images is not known."""
        return []

    def sample(self, sources: Sequence[str], count: int) -> list[SampleImage]:
        """Images evenly spaced over the file."""
        return from_scores(self.scores, sources, count)

    def elements(self, count: int) -> tuple[Floats, list[str]]:
        """Basis elements, each with its number and its share of the energy."""
        return basis_elements(self.scores.of.basis, count)

    def spectrum(self) -> Spectrum:
        """The stored energies."""
        return Spectrum(self.facts.values_name, self.scores.eigenvalues, self.facts.total)

    def trainer(self, pictures: Sequence[Any]) -> None:
        """None: coefficients as numbers have no rate."""


def basis_elements(basis: TensorBasis, count: int) -> tuple[Floats, list[str]]:
    """The strongest elements of a basis, (k, h, w, c), each with its number and its share of the energy."""
    count = min(count, basis.components)
    tensors = basis.reconstruct(np.eye(count, basis.components))  # (k, h, w, c)
    if basis.mean is not None:
        tensors = tensors - basis.mean
    shares = 100.0 * basis.energies[:count] / (basis.total or 1.0)
    return tensors, [f"{number + 1}: {share:.2g} %" for number, share in enumerate(shares)]
