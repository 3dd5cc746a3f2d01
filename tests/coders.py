"""Coders for tests, and the law that both ways through them keep."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from hypothesis import strategies as st
from pictures import natural

from tpca_cli.codec.coder import Coder
from tpca_cli.codec.kernel_run import Encoded
from tpca_cli.framing import Framing
from tpca_cli.tensor_pca.fixed_basis import FixedBasis

GRIDS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4)
PLACES = {
    "tile": tuple((i, j, c) for c in range(3) for i in range(4) for j in range(4)),
    "gray": tuple((i, j, 0) for i in range(8) for j in range(8)),
    "four channels": tuple((i, j, c) for i in range(3) for j in range(5) for c in range(4)),
    "dense": tuple((m, 0, 0) for m in range(20)),
    "no lowest": ((2, 1, 0), (0, 1, 1), (5, 5, 2), (0, 3, 0)),
    "one": ((0, 0, 0),),
}
"""Components at (i, j, channel), of tiles, of dense bases and of others that a block may have."""


@functools.cache
def coder_of(side: int, channels: int, lapped: bool, components: int | None = None) -> Coder:
    """Cosines for rows and columns, in an order that mixes all components."""
    cosines = np.cos(np.pi / side * np.outer(np.arange(side) + 0.5, np.arange(side)))
    cosines /= np.linalg.norm(cosines, axis=0)
    colors = np.linalg.qr(np.vander(np.arange(1.0, channels + 1), increasing=True))[0]
    indices = np.indices((side, side, channels)).reshape(3, -1).T  # (m, 3)
    indices = indices[np.argsort(indices.sum(axis=1) * 7 % 11, kind="stable")]
    basis = FixedBasis.from_modes([cosines, cosines, colors], indices, dtype=np.uint8)
    framing = Framing("tile", side, side, channels)
    sample = [natural(70, 90, channels, 1)]
    return Coder.train(sample, framing, basis, 10.0, lapped=lapped, components=components, effort=0)


def check_both_paths(coder: Coder, pictures: list[np.ndarray]) -> None:
    """Through the kernel and through arrays: the same bytes, errors and pixels."""
    slow = dataclasses.replace(coder)
    slow.__dict__["_fast_path"] = None
    assert coder._fast_path is not None
    mine, theirs = coder.encode(pictures), slow.encode(pictures)
    assert mine.data == theirs.data
    assert np.array_equal(mine.sse, theirs.sse)
    decoded = [either.decode(mine.data, shapes(pictures)) for either in (coder, slow)]
    for one, two in zip(*decoded, strict=True):
        assert one.dtype == two.dtype and np.array_equal(one, two)


def without_trials(coder: Coder, pictures: list[np.ndarray]) -> Encoded:
    """What the kernel makes of pictures with grades as they come."""
    assert coder._fast_path is not None
    grid = coder._grid(shapes(pictures))
    return coder._fast_path.encode(coder.model, grid, pictures, coder._grades(pictures), *coder._passes)


def shapes(pictures: list[np.ndarray]) -> list[tuple[int, int]]:
    return [(picture.shape[0], picture.shape[1]) for picture in pictures]
