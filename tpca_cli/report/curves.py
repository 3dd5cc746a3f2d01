"""Rate against distortion, measured: real files at several steps, beside JPEG and WebP on the same images."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.archive import BlockRecord, Entry, Group, Index, write_archive
from tpca_cli.codec.coder import Coder
from tpca_cli.errors import UsageError
from tpca_cli.images.rivals import CODECS, lossy
from tpca_cli.quality import psnr
from tpca_cli.report.plots import Curve
from tpca_cli.store import digest_of

Pixels = npt.NDArray[Any]
STEPS = (96.0, 48.0, 24.0, 12.0, 6.0)
QUALITIES = {"JPEG": (15, 40, 70, 88, 95), "WebP": (10, 40, 70, 90, 97)}
BLOCK_PIXELS = 2**17


def measure(
    pictures: Sequence[Pixels],
    train: Callable[[float], Coder],
    method: str,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Curve, ...]:
    """Curves of a basis (`train` makes its coder for a step) and of the other codecs on 8-bit pictures."""
    if any(pixels.dtype != np.uint8 or pixels.shape[2] not in (1, 3) for pixels in pictures):
        raise UsageError("rate-distortion curves need 8-bit gray or color images: JPEG holds nothing else")
    area = sum(pixels.shape[0] * pixels.shape[1] for pixels in pictures)
    done, total = 0, len(STEPS) + sum(map(len, QUALITIES.values()))

    def advance() -> None:
        nonlocal done
        done += 1
        if progress:
            progress("measuring", done, total)

    points = []
    for step in STEPS:
        size, error = _archived(pictures, train(step), method)
        points.append((8.0 * size / area, error))
        advance()
    curves = [_curve("tpca, basis included", points, pictures)]
    for codec in CODECS:
        points = []
        for quality in QUALITIES[codec]:
            results = [lossy(pixels, codec, quality) for pixels in pictures]
            error = sum(_error(a, b) for a, (_, b) in zip(pictures, results, strict=True))
            points.append((8.0 * sum(size for size, _ in results) / area, error))
            advance()
        curves.append(_curve(codec, points, pictures))
    return tuple(curves)


def _curve(name: str, points: Sequence[tuple[float, float]], pictures: Sequence[Pixels]) -> Curve:
    samples = sum(pixels.size for pixels in pictures)
    # nothing lost has no PSNR: such a point is left out
    known = [(bits, psnr(error, samples, 255.0)) for bits, error in points if error > 0]
    return Curve(name, tuple(bits for bits, _ in known), tuple(quality for _, quality in known))


def _error(one: Pixels, other: Pixels) -> float:
    return float(((one.astype(np.float64) - other) ** 2).sum())


def _archived(pictures: Sequence[Pixels], coder: Coder, method: str) -> tuple[int, float]:
    """Bytes of a whole archive of the pictures, basis and index included, and the squared error."""
    entries, blocks, payload, total = [], [], [], 0.0
    for first, count in _blocks(pictures):
        encoded = coder.encode(pictures[first : first + count])
        digest = digest_of(encoded.data)
        blocks.append(BlockRecord(len(encoded.data), 0, first, count, 0, 0, digest))
        payload.append(encoded.data)
        total += float(encoded.sse.sum())
    mode = "L" if coder.framing.channels == 1 else "RGB"
    for number, pixels in enumerate(pictures):
        h, w, _ = pixels.shape
        digest = digest_of(pixels.tobytes())
        entries.append(Entry(b"%d" % number, digest, 0, pixels.size, h, w, mode, 0))
    with tempfile.TemporaryDirectory() as folder:
        group = Group.of(coder, method)
        target = Path(folder) / "curve.h5"
        size = write_archive(target, Index.build(entries, blocks), [group], payload, target_asked={})
    return size, total


def _blocks(pictures: Sequence[Pixels]) -> list[tuple[int, int]]:
    """(first, count) of runs of pictures that fill about a block."""
    runs, first, area = [], 0, 0
    for number, pixels in enumerate(pictures):
        size = pixels.shape[0] * pixels.shape[1]
        if number > first and area + size > BLOCK_PIXELS:
            runs.append((first, number - first))
            first, area = number, 0
        area += size
    return [*runs, (first, len(pictures) - first)]
