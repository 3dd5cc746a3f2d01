"""How things are laid out in HDF5 when written: chunks, filters, attributes. Callers: `write` only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tpca_cli.store.digest import Attribute
from tpca_cli.store.guard import CHUNK_BYTES
from tpca_cli.store.hdf5 import h5a, h5d, h5g, h5p, h5s, h5t


def creation(kind: np.dtype[Any], chunk: tuple[int, ...] | None, level: int) -> Any:
    """The property list of a dataset: compact without a chunk, else chunked, checksummed, maybe deflated."""
    layout = h5p.create(h5p.DATASET_CREATE)
    layout.set_obj_track_times(False)
    layout.set_fill_time(h5d.FILL_TIME_NEVER)
    if chunk is None:
        layout.set_layout(h5d.COMPACT)
        return layout
    layout.set_chunk(bounded_chunk(chunk, kind.itemsize))
    if level:
        if kind.itemsize > 1:
            layout.set_shuffle()
        layout.set_deflate(level)
    layout.set_fletcher32()
    return layout


def bounded_chunk(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The chunk shape at most as large as allowed: leading axes shrink first."""
    chunk = list(shape)
    for axis in range(len(chunk)):
        rest = itemsize * math.prod(chunk[axis + 1 :])
        if rest * chunk[axis] <= CHUNK_BYTES:
            break
        chunk[axis] = max(1, CHUNK_BYTES // rest)
    return tuple(chunk)


def set_attributes(file: Any, values: Mapping[str, Attribute]) -> None:
    """All attributes of the root, in the order of their names."""
    root = h5g.open(file, b"/")
    for name in sorted(values):
        _set_attribute(root, name, values[name])


def _set_attribute(root: Any, name: str, value: Attribute) -> None:
    # fixed-size text, a number, or bytes
    if isinstance(value, str):
        text = value.encode()
        kind = h5t.C_S1.copy()
        kind.set_size(max(1, len(text)))
        kind.set_strpad(h5t.STR_NULLPAD)
        kind.set_cset(h5t.CSET_UTF8)
        content = np.array(text, dtype=f"S{max(1, len(text))}")
    elif isinstance(value, bytes):
        kind, content = h5t.STD_U8LE, np.frombuffer(value, "u1")
    elif isinstance(value, int):
        kind, content = h5t.STD_I64LE, np.array(value, "<i8")
    else:
        kind, content = h5t.IEEE_F64LE, np.array(value, "<f8")
    attribute = h5a.create(root, name.encode("ascii"), kind, h5s.create_simple(content.shape))
    if content.size:
        attribute.write(content, mtype=kind)
