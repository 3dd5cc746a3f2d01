"""The checks that a file must pass before anything in it is believed.

Nothing is read that the table does not name, nothing outside the file is ever opened, and no memory is
taken by a number in the file until that number has been held against the bytes that are really there.
Callers: `read`; `write` keeps to the same limits.
"""

from __future__ import annotations

import math
import os
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca_cli.store.digest import Attribute
from tpca_cli.store.hdf5 import BadFile, InputFile, h5a, h5d, h5g, h5l, h5o, h5s, h5t, h5z
from tpca_cli.store.schema import Field, Schema, is_number

CHUNK_BYTES = 1 << 24  # no chunk is larger, decoded
ATTRIBUTE_BYTES = 60_000  # no attribute is larger
ATTRIBUTES = 32  # nor are there more
NUMBERED = 4096  # nor more of a kind in one group
# what is decoded at open: this much for nothing, and so many times what is stored
FREE_BYTES = 1 << 26
EXPANSION = 64
DEFLATE_EXPANSION = 1032  # the most that deflate can do

_MAGIC = b"\x89HDF\r\n\x1a\n"
_HEADER = struct.Struct("<8sBBBBQQQQI")
_NOWHERE = 2**64 - 1


@dataclass(frozen=True)
class CheckedDataset:
    """One dataset that passed the checks."""

    dataset: Any
    field: Field
    shape: tuple[int, ...]
    stored: int
    plain_rows: int = 0  # rows of a chunk whose bytes are the data themselves and a checksum

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type of the table."""
        return dtype_of(self.field)

    @property
    def nbytes(self) -> int:
        """Decoded size."""
        return math.prod(self.shape) * self.dtype.itemsize


def dtype_of(field: Field) -> np.dtype[Any]:
    """The numpy type of a field: little-endian on every machine."""
    kind: np.dtype[Any] = np.dtype(field.dtype).newbyteorder("<")
    return kind


def check_header(fd: int, stream: InputFile, *, cut: bool = False) -> int:
    """Refuse what is not a regular HDF5 file, closed by its writer and as long as it says; its length.

    A `cut` one may be shorter: what is missing reads as zeros, which no digest and no checksum agrees with.
    """
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise BadFile("not a regular file")
    if found.st_size == 0:
        raise BadFile("the file is empty")
    head = stream.read(_HEADER.size)
    if head[:8] != _MAGIC:
        raise BadFile("not a tpca file")
    if found.st_size < _HEADER.size:
        raise BadFile("truncated")
    _, version, offsets, lengths, flags, base, extension, end, _, _ = _HEADER.unpack(head)
    if (version, offsets, lengths) != (3, 8, 8):
        raise BadFile("not a tpca file (another kind of HDF5)")
    if flags:
        raise BadFile("incomplete: its writer was stopped, or is still writing")
    if base != 0 or extension != _NOWHERE:
        raise BadFile("not a tpca file (unexpected HDF5 features)")
    if end > found.st_size and not cut:
        raise BadFile(
            f"truncated: {found.st_size} bytes of {end}; of an archive, --salvage saves what is left"
        )
    if end < found.st_size:
        raise BadFile(f"{found.st_size - end} foreign bytes after its end")
    stream.pretend_length(end)
    return found.st_size


def read_attributes(root: Any) -> dict[str, Attribute]:
    """All attributes of the root: short, single, of the four plain types."""
    count = h5a.get_num_attrs(root)
    if count > ATTRIBUTES:
        raise BadFile(f"{count} attributes (at most {ATTRIBUTES})")
    found: dict[str, Attribute] = {}
    for index in range(count):
        attribute = h5a.open(root, index=index)
        name = attribute.name.decode("ascii")
        found[name] = _attribute(attribute, name)
    return found


def _attribute(attribute: Any, name: str) -> Attribute:
    kind, space = attribute.get_type(), attribute.get_space()
    simple = space.get_simple_extent_type() in (h5s.SCALAR, h5s.SIMPLE)
    shape = attribute.shape if simple else None
    elements = math.prod(shape) if shape is not None else 0
    if shape is None or kind.get_size() * elements > ATTRIBUTE_BYTES:
        raise BadFile(f"attribute {name!r} is too large or has no plain shape")
    if kind.get_class() == h5t.STRING and not kind.is_variable_str() and shape == ():
        if kind.get_cset() != h5t.CSET_UTF8:
            raise BadFile(f"attribute {name!r} is not UTF-8 text")
        return _content(attribute, np.dtype(f"S{kind.get_size()}"), ()).rstrip(b"\0").decode("utf-8")
    if kind.equal(h5t.STD_I64LE) and shape == ():
        return int(np.frombuffer(_content(attribute, np.dtype("<i8"), ()), "<i8")[0])
    if kind.equal(h5t.IEEE_F64LE) and shape == ():
        return float(np.frombuffer(_content(attribute, np.dtype("<f8"), ()), "<f8")[0])
    if kind.equal(h5t.STD_U8LE) and len(shape) == 1:
        return _content(attribute, np.dtype("u1"), shape)
    raise BadFile(f"attribute {name!r} has an unexpected type")


def _content(attribute: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    value = np.zeros(shape, dtype)
    if value.size:
        attribute.read(value, mtype=attribute.get_type())
    return value.tobytes()


def check_datasets(root: Any, schema: Schema, size: int, *, cut: bool = False) -> dict[str, CheckedDataset]:
    """Every dataset of the file, compared with the table one path component at a time.

    `size` are the bytes that are really there; of a `cut` file, part of the bulk data is not.
    """
    entries: dict[str, CheckedDataset] = {}
    seen: set[int] = {h5o.get_info(root).addr}
    _check_group(root, "", "", schema, size, entries, seen)
    missing = schema.missing(frozenset(entries))
    if missing is not None:
        raise BadFile(f"dataset {missing!r} is missing")
    _check_totals(entries, size, cut)
    return entries


def _check_group(
    group: Any,
    path: str,
    kind: str,
    schema: Schema,
    size: int,
    entries: dict[str, CheckedDataset],
    seen: set[int],
) -> None:
    expected = schema.children(kind)
    links = group.get_num_objs()
    if links == 0 and path:
        raise BadFile(f"group {path!r} is empty")
    if links > len(expected) + (NUMBERED if "*" in expected else 0):
        raise BadFile(f"unexpected names in group {path or '/'!r}: {links} in all")
    for raw in list(group):
        name = raw.decode("ascii")
        general_name = name if name in expected else "*" if is_number(name) else name
        here = f"{path}/{name}" if path else name
        if general_name not in expected:
            raise BadFile(f"unexpected name {here[:80]!r}")
        # the link is looked at before it is followed: only then can nothing outside be reached
        if group.links.get_info(raw).type != h5l.TYPE_HARD:
            raise BadFile(f"{here!r} is a link to elsewhere")
        thing = h5o.open(group, raw)
        info = h5o.get_info(thing)
        if info.addr in seen or info.rc != 1:
            raise BadFile(f"{here!r} appears twice")
        seen.add(info.addr)
        if h5a.get_num_attrs(thing):
            raise BadFile(f"{here!r} has attributes of its own")
        field = schema.field(here)
        if isinstance(thing, h5d.DatasetID) and field is not None:
            entries[here] = _check_dataset(thing, field, here, size)
        elif isinstance(thing, h5g.GroupID) and field is None:
            _check_group(
                thing, here, f"{kind}/{general_name}" if kind else general_name, schema, size, entries, seen
            )
        else:
            raise BadFile(f"{here!r} is not what the format has there")


def _check_dataset(dataset: Any, field: Field, path: str, size: int) -> CheckedDataset:
    layout = dataset.get_create_plist()
    if layout.get_external_count():
        raise BadFile(f"{path!r} keeps its data in another file")
    kind = layout.get_layout()
    if kind not in (h5d.COMPACT, h5d.CHUNKED):
        raise BadFile(f"{path!r} has a storage layout that the format does not use")
    if not dataset.get_type().equal(h5t.py_create(dtype_of(field))) or dataset.get_type().committed():
        raise BadFile(f"{path!r} is not of type {field.dtype}")
    space = dataset.get_space()
    if space.get_simple_extent_type() not in (h5s.SCALAR, h5s.SIMPLE):
        raise BadFile(f"{path!r} has no plain shape")
    shape = tuple(int(length) for length in space.shape)
    if not field.admits(shape):
        raise BadFile(f"{path!r} has shape {shape}, not {field.shape}")
    filters = [layout.get_filter(index)[0] for index in range(layout.get_nfilters())]
    if kind == h5d.COMPACT:
        entry = CheckedDataset(dataset, field, shape, int(dataset.get_storage_size()))
        if filters or entry.stored != entry.nbytes:
            raise BadFile(f"{path!r} does not hold what it declares")
        return entry
    if filters not in (
        [h5z.FILTER_FLETCHER32],
        [h5z.FILTER_DEFLATE, h5z.FILTER_FLETCHER32],
        [h5z.FILTER_SHUFFLE, h5z.FILTER_DEFLATE, h5z.FILTER_FLETCHER32],
    ):
        raise BadFile(f"{path!r} uses filters {filters}, which the format does not")
    return _check_chunked(dataset, field, shape, layout.get_chunk(), len(filters) == 1, path, size)


def _check_chunked(
    dataset: Any,
    field: Field,
    shape: tuple[int, ...],
    chunk: tuple[int, ...],
    plain: bool,
    path: str,
    size: int,
) -> CheckedDataset:
    chunk_bytes = math.prod(chunk) * dtype_of(field).itemsize
    if chunk_bytes > CHUNK_BYTES:
        raise BadFile(f"{path!r} has chunks of {chunk_bytes} bytes (at most {CHUNK_BYTES})")
    # each chunk takes room in the file: counting them before asking HDF5 bounds its work, too
    expected = math.prod(-(-length // step) for length, step in zip(shape, chunk, strict=True))
    if expected > size or int(dataset.get_num_chunks()) != expected:
        raise BadFile(f"{path!r} declares {math.prod(shape)} numbers and does not hold them")
    stored = int(dataset.get_storage_size())
    if plain and stored != expected * (chunk_bytes + 4):
        raise BadFile(f"{path!r} does not hold what it declares")
    return CheckedDataset(dataset, field, shape, stored, chunk[0] if plain and chunk[1:] == shape[1:] else 0)


def _check_totals(entries: Mapping[str, CheckedDataset], size: int, cut: bool) -> None:
    for path, entry in entries.items():
        if entry.nbytes > DEFLATE_EXPANSION * entry.stored:
            raise BadFile(f"{path!r} declares {entry.nbytes} bytes and holds {entry.stored}")
    stored = sum(entry.stored for entry in entries.values() if not (cut and entry.field.bulk))
    if stored > size:
        raise BadFile(f"datasets claim {stored} bytes of a file of {size}")
    declared = sum(entry.nbytes for entry in entries.values() if not entry.field.bulk)
    if declared > FREE_BYTES + EXPANSION * stored:
        raise BadFile(f"{declared} bytes declared, {stored} stored: a decompression bomb")
