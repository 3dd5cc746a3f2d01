"""Lines, dots and words as pixels: what contact sheets and charts need of Pillow.

The font is the one that Pillow brings along, so labels need no font file on the machine. It has the printable
ASCII characters; any other is drawn as `?`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Point: TypeAlias = tuple[float, float]
Color: TypeAlias = tuple[int, int, int]
Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont

OVERSAMPLE = 4  # Pillow's lines have hard edges: they are drawn this much larger and averaged


@dataclass(frozen=True)
class Line:
    """A line through points; `role` is looked up in a palette."""

    role: str
    points: tuple[Point, ...]
    width: float


@dataclass(frozen=True)
class Dot:
    """A filled circle."""

    role: str
    center: Point
    radius: float


@dataclass(frozen=True)
class Words:
    """One line of text, anchored at its baseline; upright text reads from below to above."""

    role: str
    at: Point
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    upright: bool = False


Shape: TypeAlias = Line | Dot | Words


@functools.cache
def _font(size: float) -> Font:
    return ImageFont.load_default(size)


def _drawable(text: str) -> str:
    return "".join(mark if " " <= mark <= "~" else "?" for mark in text)


def text_width(text: str, size: float) -> int:
    """How many pixels a line of text is wide."""
    return math.ceil(_font(size).getlength(_drawable(text)))


def text_mask(text: str, size: float) -> NDArray[np.uint8]:
    """A line of text as coverage from 0 to 255; the height depends on the size only.  (h, w)"""
    _, _, _, height = _font(size).getbbox("Ajpy|_")
    mask = Image.new("L", (text_width(text, size), math.ceil(height)))
    ImageDraw.Draw(mask).text((0, 0), _drawable(text), fill=255, font=_font(size))
    return np.asarray(mask)


def draw(
    shapes: Sequence[Shape],
    size: tuple[int, int],
    palette: Mapping[str, Color],
    *,
    paper: Color = (255, 255, 255),
    font: float = 14.0,
    scale: float = 1.0,
) -> NDArray[np.uint8]:
    """Shapes on paper of (width, height), in order but words last, enlarged by `scale`.  -> (h, w, 3)"""
    width, height = (math.ceil(side * scale) for side in size)
    fine = scale * OVERSAMPLE
    large = Image.new("RGB", (width * OVERSAMPLE, height * OVERSAMPLE), paper)
    pen = ImageDraw.Draw(large)
    for shape in shapes:
        if isinstance(shape, Line):
            points = [(fine * x, fine * y) for x, y in shape.points]
            pen.line(points, palette[shape.role], max(1, round(fine * shape.width)), joint="curve")
        elif isinstance(shape, Dot):
            x, y = shape.center
            pen.circle((fine * x, fine * y), fine * shape.radius, palette[shape.role])
    image = large.reduce(OVERSAMPLE)
    for shape in shapes:
        if isinstance(shape, Words):
            _write(image, shape, palette[shape.role], font * scale, scale)
    return np.asarray(image)


def _write(image: Image.Image, words: Words, color: Color, size: float, scale: float) -> None:
    x, y = (round(scale * position) for position in words.at)
    mask = Image.fromarray(text_mask(words.text, size))
    before = {"start": 0, "middle": mask.width // 2, "end": mask.width}[words.anchor]
    baseline = round(_font(size).getbbox("A")[3])
    if words.upright:
        corner, mask = (x - baseline, y - (mask.width - before)), mask.transpose(Image.Transpose.ROTATE_90)
    else:
        corner = (x - before, y - baseline)
    image.paste(color, (*corner, corner[0] + mask.width, corner[1] + mask.height), mask)
