"""Tables packed into byte arrays: integers as byte planes, byte strings and named arrays one after another.

A table of n records is one uint8 array `(planes, n)`: each column takes as many planes as it has bytes,
least significant first. Deflate then removes what repeats: a column that is the same for all records, or
small, costs almost nothing. Plain h5py reads it: a column is the little-endian integer made of its planes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli.errors import FileRefused

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
