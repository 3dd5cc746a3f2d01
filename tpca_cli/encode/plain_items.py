"""Tensors of any order to plain coefficients: read twice, once to see that they can be, once to project."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from tpca_cli import basisfile, store
from tpca_cli.archive.index import Entry, Index
from tpca_cli.encode.plain import Plain, PlainRequest, Rows
from tpca_cli.errors import UsageError, printable
from tpca_cli.frames.items import ItemFrames, check_items
from tpca_cli.interfaces import Progress
from tpca_cli.scores.format import DTYPES
from tpca_cli.scores.project import PRODUCT_VALUES, coefficients_of
from tpca_cli.scores.writer import ScoresBasis, write_scores
from tpca_cli.sources.items import find_items


def encode_plain_items(request: PlainRequest, progress: Progress | None = None) -> Plain:
    """Project tensors into `request.output`; the caller holds the lock."""
    store.check_output(request.output, request.force)
    if request.basis is None:
        raise UsageError("--plain needs --basis BASIS.h5: `tpca fit-basis SOURCE -o BASIS.h5` makes one")
    stored = basisfile.read_basis(request.basis)
    item = stored.origin.item
    if item is None:
        raise UsageError(f"{printable(request.basis)} is a basis of images: fit one to the tensors")
    if request.components is not None and request.components > stored.basis.components:
        raise UsageError(
            f"--components {request.components}: {printable(request.basis)} has {stored.basis.components}"
        )
    of = ScoresBasis(stored.basis, stored.framing, item.dtype, stored.digest, request.link, item)
    of = of.truncate(request.components)
    limit, on_error = request.reading.max_pixels, request.reading.on_error
    found = check_items(find_items(request.sources, limit, item, on_error), limit, on_error, progress).items
    entries = []
    for ref in found.refs:
        size, mtime_ns = ref.stat()
        entries.append(Entry(ref.name, ref.digest(), mtime_ns, size, *item.picture[:2], item.mode, 0))
    index = Index.build(entries, [], [(printable(each.path), each.reason) for each in found.skipped])
    dtype = DTYPES[request.dtype]

    def rows() -> Iterator[Rows]:
        done = 0
        for block in ItemFrames(found, limit).blocks(max(1, PRODUCT_VALUES // item.size)):
            done += len(block)
            if progress is not None:
                progress("projecting", done, len(entries))
            yield coefficients_of(of.basis, np.asarray(block), dtype)

    with threadpool_limits(1, user_api="blas"):
        write_scores(request.output, index, rows(), of, dtype, compress=request.compress, force=request.force)
    return Plain(len(entries), 0, 0, found.skipped)
