"""Archives of a few kilobytes, with right digests, that ask for far more memory, time or disk than that."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from forge import unchecked

from tpca_cli import store
from tpca_cli.archive.index import BlockRecord, Entry, Index
from tpca_cli.archive.writer import Group, exact_group, write_archive
from tpca_cli.codec.coder import GAIN, Coder
from tpca_cli.codec.contexts import LEVELS
from tpca_cli.exact.coders import FileCoder
from tpca_cli.framing import Framing
from tpca_cli.tensor_pca.fixed_basis import FixedBasis

Shape = tuple[int, int]


@dataclass(frozen=True)
class Bomb:
    """One archive that must be refused, and a word of the reason."""

    name: str
    make: Callable[[Path], object]
    reason: str


def coder(framing: Framing, *, dense: int = 0) -> Coder:
    """A coder whose basis is the identity: nothing deflates better."""
    if dense:
        size = framing.height * framing.width * framing.channels
        basis = FixedBasis.from_dense(np.eye(size, dense), framing.frame_shape)
    else:
        sides = framing.frame_shape
        indices = np.stack(np.unravel_index(np.arange(np.prod(sides)), sides), axis=1)
        basis = FixedBasis.from_modes([np.eye(side) for side in sides], indices)
    kept, channels = basis.components, 1 if dense else framing.channels
    scales, lowest = np.zeros(kept, np.int64), np.zeros((channels, LEVELS), np.int64)
    gains = np.full(kept, GAIN)
    return Coder(framing, basis, 640, kept, False, scales, lowest, np.zeros(channels, np.int64), gains)


def zeros_as_file(path: Path, size: int = 300 << 20) -> None:
    """An exact archive with one file of so many zeros, deflated to a thousandth."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = b"\x78\xda" + piece * (size >> 20) + packer.flush()
    checksum = zlib.adler32(bytes(size))
    group = exact_group(FileCoder(), "u1", 3, 255)
    one = Entry(b"a.dat", bytes(16), 0, size, 1, 1, "RGB", 0)
    index = Index.build([one], [BlockRecord(1, 0, 0, 1, 0, 0, bytes(16))])
    payload = size.to_bytes(4, "little") + body + checksum.to_bytes(4, "big")
    assert FileCoder().decode_files(payload, [(1, 1)], scale=2.0) == [bytes(size)], "a sound stream"
    written(path, index, [group], payload)


def entry(shape: Shape, name: bytes = b"a.png", mode: str = "RGB") -> Entry:
    """An image of this size."""
    return Entry(name, bytes(8), 0, 1, *shape, mode, 0)


def written(path: Path, index: Index, groups: list[Group], payload: bytes = bytes(8)) -> None:
    """The archive, whatever our own checks would say; every block has the same bytes."""
    count = len(index.blocks["size"])
    digest = np.frombuffer(store.digest_of(payload), np.uint8)
    table: dict[str, Any] = dict(index.blocks)
    table["size"], table["digest"] = np.full(count, len(payload)), np.tile(digest, (count, 1))
    with unchecked():
        write_archive(path, replace(index, blocks=table), groups, [payload] * count, target_asked={})


def tiles(side: int = 8, channels: int = 3) -> Group:
    """A group of square tiles."""
    return Group.of(coder(Framing("tile", side, side, channels)), "rank1")


def together(*shapes: Shape, group: Callable[[], Group] = tiles, mode: str = "RGB") -> Callable[[Path], None]:
    """Images in one block."""

    def make(path: Path) -> None:
        entries = [entry(shape, b"%d.png" % k, mode) for k, shape in enumerate(shapes)]
        index = Index.build(entries, [BlockRecord(1, 0, 0, len(entries), 0, 0, bytes(8))])
        written(path, index, [group()])

    return make


def banded(height: int, width: int, rows: int) -> Callable[[Path], None]:
    """One image in bands."""

    def make(path: Path) -> None:
        records = [
            BlockRecord(1, 0, 0, 1, row, min(rows, height - row), bytes(8)) for row in range(0, height, rows)
        ]
        written(path, Index.build([entry((height, width))], records), [tiles()])

    return make


def many_groups(count: int, side: int) -> Callable[[Path], None]:
    """Groups that are each within bounds, and one small image in each."""

    def make(path: Path) -> None:
        entries = [entry((8, 8), b"%d.png" % k) for k in range(count)]
        records = [BlockRecord(1, k, k, 1, 0, 0, bytes(8)) for k in range(count)]
        written(path, Index.build(entries, records), [tiles(side)] * count)

    return make


def many_images(count: int) -> Callable[[Path], None]:
    """An index of replaced images: every column is the same byte over and over."""

    def make(path: Path) -> None:
        index = Index.build([entry((8, 8))], [BlockRecord(1, 0, 0, 1, 0, 0, bytes(8))])
        columns = {name: np.repeat(values, count, axis=0) for name, values in index.images.items()}
        columns["mode"] = np.zeros(count, np.int64)
        table = {name: np.repeat(values, count, axis=0) for name, values in index.blocks.items()}
        table["first"] = np.arange(count)
        many = replace(index, names=(b"",) * count, images=columns, blocks=table)
        written(path, many, [tiles()], b"")

    return make


def dense(side: int, kept: int) -> Callable[[], Group]:
    """A group with a dense basis."""
    return lambda: Group.of(coder(Framing("tile", side, side, 1), dense=kept), "operator")


def whole(height: int, width: int) -> Callable[[], Group]:
    """A group of whole frames with few components: the factors are what is large."""

    def make() -> Group:
        framing = Framing("whole", height, width, 1)
        modes = [np.eye(side) for side in framing.frame_shape]
        basis = FixedBasis.from_modes(modes, np.zeros((1, 3), np.int64))
        one, low = np.zeros(1, np.int64), np.zeros((1, LEVELS), np.int64)
        return Group.of(Coder(framing, basis, 640, 1, False, one, low, one, np.full(1, GAIN)), "rank1")

    return make


BOMBS = [
    Bomb("canvas", together((8, 8192), (8192, 8)), "canvas"),
    Bomb("canvas-of-small", together((8, 8192), *[(8, 8)] * 500), "canvas"),
    Bomb("components", together((8, 8), group=lambda: tiles(256)), "components"),
    Bomb("components-many", many_groups(5, 128), "components"),
    Bomb("width", together((8, 2**24 - 1)), "pixels"),
    Bomb("side", together((1, 65536)), "pixels"),
    Bomb("bands", banded(65528, 65528, 8), "pixels"),
    Bomb("dense", together((8, 8), group=dense(64, 4096), mode="L"), "basis"),
    Bomb("factors", together((3000, 3000), group=whole(3000, 3000), mode="L"), "basis|pixels"),
    Bomb("images", many_images(400_000), "images"),
]
