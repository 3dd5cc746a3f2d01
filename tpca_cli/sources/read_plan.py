"""Which framing and sample type fit a list of headers, and which images do not fit them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tpca_cli.errors import ImageRefused, StorageError, TpcaError, UsageError, printable
from tpca_cli.framing import TILE, WHOLE, Framing
from tpca_cli.images import DIGEST_BYTES, MAX_PIXELS, Header, common_channels, widens
from tpca_cli.memory import DEFAULT_MEMORY, Room
from tpca_cli.sources.scan import UNREADABLE, Scan, Skipped, require_some, scan

DEFAULT_TILE = 8
# Without their headers we cannot know what images weigh: larger ones than this are not read on a guess.
GUESSED_PIXELS = 1 << 24
OnError: TypeAlias = Literal["skip", "fail"]
"""What to do about a file that cannot be read: leave it out and say so, or stop."""


class WrongGuess(Exception):
    """An image does not fit what a few headers led us to expect of all; look at every header instead."""


@dataclass(frozen=True, slots=True)
class FramingOptions:
    """What the caller asked for; None where the images decide."""

    framing: Framing | None
    size: tuple[int, int] | None
    tile: int | None
    dtype: str | None
    max_pixels: int

    def to_dict(self) -> dict[str, Any]:
        """The options as plain values, for the key of a tensor file."""
        framing = None if self.framing is None else self.framing.to_dict()
        return {
            "framing": framing,
            "size": self.size,
            "filter": None if self.size is None else "bicubic",
            "tile": self.tile,
            "dtype": self.dtype,
            "max_pixels": self.max_pixels,
        }


@dataclass(frozen=True)
class Reading:
    """How source files are read, the same in every pass."""

    size: tuple[int, int] | None = None
    max_pixels: int = MAX_PIXELS
    on_error: OnError = "skip"
    workers: int = 1
    digest_bytes: int = DIGEST_BYTES  # of the digests of source files
    strip_metadata: bool = False  # keep nothing of a file but its picture
    memory: int = DEFAULT_MEMORY  # of all processes; decides nothing but what is refused as too large
    whole: bool = False  # every file counts, also one that is no picture; color may have 16 bits
    room: Room = field(init=False)  # what the memory leaves for pictures, and how many may work on them

    def __post_init__(self) -> None:
        object.__setattr__(self, "room", Room.within(self.memory, self.workers))


MACHINE = ("workers", "memory", "room")
"""The fields of `Reading` that decide nothing of what is read."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How every image is to be read."""

    framing: Framing
    dtype: str
    size: tuple[int, int] | None
    max_pixels: int
    guessed: bool = False

    def frames_of(self, header: Header) -> int:
        """How many frames an image becomes."""
        after = after_resize(header, self.size)
        return self.framing.count(after.height, after.width)


def after_resize(header: Header, size: tuple[int, int] | None) -> Header:
    """What an image is after the resize."""
    if size is None or (header.height, header.width) == size:
        return header
    return Header(size[0], size[1], header.channels, header.dtype, header.mode)


def count_headers(chosen: Sequence[tuple[int, Header]]) -> dict[Header, int]:
    """How often each header is there; images are many, and most share an object."""
    objects = {id(header): header for _, header in chosen}
    times = Counter(id(header) for _, header in chosen)
    found: Counter[Header] = Counter()
    for number, header in objects.items():
        found[header] += times[number]
    return found


def plan_reading(headers: Sequence[Header], wish: FramingOptions) -> ReadPlan:
    """The recipe that a wish and the images' own headers make."""
    dtype = wish.dtype if wish.dtype is not None else one_dtype(headers)
    framing = wish.framing
    if framing is None:
        framing = choose_framing(
            [after_resize(header, wish.size) for header in headers], wish.size, wish.tile
        )
    return ReadPlan(framing, dtype, wish.size, wish.max_pixels)


def one_dtype(headers: Iterable[Header]) -> str:
    """The sample type of all; 8 and 16 bits have no common type that costs nothing."""
    dtypes = {header.dtype for header in headers}
    if len(dtypes) > 1:
        raise UsageError(
            "8-bit and 16-bit images cannot share one basis; give them as separate folders or lists"
        )
    return dtypes.pop()


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


def skip_or_fail(path: bytes, error: ImageRefused | StorageError, on_error: OnError) -> Skipped:
    """The one rule for a file that cannot be used: a note or, with `fail`, the end of the run."""
    if on_error == "fail":
        raise failure(path, error, "--on-error skip would leave it out")
    return Skipped(path, str(error))


def failure(path: bytes, error: ImageRefused | StorageError, hint: str = "") -> TpcaError:
    """The error of one file as the end of a run, with the path in its message."""
    kind = StorageError if isinstance(error, StorageError) else ImageRefused
    named = str(error) if printable(path) in str(error) else f"{printable(path)}: {error}"
    return kind(f"{named} ({hint})" if hint else named)


def scan_or_fail(
    sources: Sequence[str], on_error: OnError, *, whole: bool = False, distinct: bool = False
) -> Scan:
    """The files of a run, which ends if there are none or, with `fail`, if one had to be skipped."""
    found = scan(sources, whole=whole, distinct=distinct)
    if found.skipped:
        first = found.skipped[0]
        kind = StorageError if first.reason.startswith(UNREADABLE) else ImageRefused
        skip_or_fail(first.path, kind(first.reason), on_error)
    require_some(found, sources)
    return found
