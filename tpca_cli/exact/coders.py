"""The coders of groups that come back exactly; each turns what it codes into blocks and back.

| method   | codes    | what comes back                                            |
|----------|----------|------------------------------------------------------------|
| `jpeg`   | files    | JPEG files, bit for bit                                    |
| `files`  | files    | any files, bit for bit: what no other way makes smaller    |
| `pixels` | pictures | every sample within `tolerance`, exactly where that is 0   |
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpca_cli.errors import FileRefused
from tpca_cli.exact import jpeg, pixels
from tpca_cli.exact.priors import MODEL
from tpca_cli.exact.skeletons import Templates
from tpca_cli.interfaces import Pixels
from tpca_cli.store.columns import join_blobs, split_blobs
from tpca_cli.wasm import KernelStopped

Shape = tuple[int, int]
Arrays = dict[str, NDArray[Any]]
TILE = 8
"""Blocks are packed as if pictures were cut into tiles of this side."""
NUMBER = 4
"""Bytes of a length."""
SHORT = 2
"""Bytes of the length of a table."""
SPARSE = 2
"""Samples of 16 bits that use fewer than one in so many values are coded by the rank of theirs."""
FILE_BYTES, EXPANSION = 1 << 28, 16
"""The files of one block take no more than this besides so many times the block: see `most_bytes`."""
TOGETHER = 1 << 23
"""Bytes of files, about, that are worked on at a time."""
BYTES_PER_PIXEL = 40
"""More than the scans of any JPEG file take."""


def most_bytes(stored: int, scale: float = 1.0) -> int:
    """How much the files of a block of `stored` bytes may take: zeros deflate to a thousandth."""
    return int(scale * FILE_BYTES) + EXPANSION * stored


@dataclass(frozen=True)
class JpegCoder:
    """JPEG files, by their coefficients."""

    templates: Templates = field(default_factory=Templates)
    model: int = MODEL
    method = "jpeg"

    @classmethod
    def train(cls, sample: Iterable[bytes]) -> JpegCoder:
        """A coder that knows the headers which files of a sample share; few files are held at a time."""
        skeletons: list[jpeg.Skeleton | None] = []
        held: list[bytes] = []
        for data in sample:
            held.append(data)
            if sum(map(len, held)) > TOGETHER:
                skeletons += jpeg.skeletons_of(held)
                held = []
        skeletons += jpeg.skeletons_of(held) if held else ()
        return cls(Templates.common(skeleton.data for skeleton in skeletons if skeleton))

    def encode_files(self, files: Sequence[bytes], shapes: Sequence[Shape]) -> tuple[bytes, list[bool]]:
        """A block of those files that come back from it bit for bit, and which these are."""
        try:
            parts = jpeg.take_apart(files, self.model)
            taken = [skeleton is not None for skeleton in parts.skeletons]
        except KernelStopped:  # a file that nobody foresaw: the others do without it
            taken = [self._returns(data, size) for data, size in zip(files, shapes, strict=True)]
            parts = self._apart(files, taken)
        while any(taken):
            some = [data for data, good in zip(files, taken, strict=True) if good]
            sizes = [shape for shape, good in zip(shapes, taken, strict=True) if good]
            block = self._joined(some, parts)
            try:
                same = [a == b for a, b in zip(some, self.decode_files(block, sizes), strict=True)]
            except FileRefused:  # one of them spoils it: which one, they say by themselves
                same = [self._returns(data, size) for data, size in zip(some, sizes, strict=True)]
            if all(same):
                return block, taken
            again = iter(same)
            taken = [good and next(again) for good in taken]
            parts = self._apart(files, taken)
        return b"", taken

    def prepare(self) -> None:
        """Compile the kernel now: processes that are forked later inherit it."""
        jpeg.MODELS[self.model][1].instance()

    def _apart(self, files: Sequence[bytes], taken: Sequence[bool]) -> jpeg.Parts:
        return jpeg.take_apart([data for data, good in zip(files, taken, strict=True) if good], self.model)

    def _returns(self, data: bytes, shape: Shape) -> bool:
        try:
            return self.decode_files(self._joined([data], self._apart([data], [True])), [shape]) == [data]
        except (FileRefused, KernelStopped):
            return False

    def _joined(self, files: Sequence[bytes], parts: jpeg.Parts) -> bytes:
        headers = self.templates.pack([skeleton for skeleton in parts.skeletons if skeleton])
        numbers = (sum(map(len, files)), len(headers))
        return b"".join([*(number.to_bytes(NUMBER, "little") for number in numbers), headers, parts.coded])

    def decode_files(self, data: bytes, shapes: Sequence[Shape], scale: float = 1.0) -> list[bytes]:
        """The files of a block, which may take `scale` times what is usual."""
        size, length = (int.from_bytes(data[at : at + NUMBER], "little") for at in (0, NUMBER))
        if len(data) < 2 * NUMBER + length:
            raise FileRefused("a block of JPEG files that ends early")
        _check_size(size, len(data), scale)
        headers, coded = data[2 * NUMBER : 2 * NUMBER + length], data[2 * NUMBER + length :]
        skeletons = self.templates.unpack(headers, shapes, size)
        pixels = sum((height + TILE) * (width + TILE) for height, width in shapes)
        if size > sum(len(skeleton.data) for skeleton in skeletons) + BYTES_PER_PIXEL * pixels:
            raise FileRefused(f"JPEG files of {size} bytes for {pixels} pixels")
        return jpeg.put_together(skeletons, coded, size, self.model)

    def to_arrays(self) -> Arrays:
        """What a group stores of it."""
        found = {"templates": self.templates.skeletons, "segments": self.templates.segments}
        return {name: join_blobs(list(blobs)) for name, blobs in found.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], model: int = MODEL) -> JpegCoder:
        """The mirror of `to_arrays`, for the models of this number."""
        found = (split_blobs(np.asarray(arrays[name], np.uint8)) for name in ("templates", "segments"))
        return cls(Templates(*(tuple(blobs) for blobs in found)), model)


@dataclass(frozen=True)
class FileCoder:
    """Files as they are, deflated."""

    method = "files"

    def prepare(self) -> None:
        """Nothing has to be compiled."""

    def encode_files(self, files: Sequence[bytes], shapes: Sequence[Shape]) -> tuple[bytes, list[bool]]:
        """A block of all files."""
        lengths = b"".join(len(data).to_bytes(NUMBER, "little") for data in files)
        block = _deflated(lengths, files, 9)
        if sum(map(len, files)) > most_bytes(len(block) - len(lengths)):  # a reader would take it for a trap
            block = lengths + zlib.compress(b"".join(files), 0)
        return block, [True] * len(files)

    def returns(self, data: bytes, files: Sequence[bytes]) -> bool:
        """Whether a block gives these files back; they are not held once more."""
        lengths = b"".join(len(file).to_bytes(NUMBER, "little") for file in files)
        wanted, found, unpacker = hashlib.blake2b(), hashlib.blake2b(), zlib.decompressobj()
        for file in files:
            wanted.update(file)
        for start in range(len(lengths), len(data), TOGETHER):
            if unpacker.eof:
                return False
            rest: bytes | memoryview = memoryview(data)[start : start + TOGETHER]
            while rest and not unpacker.eof:
                found.update(unpacker.decompress(rest, TOGETHER))
                rest = unpacker.unconsumed_tail
        found.update(unpacker.flush())
        ended = unpacker.eof and not unpacker.unused_data
        return ended and data.startswith(lengths) and wanted.digest() == found.digest()

    def decode_files(self, data: bytes, shapes: Sequence[Shape], scale: float = 1.0) -> list[bytes]:
        """The files of a block, which may take `scale` times what is usual."""
        head = NUMBER * len(shapes)
        lengths = np.frombuffer(data[:head].ljust(head, b"\0"), "<u4").astype(np.int64)
        _check_size(int(lengths.sum()), len(data), scale)
        unpacker = zlib.decompressobj()
        try:
            flat = unpacker.decompress(memoryview(data)[head:], int(lengths.sum()) + 1)
        except zlib.error as error:
            raise FileRefused(f"files that cannot be inflated ({error})") from None
        if len(flat) != int(lengths.sum()) or not unpacker.eof:
            raise FileRefused("files of another length than the block says")
        ends = np.cumsum(lengths)
        return [flat[end - length : end] for length, end in zip(lengths, ends, strict=True)]

    def to_arrays(self) -> Arrays:
        """Nothing has to be known."""
        return {}


@dataclass(frozen=True)
class PixelCoder:
    """Pictures of one number of channels whose samples reach up to `peak`."""

    channels: int
    peak: int
    tolerance: int = 0
    model: int = MODEL
    method = "pixels"

    def prepare(self) -> None:
        """Compile the kernel now: processes that are forked later inherit it."""
        pixels.MODELS[self.model][1].instance()

    def encode(self, pictures: Sequence[Pixels]) -> tuple[bytes, list[Pixels]]:
        """A block, and the pictures that a reader will get."""
        if self.peak < 256:
            return pixels.encode(pictures, self.peak, self.tolerance, self.model)
        values = np.unique(np.concatenate([np.unique(picture) for picture in pictures]))
        if self.tolerance or SPARSE * len(values) > int(values[-1]) + 1:
            data, told = pixels.encode(pictures, self.peak, self.tolerance, self.model)
            return bytes(SHORT) + data, told
        table = zlib.compress(np.diff(values, prepend=0).astype("<u2").tobytes(), 9)
        ranks = [np.searchsorted(values, picture).astype(np.uint16) for picture in pictures]
        data, told = pixels.encode(ranks, max(len(values) - 1, 1), 0, self.model)
        return len(table).to_bytes(SHORT, "little") + table + data, [values[rank] for rank in told]

    def decode(self, data: bytes, shapes: Sequence[Shape]) -> list[Pixels]:
        """The pictures of a block."""
        if self.peak < 256:
            return pixels.decode(data, shapes, self.channels, self.peak, self.tolerance, self.model)
        length = SHORT + int.from_bytes(data[:SHORT], "little")
        if length == SHORT:
            return pixels.decode(data[SHORT:], shapes, self.channels, self.peak, self.tolerance, self.model)
        values = _values(data[SHORT:length], self.peak)
        ranks = pixels.decode(data[length:], shapes, self.channels, max(len(values) - 1, 1), 0, self.model)
        if max(int(rank.max()) for rank in ranks) >= len(values):
            raise FileRefused("a sample with a value that its block does not have")
        return [values[rank] for rank in ranks]

    def to_arrays(self) -> Arrays:
        """Nothing has to be known besides the description of the group."""
        return {}


def _deflated(head: bytes, files: Sequence[bytes], level: int) -> bytes:
    """Some bytes, and files after them that are deflated as one."""
    out, packer = io.BytesIO(head), zlib.compressobj(level)
    out.seek(0, io.SEEK_END)
    for file in files:
        for start in range(0, len(file), TOGETHER):
            out.write(packer.compress(memoryview(file)[start : start + TOGETHER]))
    out.write(packer.flush())
    return out.getvalue()


def _check_size(size: int, stored: int, scale: float) -> None:
    if size > most_bytes(stored, scale):
        raise FileRefused(f"files of {size} bytes in a block of {stored}; raise --max-pixels")


def _values(table: bytes, peak: int) -> NDArray[np.uint16]:
    """The values that samples of a block have, rising."""
    unpacker = zlib.decompressobj()
    try:
        flat = unpacker.decompress(table, 2 * (peak + 1) + 1)
    except zlib.error as error:
        raise FileRefused(f"values of samples that cannot be inflated ({error})") from None
    if not unpacker.eof or len(flat) % 2 or not 2 <= len(flat) <= 2 * (peak + 1):
        raise FileRefused("values of samples that end early, or are too many")
    values = np.cumsum(np.frombuffer(flat, "<u2").astype(np.int64))
    if values[-1] > peak or (np.diff(values) < 1).any():
        raise FileRefused("values of samples that do not rise")
    return values.astype(np.uint16)


ExactCoder: TypeAlias = JpegCoder | FileCoder | PixelCoder
METHODS = ("jpeg", "files", "pixels")


def coder_of(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ExactCoder:
    """The coder of a group by its description and its tables; FileRefused if they cannot be one's."""
    try:
        model = int(meta["coder"]["model"])
        if model not in jpeg.MODELS:
            raise FileRefused(f"it needs models number {model}, which are not in this program: upgrade tpca")
        if meta["method"] == "jpeg":
            return JpegCoder.from_arrays(arrays, model)
        if meta["method"] == "files":
            return FileCoder()
        tolerance, peak, channels = int(meta["coder"]["tolerance"]), int(meta["peak"]), int(meta["channels"])
    except (KeyError, TypeError, ValueError) as error:
        raise FileRefused(f"the coder of a group is incomplete or malformed ({error})") from error
    if not (0 <= tolerance < 1 << 16 and 0 < peak < 1 << 16 and 1 <= channels <= 4):
        raise FileRefused(f"samples up to {peak} with an error of {tolerance}")
    return PixelCoder(channels, peak, tolerance, model)


def described(coder: ExactCoder, channels: int) -> dict[str, Any]:
    """The part of a group's description that is the coder's."""
    framing = {"kind": "tile", "height": TILE, "width": TILE, "channels": channels}
    tolerance = coder.tolerance if isinstance(coder, PixelCoder) else 0
    model = MODEL if isinstance(coder, FileCoder) else coder.model
    return {"framing": framing, "components": 1, "tolerance": tolerance, "model": model}
