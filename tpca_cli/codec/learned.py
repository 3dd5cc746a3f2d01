"""A small network before the filter, which knows what quantisation does to photographs.

It looks at brightness in units of the step of each place, at half the resolution: four pixels are one place
with four numbers. Layers of 3 x 3 places, from 4 to 16 numbers, some from 16 to 16, and from 16 to 4, give a
change of brightness that all colors get. The first layer sees differences only, and where in its tile a place
is. What is left to do, and what is particular to the pictures, the filter learns after it (`restore`).

There are several networks, each for steps around one and for tiles that lap or do not; where steps are
coarse and few values are left to read, they have more layers. Their numbers, `networks.bin`, were fitted once
to photographs (`tools/fit_networks.py`) and belong to the format: an archive names one. All is in integers,
which doubles hold: sums are exact in any order.
"""

from __future__ import annotations

import functools
import math
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.bands import bands

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TILE = 8
"""Pixels on the side of the tiles that the networks know."""
TAPS, INPUTS, MAPS, PHASES = 9, 4, 16, 4
FIRST = TAPS * INPUTS * MAPS, PHASES**2 * MAPS
INNER = TAPS * MAPS * MAPS, MAPS
LAST = TAPS * MAPS * INPUTS, INPUTS
"""Numbers of a layer: weights and biases. Weights are in 1/2048 and go by place in 3 x 3, pair of inputs,
output, and which of the pair; the first biases by the place in the tile, down and across."""
SHALLOW, DEEP = 1, 3
"""Inner layers of a network,"""
FIRST_DEEP = 26
"""of those before this one and from it on."""
REACH = 16
"""Rows above and below a pixel that decide its change: five places, and the whole tile that they are in."""
MIDDLE = 1024
"""The brightness that is taken off first, in 1/8 of a pixel value: numbers are small so."""
FINEST, COARSEST = 128, 1 << 16
"""Steps beyond these, in 1/64 of a pixel value, are taken for these."""
MOST = 32767
"""Between layers numbers are from 0 to this, in 1/64 of a step."""
MOST_CHANGE = 16383
"""The last layer's numbers are at most this, in 1/512 of a step."""
DARKEST, BRIGHTEST = -1024, 3071
"""Samples are clipped to these, in 1/8 of a pixel value, so that sums of float32 stay exact too."""

CENTERS = ((12, 20, 32, 50, 80), (6, 10, 16, 26, 44))
"""Steps that the networks were fitted to: of the least error, and made for people."""
DEEPER = {15: 26}
"""Networks with more layers, by those that they take the place of; older archives have these."""
STRUCTURED = 4
"""Of these kinds of networks, for lapped tiles made for people: those that also learned structure, beside the
least error. Kind 3, for the same tiles, did not; older archives have it."""


def inner_layers(network: int) -> int:
    """How many layers of a network go from maps to maps."""
    return SHALLOW if network < FIRST_DEEP else DEEP


def sizes_of(network: int) -> tuple[int, ...]:
    """The numbers of its layers."""
    return FIRST + inner_layers(network) * INNER + LAST


@functools.lru_cache(maxsize=1)
def shipped() -> list[NDArray[np.int16]]:
    """The numbers of each network, read from the package when first asked for."""
    data = resources.files(__package__).joinpath("networks.bin").read_bytes()
    rest, found = np.frombuffer(data, "<i2").astype(np.int16), list[NDArray[np.int16]]()
    while rest.size:
        own, rest = np.split(rest, [sum(sizes_of(len(found) + 1))])
        found.append(own)
    return found


def numbers_of(network: int) -> NDArray[np.int16]:
    """The numbers of a network; networks are counted from 1."""
    return shipped()[network - 1]


def layers_of(numbers: NDArray[Any], network: int) -> list[NDArray[Any]]:
    """The numbers of a network, weights and biases in turn."""
    return np.split(numbers, np.cumsum(sizes_of(network))[:-1])


def count() -> int:
    """How many networks there are."""
    return len(shipped())


def network_for(step: float, *, lapped: bool, seen: bool) -> int:
    """The network for tiles quantised with this step, made for the least error or for people."""
    centers = CENTERS[seen]
    nearest = min(range(len(centers)), key=lambda k: abs(math.log(step / centers[k])))
    kind = STRUCTURED if lapped and seen else 2 * lapped + seen
    found = 1 + kind * len(centers) + nearest
    return DEEPER.get(found, found)


def scales_of(step_units: int, factors: Ints | None) -> Ints:
    """The steps of regions by their grade, (grades,), in 1/64 of a pixel value."""
    every = np.array([64]) if factors is None else factors
    scales: Ints = np.clip((step_units * every + 32) >> 6, FINEST, COARSEST)
    return scales


