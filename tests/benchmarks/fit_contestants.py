"""One contestant of the fit benchmark per process: `python fit_contestants.py NAME LIST OUT M`.

Each reads the same files, fits, and saves its components (M, L) to OUT; what it measured itself goes to
stdout as one JSON object. The benchmark takes the time and the peak memory of the whole process.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def pillow_rows(files: list[str]) -> np.ndarray:
    """All images as float32 rows, the way a script without this project would read them."""
    from PIL import Image

    first = np.asarray(Image.open(files[0]).convert("RGB"))
    rows = np.empty((len(files), first.size), np.float32)
    for i, file in enumerate(files):
        rows[i] = np.asarray(Image.open(file).convert("RGB")).reshape(-1)
    return rows


def staged(files: list[str]) -> Any:
    """The same images as our frames."""
    from tpca_cli.frames.stage import stage
    from tpca_cli.sources.scan import scan

    return stage(scan(files).refs, memory=1 << 32, workers=2)


def decode(files: list[str], out: Path, m: int) -> dict[str, Any]:
    """Only reading: the limit for everybody."""
    with staged(files) as found:
        return {"frames": found.frames.count}


def randomized(files: list[str], out: Path, m: int) -> dict[str, Any]:
    """Pillow and scikit-learn's PCA, in float32 in memory."""
    from sklearn.decomposition import PCA

    rows = pillow_rows(files)
    np.save(out, PCA(m, svd_solver="randomized", random_state=0).fit(rows).components_)
    return {}


def incremental(files: list[str], out: Path, m: int) -> dict[str, Any]:
    """Pillow and scikit-learn's IncrementalPCA, a batch of files at a time."""
    from sklearn.decomposition import IncrementalPCA

    pca, batch = IncrementalPCA(m), 2 * m
    cuts = [*range(0, max(1, len(files) - batch + 1), batch), len(files)]  # the last takes the rest
    for start, stop in itertools.pairwise(cuts):
        pca.partial_fit(pillow_rows(files[start:stop]))
    np.save(out, pca.components_)
    return {}


def operator_of(files: list[str]) -> Any:
    from tpca_cli.tensor_pca.algorithm1 import TensorOperator

    with staged(files) as found:
        operator = TensorOperator(found.frames.frame_shape, found.frames.dtype)
        for block in found.frames.blocks(4096):
            operator.add(block)
    return operator


def solvers(files: list[str], out: Path, m: int) -> dict[str, Any]:
    """ARPACK and ours on the same operator."""
    from scipy.sparse.linalg import eigsh

    from tpca_cli.tensor_pca.algorithm1 import strongest

    operator = operator_of(files)
    shape = operator.frame_shape
    matrix = operator.matrix(center=True, consume=True)
    result: dict[str, Any] = {}
    for name, solve in (
        ("ours", lambda: (lambda pairs: (pairs.values, pairs.vectors))(strongest(matrix, shape, m, 1e-6))),
        ("eigsh", lambda: eigsh(matrix, m, tol=1e-6, v0=np.ones(len(matrix)))),
    ):
        started = time.perf_counter()
        values, vectors = solve()
        result[f"{name}_seconds"] = time.perf_counter() - started
        residual = np.linalg.norm(matrix @ vectors - vectors * values, axis=0).max() / values.max()
        result[f"{name}_residual"] = float(residual)
    return result


def accumulation(files: list[str], out: Path, m: int) -> dict[str, Any]:
    """Exact accumulation and float64 `syrk` on the same blocks."""
    from scipy.linalg import blas

    from tpca_cli.tensor_pca.algorithm1 import TensorOperator

    with staged(files) as found:
        shape, blocks = found.frames.frame_shape, list(found.frames.blocks(1024))
    size = int(np.prod(shape))
    result = {"exact_seconds": np.inf, "syrk_seconds": np.inf}
    total = np.zeros((size, size))
    for _ in range(3):  # in turns, the best of three
        operator = TensorOperator(shape)
        operator.lower[...] = 0  # both touch their memory before the clock starts
        started = time.perf_counter()
        for block in blocks:
            operator.add(block)
        exact = operator.lower
        result["exact_seconds"] = min(result["exact_seconds"], time.perf_counter() - started)
        total[...] = 0
        started = time.perf_counter()
        for block in blocks:
            rows = block.reshape(len(block), size).astype(np.float64)
            blas.dsyrk(1.0, rows.T, beta=1.0, c=total.T, trans=0, lower=0, overwrite_c=1)
        result["syrk_seconds"] = min(result["syrk_seconds"], time.perf_counter() - started)
    result["equal"] = bool(all(np.array_equal(exact[i, : i + 1], total[i, : i + 1]) for i in range(size)))
    return result


def rank1(files: list[str], out: Path, m: int) -> dict[str, Any]:
    """Our mode operators and TensorLy's partial_tucker on the same array."""
    import tensorly
    from tensorly.decomposition import partial_tucker

    from tpca_cli.tensor_pca.algorithm2 import ModeOperators, solve_modes

    with staged(files) as found:
        frames = next(found.frames.blocks(found.frames.count))
    started = time.perf_counter()
    operators = ModeOperators(frames.shape[1:])
    operators.add(frames)
    modes = solve_modes(operators).modes
    ours = time.perf_counter() - started
    floats = tensorly.tensor(frames.astype(np.float64))
    started = time.perf_counter()
    (_, factors), _ = partial_tucker(
        floats, rank=list(frames.shape[1:]), modes=[1, 2, 3], init="svd", n_iter_max=1
    )
    theirs = time.perf_counter() - started
    # Equal subspaces: the leading k columns of both span the same space, for every k.
    worst = 0.0
    for u, v in zip(modes, factors, strict=True):
        cosines = np.abs(np.einsum("ij,ij->j", u, v))
        worst = max(worst, float(np.sqrt(np.maximum(0.0, 1 - cosines**2)).max()))
    return {"ours_seconds": ours, "tensorly_seconds": theirs, "subspace_difference": worst}


def variance(files: list[str], out: Path, m: int) -> dict[str, Any]:
    """The share of centered energy that saved components hold: one measure for everybody."""
    u = np.load(out).T.astype(np.float32)  # (L, M)
    u, _ = np.linalg.qr(u)
    with staged(files) as found:
        frames = found.frames
        mean = sum(block.sum(axis=0, dtype=np.float64) for block in frames.blocks(1000)) / frames.count
        held = total = 0.0
        for block in frames.blocks(1000):
            x = (block - mean).reshape(len(block), -1).astype(np.float32)
            held += float(np.square(x @ u, dtype=np.float64).sum())
            total += float(np.square(x, dtype=np.float64).sum())
    return {"variance": held / total}


def export(files: list[str], out: Path, m: int) -> dict[str, Any]:
    """The components of a basis file beside OUT, as the other contestants save theirs."""
    from tpca_cli.basisfile import read_basis

    np.save(out, read_basis(out.with_suffix(".h5")).basis.matrix.T)  # type: ignore[union-attr]
    return {}


CONTESTANTS: dict[str, Callable[[list[str], Path, int], dict[str, Any]]] = {
    f.__name__: f for f in (decode, randomized, incremental, solvers, accumulation, rank1, variance, export)
}

if __name__ == "__main__":
    name, listing, target, components = sys.argv[1:]
    paths = Path(listing).read_text().split("\n")
    print(json.dumps(CONTESTANTS[name](paths, Path(target), int(components))))
