"""Draws the sample images: 62 small pictures in eight class folders, the same on every machine.

Run it as `python sample_data/generate.py [FOLDER]`. The pictures imitate what makes photographs
compressible: noise whose power falls with frequency, shapes that hide one another, smooth shading, soft
shadows, and textures with a direction. Each is drawn in linear light at twice its size, averaged down, and
tone-mapped.

Only + - * / sqrt floor and comparisons touch the pixels: IEEE arithmetic defines those to the last bit, so
that PNG pixels are the same whatever the processor (a library's sin or exp is not). JPEG files depend on the
encoder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

Array = np.ndarray
Random = np.random.Generator
WIDE, SQUARE = (128, 192), (96, 96)  # (height, width)


# ---- primitives: everything is a picture of floats, (h, w) or (h, w, 3), in linear light


def grid(size: tuple[int, int]) -> tuple[Array, Array]:
    """Pixel centers (y, x), in units of the picture's height."""
    h, w = size
    return np.broadcast_arrays((np.arange(h)[:, None] + 0.5) / h, (np.arange(w)[None, :] + 0.5) / h)


def ease(t: Array) -> Array:
    """0 to 1 with no corner at either end."""
    t = np.clip(t, 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


def wave(turns: Array) -> Array:
    """A smooth periodic wave between 0 and 1, one period per turn."""
    return ease(2.0 * np.abs(turns - np.floor(turns) - 0.5))


def lattice(rng: Random, y: Array, x: Array, cells: float) -> Array:
    """One octave: random values on a lattice, smoothly interpolated at (y, x)."""
    y, x = y * cells, x * cells
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    values = rng.random((int(top.max() - top.min()) + 2, int(left.max() - left.min()) + 2))
    row, col = top - top.min(), left - left.min()
    v, u = ease(y - top), ease(x - left)
    upper = values[row, col] * (1.0 - u) + values[row, col + 1] * u
    lower = values[row + 1, col] * (1.0 - u) + values[row + 1, col + 1] * u
    return upper * (1.0 - v) + lower * v


def noise(rng: Random, y: Array, x: Array, cells: float, octaves: int = 5, fall: float = 0.5) -> Array:
    """Octaves whose amplitude falls by `fall` each time: the power spectrum of natural pictures."""
    total, weight, norm = np.zeros(y.shape), 1.0, 0.0
    for octave in range(octaves):
        total = total + weight * lattice(rng, y, x, cells * 2**octave)
        norm += weight
        weight *= fall
    return total / norm


def cover(distance: Array, soft: float) -> Array:
    """How much of a pixel lies inside a shape, from its signed distance (negative inside)."""
    return ease(0.5 - distance / soft)


def over(below: Array, color: Array, alpha: Array) -> Array:
    """Paint `color` over `below` where `alpha` is 1."""
    return below + alpha[..., None] * (color - below)


def tint(rng: Random, low: float = 0.1, high: float = 0.8, chroma: float = 0.6) -> Array:
    """A color: one brightness, channels that differ by at most `chroma` of it."""
    return (low + (high - low) * rng.random()) * (1.0 - chroma * rng.random(3))


def unit(*parts: float | Array) -> list[Array]:
    """A vector scaled to length 1."""
    length = np.sqrt(sum(part * part for part in parts) + 1e-12)
    return [part / length for part in parts]


def shade(height: Array, light: list[Array], steep: float) -> Array:
    """Light on a relief: brightness of every point of a height map."""
    down = np.diff(height, axis=0, append=height[-1:]) * steep
    right = np.diff(height, axis=1, append=height[:, -1:]) * steep
    normal = unit(-down, -right, np.ones_like(height))
    return np.maximum(sum(a * b for a, b in zip(normal, light, strict=True)), 0.0)


# ---- the classes: (rng, size) to a picture, (h, w), (h, w, 3) or (h, w, 4)


def spheres(rng: Random, size: tuple[int, int]) -> Array:
    """Lit balls on a checkered floor, with soft shadows and a highlight."""
    y, x = grid(size)
    horizon = 0.3 + 0.15 * rng.random()
    depth = 0.12 / np.maximum(y - horizon, 0.004)
    across = (x - 0.75) * depth * 4.0
    tiles = 1.0 * ((np.floor(across * 1.5) + np.floor(depth * 5.0)) % 2 == 0)
    far = ease(depth * 0.4)[..., None]
    floor = (tint(rng) + (tint(rng) - tint(rng)) * tiles[..., None] * 0.5) * (1.0 - far) + 0.35 * far
    wall = tint(rng, 0.3, 0.7, 0.4) * (0.5 + y)[..., None] * (0.8 + 0.3 * noise(rng, y, x, 3.0))[..., None]
    scene = over(wall, np.clip(floor, 0.02, 1.0), cover(horizon - y, 0.02))
    light = unit(-0.8, rng.random() - 0.5, 0.6)
    for near in np.sort(rng.random(int(rng.integers(2, 6)))):  # the far ones first
        cy, cx = horizon + 0.1 + 0.4 * near, 0.15 + 1.2 * rng.random()
        r = 0.08 + 0.12 * near + 0.06 * rng.random()
        sy, sx = (y - cy - 0.9 * r) / 0.35, x - cx + light[1] * r
        scene = scene * (1.0 - 0.75 * ease(1.6 - np.sqrt(sy * sy + sx * sx) / r))[..., None]
        ny, nx = (y - cy) / r, (x - cx) / r
        nz = np.sqrt(np.maximum(1.0 - ny * ny - nx * nx, 0.0))
        lit = np.maximum(ny * light[0] + nx * light[1] + nz * light[2], 0.0)
        gleam = lit * lit
        gleam = gleam * gleam * gleam * gleam
        gleam = gleam * gleam * gleam
        ball = tint(rng, 0.4, 1.0, 0.8) * (0.08 + 0.9 * lit)[..., None] + 0.7 * gleam[..., None]
        scene = over(scene, ball, cover((np.sqrt(ny * ny + nx * nx) - 1.0) * r, 0.012))
    return scene


def leaves(rng: Random, size: tuple[int, int]) -> Array:
    """Dead leaves: opaque discs of all scales that hide one another, each faintly shaded and textured."""
    y, x = grid(size)
    scene = np.ones((*size, 3)) * tint(rng)
    grain = noise(rng, y, x, 6.0, 4)
    palette = [tint(rng, 0.05, 0.8, 0.7) for _ in range(6)]
    for number in range(48):
        r = 0.42 / np.sqrt(1.0 + number * 0.9)  # radii fall as a power law: scale invariance
        dy, dx = y - rng.random(), x - rng.random() * 1.05
        ay, ax = unit(rng.random() - 0.5, rng.random() - 0.5)
        along, aside = dy * ay + dx * ax, dx * ay - dy * ax
        distance = np.sqrt(along * along + aside * aside * (1.0 + 3.0 * rng.random())) - r
        color = palette[number % 6] * (0.8 + 0.5 * along / r + 0.5 * (grain - 0.5))[..., None]
        scene = scene * (1.0 - 0.35 * cover(distance - 0.015, 0.06))[..., None]
        scene = over(scene, np.maximum(color, 0.01), cover(distance, 0.014))
    return scene


def clouds(rng: Random, size: tuple[int, int]) -> Array:
    """Clouds with lit edges in a sky that pales towards the horizon."""
    y, x = grid(size)
    sky = over(
        np.ones((*size, 3)) * [0.05, 0.16 + 0.1 * rng.random(), 0.5], np.array([0.5, 0.6, 0.72]), ease(y)
    )
    sky = over(sky, np.array([0.9, 0.55, 0.3]) * rng.random(), ease(y * 1.6 - 0.7))
    thick = noise(rng, y * (1.4 - 0.4 * y), x, 1.5 + 2.0 * rng.random(), 6, 0.5)
    cloud = ease((thick - 0.36 - 0.1 * rng.random()) * 3.2)
    bright = 0.55 + 0.5 * shade(thick, unit(0.7, 0.5, 0.5), size[0] / 20.0) - 0.25 * ease(thick * 3.0 - 1.4)
    return over(sky, bright[..., None] * np.array([1.0, 0.97, 0.93]), cloud)


def hills(rng: Random, size: tuple[int, int]) -> Array:
    """Ridges behind ridges, bluer and paler with distance, under a low sun."""
    y, x = grid(size)
    dy, dx = y - 0.3, x - 1.5 * rng.random()
    scene = over(np.ones((*size, 3)) * [0.2, 0.35, 0.62], np.array([0.9, 0.6, 0.4]), ease(y * 1.8))
    scene = scene + 0.35 * (0.1 / (0.1 + (dy * dy + dx * dx) * 6.0))[..., None] * np.array([1.0, 0.8, 0.5])
    haze, ground = np.array([0.5, 0.57, 0.68]), np.array([0.16, 0.2, 0.08]) * (0.6 + 0.9 * rng.random(3))
    for layer in range(5):
        ridge = 0.36 + 0.13 * layer - (0.3 - 0.03 * layer) * (noise(rng, 0.0 * y, x, 1.2 + layer, 6) - 0.5)
        near = ease((layer + 1.5) / 5.5)
        texture = noise(rng, y / (0.4 + 0.6 * near), x, 5.0 + 3.0 * layer, 4, 0.6)
        below = ease((y - ridge) * 3.0)
        color = ground * (0.3 + 1.4 * texture * near + 0.5 * below)[..., None]
        scene = over(scene, color * near + haze * (1.0 - near), cover(ridge - y, 0.012))
    return scene


def wood(rng: Random, size: tuple[int, int]) -> Array:
    """Boards: rings cut lengthwise, a knot, fibers, dark gaps."""
    y, x = grid(size)
    boards = int(rng.integers(2, 4))
    board = np.floor(x * boards)
    bend = noise(rng, y + 7.0 * board, x, 1.5, 3)
    ky, kx = (y - rng.random()) * 0.8, x - (0.5 + board) / boards
    knot = 0.05 / (0.03 + ky * ky + 3.0 * kx * kx)
    rings = wave((4.0 + 4.0 * rng.random()) * (x + 0.35 * bend) + 0.3 * knot + 0.37 * board)
    fiber = noise(rng, y * 0.12 + board, x, 40.0, 2)
    tone = 0.45 + 0.35 * rings + 0.35 * (fiber - 0.5) + 0.25 * (lattice(rng, board, board, 1.0) - 0.5)
    gap = np.abs(x * boards - np.floor(x * boards + 0.5)) / boards
    scene = np.maximum(tone, 0.05)[..., None] * (np.array([0.62, 0.36, 0.17]) + 0.1 * rng.random(3))
    return scene * (0.25 + 0.75 * ease(gap * 60.0))[..., None] * (0.8 + 0.3 * y)[..., None]


def fabric(rng: Random, size: tuple[int, int]) -> Array:
    """Gray cloth: crossed threads, a printed stripe, folds."""
    y, x = grid(size)
    fold = noise(rng, y, x, 1.5, 3)
    ay, ax = unit(rng.random() + 0.1, rng.random() - 0.5)
    warp, weft = y * ay + x * ax + 0.1 * fold, x * ay - y * ax + 0.1 * fold
    threads = int(rng.integers(9, 17))
    weave = 0.75 + 0.25 * wave(warp * threads) * wave(weft * threads + 0.5 * np.floor(warp * threads))
    stripe = 0.35 + 0.65 * ease(6.0 * wave(weft * rng.integers(2, 5)) - 2.0)
    return stripe * weave * (0.15 + 0.75 * shade(fold, unit(0.5, 0.4, 0.7), size[0] / 5.0))


def moons(rng: Random, size: tuple[int, int]) -> Array:
    """Gray cratered ground in low light."""
    y, x = grid(size)
    height = 0.6 * noise(rng, y, x, 2.0, 6, 0.42)
    for _ in range(14):
        r = 0.03 + 0.2 * rng.random() * rng.random()
        dy, dx = y - rng.random(), x - 1.5 * rng.random()
        away = np.sqrt(dy * dy + dx * dx) / r
        height = height - 0.6 * r * cover(away - 0.9, 0.5) + 0.35 * r * ease(1.0 - 2.5 * np.abs(away - 1.1))
    albedo = 0.5 + 0.5 * noise(rng, y, x, 3.0, 4)
    return 0.02 + 0.8 * albedo * shade(height, unit(0.5, -0.8, 0.45), size[0] / 2.5)


def badges(rng: Random, size: tuple[int, int]) -> Array:
    """Shaded emblems with a soft shadow on a transparent ground (RGBA)."""
    y, x = grid(size)
    dy, dx = y - 0.48, x - 0.5
    round_ = np.sqrt(dy * dy + dx * dx)
    square = np.maximum(np.abs(dy), np.abs(dx))
    blend = rng.random()
    outline = blend * round_ + (1.0 - blend) * square - 0.34
    ring = np.abs(outline + 0.06) - 0.015
    ay, ax = unit(rng.random() - 0.5, rng.random() - 0.5)
    band = np.abs(dy * ay + dx * ax - 0.1 * (rng.random() - 0.5)) - 0.07
    face = tint(rng, 0.3, 0.9, 0.9) * (1.1 - y + 0.25 * noise(rng, y, x, 3.0, 4))[..., None]
    face = over(face, tint(rng, 0.6, 1.0, 0.5) * np.ones((*size, 3)), cover(band, 0.015))
    face = over(face, tint(rng, 0.7, 1.0, 0.2) * np.ones((*size, 3)), cover(ring, 0.015))
    alpha = cover(outline, 0.012)
    shadow = 0.6 * ease(1.0 - (blend * round_ + (1.0 - blend) * square - 0.28) / 0.16)
    return np.dstack([face * alpha[..., None], np.maximum(alpha, shadow * cover(-dy - 0.5, 0.2))])


CLASSES: dict[str, tuple[Callable[[Random, tuple[int, int]], Array], int, tuple[int, int], str]] = {
    "badges": (badges, 6, SQUARE, "png"),
    "clouds": (clouds, 8, WIDE, "jpg"),
    "fabric": (fabric, 8, SQUARE, "png"),
    "hills": (hills, 8, WIDE, "jpg"),
    "leaves": (leaves, 8, SQUARE, "png"),
    "moons": (moons, 8, WIDE, "jpg"),
    "spheres": (spheres, 8, WIDE, "jpg"),
    "wood": (wood, 8, SQUARE, "png"),
}


def draw(name: str, number: int) -> Array:
    """The pixels of one sample, uint8 (h, w) or (h, w, 3 or 4)."""
    paint, _, (h, w), _ = CLASSES[name]
    rng = np.random.Generator(np.random.PCG64([number, *name.encode()]))
    scene = np.clip(paint(rng, (2 * h, 2 * w)), 0.0, 1.0)
    scene = (scene[::2, ::2] + scene[1::2, ::2] + scene[::2, 1::2] + scene[1::2, 1::2]) / 4.0
    opacity = scene[..., 3:] if scene.shape[-1] == 4 else None
    display = np.sqrt(scene if opacity is None else scene[..., :3])  # gamma 2: close to sRGB, and exact
    if opacity is not None:
        display = np.concatenate([display, opacity], axis=-1)
    return np.floor(display * 255.0 + 0.5).astype(np.uint8)


def main(folder: Path) -> None:
    """Write every sample below `folder`."""
    for name, (_, count, _, suffix) in CLASSES.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            options = {"quality": 90, "subsampling": 0} if suffix == "jpg" else {"optimize": True}
            Image.fromarray(draw(name, number)).save(
                folder / name / f"{name}-{number:02d}.{suffix}", **options
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
