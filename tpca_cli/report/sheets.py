"""Contact sheets as arrays: pictures in a grid with captions under them and titles beside the rows.

Arrays in, one (h, w, 3) uint8 array out; the caller turns it into a file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tpca_cli.images.draw import text_mask, text_width

Pixels = npt.NDArray[np.uint8]

PAPER, INK = 236, 30  # light gray paper: a white picture must still have edges
GAP = 8
FONT = 12  # size of the letters
NARROWEST = 84  # a cell is at least as wide as its caption, up to this


@dataclass(frozen=True)
class Cell:
    """One picture of a sheet and the words under it."""

    pixels: Pixels  # (h, w, 3)
    caption: str = ""


def to_rgb(pixels: npt.NDArray[np.generic]) -> Pixels:
    """An image of any mode as 8-bit RGB for looking at; transparency shows a middle gray."""
    deep = pixels.astype(np.float64) / (257.0 if pixels.dtype == np.uint16 else 1.0)  # (h, w, c)
    color, c = deep[..., : 3 if deep.shape[-1] >= 3 else 1], deep.shape[-1]
    if c in (2, 4):
        alpha = deep[..., -1:] / 255.0
        color = color * alpha + 128.0 * (1.0 - alpha)
    rgb: Pixels = np.empty((*color.shape[:2], 3), np.uint8)
    rgb[:] = np.round(color)
    return rgb


def tensor_to_rgb(tensor: npt.NDArray[np.float64]) -> Pixels:
    """A basis element for looking at: zero is middle gray, the largest magnitude is black or white."""
    peak = float(np.abs(tensor).max()) or 1.0
    return to_rgb(np.round(127.5 + 127.5 * tensor[..., :3] / peak).astype(np.uint8))


def fit(pixels: Pixels, side: int) -> Pixels:
    """Bring the longer side close to `side`: whole-number enlargement, or block averages."""
    h, w, _ = pixels.shape
    longest = max(h, w)
    if longest * 2 <= side:
        factor = side // longest
        return pixels.repeat(factor, axis=0).repeat(factor, axis=1)
    if longest <= side:
        return pixels
    rows, cols = max(1, h * side // longest), max(1, w * side // longest)
    small: Pixels = _average(_average(pixels.astype(np.float64), rows, 0), cols, 1).round().astype(np.uint8)
    return small


def _average(values: npt.NDArray[np.float64], count: int, axis: int) -> npt.NDArray[np.float64]:
    """Means of `count` nearly equal runs along an axis."""
    starts = np.arange(count) * values.shape[axis] // count
    lengths = np.diff(starts, append=values.shape[axis])
    shape = [-1 if axis == position else 1 for position in range(values.ndim)]
    means: npt.NDArray[np.float64] = np.add.reduceat(values, starts, axis) / lengths.reshape(shape)
    return means


def contact_sheet(rows: Sequence[Sequence[Cell]], *, titles: Sequence[str] = (), side: int = 96) -> Pixels:
    """Rows of cells on light paper; every cell has the size of the largest picture."""
    pictures = [[fit(cell.pixels, side) for cell in row] for row in rows]
    captions = [cell.caption for row in rows for cell in row if cell.caption]
    high = max((p.shape[0] for row in pictures for p in row), default=1)
    wide = max((p.shape[1] for row in pictures for p in row), default=1)
    wide = max(wide, min(NARROWEST, max((text_width(caption, FONT) for caption in captions), default=0)))
    line = text_mask("", FONT).shape[0]
    pitch_y, pitch_x = high + GAP + (line + 2 if captions else 0), wide + GAP
    left = GAP + max((text_width(title, FONT) + GAP for title in titles), default=0)
    columns = max((len(row) for row in rows), default=0)
    sheet = np.full((GAP + len(rows) * pitch_y, left + columns * pitch_x, 3), PAPER, np.uint8)
    for r, row in enumerate(rows):
        top = GAP + r * pitch_y
        if r < len(titles):
            _write(sheet, titles[r], top + (high - line) // 2, GAP)
        for k, cell in enumerate(row):
            picture, x = pictures[r][k], left + k * pitch_x
            h, w, _ = picture.shape
            y, inset = top + high - h, x + (wide - w) // 2
            sheet[y : y + h, inset : inset + w] = picture
            words = shorten(cell.caption, wide)
            _write(sheet, words, top + high + 2, x + (wide - text_width(words, FONT)) // 2)
    return sheet


def shorten(text: str, room: int) -> str:
    """Text at most `room` pixels wide: its middle is left out, the end of a name tells more."""
    if text_width(text, FONT) <= room:
        return text
    for kept in range(len(text) - 1, 0, -1):
        short = text[: kept // 2] + ".." + text[len(text) - (kept - kept // 2) :]
        if text_width(short, FONT) <= room:
            return short
    return ""


def _write(sheet: Pixels, text: str, top: int, left: int) -> None:
    """Blend a line of text into the sheet; what would leave it is cut off."""
    area = sheet[top:, left:][: text_mask("", FONT).shape[0], : text_width(text, FONT)]
    cover = text_mask(text, FONT)[: area.shape[0], : area.shape[1], None] / 255.0  # (h, w, 1)
    area[:] = np.round(area * (1.0 - cover) + INK * cover)


def in_grid(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells broken into rows, a little wider than high."""
    columns = max(1, math.ceil(math.sqrt(1.6 * len(cells))))
    return [list(cells[start : start + columns]) for start in range(0, len(cells), columns)]


def basis_sheet(tensors: npt.NDArray[np.float64], labels: Sequence[str], side: int = 96) -> Pixels:
    """Basis elements (k, h, w, c), each normalized, with a label under it."""
    cells = [Cell(tensor_to_rgb(tensor), label) for tensor, label in zip(tensors, labels, strict=True)]
    return contact_sheet(in_grid(cells), side=side)
