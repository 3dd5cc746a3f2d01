"""Writes a scores file: rows in order, piece by piece, with the basis beside them or its digest alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli import basisfile, store
from tpca_cli.archive.format import MODES
from tpca_cli.archive.index import Index
from tpca_cli.archive.writer import most_open
from tpca_cli.framing import TILE, Framing
from tpca_cli.scores.format import FORMAT, SCORES_SCHEMA, TEXT_ROWS, label_of, piece_rows
from tpca_cli.tensor_pca.basis import Rank1Basis, TensorBasis
from tpca_cli.tensors import Item

Rows = npt.NDArray[Any]


@dataclass(frozen=True)
class ScoresBasis:
    """The basis that coefficients belong to, and the digest of its file."""

    basis: TensorBasis
    framing: Framing
    samples: str  # the type of the images' samples
    digest: str
    link: bool = False
    item: Item | None = None  # of tensors that are no images
    leaves: Mapping[str, bytes] = field(default_factory=dict)  # digests of its datasets that are known

    def truncate(self, components: int | None) -> ScoresBasis:
        """With the first components alone."""
        if components is None or components >= self.basis.components:
            return self
        return replace(self, basis=self.basis.truncate(components), leaves={})


def write_scores(
    path: Path,
    index: Index,
    rows: Iterable[Rows],
    of: ScoresBasis,
    dtype: str,
    *,
    compress: bool = False,
    force: bool = False,
    expect: store.Identity | None = None,
) -> dict[str, Any]:
    """Write and commit a file of the images of an index; `rows` are their coefficients, in order.

    Returns what there is to know of the file.
    """
    n, m = len(index), of.basis.components
    counts = frame_counts(index, of.framing)
    pieces = {
        "coefficients": piece_rows(m * np.dtype(dtype).itemsize),
        "name": TEXT_ROWS,
        "label": TEXT_ROWS,
    }
    with store.create(path, SCORES_SCHEMA, force=force, expect=expect, most_open=most_open(index)) as writer:
        _describe(writer, of, pieces)
        _put_images(writer, index)
        _put_text(writer, "name", index.names)
        _put_text(writer, "label", [label_of(name) for name in index.names])
        _count(writer, "image", n)
        writer.put("component", np.arange(m, dtype="<i4"))
        writer.put("eigenvalue", of.basis.energies)
        by = "image"
        if of.framing.kind == TILE:
            by = "frame"
            _count(writer, "frame", int(counts.sum()))
            _stream(writer, "image_of_frame", "<i8", _images_of_frames(counts), 1 << 16, compress=True)
        if not of.link:
            for name, array in basisfile.basis_arrays(of.basis, of.framing.frame_shape).items():
                writer.put(name, array, compress=array.dtype.kind == "i", digest=of.leaves.get(name))
        total, size = int(counts.sum()), pieces["coefficients"]
        stream = writer.stream(
            "coefficients", dtype, (m,), size, compress, total if total else None, (by, "component")
        )
        digests = _Digests(size)
        for block in rows:
            stream.append(block)
            digests.add(block)
        writer.put("digests/coefficients", digests.array(), compress=False)
    return facts_of(writer.checked, index, of.basis.energies, np.dtype(dtype))


def facts_of(file: store.Reader, index: Index, eigenvalues: Rows, dtype: np.dtype[Any]) -> dict[str, Any]:
    """What there is to know of a file without reading coefficients."""
    meta, frames = file.meta, file.shapes["coefficients"][0]
    framing = Framing.from_dict(meta["framing"])
    sizes = sorted(set(zip(*(index.images[side].tolist() for side in ("height", "width")), strict=True)))
    labels = Counter(label_of(name).decode("utf-8", "surrogateescape") for name in index.names)
    item = None if meta.get("item") is None else Item.from_dict(meta["item"])
    return {
        "format": FORMAT,
        "images": len(index),
        "frames": frames,
        "components": meta["components"],
        "dtype": f"float{8 * dtype.itemsize}",
        "method": meta["method"],
        "framing": f"{framing.kind} {framing.height}x{framing.width}",
        "frame_shape": list(framing.frame_shape if item is None else item.shape),
        "sample_type": meta["dtype"],
        "labels": dict(labels),
        "sizes": [list(size) for size in sizes[:20]],
        "basis": "embedded" if "basis/energies" in file.shapes else "linked",
        "basis_digest": file.attrs["basis_digest"],
        "eigenvalues": eigenvalues,
        "total": float(meta["total"] or 0.0),
        "measured": bool(meta["measured"]),
        "skipped": [{"path": path, "reason": reason} for path, reason in index.skipped],
        "file_bytes": file.size,
        "coefficient_bytes": file.stored["coefficients"],
        "basis_bytes": sum(size for name, size in file.stored.items() if name.startswith("basis/")),
        "raw_bytes": frames * prod(framing.frame_shape) * int(meta["dtype"][1]),
        "source_bytes": int(index.images["source_size"].sum()),
        "digest": file.digest,
    }


def frame_counts(index: Index, framing: Framing) -> npt.NDArray[np.int64]:
    """The frames of each image of an index."""
    shapes = np.stack([index.images["height"], index.images["width"]], axis=1)
    kinds, which = np.unique(shapes, axis=0, return_inverse=True)
    each = np.array([framing.count(int(h), int(w)) for h, w in kinds] or [0], np.int64)
    counts: npt.NDArray[np.int64] = each[which.reshape(-1)]
    return counts


def _describe(writer: store.Writer, of: ScoresBasis, pieces: dict[str, int]) -> None:
    basis = of.basis
    measured = not isinstance(basis, Rank1Basis) or basis.measured
    writer.attrs({"method": basis.method, "basis_digest": of.digest, "sample_type": of.samples})
    writer.meta(
        {
            "method": basis.method,
            "framing": of.framing.to_dict(),
            "dtype": of.samples,
            "components": basis.components,
            "total": basis.total,
            "measured": measured,
            "piece_rows": pieces,
            **({} if of.item is None else {"item": of.item.to_dict()}),
        }
    )


def _put_images(writer: store.Writer, index: Index) -> None:
    """The columns of the images."""
    columns = index.images
    writer.put("height", columns["height"].astype("<i4"))
    writer.put("width", columns["width"].astype("<i4"))
    writer.put("mode", np.array([mode.encode() for mode in MODES], "S5")[columns["mode"]])
    writer.put("sources/digest", columns["digest"], compress=False)
    writer.put("sources/mtime", columns["mtime"].astype("<i8"))
    writer.put("sources/size", columns["source_size"].astype("<i8"))
    writer.put("sources/access", columns["mode_bits"].astype("<u2"))
    if index.skipped:
        writer.put("notes/skipped", np.frombuffer(json.dumps(index.skipped).encode(), np.uint8))


def _put_text(writer: store.Writer, path: str, texts: Sequence[bytes]) -> None:
    """Texts of one length, each piece with its digest."""
    kind = f"S{max(1, max(map(len, texts), default=1))}"
    digests = _Digests(TEXT_ROWS)
    stream = writer.stream(path, kind, (), TEXT_ROWS, True, len(texts) or None)
    for start in range(0, len(texts), TEXT_ROWS):
        piece = np.array(texts[start : start + TEXT_ROWS], kind)
        stream.append(piece)
        digests.add(piece)
    writer.put(f"digests/{path}", digests.array(), compress=False)


def _count(writer: store.Writer, path: str, count: int) -> None:
    steps = range(0, count, 1 << 16)
    numbers = (np.arange(start, min(start + (1 << 16), count), dtype="<i8") for start in steps)
    _stream(writer, path, "<i8", numbers, 1 << 16, compress=True)


def _stream(
    writer: store.Writer, path: str, dtype: str, blocks: Iterable[Rows], rows: int, *, compress: bool
) -> None:
    stream = writer.stream(path, dtype, (), rows, compress)
    for block in blocks:
        stream.append(block)


def _images_of_frames(counts: npt.NDArray[np.int64]) -> Iterator[Rows]:
    """The number of its image for every frame, some images at a time."""
    for start in range(0, len(counts), 1 << 10):
        part = counts[start : start + (1 << 10)]
        yield np.repeat(np.arange(start, start + len(part), dtype="<i8"), part)


class _Digests:
    """The digest of every `rows` rows, however they arrive."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._have = 0
        self._state = store.piece_digest()
        self._found: list[bytes] = []

    def add(self, block: Rows) -> None:
        """More rows."""
        while len(block):
            part, block = block[: self._rows - self._have], block[self._rows - self._have :]
            self._state.update(np.ascontiguousarray(part).data)
            self._have += len(part)
            if self._have == self._rows:
                self._flush()

    def _flush(self) -> None:
        if self._have:
            self._found.append(self._state.digest())
        self._state, self._have = store.piece_digest(), 0

    def array(self) -> npt.NDArray[np.uint8]:
        """All of them, (pieces, 8)."""
        self._flush()
        return np.frombuffer(b"".join(self._found), np.uint8).reshape(-1, 8)
