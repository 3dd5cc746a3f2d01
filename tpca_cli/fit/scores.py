"""The coefficients of the images that a basis was just fitted to: of Algorithm 3, U Sigma (eq 4C14).

The frames are still where the fit had them, so that no image is decoded again. Runs and products are those of
`tpca encode --plain`: the same rows come out, to the bit, where no file had to be left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tpca_cli import images
from tpca_cli.archive.format import DIGEST_BYTES, VERSION
from tpca_cli.archive.index import Entry, Index
from tpca_cli.errors import StorageError
from tpca_cli.frames.stage import Staged
from tpca_cli.images import Header
from tpca_cli.interfaces import Block, Progress
from tpca_cli.parallel import alone
from tpca_cli.scores.format import DTYPES
from tpca_cli.scores.project import Projector, by_run, runs_of
from tpca_cli.scores.writer import ScoresBasis, write_scores
from tpca_cli.sources.scan import ImageRef


def write_fitted_scores(
    path: Path,
    staged: Staged,
    keep: npt.NDArray[np.bool_],
    of: ScoresBasis,
    dtype: str,
    *,
    force: bool,
    progress: Progress | None = None,
) -> None:
    """Project the frames of a fit and write their scores."""
    chosen = [
        (ref, header) for ref, header, kept in zip(staged.refs, staged.headers, keep, strict=True) if kept
    ]
    counts = [of.framing.count(header.height, header.width) for _, header in chosen]
    frames = staged.frames if keep.all() else staged.only(keep)
    lengths = [sum(counts[run.start : run.stop]) for run in runs_of(counts, of.framing)]

    projector = Projector(of.basis, of.samples, DTYPES[dtype])

    def rows() -> Iterator[Block]:
        done = 0
        for block in by_run(frames.blocks(max(lengths)), lengths):
            yield projector.coefficients([block])
            done += len(block)
            if progress is not None:
                progress("projecting", done, frames.count)

    index = Index.build([_entry(ref, header) for ref, header in chosen], [])
    with alone():
        write_scores(path, index, rows(), of, DTYPES[dtype], force=force)


def _entry(ref: ImageRef, header: Header) -> Entry:
    try:
        bits = stat.S_IMODE(os.stat(ref.path).st_mode)
    except OSError as error:
        raise StorageError.of(error, ref.path, "look at") from error
    digest = images.file_digest(ref.path, DIGEST_BYTES[VERSION])
    shape = (header.height, header.width, header.mode)
    return Entry(ref.name, digest, ref.mtime_ns, ref.size, *shape, 0, mode_bits=bits)
