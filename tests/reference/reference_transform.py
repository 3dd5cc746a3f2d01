"""From coefficients to pixels, over plain integers (FORMAT.md, sections 10 and 11)."""

from __future__ import annotations

from itertools import product
from typing import Any

Image = list[list[list[int]]]  # row, column, channel

UPPER = (
    (15438, 1141, 11, 342, -342, -11, -1141, 946),
    (-2597, 14682, 2897, 621, -621, -2897, 1702, 2597),
    (-605, -4011, 13549, 4211, -4211, 2835, 4011, 605),
    (-797, 867, -4814, 14675, 1709, 4814, -867, 797),
)
AFTER = (*UPPER, *(row[::-1] for row in UPPER[::-1]))
PAIRS = ((0, 1), (1, 0), (1, 1), (1, -1), (0, 2), (2, 0))


def shifted(value: int, bits: int) -> int:
    """Divided by a power of two, halves up."""
    return (value + (1 << bits >> 1)) >> bits


def synthesize(basis: dict[str, Any], arrays: dict[str, Any], coefficients: list[int]) -> list[int]:
    """The samples of one frame in C order, in 1/64."""
    shape, bits = basis["frame"], basis["bits"]
    size = shape[0] * shape[1] * shape[2]
    if basis["kind"] == "dense":
        (_, width), matrix = arrays["basis_factor0"]
        frame = [
            shifted(sum(matrix[k * width + m] * value for m, value in enumerate(coefficients)), bits)
            for k in range(size)
        ]
    else:
        frame = [0] * size
        for place, value in zip(arrays["basis_indices"][1], coefficients, strict=False):
            frame[place] = value
        inner = size
        for axis, side in enumerate(shape):
            matrix = arrays[f"basis_factor{axis}"][1]
            inner //= side
            frame = along(frame, matrix, side, inner, bits)
    if "basis_fine_mean" in arrays:
        frame = [value + mean for value, mean in zip(frame, arrays["basis_fine_mean"][1], strict=True)]
    elif "basis_mean" in arrays:
        frame = [value + 64 * mean for value, mean in zip(frame, arrays["basis_mean"][1], strict=True)]
    return frame


def along(frame: list[int], matrix: list[int], side: int, inner: int, bits: int) -> list[int]:
    """The mode product: a square matrix applied along the axis of this side, whose stride is `inner`."""
    out = [0] * len(frame)
    for start in range(0, len(frame), side * inner):
        for rest in range(start, start + inner):
            fiber = [(k, frame[rest + k * inner]) for k in range(side) if frame[rest + k * inner]]
            for row in range(side):
                total = sum(matrix[row * side + k] * value for k, value in fiber)
                out[rest + row * inner] = shifted(total, bits)
    return out


def unlap(canvas: Image, tile: int) -> None:
    """Mix the four samples on each side of every tile border: first across columns, then across rows."""
    rows, columns, channels = len(canvas), len(canvas[0]), len(canvas[0][0])
    for y, border, c in product(range(rows), range(tile, columns, tile), range(channels)):
        old = [canvas[y][border - 4 + k][c] for k in range(8)]
        for k in range(8):
            canvas[y][border - 4 + k][c] = shifted(sum(a * b for a, b in zip(AFTER[k], old, strict=True)), 14)
    for x, border, c in product(range(columns), range(tile, rows, tile), range(channels)):
        old = [canvas[border - 4 + k][x][c] for k in range(8)]
        for k in range(8):
            canvas[border - 4 + k][x][c] = shifted(sum(a * b for a, b in zip(AFTER[k], old, strict=True)), 14)


def to_pixels(image: Image, bits: int, peak: int) -> Image:
    return [[[max(0, min(shifted(v, bits), peak)) for v in pixel] for pixel in row] for row in image]


def to_eighths(image: Image) -> Image:
    """Samples in 1/64 as those that are filtered, in 1/8."""
    return [[[max(-1024, min(shifted(v, 3), 3071)) for v in pixel] for pixel in row] for row in image]


