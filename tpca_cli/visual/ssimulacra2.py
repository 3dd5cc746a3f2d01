"""SSIMULACRA 2: how far people see that a picture is not the original.

100 is the same picture; 90 cannot be told from it even when both flicker on one place, 70 is hard to tell
without looking at both, 50 is medium, 30 low quality. The definition is that of its authors' program: two
pictures are compared in the colors X, Y and B at up to six scales, as long as both sides have 8 pixels; the
means of three errors (structure, new edges, lost edges) and their fourth norms are weighted and summed. Above
and below, a picture goes on as in a mirror, and it ends at the sides, as in the package of this name.

The kernel gives sums over pixels. Those of the bands of a large picture add up. For an encoder that weighs
parts of a picture against one another it also tells how much of the structure of brightness regions lose.
"""

from __future__ import annotations

import functools
import itertools
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.wasm import Field, Job, Kernel, Room

Pixels = NDArray[Any]
Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]

SCALES, COLORS, ERRORS = 6, 3, 3
REGION_SCALES = 4
"""Scales at which the structure of regions is compared."""
SMALLEST = 8
"""Pixels on the shorter side of the last scale; smaller pictures are enlarged before they are compared."""
BAND = 1 << 21
"""Pixels, about, that are compared together: a larger picture is compared in bands, in bounded memory."""
BACKDROPS = (0.1, 0.9)
"""Transparent pictures are looked at over dark and over light; the worse counts."""

KERNEL = Kernel(
    "visual/kernel/ssimulacra2.wasm",
    (
        Field("i32", "height"),
        Field("i32", "width"),
        Field("i32", "stride", "from row to row of a plane: the width in whole vectors"),
        Field("i32", "channels", "1 or 3"),
        Field("i32", "scales", "out"),
        Field("const u16 *", "original", "(height, width, channels)"),
        Field("const u16 *", "decoded", "(height, width, channels)"),
        Field("const float *", "linear", "light of each sample value, 0 .. 1"),
        Field("float *", "planes", "(2, 3, height, stride) light of both pictures"),
        Field("float *", "rows", "a line with margins, and eleven lines of all that is blurred"),
        Field("double *", "sums", "(scales, colors, 3 errors, mean and fourth power), out"),
        Field("i32", "region", "pixels on the side of a region; 0: pictures are compared as a whole"),
        Field("i32", "regions_across"),
        Field("double *", "losses", "of each region, out"),
    ),
    constants={"SCALES": SCALES, "SMALLEST": SMALLEST, "REGION_SCALES": REGION_SCALES},
)

