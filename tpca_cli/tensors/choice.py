"""Which framing and sample type fit a list of headers, and which images do not fit them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tpca_cli.errors import ImageRefused, UsageError
from tpca_cli.framing import TILE, WHOLE, Framing
from tpca_cli.images import Header, common_channels, widens

DEFAULT_TILE = 8


class WrongGuess(Exception):
    """An image does not fit what a few headers led us to expect of all; look at every header instead."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the caller asked for; None where the images decide."""

    framing: Framing | None
    size: tuple[int, int] | None
    tile: int | None
    dtype: str | None
    max_pixels: int

    def to_dict(self) -> dict[str, Any]:
        framing = None if self.framing is None else self.framing.to_dict()
        return {
            "framing": framing,
            "size": self.size,
            "filter": None if self.size is None else "bicubic",
            "tile": self.tile,
            "dtype": self.dtype,
            "max_pixels": self.max_pixels,
        }


@dataclass(frozen=True, slots=True)
class Recipe:
    """How every image is to be read."""

    framing: Framing
    dtype: str
    size: tuple[int, int] | None
    max_pixels: int
    guessed: bool = False


def framed(header: Header, size: tuple[int, int] | None) -> Header:
    """What an image is after the resize."""
    if size is None or (header.height, header.width) == size:
        return header
    return Header(size[0], size[1], header.channels, header.dtype, header.mode)


def kinds(chosen: Sequence[tuple[int, Header]]) -> dict[Header, int]:
    """How often each header is there; images are many, and most share an object."""
    objects = {id(header): header for _, header in chosen}
    times = Counter(id(header) for _, header in chosen)
    found: Counter[Header] = Counter()
    for number, header in objects.items():
        found[header] += times[number]
    return found


def choose(headers: Sequence[Header], wish: Wish) -> Recipe:
    """The recipe that a wish and the images' own headers make."""
    dtype = wish.dtype if wish.dtype is not None else one_dtype(headers)
    framing = wish.framing
    if framing is None:
        framing = choose_framing([framed(header, wish.size) for header in headers], wish.size, wish.tile)
    return Recipe(framing, dtype, wish.size, wish.max_pixels)


def one_dtype(headers: Iterable[Header]) -> str:
    """The sample type of all; 8 and 16 bits have no common type that costs nothing."""
    kinds = {header.dtype for header in headers}
    if len(kinds) > 1:
        raise UsageError(
            "8-bit and 16-bit images cannot share one basis; give them as separate folders or lists"
        )
    return kinds.pop()


def choose_framing(headers: Sequence[Header], size: tuple[int, int] | None, tile: int | None) -> Framing:
    """The framing for images as they are after a resize; the channels are the fewest that hold them all."""
    channels = common_channels({header.channels for header in headers})
    if tile is not None:
        return Framing(TILE, tile, tile, channels)
    if size is not None:
        return Framing(WHOLE, *size, channels)
    sizes = {(header.height, header.width) for header in headers}
    if len(sizes) == 1:
        return Framing(WHOLE, *sizes.pop(), channels)
    return Framing(TILE, DEFAULT_TILE, DEFAULT_TILE, channels)


def misfit(header: Header, framing: Framing, dtype: str) -> ImageRefused | None:
    """Why an image cannot become frames of this shape and type, or None."""
    if header.dtype != dtype:
        bits = {"u1": 8, "u2": 16}
        return ImageRefused(f"{bits[header.dtype]}-bit samples where the frames have {bits[dtype]} bits")
    if not widens(header.channels, framing.channels):
        return ImageRefused(f"{header.mode} does not fit into {framing.channels} channels without loss")
    try:
        framing.grid(header.height, header.width)
    except ImageRefused as error:
        return error
    return None
