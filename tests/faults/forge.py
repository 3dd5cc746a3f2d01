"""Archives that lie: made by our own writer with its checks switched off, so that only the lie is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tpca_cli import store
from tpca_cli.archive.index import Index
from tpca_cli.archive.reader import Archive
from tpca_cli.archive.writer import Group, write_archive
from tpca_cli.store.columns import join_bundle, split_bundle


@contextmanager
def unchecked() -> Any:
    """Index.check approves of everything, and the payload may have any length."""
    real, stream = Index.check, store.Writer.stream
    Index.check = lambda *arguments: None  # type: ignore[method-assign]
    store.Writer.stream = lambda *given, rows=None: stream(*given)
    try:
        yield
    finally:
        Index.check, store.Writer.stream = real, stream  # type: ignore[method-assign]


def forged(
    archive: Path,
    target: Path,
    *,
    index: Callable[[Index], Index] = lambda index: index,
    group: Callable[[Group], Group] = lambda group: group,
    payload: Callable[[bytes], bytes] = lambda data: data,
) -> Path:
    """A copy of an archive with a changed index, group or payload, and digests that agree with the change."""
    with Archive(archive) as opened:
        blocks = [opened.block_bytes(block) for block in range(len(opened.index.blocks["size"]))]
        data = [payload(block) for block in blocks]
        table = dict(opened.index.blocks)
        table["size"] = np.array([len(block) for block in data], np.int64)
        digests = b"".join(store.digest_of(block) for block in data)
        table["digest"] = np.frombuffer(digests, np.uint8).reshape(-1, 8)
        changed = index(replace(opened.index, blocks=table))
        groups = [group(each) for each in opened.groups]
        with unchecked():
            write_archive(target, changed, groups, data, target_asked=opened.target, force=True)
    return target


def renamed(*names: bytes) -> Callable[[Index], Index]:
    """An index whose first names are these."""
    return lambda index: replace(index, names=(*names, *index.names[len(names) :]))


def with_column(table: str, column: str, row: int, value: int) -> Callable[[Index], Index]:
    """An index with one number changed."""

    def change(index: Index) -> Index:
        columns = {name: np.array(values) for name, values in getattr(index, table).items()}
        columns[column][row] = value
        return replace(index, **{table: columns})

    return change


def with_meta(**values: Any) -> Callable[[Group], Group]:
    """A group with other metadata; `coder__x` reaches into the settings of the coder."""

    def change(group: Group) -> Group:
        meta: dict[str, Any] = {**group.meta}
        for name, value in values.items():
            outer, _, inner = name.partition("__")
            if inner:
                held = meta[outer] if isinstance(meta[outer], Mapping) else {}
                meta[outer] = {**held, inner: value}
            else:
                meta[name] = value
        return replace(group, meta=meta)

    return change


def set_attribute(source: Path, target: Path, name: str, value: Any) -> Path:
    """A copy with one root attribute changed or (None) removed, the digest left as it was."""
    target.write_bytes(source.read_bytes())
    with h5py.File(target, "r+", libver=("v110", "v110")) as file:
        if name == "meta" and "bundle" in file:
            _, parts = split_bundle(file["bundle"][()], 1 << 24)
            bundle = join_bundle(value or "", {path: part.content for path, part in parts.items()})
            del file["bundle"]
            file.create_dataset("bundle", data=bundle, chunks=bundle.shape, fletcher32=True)
            return target
        del file.attrs[name]
        if value is not None:
            file.attrs[name] = value
    return target
