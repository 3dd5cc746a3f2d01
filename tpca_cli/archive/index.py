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
    COLUMNS,
    DIGEST_BYTES,
    DTYPES,
    FILE_METHODS,
    FLAGS,
    LOWEST_QUALITY,
    MODE_PEAKS,
    MODES,
    MODES_V1,
    PARTIAL,
    PEAK,
    VERSION,
)
from tpca_cli.archive.limits import (
    MAX_REASONS,
    MAX_SIDE,
    MAX_TEXT,
    json_list,
    metadata_kinds,
    reason_texts,
    skipped_pair,
)
from tpca_cli.errors import FileRefused
from tpca_cli.formats import FILE
from tpca_cli.names import check_names
from tpca_cli.store.columns import (
    fold_bytes,
    join_blobs,
    join_bytes,
    pack,
    split_blobs,
    split_bytes,
    unfold_bytes,
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
    mode_bits: int = 0o644
    metadata: Mapping[str, bytes] = field(default_factory=dict)  # by kind, as docs/FORMAT.md lists them
    reasons: tuple[str, ...] = ()  # why the source is kept in part
    quality: float | None = None  # SSIMULACRA 2, where it was measured
    peak: int = 0  # the range of the samples in its group; 0: all that the mode allows


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
    """All images and blocks of an archive. `images` and `blocks` map a column to its values.

    In memory every version has all columns, and one more, `peak`, which the file has by group; the digests of
    source files have as many bytes as the version says.
    """

    names: tuple[bytes, ...]
    images: Mapping[str, Any]
    blocks: Mapping[str, Any]
    extras: tuple[bytes, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    metadata: tuple[Mapping[str, int], ...] = ()  # kind -> 1 + position in `extras`
    reasons: tuple[tuple[str, ...], ...] = ()
    version: int = VERSION
    offsets: Ints = field(init=False)  # where each block begins; one more for the end
    alive: Ints = field(init=False)  # the images that were not replaced, in block order
    samples: Ints = field(init=False)  # of each image as it is returned; zero for replaced ones
    group_of: Ints = field(init=False)  # the group of each image

    def __post_init__(self) -> None:
        ends = np.cumsum(self.blocks["size"], dtype=np.int64)
        object.__setattr__(self, "offsets", np.concatenate([np.zeros(1, np.int64), ends]))
        object.__setattr__(self, "alive", np.flatnonzero(self.images["mode"]))
        counts = np.array([CHANNELS[mode] for mode in MODES])
        channels = counts.take(self.images["mode"], mode="clip")  # `check` refuses those that are not known
        object.__setattr__(self, "samples", self.images["height"] * self.images["width"] * channels)
        blocks = np.searchsorted(self.blocks["first"], np.arange(len(self)), side="right") - 1
        object.__setattr__(self, "group_of", self.blocks["group"][blocks if len(ends) else []])

    def __len__(self) -> int:
        return len(self.names)

    def mode(self, image: int) -> str:
        """The mode of an image: `L`, `RGB`, `I;16` and so on."""
        return MODES[int(self.images["mode"][image])]

    def shape(self, image: int) -> tuple[int, int]:
        """Height and width of an image."""
        return int(self.images["height"][image]), int(self.images["width"][image])

    def blocks_of(self, image: int) -> range:
        """The block that holds an image, or the consecutive blocks of its bands."""
        firsts = self.blocks["first"]
        stop = int(firsts.searchsorted(image, "right"))
        if not self.blocks["rows"][stop - 1]:
            return range(stop - 1, stop)
        return range(int(firsts.searchsorted(firsts[stop - 1])), stop)

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

    def metadata_of(self, image: int) -> dict[str, bytes]:
        """What is kept of an image besides pixels, EXIF and ICC, by kind (docs/FORMAT.md)."""
        position = int(self.images["metadata"][image])
        kinds = self.metadata[position - 1] if position else {}
        return {kind: self.extras[at - 1] for kind, at in kinds.items()}

    def mode_bits(self, image: int) -> int | None:
        """The permissions of the source file; None in version 1, which has none."""
        return int(self.images["mode_bits"][image]) if self.version > 1 else None

    def missing_reasons(self, image: int) -> tuple[str, ...]:
        """What of the source file is not in the archive, besides what every archive leaves out."""
        flags, position = (int(self.images[name][image]) for name in ("flags", "reasons"))
        reasons = self.reasons[position - 1] if position else ()
        known = [text for bit, text in FLAGS.items() if flags & bit and not (bit == PARTIAL and reasons)]
        return (*known, *reasons)

    def missing(self, image: int) -> str:
        """The same as one text, empty for an image that is kept whole."""
        return ", ".join(self.missing_reasons(image))

    def to_arrays(self) -> dict[str, npt.NDArray[np.uint8]]:
        """The datasets of the index, in the version that it has."""
        columns, names = COLUMNS[self.version], list(self.names)
        zeros = {"reserved": np.zeros(len(self), np.int64)}
        arrays = {
            **({"names": join_bytes(names)} if self.version == 1 else {"folded": fold_bytes(names)}),
            "images": pack({**zeros, **self.images}, columns),
            "blocks": pack(self.blocks, BLOCK_COLUMNS),
        }
        if self.extras:
            arrays["extras"] = join_blobs(list(self.extras))
        for name, items in (
            ("metadata", self.metadata),
            ("reasons", self.reasons),
            ("skipped", self.skipped),
        ):
            if items:
                arrays[name] = np.frombuffer(json.dumps(items).encode(), np.uint8)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], version: int = VERSION) -> Index:
        """The inverse of `to_arrays`; texts are made fit for a terminal, `check` does the rest."""
        images = unpack(arrays["images"], COLUMNS[version], raw=("digest",))
        images.pop("reserved", None)
        for name in COLUMNS[VERSION]:
            images.setdefault(name, np.zeros(len(images["mode"]), np.int64))
        if len(images["mode"]) and images["mode"].max() >= (MODES_V1 if version == 1 else len(MODES)):
            raise FileRefused("an image has an unknown mode or error")
        images["peak"] = np.array([MODE_PEAKS[mode] for mode in MODES], np.int64)[images["mode"]]
        blocks = unpack(arrays["blocks"], BLOCK_COLUMNS, raw=("digest",))
        if ("names" in arrays) == ("folded" in arrays):
            raise FileRefused("no names of images, or two lists of them")
        split, list_of = (split_bytes, "names") if "names" in arrays else (unfold_bytes, "folded")
        names = split(arrays[list_of], len(images["mode"]))
        extras = split_blobs(arrays["extras"]) if "extras" in arrays else []
        return cls(
            tuple(names),
            images,
            blocks,
            tuple(extras),
            tuple(skipped_pair(item) for item in json_list(arrays, "skipped")),
            tuple(metadata_kinds(item) for item in json_list(arrays, "metadata")),
            tuple(reason_texts(item) for item in json_list(arrays, "reasons")),
            version,
        )

    def with_peaks(self, groups: Sequence[Mapping[str, Any]]) -> Index:
        """A checked index with the range of the samples that each group names."""
        peaks = np.array([group.get("peak", PEAK[group["dtype"]]) for group in groups] or [0], np.int64)
        return replace(self, images={**self.images, "peak": peaks[self.group_of]})

    @classmethod
    def build(
        cls,
        entries: Sequence[Entry],
        blocks: Sequence[BlockRecord],
        skipped: Iterable[tuple[str, str]] = (),
    ) -> Index:
        """An index of newly coded images and blocks; digests of 8 bytes make it one of version 1."""
        version = 1 if entries and len(entries[0].digest) == DIGEST_BYTES[1] else VERSION
        pool = _Pool()
        columns: dict[str, Any] = {
            "digest": _digests([entry.digest for entry in entries], DIGEST_BYTES[version]),
            "mtime": _column(entry.mtime_ns // 1000 for entry in entries),
            "source_size": _column(entry.source_size for entry in entries),
            "height": _column(entry.height for entry in entries),
            "width": _column(entry.width for entry in entries),
            "mode": _column(MODES.index(entry.mode) for entry in entries),
            "error": _column(entry.error for entry in entries),
            "exif": _column(pool.blob(entry.exif) for entry in entries),
            "icc": _column(pool.blob(entry.icc) for entry in entries),
            "metadata": _column(pool.kinds(entry.metadata) for entry in entries),
            "reasons": _column(pool.texts(entry.reasons) for entry in entries),
            "mode_bits": _column(entry.mode_bits for entry in entries),
            "quality": _column(_quality_code(entry.quality) for entry in entries),
            "flags": _column(entry.flags | PARTIAL * bool(entry.reasons) for entry in entries),
            "peak": _column(entry.peak or MODE_PEAKS[entry.mode] for entry in entries),
        }
        table: dict[str, Any] = {
            name: _column(getattr(block, name) for block in blocks)
            for name in ("size", "group", "first", "count", "row", "rows")
        }
        table["residual"] = np.zeros(len(blocks), np.int64)
        table["digest"] = _digests([block.digest for block in blocks], BLOCK_COLUMNS["digest"])
        names = tuple(entry.name for entry in entries)
        return pool.index(Index(names, columns, table, (), tuple(skipped), version=version)).in_version(
            version
        )

    def joined(self, other: Index) -> Index:
        """This index followed by another whose blocks come after ours; replaced images are the caller's."""
        pool, other = _Pool(self), other.in_version(self.version)
        theirs = pool.moved(other, np.arange(len(other)))
        later = dict(other.blocks) | {"first": other.blocks["first"] + len(self)}
        return pool.index(
            Index(
                self.names + other.names,
                {name: np.concatenate([values, theirs[name]]) for name, values in self.images.items()},
                {name: np.concatenate([self.blocks[name], later[name]]) for name in BLOCK_COLUMNS},
                skipped=other.skipped,
                version=self.version,
            )
        )

    def of_images(self, order: Sequence[int], blocks: Sequence[BlockRecord]) -> Index:
        """Some of the images in another order, in blocks of their own, and only what these need."""
        pool = _Pool()
        table = Index.build([], blocks).blocks
        names = tuple(self.names[image] for image in order)
        columns = pool.moved(self, np.asarray(order, np.int64))
        return pool.index(Index(names, columns, table, skipped=self.skipped, version=self.version))

    def in_version(self, version: int) -> Index:
        """The same images for an archive of this version; what an older one cannot hold is not kept."""
        width = DIGEST_BYTES[version]
        images = dict(self.images)
        if not len(self):
            images["digest"] = np.zeros((0, width), np.uint8)
        if images["digest"].shape[1] != width:
            raise ValueError(
                f"digests of {images['digest'].shape[1]} bytes where version {version} has {width}"
            )
        if version > 1:
            return replace(self, images=images, version=version)
        nothing = np.zeros(len(self), np.int64)
        lost = (images["metadata"] > 0) | (images["reasons"] > 0)
        images["flags"] = images["flags"] | PARTIAL * lost
        images |= {"metadata": nothing, "reasons": nothing, "mode_bits": nothing}
        bare = replace(self, images=images, metadata=(), reasons=(), version=version)
        pool = _Pool()
        return pool.index(replace(bare, images=pool.moved(bare, np.arange(len(self)))))

    def without(self, images: Iterable[int]) -> Index:
        """This index with some images marked as replaced: they keep their place in their blocks."""
        gone = np.fromiter(images, np.int64)
        names = list(self.names)
        for image in gone:
            names[image] = b""
        columns = {name: np.array(values) for name, values in self.images.items()}
        for name in columns:
            if name not in ("height", "width", "peak"):
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
        self._check_metadata()
        if len(self) and max(images["height"].max(), images["width"].max()) > MAX_SIDE:
            raise FileRefused(f"an image has a side of more than {MAX_SIDE} pixels")
        self._check_blocks(groups)
        check_names([self.names[image] for image in self.alive])

    def _check_metadata(self) -> None:
        """Every reference leads to something."""
        pools = {"exif": self.extras, "icc": self.extras, "metadata": self.metadata, "reasons": self.reasons}
        for kind, pool in pools.items():
            if len(self) and self.images[kind].max() > len(pool):
                raise FileRefused(f"an image points to {kind} data that is not there")
        if any(not 1 <= at <= len(self.extras) for kinds in self.metadata for at in kinds.values()):
            raise FileRefused("metadata point to data that are not there")
        if len(self) and self.images["mode_bits"].max() > 0o7777:
            raise FileRefused("an image has impossible permissions")

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
        framings = [each["coder"]["framing"] for each in groups]
        frames = np.array([[framing["height"], framing["width"]] for framing in framings], np.int64)
        across = -(-width // frames[group_of, 1])
        total = np.concatenate([[0], np.cumsum(-(-height // frames[group_of, 0]) * across)])
        claimed = np.where(
            banded, -(-rows // frames[group, 0]) * across[first], total[first + count] - total[first]
        )
        spare = claimed - np.maximum.reduceat(across, first)
        files = np.array([each.get("method") in FILE_METHODS for each in groups])[group]  # of any size, whole
        spare = np.where(files, claimed - np.maximum.reduceat(np.diff(total), first), spare)
        if (spare * frames[group].prod(axis=1).astype(np.float64)).max() > MAX_BLOCK_PIXELS:
            raise FileRefused("a block claims too many pixels")

    def _check_modes(self, group_of: Ints, groups: Sequence[Mapping[str, Any]]) -> None:
        """Every image has the sample type of its group, and its channels or (gray) one."""

        def holds(group: Mapping[str, Any], mode: str) -> bool:
            if not mode or mode == FILE:
                return not mode or group.get("method") == "files"
            return DTYPES[mode] == group["dtype"] and CHANNELS[mode] in (1, group["channels"])

        fits = np.array([[holds(group, mode) for mode in MODES] for group in groups])
        if not fits[group_of, self.images["mode"]].all():
            raise FileRefused("an image is in a group of another kind")


def _quality_code(score: float | None) -> int:
    return 0 if score is None else 1 + round(100 * (max(score, LOWEST_QUALITY) - LOWEST_QUALITY))


def _column(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _digests(values: Sequence[bytes], width: int) -> npt.NDArray[np.uint8]:
    return np.array(np.frombuffer(b"".join(values), np.uint8).reshape(-1, width))


class _Pool:
    """Blobs, combinations of metadata and lists of reasons, each kept once and numbered from 1."""

    def __init__(self, index: Index | None = None) -> None:
        self.extras = {blob: at for at, blob in enumerate(index.extras if index else (), 1)}
        sets = index.metadata if index else ()
        self.metadata = {tuple(kinds.items()): at for at, kinds in enumerate(sets, 1)}
        self.reasons = {texts: at for at, texts in enumerate(index.reasons if index else (), 1)}

    def blob(self, blob: bytes) -> int:
        return self.extras.setdefault(blob, len(self.extras) + 1) if blob else 0

    def kinds(self, blobs: Mapping[str, bytes]) -> int:
        key = tuple((kind, self.blob(blobs[kind])) for kind in sorted(blobs) if blobs[kind])
        return self.metadata.setdefault(key, len(self.metadata) + 1) if key else 0

    def texts(self, texts: Sequence[str]) -> int:
        key = tuple(text[:MAX_TEXT] for text in texts[:MAX_REASONS])
        return self.reasons.setdefault(key, len(self.reasons) + 1) if key else 0

    def moved(self, index: Index, order: Ints) -> dict[str, Any]:
        """The columns of some images of another index, their references counted in this pool."""
        columns = {name: np.asarray(values)[order] for name, values in index.images.items()}
        for kind in ("exif", "icc"):
            columns[kind] = _column(self.blob(index.extra(int(image), kind)) for image in order)
        columns["metadata"] = _column(self.kinds(index.metadata_of(int(image))) for image in order)
        lists = ((), *index.reasons)
        columns["reasons"] = _column(self.texts(lists[at]) for at in columns["reasons"])
        return columns

    def index(self, index: Index) -> Index:
        """An index whose references are counted in this pool."""
        return replace(
            index,
            extras=tuple(self.extras),
            metadata=tuple(dict(kinds) for kinds in self.metadata),
            reasons=tuple(self.reasons),
        )
