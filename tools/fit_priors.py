"""Fit the constants of the codec to folders of images: `make priors DATA="folder1 folder2"`.

Writes a new set, in the form of `tpca_cli/codec/priors.json`, to `priors.json` in the current folder (or
`-o`). The shipped set is not touched: it belongs to the format, and docs/FORMAT.md, section 4, says what it
takes to release another.

What it needs
- Images like those that people will code: photographs of several kinds and sizes, the less compressed
  before the better, in one folder per kind, since every folder counts alike. A few hundred images per
  folder are enough: 2^20 pixels of each are used (`--pixels`), from all over the folder, large images cut
  to their middle. Gray, color and alpha are separate groups with a basis of their own, as in an archive;
  nothing breaks where one is missing (classes that no image reached keep a smooth guess). 16-bit images are
  left out: the numbers depend on coefficients in quantiser steps, not on their depth.
- About 2 GB of memory and, for three folders, four minutes of one core. Image files are only read.

How the numbers are made
From a start that knows nothing of images, three times: code all groups with 8 x 8 and 16 x 16 tiles at six
steps; measure the mean magnitude of components (EXPECTED); take a sample of values, flags and lowest
components with all that their contexts see; find the weights (WEIGHTS, FLAG_WEIGHTS, LOWEST_WEIGHTS), then
POSITION and ADJUST, that make the sample cheapest to code; count tokens and flags by class (TABLES,
FLAG_TABLES); measure how far coefficients lie from their symbols (OFFSETS). The result hardly changes after
the second round. The same files give the same numbers on the same machine.

`--compare SET.json` codes the images of the folders with that set and with the shipped one and prints the
sizes of both. Use images that the set has not seen. The last column is the size at equal error, for sets
that choose differently between bits and error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import priors_estimate as estimate
from numpy.typing import NDArray
from PIL import Image
from priors_evidence import (
    Coded,
    Collector,
    Material,
    Sample,
    code,
    gather,
    join,
    mean_sizes,
    model_of,
)
from threadpoolctl import threadpool_limits

from tpca_cli.codec.kernel_run import encode
from tpca_cli.codec.priors import Priors, shipped

Pixels = NDArray[Any]

STEPS = (3.0, 6.0, 10.0, 16.0, 24.0, 40.0)
TILES = (8, 16)
ROUNDS = 3
PASSES = 3
MODES = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
LARGEST_CROP = 320
MOST_VALUES = 1_000_000
SEED = 1
THREADS = 1
"""The order of sums, and with it the last digit of a weight, depends on threads; and one is faster here."""


def read_folder(folder: Path, pixels: int) -> list[list[Pixels]]:
    """Images (h, w, c) from all over a folder, so many pixels in all, by number of channels."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    # a fixed shuffle, so that any budget is spread over the folder
    order = np.random.default_rng(SEED).permutation(len(files))
    found: dict[int, list[Pixels]] = {}
    for index in order:
        if pixels <= 0:
            break
        try:
            with Image.open(files[index]) as image:
                image.load()
                picture = np.asarray(image if image.mode in MODES else image.convert("RGB"))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            continue  # not an image that can be read
        picture = picture.reshape(*picture.shape[:2], -1)
        if picture.dtype != np.uint8 or min(picture.shape[:2]) < 16:
            continue
        top, left = (max(side - LARGEST_CROP, 0) // 2 // 8 * 8 for side in picture.shape[:2])
        picture = np.ascontiguousarray(picture[top : top + LARGEST_CROP, left : left + LARGEST_CROP])
        found.setdefault(picture.shape[2], []).append(picture)
        pixels -= picture.shape[0] * picture.shape[1]
    return [found[channels] for channels in sorted(found)]


def materials_of(folders: Sequence[Path], pixels: int, tiles: Sequence[int] = TILES) -> list[Material]:
    """The images of all folders, as coefficients of each tile size."""
    groups = [group for folder in folders for group in read_folder(folder, pixels)]
    if not groups:
        raise SystemExit(f"no image can be read in {', '.join(map(str, folders))}")
    with threadpool_limits(THREADS):
        return [gather(group, tile) for group in groups for tile in tiles]


@dataclass(frozen=True, eq=False)
class Job:
    """Material coded at a step."""

    material: Material
    step: float
    coded: list[Coded]

    @property
    def length(self) -> int:
        """Bytes of all kernel_run."""
        return sum(block.length for block in self.coded)


def train(
    materials: Sequence[Material],
    steps: Sequence[float] = STEPS,
    *,
    rounds: int = ROUNDS,
    values: int = MOST_VALUES,
    report: Callable[[str], None] = lambda line: None,
) -> Priors:
    """Constants fitted to the materials from nothing: code everything, fit, code again with the result."""
    priors = estimate.start()
    for number in range(rounds):
        jobs = [Job(m, step, list(code(m, step, priors))) for m in materials for step in steps]
        report(f"round {number + 1}: {sum(job.length for job in jobs):,} bytes with the constants so far")
        with threadpool_limits(THREADS):
            priors = improve(priors, jobs, values)
    return priors


def improve(priors: Priors, jobs: Sequence[Job], values: int) -> Priors:
    """Better constants for what was coded with `priors`."""
    found = [item for job in jobs for block in job.coded for item in mean_sizes(block, job.material.coder)]
    codes, means, counts = (np.concatenate(parts) for parts in zip(*found, strict=True))
    priors = replace(priors, expected=estimate.fit_expected(codes, means, counts))
    of_values, of_flags, of_lowest = collect(priors, jobs, values)
    priors = fit_lowest(priors, of_lowest)
    priors = fit_values(priors, of_values)
    return fit_flags(priors, of_flags)


def collect(priors: Priors, jobs: Sequence[Job], values: int) -> list[Sample]:
    """Samples of values, flags and lowest components; at every step pixels count alike."""
    parts: list[list[Sample]] = [[], [], []]
    pixels, length = sum(job.material.pixels for job in jobs), sum(job.length for job in jobs)
    for number, job in enumerate(jobs):
        share = job.material.pixels / pixels
        most = values * share / 2
        some = sum(int(np.count_nonzero(block.magnitudes)) for block in job.coded)
        zeros = sum(block.live for block in job.coded) - some
        shares = min(1.0, most / max(some, 1)), min(1.0, most / max(zeros, 1))
        collector = Collector(*shares, share * length / max(job.length, 1), SEED + number)
        model = model_of(job.material, job.step, priors)
        for block in job.coded:
            block = replace(block, model=model)
            for kind, gathered in enumerate((collector.values, collector.flags, collector.lowest)):
                parts[kind] += gathered(block)
    return [join(part) for part in parts]


def fit_values(priors: Priors, sample: Sample) -> Priors:
    """Weights, positions, adjustments, tables and offsets of all but the lowest components."""
    weights = priors.weights.reshape(12, -1)
    position, adjust, tables = priors.position, priors.adjust, priors.tables
    factors = np.ones(len(sample.symbols))
    some = sample.spot >= 0
    for _ in range(PASSES):
        costs = estimate.value_costs(tables)
        factors[some] = position.ravel()[sample.spot[some]] / 64
        weights = estimate.fit_weights(sample, factors, costs, weights, adjust)
        totals = estimate.totals_of(sample, weights, factors)
        position = estimate.fit_position(sample, totals, adjust, costs, position)
        factors[some] = position.ravel()[sample.spot[some]] / 64
        totals = estimate.totals_of(sample, weights, factors)
        adjust = estimate.fit_adjust(sample, totals, costs)
        classes = estimate.whole_classes(totals, sample.prior, adjust)
        tables = np.concatenate([estimate.fit_tables(sample, classes, 2), tables[2:]])
    return replace(
        priors,
        weights=weights.reshape(priors.weights.shape),
        position=position,
        adjust=adjust,
        tables=tables,
        offsets=estimate.fit_offsets(sample, classes, tables),
    )


def fit_flags(priors: Priors, sample: Sample) -> Priors:
    """Weights and tables of the flags."""
    weights, tables, ones = priors.flag_weights, priors.flag_tables, np.ones(len(sample.symbols))
    for _ in range(PASSES):
        weights = estimate.fit_weights(sample, ones / 1024, estimate.flag_costs(tables), weights, None)
        totals = estimate.totals_of(sample, weights, ones / 1024)
        tables = estimate.fit_flag_tables(sample, estimate.whole_classes(totals, sample.prior, None))
    return replace(priors, flag_weights=weights, flag_tables=tables)


def fit_lowest(priors: Priors, sample: Sample) -> Priors:
    """Weights and tables of the lowest components."""
    weights, tables, ones = priors.lowest_weights, priors.tables, np.ones(len(sample.symbols))
    for _ in range(PASSES):
        weights = estimate.fit_weights(sample, ones / 1024, estimate.value_costs(tables), weights, None)
        totals = estimate.totals_of(sample, weights, ones / 1024)
        classes = estimate.whole_classes(totals, sample.prior, None)
        tables = np.concatenate([tables[:2], estimate.fit_tables(sample, classes, 3)[2:]])
    return replace(priors, lowest_weights=weights, tables=tables)


def measure(materials: Sequence[Material], step: float, priors: Priors) -> tuple[int, float]:
    """Bytes of all blocks, and the mean squared error of their coefficients in squared quantiser steps."""
    length, error, count = 0, 0.0, 0
    for material in materials:
        model = model_of(material, step, priors)
        for grid, rows in material.blocks:
            data, values = encode(model, grid, rows)
            length += len(data)
            error += float((((rows - values) / model.steps[:, None]) ** 2).sum())
            count += rows.size
    return length, error / count


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Fit the constants of the codec to folders of images.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("priors.json"))
    parser.add_argument("--pixels", type=int, default=1 << 20, help="pixels taken from each folder")
    parser.add_argument("--compare", type=Path, help="do not fit: measure this set beside the shipped one")
    options = parser.parse_args(arguments)
    began = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", file=sys.stderr, flush=True)

    materials = materials_of(options.folders, options.pixels)
    report(f"{len(materials)} groups by channels and tile size, {sum(m.pixels for m in materials):,} pixels")
    if options.compare:
        compare(materials, Priors.from_json(options.compare.read_text()))
        return
    priors = train(materials, report=report)
    options.output.write_text(priors.to_json())
    report(f"wrote {options.output}")


def compare(materials: Sequence[Material], priors: Priors) -> None:
    """Print bytes and error of a set beside those of the shipped one, step by step."""
    old, new = ([measure(materials, step, some) for step in STEPS] for some in (shipped(), priors))
    squares = np.square(STEPS)
    errors, sizes = np.log(squares * [e for _, e in old]), np.log([n for n, _ in old])
    print("  step     shipped       other    bytes    error   at equal error")
    for step, (n, e), (m, f) in zip(STEPS, old, new, strict=True):
        equal = np.exp(np.interp(np.log(step * step * f), errors, sizes))
        changes = (100 * (ratio - 1) for ratio in (m / n, f / e, m / equal))
        print(f"{step:6.1f} {n:11,} {m:11,} " + " ".join(f"{change:+7.2f}%" for change in changes))


if __name__ == "__main__":
    main()
