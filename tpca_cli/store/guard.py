"""The checks that a file must pass before anything in it is believed, and what may be read then.

Nothing is read that the table does not name, nothing outside the file is ever opened, and no memory is
taken by a number in the file until that number has been held against the bytes that are really there.
Callers: `read`; `write` keeps to the same limits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpca_cli.store.columns import split_bundle
from tpca_cli.store.hdf5 import (
    CHUNK_BYTES,
    BadFile,
    Hdf5File,
    InputFile,
    h5a,
    h5d,
    h5g,
    h5l,
    h5o,
    h5s,
    h5t,
    h5z,
)
from tpca_cli.store.schema import BUNDLE, Attribute, Field, Schema, is_number

ATTRIBUTE_BYTES = 60_000  # no attribute is larger
ATTRIBUTES = 32  # nor are there more
NUMBERED = 4096  # nor more of a kind in one group
# what is decoded at open: this much for nothing, and so many times what is stored
FREE_BYTES = 1 << 26
EXPANSION = 64
DEFLATE_EXPANSION = 1032  # the most that deflate can do

SCALE_ATTRIBUTES = (b"CLASS", b"NAME", b"DIMENSION_LIST", b"REFERENCE_LIST")

_PIECE = 1 << 22
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class CheckedDataset:
    """One dataset that passed the checks."""

    dataset: Any
    field: Field
    kind: np.dtype[Any]  # of its elements
    shape: tuple[int, ...]
    stored: int
    plain_rows: int = 0  # rows of a chunk whose bytes are the data themselves and a checksum

    @property
    def nbytes(self) -> int:
        """Decoded size."""
        return math.prod(self.shape) * self.kind.itemsize

    def pieces(self) -> Iterator[Array]:
        """The whole dataset in C order, in pieces of a few megabytes."""
        rows = self.shape[0] if self.shape else 0
        row_bytes = max(1, self.nbytes // max(1, rows))
        step = max(1, _PIECE // row_bytes)
        for start in range(0, max(1, rows), step):
            yield self.read(start, min(rows, start + step))

    def read(self, start: int, stop: int) -> Array:
        """Rows `start` to `stop`; of a dataset without axes, its value."""
        count = (stop - start, *self.shape[1:]) if self.shape else ()
        out = np.zeros(count, self.kind)
        if math.prod(count) == 0:
            return out
        if not self.shape:
            self.dataset.read(h5s.ALL, h5s.ALL, out, type_of(self.kind))
            return out
        space = self.dataset.get_space()
        space.select_hyperslab((start, *(0 for _ in self.shape[1:])), count)
        self.dataset.read(h5s.create_simple(count), space, out, type_of(self.kind))
        return out

    def chunks(self, length: int) -> list[tuple[int, int]]:
        """Where each chunk is in a file of this length, and how many bytes it has, in the order of rows."""
        found: dict[tuple[int, ...], tuple[int, int]] = {}
        if self.dataset.get_create_plist().get_layout() == h5d.CHUNKED:
            self.dataset.chunk_iter(lambda c: found.__setitem__(c.chunk_offset, (c.byte_offset, c.size)))
        places = [found[first] for first in sorted(found)]
        if any(at + size > length for at, size in places):
            raise BadFile("a chunk lies beyond the end of the file")
        return places


@dataclass(frozen=True)
class BundledDataset(CheckedDataset):
    """One dataset of a bundle, in memory."""

    content: Array = field(default_factory=lambda: np.zeros(0, np.uint8))

    def read(self, start: int, stop: int) -> Array:
        """Rows `start` to `stop`."""
        return np.array(self.content[start:stop])

    def chunks(self, length: int) -> list[tuple[int, int]]:
        """None: it was read."""
        return []


@dataclass(frozen=True)
class CheckedFile:
    """What a file says of itself, after the checks."""

    schema: Schema
    attributes: Mapping[str, Attribute]
    meta: dict[str, Any]
    datasets: dict[str, CheckedDataset]
    size: int  # bytes that are really there
    cut_off: bool  # whether that is less than it should have


def check_file(file: Hdf5File, schemas: tuple[Schema, ...], *, cut: bool = False) -> CheckedFile:
    """Open a file that is one of these formats and all that its table says; BadFile otherwise.

    A `cut` one may end early, if only bulk data are missing.
    """
    with _told_if_cut_off(file.stream):
        file.open(cut=cut)
        root, size = file.root, file.stream.source.size
        found = read_attributes(root)
        schema = matching_schema(found, schemas)
        text_attribute(found, "digest")
        datasets, bundled = check_datasets(root, file, schema, size, cut=cut)
        if bundled is not None:
            if "meta" in found:
                raise BadFile("metadata both as an attribute and in a bundle")
            found["meta"] = bundled
        meta = parse_meta(text_attribute(found, "meta")) if "meta" in found else {}
        return CheckedFile(schema, found, meta, datasets, size, file.stream.length > size)


def check_root(file: Hdf5File) -> dict[str, Attribute]:
    """Open a file of any format of ours; its attributes, nothing else is read."""
    file.open()
    found = read_attributes(file.root)
    for name in ("format", "digest"):
        text_attribute(found, name)
    return found


@contextmanager
def _told_if_cut_off(stream: InputFile) -> Iterator[None]:
    """Whatever is wrong with a file that was cut off in its index, that is why."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if stream.length <= stream.source.size:
            raise
        raise BadFile("it was cut off, and what says where its images are is not in the rest") from error