# By color (X, Y, B), scale, norm (mean, fourth) and error (structure, new edges, lost edges).
WEIGHTS = np.array(
    [
        0.0, 0.00073766067, 0.0, 0.0, 0.00077934817, 0.0,
        0.0, 0.00043711557, 0.0, 1.1041726, 0.00066284834, 0.00015231633,
        0.0, 0.0016406437, 0.0, 1.8422456, 11.441173, 0.0,
        0.00079891094, 0.00017681644, 0.0, 1.8787595, 10.94907, 0.0,
        0.0007289347, 0.96779371, 0.0, 0.00014003424, 0.9981767, 0.00031949756,
        0.00045509921, 0.0, 0.0, 0.0013648766, 0.0, 0.0,
        0.0, 0.0, 0.0, 7.4668903, 0.0, 17.445834,
        0.00062356016, 0.0, 0.0, 6.6836781, 0.00037724408, 1.0278899,
        225.20515, 0.0, 0.0, 19.213238, 0.0011401525, 0.0012377556,
        176.39318, 0.0, 0.0, 24.43301, 0.28520803, 0.00044854369,
        0.0, 0.0, 0.0, 34.779063, 44.835625, 0.0,
        0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
        0.0, 0.00086805566, 0.0, 0.0, 0.0, 0.0,
        0.0, 0.00053131919, 0.0, 0.00016533814, 0.0, 0.0,
        0.0, 0.0, 0.0, 0.00041791718, 0.0017290828, 0.0,
        0.0020827006, 0.0, 0.0, 8.8269828, 23.192433, 0.0,
        95.10805, 0.9863978, 0.98343828, 0.0012286405, 171.26673, 0.98078589,
        0.0, 0.0, 0.0, 0.00051300646, 0.0, 0.00010854058,
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """The sums over the pixels of a picture, or of a band of it."""

    sums: Doubles  # (scales, COLORS, ERRORS, 2)
    pixels: Doubles  # (scales,)

    def __add__(self, other: Evidence) -> Evidence:
        """Those of two bands of a picture, at the scales that both have."""
        scales = min(len(self.pixels), len(other.pixels))
        return Evidence(
            self.sums[:scales] + other.sums[:scales], self.pixels[:scales] + other.pixels[:scales]
        )

    @property
    def score(self) -> float:
        """The score, at most 100; below 0 where little is left of the picture."""
        means = self.sums / self.pixels[:, None, None, None]
        means[..., 1] **= 0.25
        # weights are dealt out one after another: a picture with fewer scales does not reach the last ones
        errors = means.transpose(1, 0, 3, 2).ravel()  # color, scale, norm, error
        x = 0.9562382616834844 * float(WEIGHTS[: errors.size] @ errors)
        x = 2.326765642916932 * x - 0.020884521182843837 * x**2 + 6.248496625763138e-05 * x**3
        return 100 - 10 * float(max(x, 0.0) ** 0.6276336467831387)


def score(original: Pixels, decoded: Pixels, peak: int = 255) -> float:
    """SSIMULACRA 2 of two pictures (h, w, c), samples up to `peak`; the last of 2 or 4 channels is alpha."""
    height, width, _ = original.shape
    bands = max(1, min(height // 512, height * width // BAND))
    edges = [height * k // bands for k in range(bands + 1)]
    found = [evidence(original[top:end], decoded[top:end], peak) for top, end in itertools.pairwise(edges)]
    return min(float(functools.reduce(operator.add, parts).score) for parts in zip(*found, strict=True))


def evidence(original: Pixels, decoded: Pixels, peak: int = 255) -> tuple[Evidence, ...]:
    """What a score is made of: one item, or one for each backdrop of a transparent picture."""
    if original.shape[2] in (1, 3):
        return (_compare(original, decoded, peak),)
    if peak > 255:
        scale, deep = 1, peak
    else:
        scale, deep = 257, 257 * peak
    return tuple(
        _compare(_over(original, level, scale, peak), _over(decoded, level, scale, peak), deep)
        for level in BACKDROPS
    )


def _over(pixels: Pixels, level: float, scale: int, peak: int) -> Pixels:
    """A transparent picture over a gray backdrop."""
    opaque = pixels[..., -1:].astype(np.float32) / peak
    mixed = opaque * pixels[..., :-1] + (1 - opaque) * np.float32(level * peak)
    blended: Pixels = np.rint(scale * mixed)
    return blended


def structure_lost(original: Pixels, decoded: Pixels, side: int, peak: int = 255) -> Doubles:
    """What each region of `side` pixels, 8 or more, loses of the structure of brightness, (down, across).

    It is the sum over pixels of 1 - SSIM at four scales; alpha is not looked at.
    """
    height, width, channels = original.shape
    down, across = -(-height // side), -(-width // side)
    if min(height, width) < SMALLEST:
        return np.zeros((down, across))
    colors = 3 if channels >= 3 else 1
    ramp = (np.arange(peak + 1) / peak).astype(np.float32)
    job = _job(original[..., :colors], decoded[..., :colors], ramp, side, (down, across))
    losses: Doubles = job.arrays["losses"].reshape(down, across).copy()
    return losses


def _compare(original: Pixels, decoded: Pixels, peak: int) -> Evidence:
    height, width, _ = original.shape
    if min(height, width) < SMALLEST:
        original, decoded = (_enlarged(pixels) for pixels in (original, decoded))
        height, width, _ = original.shape
    job = _job(original, decoded, _linear(peak))
    scales = job.numbers["scales"]
    sums = job.arrays["sums"].reshape(SCALES, COLORS, ERRORS, 2)[:scales].copy()
    sides = [(-(-height // 2**scale), -(-width // 2**scale)) for scale in range(scales)]
    return Evidence(sums, np.array([float(h * w) for h, w in sides]))


def _job(
    original: Pixels, decoded: Pixels, linear: Singles, region: int = 0, regions: tuple[int, int] = (0, 0)
) -> Job:
    """Run the kernel over two pictures."""
    height, width, channels = original.shape
    stride = -(-width // 4) * 4
    return Job.of(KERNEL, {
        "height": height,
        "width": width,
        "stride": stride,
        "channels": channels,
        "scales": 0,
        "original": original,
        "decoded": decoded,
        "linear": linear,
        "planes": Room(2 * COLORS * height * stride, scratch=True),
        "rows": Room((11 * 6 * COLORS + 1) * stride + 64),
        "sums": Room(SCALES * COLORS * ERRORS * 2),
        "region": region,
        "regions_across": regions[1],
        "losses": Room(regions[0] * regions[1]),
    }).run()  # fmt: skip


def _enlarged(pixels: Pixels) -> Pixels:
    times = [-(-SMALLEST // side) for side in pixels.shape[:2]]
    return pixels.repeat(times[0], axis=0).repeat(times[1], axis=1)


@functools.lru_cache(maxsize=8)
def _linear(peak: int) -> Singles:
    """The light of each sample value, by the curve of sRGB."""
    x = np.arange(peak + 1) / peak
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4).astype(np.float32)
