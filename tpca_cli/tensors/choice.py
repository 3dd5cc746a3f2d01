"""Which framing and sample type fit a list of headers, and which images do not fit them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tpca_cli.errors import ImageRefused, UsageError
from tpca_cli.framing import TILE, WHOLE, Framing
from tpca_cli.images import Header, common_channels, widens

DEFAULT_TILE = 8


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