def lights(fine: Image) -> list[list[int]]:
    return [[(p[0] + 2 * p[1] + p[2]) >> 2 if len(p) >= 3 else p[0] for p in row] for row in fine]


def restore(fine: Image, numbers: list[int], bound: int) -> Image:
    """The restoring filter."""
    each = 8 if bound else 6
    borders, weights, mixing = numbers[:7], numbers[7 : 7 + 24 * each], numbers[7 + 24 * each :]
    height, width, channels = len(fine), len(fine[0]), len(fine[0][0])
    light = lights(fine)

    def at(plane: list[list[int]], y: int, x: int) -> int:
        return plane[max(0, min(y, height - 1))][max(0, min(x, width - 1))]

    def bend(plane: list[list[int]], y: int, x: int, down: int, right: int) -> int:
        return at(plane, y + down, x + right) + at(plane, y - down, x - right) - 2 * plane[y][x]

    def bounded(y: int, x: int, pairs: tuple[tuple[int, int], ...]) -> int:
        beside = [at(light, y + s * down, x + s * right) for down, right in pairs for s in (1, -1)]
        return sum(max(-bound, min(near - light[y][x], bound)) for near in beside)

    def box(plane: list[list[int]]) -> list[list[int]]:
        tall = [[sum(at(plane, y + k, x) for k in range(-2, 3)) for x in range(width)] for y in range(height)]
        return [[sum(at(tall, y, x + k) for k in range(-2, 3)) for x in range(width)] for y in range(height)]

    across, down = (
        box([[abs(bend(light, y, x, *pair)) for x in range(width)] for y in range(height)])
        for pair in PAIRS[:2]
    )

    def follow(c: int) -> list[list[int]]:
        color = [[p[c] - u for p, u in zip(*rows, strict=True)] for rows in zip(fine, light, strict=True)]
        both = [[s * u for s, u in zip(*rows, strict=True)] for rows in zip(color, light, strict=True)]
        colors, bright, products = box(color), box(light), box(both)
        squares = box([[u * u for u in row] for row in light])
        found = [[0] * width for _ in range(height)]
        for y, x in product(range(height), range(width)):
            spread = 25 * squares[y][x] - bright[y][x] ** 2 + 800_000
            slope = 256 * (25 * products[y][x] - colors[y][x] * bright[y][x]) // spread
            line = 256 * colors[y][x] + max(-1024, min(slope, 1024)) * (25 * light[y][x] - bright[y][x])
            found[y][x] = max(-4095, min((line - 6400 * color[y][x]) >> 12, 4095))
        return found

    planes = [[[p[c] for p in row] for row in fine] for c in range(channels)]
    follows = [follow(c) for c in (0, 2)] if mixing and channels >= 3 else []
    count = len(mixing) // channels
    for y, x in product(range(height), range(width)):
        a, d = across[y][x], down[y][x]
        kind = 3 * sum(a + d > border for border in borders) + (2 * a > 3 * d) + 2 * (2 * d > 3 * a)
        change = sum(weights[each * kind + k] * bend(light, y, x, *pair) for k, pair in enumerate(PAIRS))
        if bound:
            change += weights[each * kind + 6] * bounded(y, x, PAIRS[:4])
            change += weights[each * kind + 7] * bounded(y, x, PAIRS[4:])
        features = [bend(plane, y, x, *pair) for plane in planes for pair in PAIRS]
        features += [plane[y][x] for plane in follows]
        for c in range(channels):
            own = mixing[c * count : (c + 1) * count]
            total = sum(a * b for a, b in zip(own, features, strict=True)) if mixing else 0
            alpha = bool(mixing) and channels % 2 == 0 and c == channels - 1
            fine[y][x][c] += shifted(total + (0 if alpha else change), 8)
    return to_pixels(fine, 3, 255)
