"""Tables packed into byte arrays: integers as byte planes, byte strings and named arrays one after another.

A table of n records is one uint8 array `(planes, n)`: each column takes as many planes as it has bytes,
least significant first. Deflate then removes what repeats: a column that is the same for all records, or
small, costs almost nothing. Plain h5py reads it: a column is the little-endian integer made of its planes.

A bundle is small datasets of bytes as one, since HDF5 takes some 130 bytes for each beside what it holds: the
length (4 bytes, little-endian) of a list, the list, then the datasets one after another, each deflated by
itself, without a header or a checksum of its own. The list is text, deflated too: the structured metadata of
the file as one line, then a line `path shape size` for each dataset, such as `images 65x300 7064`, where
the size is that of the deflated bytes.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.errors import FileRefused
from tpca_cli.store.structure import BadFile

Array = npt.NDArray[Any]
Columns = Mapping[str, int]  # name -> bytes per record, in the order of the planes


def pack(table: Mapping[str, Array], columns: Columns) -> npt.NDArray[np.uint8]:
    """The byte planes of `table`; OverflowError for values that do not fit their column."""
    planes = []
    for name, width in columns.items():
        values = np.asarray(table[name])
        if values.ndim == 2:  # a digest: bytes already
            planes.append(values.T.astype(np.uint8))  # (width, n)
            continue
        if width < 8 and len(values) and (values.min() < 0 or int(values.max()) >> (8 * width)):
            raise OverflowError(f"column {name}: {values.max()} does not fit {width} bytes")
        raw = values.astype("<i8" if values.dtype.kind == "i" else "<u8").view(np.uint8).reshape(-1, 8)
        planes.append(raw[:, :width].T)  # (width, n)
    return np.ascontiguousarray(np.concatenate(planes))


def unpack(planes: npt.NDArray[np.uint8], columns: Columns, *, raw: tuple[str, ...] = ()) -> dict[str, Array]:
    """The table of `pack`: int64 columns, and `(n, width)` bytes for the columns named in `raw`."""
    if planes.shape[0] != sum(columns.values()):
        raise FileRefused(f"a table has {planes.shape[0]} byte planes where {sum(columns.values())} belong")
    table: dict[str, Array] = {}
    row, n = 0, planes.shape[1]
    for name, width in columns.items():
        part = planes[row : row + width].T  # (n, width)
        row += width
        if name in raw:
            table[name] = np.ascontiguousarray(part)
            continue
        wide = np.zeros((n, 8), np.uint8)
        wide[:, :width] = part
        table[name] = wide.view("<i8").reshape(n).astype(np.int64)
    return table


def join_bytes(items: list[bytes]) -> npt.NDArray[np.uint8]:
    """Byte strings without NUL, as one array: each is ended by NUL, so that n strings hold n NULs."""
    return np.frombuffer(b"".join(item + b"\0" for item in items), np.uint8)


def split_bytes(data: npt.NDArray[np.uint8], count: int) -> list[bytes]:
    """The byte strings of `join_bytes`; refused unless there are `count` of them."""
    items = data.tobytes().split(b"\0")
    if len(items) != count + 1 or items.pop() != b"":
        raise FileRefused(f"a list of byte strings does not hold {count} of them")
    return items


def fold_bytes(items: list[bytes]) -> npt.NDArray[np.uint8]:
    """Byte strings without NUL, of each only what differs from the one before.

    First how many bytes each begins with as that one does, then with how many it ends so, up to 255 and
    without counting one twice, then what is between, ended by NUL.
    """
    begins, ends, middles, last = bytearray(), bytearray(), [], b""
    for item in items:
        most = min(len(item), len(last))
        begin = next((k for k in range(min(most, 255)) if item[k] != last[k]), min(most, 255))
        most = min(most - begin, 255)
        end = next((k for k in range(most) if item[-1 - k] != last[-1 - k]), most)
        begins.append(begin)
        ends.append(end)
        middles.append(item[begin : len(item) - end])
        last = item
    return np.concatenate([np.frombuffer(bytes(begins + ends), np.uint8), join_bytes(middles)])


def unfold_bytes(data: npt.NDArray[np.uint8], count: int) -> list[bytes]:
    """The byte strings of `fold_bytes`; refused unless there are `count` of them."""
    begins, ends = data[:count].tobytes(), data[count : 2 * count].tobytes()
    middles, items, last = split_bytes(data[2 * count :], count), [], b""
    for begin, end, middle in zip(begins, ends, middles, strict=True):
        if begin + end > len(last):
            raise FileRefused("a list of byte strings does not follow from one to the next")
        last = last[:begin] + middle + last[len(last) - end :]
        items.append(last)
    return items


def join_blobs(blobs: list[bytes]) -> npt.NDArray[np.uint8]:
    """Arbitrary byte strings as one array: each behind its length in four bytes."""
    return np.frombuffer(b"".join(len(blob).to_bytes(4, "little") + blob for blob in blobs), np.uint8)


def split_blobs(data: npt.NDArray[np.uint8]) -> list[bytes]:
    """The byte strings of `join_blobs`."""
    raw, blobs, at = data.tobytes(), [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "little")
        blob = raw[at + 4 : at + 4 + size]
        if len(blob) != size:
            raise FileRefused("a list of byte strings is cut short")
        blobs.append(blob)
        at += 4 + size
    return blobs


def join_arrays(arrays: Mapping[str, Array]) -> npt.NDArray[np.uint8]:
    """Named integer arrays as one: for each its name, dtype and shape as a line of text, then its bytes."""
    parts = []
    for name, array in arrays.items():
        code = array.dtype.newbyteorder("<").str.lstrip("<|")
        shape = "x".join(str(side) for side in array.shape)
        parts += [f"{name} {code} {shape}\n".encode(), array.astype(f"<{code}").tobytes()]
    return np.frombuffer(b"".join(parts), np.uint8)


def split_arrays(data: npt.NDArray[np.uint8]) -> dict[str, Array]:
    """The named arrays of `join_arrays`."""
    raw, at, arrays = data.tobytes(), 0, {}
    while at < len(raw):
        end = raw.find(b"\n", at, at + 200)
        match = re.fullmatch(rb"(\w+) ([iu][1248]) ([0-9]{1,10}(?:x[0-9]{1,10})*)", raw[at : max(end, at)])
        if not match:
            raise FileRefused("a table of arrays is malformed")
        dtype = np.dtype("<" + match[2].decode())
        shape = tuple(int(side) for side in match[3].split(b"x"))
        size = math.prod(shape) * dtype.itemsize
        at = end + 1 + size
        if at > len(raw):
            raise FileRefused("a table of arrays is cut short")
        arrays[match[1].decode()] = np.frombuffer(raw[end + 1 : at], dtype).reshape(shape)
    return arrays


LIST_BYTES = 1 << 18  # no list of a bundle is longer
_STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED)
_LINE = re.compile(r"([A-Za-z0-9_./-]{1,200}) ([0-9]{1,10}(?:x[0-9]{1,10})*) ([0-9]{1,10})")


@dataclass(frozen=True)
class Part:
    """One dataset of a bundle, and how many bytes it takes there."""

    content: npt.NDArray[np.uint8]
    stored: int


def join_bundle(meta: str, arrays: Mapping[str, Array]) -> npt.NDArray[np.uint8]:
    """The bundle of metadata (one line of text) and datasets of bytes."""
    parts = {path: _deflated(arrays[path].tobytes()) for path in sorted(arrays)}
    lines = [f"{path} {'x'.join(map(str, arrays[path].shape))} {len(data)}" for path, data in parts.items()]
    head = _deflated("\n".join([meta, *lines]).encode())
    return np.frombuffer(b"".join([len(head).to_bytes(4, "little"), head, *parts.values()]), np.uint8)


def split_bundle(bundle: npt.NDArray[np.uint8], limit: int) -> tuple[str, dict[str, Part]]:
    """The metadata and the datasets of a bundle, which take up to `limit` bytes; BadFile unless it is one."""
    raw = bundle.tobytes()
    at = 4 + int.from_bytes(raw[:4], "little")
    try:
        meta, *lines = _inflated(raw[4:at], LIST_BYTES).decode().split("\n")
    except UnicodeDecodeError as error:
        raise BadFile("a bundle of datasets whose list is no text") from error
    parts: dict[str, Part] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or match[1] in parts:
            raise BadFile("a bundle of datasets whose list is malformed")
        shape, stored = tuple(int(side) for side in match[2].split("x")), int(match[3])
        size = math.prod(shape)
        limit -= size
        data = _inflated(raw[at : at + stored], size) if limit >= 0 else b""
        if len(data) != size:
            raise BadFile("a bundle of datasets that does not hold what it declares")
        parts[match[1]] = Part(np.frombuffer(data, np.uint8).reshape(shape), stored)
        at += stored
    if at != len(raw):
        raise BadFile("a bundle of datasets that is longer than its list")
    return meta, parts


def _deflated(data: bytes) -> bytes:
    """As few bytes as deflate gives by any of its strategies."""

    def by(strategy: int) -> bytes:
        stream = zlib.compressobj(9, zlib.DEFLATED, -15, 9, strategy)
        return stream.compress(data) + stream.flush()

    return min(map(by, _STRATEGIES), key=len)


def _inflated(data: bytes, limit: int) -> bytes:
    """What was deflated; no more than `limit` bytes, and no more memory than that."""
    stream = zlib.decompressobj(-15)
    try:
        found = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise BadFile("a bundle of datasets that is damaged") from error
    if not stream.eof or stream.unused_data or len(found) > limit:
        raise BadFile("a bundle of datasets that is damaged")
    return found
