"""Plots with axes, as PNG bytes: the spectrum, and rate-distortion curves. The only user of matplotlib.

matplotlib belongs to the `plot` extra and is imported when a plot is asked for.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.errors import TpcaError

BLUE, ORANGE, GRID = "#1f5fa8", "#d1701f", "#d8d8d8"
OTHERS = ((ORANGE, "s"), ("#3f8f4f", "^"), ("#8a4fa0", "D"), ("#777777", "v"))


@dataclass(frozen=True)
class Curve:
    """One codec: points of falling size, as bits per pixel and pooled PSNR in dB."""

    name: str
    bits: tuple[float, ...]
    psnr: tuple[float, ...]


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise TpcaError("plots need matplotlib: pip install 'tpca-cli[plot]'") from error
    figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _png(figure: Any) -> bytes:
    data = io.BytesIO()
    figure.savefig(data, format="png", metadata={"Software": None})  # the same bytes from run to run
    return data.getvalue()


def spectrum_png(values: npt.NDArray[np.float64], total: float, *, name: str, title: str) -> bytes:
    """Falling values on logarithmic axes, with the energy that the first M components hold."""
    figure = _figure(7.0, 4.2)
    axes = figure.add_subplot()
    index = np.arange(1, len(values) + 1)
    positive = values > 0
    axes.loglog(index[positive], values[positive], color=BLUE, linewidth=2.0)
    axes.set_xlabel("component")
    axes.set_ylabel(name, color=BLUE)
    axes.set_title(title)
    axes.grid(True, which="major", color=GRID, linewidth=0.8)
    if total > 0:
        share = axes.twinx()
        share.plot(index, 100.0 * np.cumsum(values) / total, color=ORANGE, linewidth=2.0, linestyle="--")
        share.set_ylabel("cumulative energy, %", color=ORANGE)
        share.set_ylim(top=100.5)
    return _png(figure)


def rate_distortion_png(curves: Sequence[Curve], *, title: str) -> bytes:
    """PSNR against bits per pixel for several codecs: higher and further left is better."""
    figure = _figure(7.0, 4.6)
    axes = figure.add_subplot()
    for curve, (color, marker) in zip(curves, ((BLUE, "o"), *OTHERS), strict=False):
        wide = 2.4 if color == BLUE else 1.6
        axes.plot(curve.bits, curve.psnr, color=color, marker=marker, linewidth=wide, label=curve.name)
    axes.set_xscale("log")
    axes.set_xlabel("bits per pixel (whole file, log scale)")
    axes.set_ylabel("PSNR, dB")
    axes.set_title(title)
    axes.grid(True, which="both", color=GRID, linewidth=0.6)
    axes.legend()
    ticks = [x for x in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if axes.get_xlim()[0] <= x <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axes.minorticks_off()
    return _png(figure)