def dtype_name(kind: Any) -> str:
    """`u1`, `f8`, `S12`: what a type of a file may be in the table; empty for one that no table has."""
    if kind.get_class() == h5t.STRING:
        return "" if kind.is_variable_str() else f"S{kind.get_size()}"
    if kind.get_class() == h5t.FLOAT:
        return f"f{kind.get_size()}"
    if kind.get_class() == h5t.INTEGER:
        return f"{'u' if kind.get_sign() == h5t.SGN_NONE else 'i'}{kind.get_size()}"
    return ""


def type_of(kind: np.dtype[Any]) -> Any:
    """The HDF5 type of numbers or text."""
    if kind.kind != "S":
        return h5t.py_create(kind)
    text = h5t.C_S1.copy()
    text.set_size(kind.itemsize)
    text.set_strpad(h5t.STR_NULLPAD)
    text.set_cset(h5t.CSET_UTF8)
    return text


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


def check_datasets(
    root: Any, file: Hdf5File, schema: Schema, size: int, *, cut: bool = False
) -> tuple[dict[str, CheckedDataset], str | None]:
    """Every dataset of the file, compared with the table one path component at a time; bundled metadata.

    `size` are the bytes that are really there; of a `cut` file, part of the bulk data is not.
    """
    entries: dict[str, CheckedDataset] = {}
    seen: set[int] = {h5o.get_info(root).addr}
    _check_group(root, "", "", file, schema, size, entries, seen)
    meta, bundle = None, entries.pop(BUNDLE, None)
    if bundle is not None:
        if not all(entry.field.bulk for entry in entries.values()):
            raise BadFile("datasets beside a bundle that holds them")
        meta, parts = split_bundle(bundle.read(0, bundle.shape[0]), CHUNK_BYTES)
        for path, part in parts.items():
            known, shape = schema.field(path), part.content.shape
            if known is None or known.bulk or known.dtype != "u1" or not known.admits(shape):
                raise BadFile(f"unexpected {path[:80]!r} of shape {shape} in a bundle of datasets")
            entries[path] = BundledDataset(
                bundle.dataset, known, known.kind, shape, part.stored, content=part.content
            )
    missing = schema.missing(frozenset(entries))
    if missing is not None:
        raise BadFile(f"dataset {missing!r} is missing")
    _check_totals(entries, size, cut)
    return entries, meta


