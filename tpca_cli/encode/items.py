"""Encode tensors of any order with the paper's truncation: find, check, fit or take a basis, code, write."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli import store
from tpca_cli.archive.format import ITEMS
from tpca_cli.archive.index import BlockRecord, Entry, Index
from tpca_cli.archive.writer import Group, basis_digest, write_archive
from tpca_cli.basisfile import read_basis
from tpca_cli.codec.basis_coding import code_basis
from tpca_cli.codec.coder import Coder
from tpca_cli.errors import TpcaError, UsageError, printable
from tpca_cli.frames.items import Checked, check_items
from tpca_cli.framing import Framing
from tpca_cli.interfaces import Progress
from tpca_cli.rate import TRUNCATION_LOSS_DB
from tpca_cli.sources.items import ItemRef, find_items
from tpca_cli.sources.scan import Skipped
from tpca_cli.tensor_pca.basis import Rank1Basis, TensorBasis
from tpca_cli.tensor_pca.fixed_basis import FixedBasis
from tpca_cli.tensors import GRID_PEAK, Grid, Item

SAMPLE = 64
BLOCK_PIXELS = 1 << 17
FINE_STEP = 1 / 16
SAFETY = 2.0  # noise may be this many times as large as that of a uniform step


@dataclass(frozen=True)
class EncodedItems:
    """What came out; errors are in the units of the samples."""

    items: int
    item: Item
    components: int
    step: float
    method: str
    archive_bytes: int
    raw_bytes: int
    basis_bytes: int
    coefficient_bytes: int
    rms_error: float
    max_error: float
    grid_step: float
    psnr: float
    skipped: tuple[Skipped, ...]


Fit = Callable[[Checked], TensorBasis]


def encode_items(
    sources: tuple[str, ...],
    output: Path,
    components: int,
    *,
    basis: Path | None,
    fit: Fit,
    step: float | None,
    max_values: int,
    on_error: str,
    force: bool,
    progress: Progress | None = None,
) -> EncodedItems:
    """Compress tensors of one kind into an archive, with the first `components` of a basis."""
    store.check_output(output, force)
    stored = None if basis is None else read_basis(basis)
    wanted = None if stored is None else stored.origin.item
    if stored is not None and wanted is None:
        raise UsageError(f"{printable(basis or b'')} is a basis of images: fit one to the tensors")
    found = check_items(find_items(sources, max_values, wanted, on_error), max_values, on_error, progress)
    item, refs = found.items.item, found.items.refs
    if stored is None:
        tensors, fitted = fit(found), len(refs)
    else:
        tensors, fitted = stored.basis, stored.origin.frames
    kept = min(components, tensors.components)
    grid = Grid.between(found.smallest, found.largest) if item.floating else Grid()
    coder = _coder(tensors.truncate(kept), refs, item, grid, len(refs) / max(fitted, 1), step, max_values)
    peak = 255 if item.dtype == "u1" else GRID_PEAK
    group = Group.of(coder, tensors.method, peak=peak)
    features = [*group.meta["features"], ITEMS]
    meta = {**group.meta, "features": features, "item": {**item.to_dict(), **grid.to_dict()}}
    group = replace(group, meta=meta)
    return _write(output, coder, group, found, grid, kept, max_values, force, progress)


def _coder(
    basis: TensorBasis,
    refs: Sequence[ItemRef],
    item: Item,
    grid: Grid,
    times: float,
    step: float | None,
    max_values: int,
) -> Coder:
    """The coder of tensors on their grid, at a step that adds little to the error of the truncation."""
    plain = _on_grid(basis, item, grid)
    chosen = [refs[len(refs) * k // min(len(refs), SAMPLE)] for k in range(min(len(refs), SAMPLE))]
    sample = [grid.integers(ref.read(max_values), item) for ref in chosen]
    framing = Framing("whole", *item.picture)
    coder = Coder.train(sample, framing, plain, FINE_STEP, effort=0)
    if step is None:
        lost = float(coder.encode(sample).sse.sum()) / len(sample)
        noise = lost * (10 ** (TRUNCATION_LOSS_DB / 10) - 1)
        numbers = basis.components * (1 + item.size / len(refs))
        step = max(math.sqrt(12 * noise / numbers / SAFETY), FINE_STEP)
    coder = Coder.train(sample, framing, plain, step, effort=0)
    weights = np.sqrt(np.maximum(basis.energies, 0) * times) / grid.scale
    return replace(coder, basis=code_basis(plain, weights, coder.step, basis_digest(plain)))


def _on_grid(basis: TensorBasis, item: Item, grid: Grid) -> FixedBasis:
    """The basis in integers; what it subtracts is in units of the grid, zero where nothing is subtracted."""
    columns = basis.columns() if isinstance(basis, Rank1Basis) else basis.matrix  # (L, M)
    mean: NDArray[Any] | None = None
    if basis.mean is not None or grid.zero:
        mean = np.full(item.size, float(grid.zero))
        mean += 0.0 if basis.mean is None else basis.mean.reshape(-1) / grid.scale
        mean = np.clip(mean, 0, 255 if item.dtype == "u1" else GRID_PEAK)
    dtype = np.uint8 if item.dtype == "u1" else np.uint16
    return FixedBasis.from_dense(columns, item.picture, dtype=dtype, mean=mean)


def _write(
    output: Path,
    coder: Coder,
    group: Group,
    found: Checked,
    grid: Grid,
    kept: int,
    max_values: int,
    force: bool,
    progress: Progress | None,
) -> EncodedItems:
    item, refs = found.items.item, found.items.refs
    entries: list[Entry] = []
    blocks: list[BlockRecord] = []
    parts: list[bytes] = []
    squares, largest = 0.0, 0.0
    for start, pictures, originals in _batches(refs, item, grid, max_values):
        coded = coder.encode(pictures)
        blocks.append(
            BlockRecord(len(coded.data), 0, start, len(pictures), 0, 0, store.digest_of(coded.data))
        )
        parts.append(coded.data)
        back = coder.decode(coded.data, [item.picture[:2]] * len(pictures))
        for k, (original, picture) in enumerate(zip(originals, back, strict=True)):
            away = np.abs(np.asarray(original, np.float64) - grid.samples(picture, item).astype(np.float64))
            squares, largest = squares + float((away**2).sum()), max(largest, float(away.max()))
            entries.append(_entry(refs[start + k], item, int(coded.sse[k]), away, group))
        if progress is not None:
            progress("coding", len(entries), len(refs))
    skipped = [(printable(each.path), each.reason) for each in found.items.skipped]
    index = Index.build(entries, blocks, skipped)
    written = write_archive(output, index, [group], parts, target_asked={"components": kept}, force=force)
    rms = math.sqrt(squares / (len(refs) * item.size))
    span = (GRID_PEAK * grid.scale) if item.floating else float(group.meta["peak"])
    return EncodedItems(
        items=len(refs),
        item=item,
        components=kept,
        step=coder.step * grid.scale,
        method=str(group.meta["method"]),
        archive_bytes=written.size,
        raw_bytes=len(refs) * item.nbytes,
        basis_bytes=written.stored["groups/0/basis"],
        coefficient_bytes=sum(map(len, parts)),
        rms_error=rms,
        max_error=largest,
        grid_step=grid.scale if item.floating else 0.0,
        psnr=math.inf if rms == 0 else 20 * math.log10(span / rms),
        skipped=found.items.skipped,
    )


def _batches(
    refs: Sequence[ItemRef], item: Item, grid: Grid, max_values: int
) -> Iterator[tuple[int, list[NDArray[Any]], list[NDArray[Any]]]]:
    """Where a block of items begins, their pictures, and what they are themselves."""
    each = max(1, BLOCK_PIXELS // (item.picture[0] * item.picture[1]))
    for start in range(0, len(refs), each):
        originals = []
        for ref in refs[start : start + each]:
            try:
                originals.append(np.asarray(ref.read(max_values)))
            except TpcaError as error:
                raise TpcaError(f"{printable(ref.path)} changed while it was used: {error}") from None
        yield start, [grid.integers(tensor, item) for tensor in originals], originals


def _entry(ref: ItemRef, item: Item, error: int, away: NDArray[np.float64], group: Group) -> Entry:
    size, mtime_ns = ref.stat()
    about = {
        **item.to_dict(),
        "form": ref.form,
        "slices": [name.decode("utf-8", "replace") for name in ref.slices],
        "rms_error": math.sqrt(float((away**2).mean())),
        "max_error": float(away.max()),
    }
    return Entry(
        ref.name,
        ref.digest(),
        mtime_ns,
        size,
        *item.picture[:2],
        item.mode,
        error,
        metadata={"item": json.dumps(about).encode()},
        peak=int(group.meta["peak"]),
    )
