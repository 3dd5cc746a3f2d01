"""The network before the filter, over plain integers (FORMAT.md, section 11)."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from struct import unpack

from reference_transform import Image, lights, shifted

NETWORKS = Path(__file__).parents[2] / "tpca_cli" / "codec" / "networks.bin"
FIRST, INNER, LAST = (576, 256), (2304, 16), (576, 4)
SHALLOW, NUMBERS = 25, 3732  # networks with one inner layer, and the numbers of each; others have three

Map = dict[tuple[int, int], list[int]]  # the numbers of each place


def numbers_of(network: int) -> list[list[int]]:
    """Weights and biases of each layer."""
    sizes = FIRST + (INNER if network <= SHALLOW else 3 * INNER) + LAST
    start = min(network - 1, SHALLOW) * NUMBERS + max(network - 1 - SHALLOW, 0) * sum(sizes)
    flat = unpack(f"<{sum(sizes)}h", NETWORKS.read_bytes()[2 * start :][: 2 * sum(sizes)])
    return [list(flat[sum(sizes[:k]) : sum(sizes[: k + 1])]) for k in range(len(sizes))]


def layer(maps: Map, weights: list[int], outputs: int) -> Map:
    """Sums over 3 x 3 places; `maps` has those outside too."""
    inputs = len(weights) // 9 // outputs
    found = {}
    for p, q in maps:
        around = [(p + t // 3 - 1, q + t % 3 - 1) for t in range(9)]
        if all(place in maps for place in around):
            found[p, q] = [
                sum(
                    weights[((t * (inputs // 2) + i // 2) * outputs + o) * 2 + i % 2] * x
                    for t, place in enumerate(around)
                    for i, x in enumerate(maps[place])
                    if x
                )
                for o in range(outputs)
            ]
    return found


def with_zeros(maps: Map, down: int, across: int) -> Map:
    none = [0] * 16
    return {place: maps.get(place, none) for place in product(range(-1, down + 1), range(-1, across + 1))}


def learn(fine: Image, network: int, step: int, factors: dict[tuple[int, int], int]) -> None:
    """Change samples in 1/8, in place; `factors` are those of the steps of tiles."""
    height, width, channels = len(fine), len(fine[0]), len(fine[0][0])
    down, across, light = (height + 1) // 2, (width + 1) // 2, lights(fine)
    weights1, bias1, *inner, weights3, bias3 = numbers_of(network)
    steps = {tile: max(128, min((step * factor + 32) >> 6, 65536)) for tile, factor in factors.items()}

    def inputs(p: int, q: int) -> list[int]:
        p, q = max(0, min(p, down - 1)), max(0, min(q, across - 1))
        pixels = [(min(2 * p + k // 2, height - 1), min(2 * q + k % 2, width - 1)) for k in range(4)]
        return [light[y][x] - 1024 for y, x in pixels]

    places = product(range(-1, down + 1), range(-1, across + 1))
    first = layer({(p, q): inputs(p, q) for p, q in places}, weights1, 16)
    for (p, q), sums in first.items():
        own = steps[p // 4, q // 4]
        inverse, at = ((1 << 22) + (own >> 1)) // own, (p % 4 * 4 + q % 4) * 16
        scaled = [shifted(shifted(total, 9) * inverse, 15) + bias1[at + o] for o, total in enumerate(sums)]
        first[p, q] = [max(0, min(v, 32767)) for v in scaled]
    maps = first
    for weights2, bias2 in zip(inner[::2], inner[1::2], strict=True):
        maps = layer(with_zeros(maps, down, across), weights2, 16)
        for place, sums in maps.items():
            maps[place] = [max(0, min(shifted(v, 11) + bias2[o], 32767)) for o, v in enumerate(sums)]
    third = layer(with_zeros(maps, down, across), weights3, 4)
    for (p, q), sums in third.items():
        for o, total in enumerate(sums):
            y, x = 2 * p + o // 2, 2 * q + o % 2
            if y >= height or x >= width:
                continue
            found = max(-16383, min(shifted(total, 8) + bias3[o], 16383))
            for c in range(channels - (channels % 2 == 0)):
                changed = fine[y][x][c] + shifted(found * steps[p // 4, q // 4], 12)
                fine[y][x][c] = max(-1024, min(changed, 3071))
