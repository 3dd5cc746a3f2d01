"""The index of an archive in memory: images and blocks as columns, and the checks that make them trustworthy.

Everything here is arrays and names; files are `reader` and `writer`. A checked index never points outside
the payload, never names a shape without a bound, and never holds a name that is unsafe to write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.archive.format import (
    BLOCK_COLUMNS,
    CHANNELS,
    FLAGS,
    IMAGE_COLUMNS,
    MODES,
    PEAK,
    dtype_of,
)
from tpca_cli.archive.limits import MAX_SIDE
from tpca_cli.errors import FileRefused
from tpca_cli.names import check_names
from tpca_cli.store.columns import (
    join_blobs,
    join_bytes,
    pack,
    split_blobs,
    split_bytes,
    unpack,
)

Ints = npt.NDArray[np.int64]
MAX_BLOCK_PIXELS = 2**19  # besides one row of frames, which may be long; a bound for files that lie


@dataclass(frozen=True)
class Entry:
    """One image as the encoder hands it over."""

    name: bytes
    digest: bytes
    mtime_ns: int
    source_size: int
    height: int
    width: int
    mode: str
    error: int
    exif: bytes = b""
    icc: bytes = b""
    flags: int = 0


@dataclass(frozen=True)
class BlockRecord:
    """One coded block: which images, or which rows of one image, it holds."""

    size: int
    group: int
    first: int
    count: int
    row: int
    rows: int
    digest: bytes


@dataclass(frozen=True)
class Index:
    """All images and blocks of an archive. `images` and `blocks` map a column to its values."""

    names: tuple[bytes, ...]
    images: Mapping[str, Any]
    blocks: Mapping[str, Any]
    extras: tuple[bytes, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    offsets: Ints = field(init=False)  # where each block begins; one more for the end

    def __post_init__(self) -> None:
        ends = np.cumsum(self.blocks["size"], dtype=np.int64)
        object.__setattr__(self, "offsets", np.concatenate([np.zeros(1, np.int64), ends]))

    def __len__(self) -> int:
        return len(self.names)

    def mode(self, image: int) -> str:
        """The mode of an image: `L`, `RGB`, `I;16` and so on."""
        return MODES[int(self.images["mode"][image])]

    def shape(self, image: int) -> tuple[int, int]:
        """Height and width of an image."""
        return int(self.images["height"][image]), int(self.images["width"][image])

    def alive(self) -> Ints:
        """The images that were not replaced, in block order."""
        return np.flatnonzero(self.images["mode"])

    def samples(self) -> Ints:
        """Returned samples per image: pixels times channels; zero for replaced images."""
        channels = np.array([CHANNELS[mode] for mode in MODES])[self.images["mode"]]
        counts: Ints = self.images["height"] * self.images["width"] * channels
        return counts

    def peaks(self) -> Ints:
        """The largest sample value that each image can have, by its mode."""
        peaks: Ints = np.array([PEAK[dtype_of(mode)] for mode in MODES], np.int64)[self.images["mode"]]
        return peaks

    def blocks_of(self, image: int) -> range:
        """The block that holds an image, or the consecutive blocks of its bands."""
        start = int(np.searchsorted(self.blocks["first"], image, side="right")) - 1
        first = int(self.blocks["first"][start])
        start = int(np.searchsorted(self.blocks["first"], first, side="left"))
        stop = int(np.searchsorted(self.blocks["first"], first, side="right"))
        return range(start, stop)

    def block_shapes(self, block: int) -> list[tuple[int, int]]:
        """The shapes that the coder needs to decode a block."""
        first, count = int(self.blocks["first"][block]), int(self.blocks["count"][block])
        rows = int(self.blocks["rows"][block])
        if rows:
            return [(rows, self.shape(first)[1])]
        return [self.shape(image) for image in range(first, first + count)]

    def extra(self, image: int, kind: str) -> bytes:
        """The EXIF block or ICC profile (`kind`) of an image; empty if it has none."""
        position = int(self.images[kind][image])
        return self.extras[position - 1] if position else b""

    def missing(self, image: int) -> str:
        """What of the source file is not in the archive, besides what every archive leaves out."""
        flags = int(self.images["flags"][image])
        return ", ".join(text for bit, text in FLAGS.items() if flags & bit)

    def to_arrays(self) -> dict[str, npt.NDArray[np.uint8]]:
        """The index as the byte arrays that the file holds."""
        arrays = {
            "names": join_bytes(list(self.names)),
            "images": pack(self.images, IMAGE_COLUMNS),
            "blocks": pack(self.blocks, BLOCK_COLUMNS),
        }
        if self.extras:
            arrays["extras"] = join_blobs(list(self.extras))
        if self.skipped:
            arrays["skipped"] = np.frombuffer(json.dumps(self.skipped).encode(), np.uint8)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Index:
        """The index from the byte arrays of a file."""
        images = unpack(arrays["images"], IMAGE_COLUMNS, raw=("digest",))
        blocks = unpack(arrays["blocks"], BLOCK_COLUMNS, raw=("digest",))
        names = split_bytes(arrays["names"], len(images["mode"]))
        extras = split_blobs(arrays["extras"]) if "extras" in arrays else []
        skipped = json.loads(arrays["skipped"].tobytes()) if "skipped" in arrays else []
        return cls(tuple(names), images, blocks, tuple(extras), tuple((p, r) for p, r in skipped))

    @classmethod
    def build(
        cls,
        entries: Sequence[Entry],
        blocks: Sequence[BlockRecord],
        skipped: Iterable[tuple[str, str]] = (),
    ) -> Index:
        """An index of newly coded images and blocks."""
        extras: dict[bytes, int] = {}

        def place(blob: bytes) -> int:
            return extras.setdefault(blob, len(extras) + 1) if blob else 0

        columns: dict[str, Any] = {
            "digest": _digests(entry.digest for entry in entries),
            "mtime": _column(entry.mtime_ns // 1000 for entry in entries),
            "source_size": _column(entry.source_size for entry in entries),
            "height": _column(entry.height for entry in entries),
            "width": _column(entry.width for entry in entries),
            "mode": _column(MODES.index(entry.mode) for entry in entries),
            "error": _column(entry.error for entry in entries),
            "exif": _column(place(entry.exif) for entry in entries),
            "icc": _column(place(entry.icc) for entry in entries),
            "flags": _column(entry.flags for entry in entries),
            "reserved": np.zeros(len(entries), np.int64),
        }
        table: dict[str, Any] = {
            name: _column(getattr(block, name) for block in blocks)
            for name in ("size", "group", "first", "count", "row", "rows")
        }
        table["residual"] = np.zeros(len(blocks), np.int64)
        table["digest"] = _digests(block.digest for block in blocks)
        return cls(tuple(entry.name for entry in entries), columns, table, tuple(extras), tuple(skipped))

    def joined(self, other: Index) -> Index:
        """This index followed by another whose blocks come after ours; replaced images are the caller's."""
        known = {blob: at + 1 for at, blob in enumerate(self.extras)}
        for blob in other.extras:
            known.setdefault(blob, len(known) + 1)
        move = np.array([0] + [known[blob] for blob in other.extras], np.int64)
        theirs = dict(other.images) | {kind: move[other.images[kind]] for kind in ("exif", "icc")}
        later = dict(other.blocks) | {"first": other.blocks["first"] + len(self)}
        return Index(
            self.names + other.names,
            {name: np.concatenate([self.images[name], theirs[name]]) for name in IMAGE_COLUMNS},
            {name: np.concatenate([self.blocks[name], later[name]]) for name in BLOCK_COLUMNS},
            tuple(known),
            other.skipped,
        )

    def without(self, images: Iterable[int]) -> Index:
        """This index with some images marked as replaced: they keep their place in their blocks."""
        gone = np.fromiter(images, np.int64)
        names = list(self.names)
        for image in gone:
            names[image] = b""
        columns = {name: np.array(values) for name, values in self.images.items()}
        for name in ("mode", "error", "mtime", "source_size", "exif", "icc", "flags", "digest"):
            columns[name][gone] = 0
        return replace(self, names=tuple(names), images=columns)

    def check(self, payload_bytes: int, groups: Sequence[Mapping[str, Any]]) -> None:
        """Refuse an index that contradicts itself, the payload or the groups."""
        images, blocks = self.images, self.blocks
        if int(self.offsets[-1]) != payload_bytes or (blocks["size"] < 0).any():
            raise FileRefused("the blocks do not add up to the payload")
        if len(self) and (images["mode"].max() >= len(MODES) or images["error"].min() < 0):
            raise FileRefused("an image has an unknown mode or error")
        if len(self) and (images["height"].min() < 1 or images["width"].min() < 1):
            raise FileRefused("an image has no pixels")
        if len(self) and max(images["height"].max(), images["width"].max()) > MAX_SIDE:
            raise FileRefused(f"an image has a side of more than {MAX_SIDE} pixels")
        for kind in ("exif", "icc"):
            if len(self) and images[kind].max() > len(self.extras):
                raise FileRefused(f"an image points to {kind} data that is not there")
        self._check_blocks(groups)
        check_names(self.names[image] for image in self.alive())

    def _check_blocks(self, groups: Sequence[Mapping[str, Any]]) -> None:
        first, count, row, rows, group = (self.blocks[k] for k in ("first", "count", "row", "rows", "group"))
        if not len(first):
            if len(self):
                raise FileRefused("images without a block")
            return
        if count.min() < 1 or (first + count).max() > len(self) or group.max() >= len(groups):
            raise FileRefused("a block holds no image, or belongs to no group")
        height, width = self.images["height"], self.images["width"]
        banded = rows > 0
        if (banded & ((count != 1) | (row + rows > height[first]))).any():
            raise FileRefused("a band does not fit its image")
        # where each block must leave off for the next one to go on, or for the list to end
        complete = ~banded | (row + rows == height[first])
        next_first = np.where(complete, first + count, first)
        next_row = np.where(complete, 0, row + rows)
        starts = np.concatenate([first, [len(self)]]), np.concatenate([row, [0]])
        ends = np.concatenate([[0], next_first]), np.concatenate([[0], next_row])
        if not (np.array_equal(starts[0], ends[0]) and np.array_equal(starts[1], ends[1])):
            raise FileRefused("the blocks do not follow one another")
        group_of = np.repeat(group[complete], count[complete])
        self._check_modes(group_of, groups)
        # decoding takes memory by the frames of a block: no more of them than are ever packed together
        frames = _frame_sizes(groups)
        across = -(-width // frames[group_of, 1])
        total = np.concatenate([[0], np.cumsum(-(-height // frames[group_of, 0]) * across)])
        claimed = np.where(
            banded, -(-rows // frames[group, 0]) * across[first], total[first + count] - total[first]
        )
        spare = claimed - np.maximum.reduceat(across, first)
        if (spare * frames[group].prod(axis=1).astype(np.float64)).max() > MAX_BLOCK_PIXELS:
            raise FileRefused("a block claims too many pixels")

    def _check_modes(self, group_of: Ints, groups: Sequence[Mapping[str, Any]]) -> None:
        """Every image has the sample type of its group, and its channels or (gray) one."""
        fits = np.array(
            [
                [
                    not mode
                    or (dtype_of(mode) == group["dtype"] and CHANNELS[mode] in (1, group["channels"]))
                    for mode in MODES
                ]
                for group in groups
            ]
        )
        if not fits[group_of, self.images["mode"]].all():
            raise FileRefused("an image is in a group of another kind")


def _frame_sizes(groups: Sequence[Mapping[str, Any]]) -> Ints:
    """Height and width of the frames of each group, (groups, 2)."""
    try:
        framings = [group["coder"]["framing"] for group in groups]
        sizes = np.array([[int(framing[side]) for side in ("height", "width")] for framing in framings])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise FileRefused("a group without frames") from None
    if sizes.min() < 1 or sizes.max() >= 2**16:
        raise FileRefused(f"frames of {sizes.min()} to {sizes.max()} pixels")
    return sizes.astype(np.int64)


def _column(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _digests(values: Iterable[bytes]) -> npt.NDArray[np.uint8]:
    return np.array(np.frombuffer(b"".join(values), np.uint8).reshape(-1, 8))