def inverses_of(scales: NDArray[Any]) -> NDArray[Any]:
    """What brightness in 1/32 of a pixel value is multiplied by, in 2^-15, to be in 1/64 of a step."""
    inverses: NDArray[Any] = ((1 << 22) + scales // 2) // scales
    return inverses


def correct(images: Singles, network: int, scales: Ints) -> None:
    """Correct images (n, c, h, w) in 1/8 of a pixel value, in place; `scales` (n, rows, columns) of tiles."""
    changes = np.empty((images.shape[0], 1, *images.shape[2:]), np.float32)
    steps = np.repeat(np.repeat(scales, TILE, axis=1), TILE, axis=2)[:, None]  # (n, 1, h, w), and more
    steps = steps[:, :, : images.shape[2], : images.shape[3]]
    for band in bands(images.shape, REACH, TILE):
        light = light_of(band.with_margin(images)).astype(np.float64)
        layers = layers_of(numbers_of(network), network)
        found = _changes(light, band.with_margin(steps)[:, 0].astype(np.float64), layers)
        band.of(changes)[:, 0] = band.cut(found)
    colors = images.shape[1] - (images.shape[1] in (2, 4))  # alpha stays as it is
    images[:, :colors] += changes
    np.clip(images, DARKEST, BRIGHTEST, out=images)


def light_of(images: Singles) -> Singles:
    """Brightness (n, h, w)."""
    light: Singles = images[:, 0]
    if images.shape[1] >= 3:
        light = np.floor((light + 2 * images[:, 1] + images[:, 2]) * np.float32(0.25))
    return light


def _changes(light: Floats, scales: Floats, layers: list[NDArray[np.int16]]) -> Floats:
    """The change of brightness (n, h, w), whose first line begins a tile."""
    n, height, width = light.shape
    to_even = (0, 0), (0, height % 2), (0, width % 2)
    values = _places(np.pad(light - MIDDLE, to_even, "edge"))
    inverses = inverses_of(scales[:, ::2, ::2, None])  # a place is in one tile
    first, phases, *inner, last, last_bias = (part.astype(np.float64) for part in layers)
    down, across = values.shape[1:3]
    by_place = phases.reshape(PHASES, PHASES, MAPS)[np.arange(down) % PHASES][:, np.arange(across) % PHASES]
    edged = np.pad(values, ((0, 0), (1, 1), (1, 1), (0, 0)), "edge")
    differences = _shifted(_convolved(edged, first, MAPS), 9)  # in 1/32 of a pixel value
    maps = np.clip(_shifted(differences * inverses, 15) + by_place, 0, MOST)
    for weights, bias in zip(inner[::2], inner[1::2], strict=True):
        maps = np.clip(_shifted(_convolved(_zeros_around(maps), weights, MAPS), 11) + bias, 0, MOST)
    found = _shifted(_convolved(_zeros_around(maps), last, INPUTS), 8) + last_bias
    found = np.clip(found, -MOST_CHANGE, MOST_CHANGE)
    pixels: Floats = (
        found.reshape(n, down, across, 2, 2).transpose(0, 1, 3, 2, 4).reshape(n, 2 * down, 2 * across)
    )
    return _shifted(pixels[:, :height, :width] * scales, 12)


def _places(pixels: Floats) -> Floats:
    """Four pixels as one place: (n, h, w) as (n, h / 2, w / 2, 4)."""
    n, h, w = pixels.shape
    four = pixels.reshape(n, h // 2, 2, w // 2, 2).transpose(0, 1, 3, 2, 4)
    places: Floats = four.reshape(n, h // 2, w // 2, INPUTS)
    return places


def _zeros_around(maps: Floats) -> Floats:
    return np.pad(maps, ((0, 0), (1, 1), (1, 1), (0, 0)))


def _shifted(sums: Floats, bits: int) -> Floats:
    """Divided by 2^bits, rounded half up."""
    found: Floats = np.floor((sums + (1 << bits - 1)) * 2.0**-bits)
    return found


def _convolved(maps: Floats, weights: Floats, outputs: int) -> Floats:
    """What a layer makes of maps (n, h + 2, w + 2, inputs): sums (n, h, w, outputs)."""
    n, h, w, inputs = maps.shape
    matrices = weights.reshape(TAPS, inputs // 2, outputs, 2).swapaxes(2, 3).reshape(TAPS, inputs, outputs)
    sums = np.zeros((n, h - 2, w - 2, outputs))
    for tap, matrix in enumerate(matrices):
        down, right = divmod(tap, 3)
        sums += maps[:, down : down + h - 2, right : right + w - 2] @ matrix
    return sums