def _check_group(
    group: Any,
    path: str,
    kind: str,
    file: Hdf5File,
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
        link = group.links.get_info(raw)
        if link.type != h5l.TYPE_HARD:
            raise BadFile(f"{here!r} is a link to elsewhere")
        file.look_at(link.u)
        thing = h5o.open(group, raw)
        info = h5o.get_info(thing)
        if info.addr in seen or info.rc != 1:
            raise BadFile(f"{here!r} appears twice")
        seen.add(info.addr)
        if not _only_scale_attributes(thing, schema.has_scales(here)):
            raise BadFile(f"{here!r} has attributes of its own")
        field = schema.field(here)
        if isinstance(thing, h5d.DatasetID) and field is not None:
            entries[here] = _check_dataset(thing, field, here, size)
        elif isinstance(thing, h5g.GroupID) and field is None:
            below = f"{kind}/{general_name}" if kind else general_name
            _check_group(thing, here, below, file, schema, size, entries, seen)
        else:
            raise BadFile(f"{here!r} is not what the format has there")


def _only_scale_attributes(thing: Any, scales: bool) -> bool:
    """Whether an object has no attributes but those of dimension scales, which nobody here reads."""
    count = h5a.get_num_attrs(thing)
    if not scales or count > len(SCALE_ATTRIBUTES):
        return not count
    return all(h5a.open(thing, index=index).name in SCALE_ATTRIBUTES for index in range(count))


def _check_dataset(dataset: Any, field: Field, path: str, size: int) -> CheckedDataset:
    layout = dataset.get_create_plist()
    if layout.get_external_count():
        raise BadFile(f"{path!r} keeps its data in another file")
    kind = layout.get_layout()
    if kind not in (h5d.COMPACT, h5d.CHUNKED):
        raise BadFile(f"{path!r} has a storage layout that the format does not use")
    kept = dataset.get_type()
    narrowed = field.narrowed(dtype_name(kept))
    if narrowed is None or not kept.equal(type_of(narrowed.kind)) or kept.committed():
        raise BadFile(f"{path!r} is not of type {field.dtype}")
    field, element = narrowed, narrowed.kind
    space = dataset.get_space()
    if space.get_simple_extent_type() not in (h5s.SCALAR, h5s.SIMPLE):
        raise BadFile(f"{path!r} has no plain shape")
    shape = tuple(int(length) for length in space.shape)
    if not field.admits(shape):
        raise BadFile(f"{path!r} has shape {shape}, not {field.shape}")
    filters = [layout.get_filter(index)[0] for index in range(layout.get_nfilters())]
    if kind == h5d.COMPACT:
        entry = CheckedDataset(dataset, field, element, shape, int(dataset.get_storage_size()))
        if filters or entry.stored != entry.nbytes:
            raise BadFile(f"{path!r} does not hold what it declares")
        return entry
    if filters not in (
        [h5z.FILTER_FLETCHER32],
        [h5z.FILTER_DEFLATE, h5z.FILTER_FLETCHER32],
        [h5z.FILTER_SHUFFLE, h5z.FILTER_DEFLATE, h5z.FILTER_FLETCHER32],
    ):
        raise BadFile(f"{path!r} uses filters {filters}, which the format does not")
    return _check_chunked(dataset, field, element, shape, layout.get_chunk(), len(filters) == 1, path, size)


def _check_chunked(
    dataset: Any,
    field: Field,
    element: np.dtype[Any],
    shape: tuple[int, ...],
    chunk: tuple[int, ...],
    plain: bool,
    path: str,
    size: int,
) -> CheckedDataset:
    chunk_bytes = math.prod(chunk) * element.itemsize
    if chunk_bytes > CHUNK_BYTES:
        raise BadFile(f"{path!r} has chunks of {chunk_bytes} bytes (at most {CHUNK_BYTES})")
    # each chunk takes room in the file: counting them before asking HDF5 bounds its work, too
    expected = math.prod(-(-length // step) for length, step in zip(shape, chunk, strict=True))
    if expected > size or int(dataset.get_num_chunks()) != expected:
        raise BadFile(f"{path!r} declares {math.prod(shape)} numbers and does not hold them")
    sizes: list[int] = []
    dataset.chunk_iter(lambda place: sizes.append(int(place.size)))
    # HDF5 takes a checksum of 4 bytes off each chunk, and where it has fewer reads before its beginning
    if any(held <= 4 or (plain and held != chunk_bytes + 4) for held in sizes):
        raise BadFile(f"{path!r} does not hold what it declares")
    rows = chunk[0] if plain and chunk[1:] == shape[1:] else 0
    return CheckedDataset(dataset, field, element, shape, sum(sizes), rows)


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


def matching_schema(found: Mapping[str, Attribute], schemas: tuple[Schema, ...]) -> Schema:
    """The one of these tables that the file claims to follow."""
    name, version = text_attribute(found, "format"), found.get("format_version")
    wanted = " or ".join(sorted({schema.format for schema in schemas}))
    versions = [schema.version for schema in schemas if schema.format == name]
    if not versions:
        raise BadFile(f"format {name[:40]!r}, not {wanted}", name)
    if not isinstance(version, int):
        raise BadFile("no format_version")
    if version > max(versions):
        raise BadFile(
            f"{name} version {version} is newer than this program reads ({max(versions)}): upgrade tpca"
        )
    for schema in schemas:
        if (schema.format, schema.version) == (name, version):
            return schema
    raise BadFile(f"{name} version {version} is not one that this program reads")


def text_attribute(found: Mapping[str, Attribute], name: str) -> str:
    """A text attribute that every file has."""
    value = found.get(name)
    if not isinstance(value, str):
        raise BadFile(f"not a tpca file (no attribute {name!r})")
    return value


def parse_meta(text: str) -> dict[str, Any]:
    """Structured metadata: a JSON object without surprises."""

    def constant(name: str) -> None:
        raise BadFile(f"attribute 'meta' holds {name}")

    try:
        value = json.loads(text, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise BadFile("attribute 'meta' is not JSON") from error
    if not isinstance(value, dict):
        raise BadFile("attribute 'meta' is not a JSON object")
    return value
