"""Tensor PCA beside the methods that it argues with: error at an equal number of stored values, time, memory.

    python tests/benchmarks/rivals.py FOLDER [--size 32x32] [--limit 1530] [--budgets 2 5 10 20]
        [--docs docs] [--work build/rivals]

Every method gets the same images, as one float64 array of N x h x w x 3, and a budget of stored values: a
share of the N h w 3 samples, in percent. What it stores is counted: basis or factors, coefficients or core,
and a mean where it has one. Each picks, within the budget, the ranks that serve it best among those tried
here, runs in a process of its own with two threads, and is judged by the same measure: the PSNR of the array
that it gives back, before rounding. Time is that of the decomposition, without reading the images; memory
is the peak of the process. What is finished is kept in --work.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Fit = tuple[int, Callable[[], Floats]]
"""Stored values, and what gives the array back."""


def components(x: Floats, budget: int, extra: int = 0) -> int:
    """M of a matrix basis: M (L + N) values, and `extra` ones, within the budget."""
    n, size = len(x), x[0].size
    return max(1, min((budget - extra) // (n + size), n, size))


def ours_subspace(x: Floats, budget: int) -> Fit:
    """Algorithm 1, 2 with singular values, or 3: the same basis; by Algorithm 3, N < L."""
    from tpca_cli.frames.arrays import ArrayFrames
    from tpca_cli.tensor_pca.solve import solve_frames

    m = components(x, budget)
    basis = solve_frames(ArrayFrames(x.astype(np.uint8)), "subspace", m)
    d = basis.project(x)
    return basis.matrix.size + d.size, lambda: basis.reconstruct(d)


def ours_fast(x: Floats, budget: int) -> Fit:
    """The same by `--solver fast`."""
    from tpca_cli.frames.arrays import ArrayFrames
    from tpca_cli.tensor_pca.solve import solve_frames

    m = components(x, budget)
    basis = solve_frames(ArrayFrames(x.astype(np.uint8)), "operator", m, exact=False)
    d = basis.project(x)
    return basis.matrix.size + d.size, lambda: basis.reconstruct(d)


def ours_rank1(x: Floats, budget: int) -> Fit:
    """Algorithm 2 with chosen rank-1 tensors (eq 4B15): three small matrices, M indices, N M coefficients."""
    from tpca_cli.frames.arrays import ArrayFrames
    from tpca_cli.tensor_pca.algorithm2 import ModeOperators, measured_rank1, solve_modes

    frames = x.astype(np.uint8)
    operators = ModeOperators(frames.shape[1:])
    operators.add(frames)
    modes = sum(side * side for side in frames.shape[1:])
    m = max(1, min((budget - modes) // (len(x) + 1), x[0].size))
    basis = measured_rank1(solve_modes(operators), ArrayFrames(frames), m)
    d = basis.project(frames)
    return modes + m + d.size, lambda: basis.reconstruct(d)


def pca(x: Floats, budget: int) -> Fit:
    """scikit-learn's PCA, exact (`covariance_eigh` or `full`, as it chooses by itself)."""
    from sklearn.decomposition import PCA

    return _sklearn(PCA(components(x, budget, x[0].size), svd_solver="auto", random_state=0), x)


def incremental(x: Floats, budget: int) -> Fit:
    """scikit-learn's IncrementalPCA, batches of twice its components."""
    from sklearn.decomposition import IncrementalPCA

    m = components(x, budget, x[0].size)
    return _sklearn(IncrementalPCA(m, batch_size=max(2 * m, 100)), x)


def _sklearn(model: Any, x: Floats) -> Fit:
    rows = x.reshape(len(x), -1)
    d = model.fit(rows).transform(rows)
    stored = model.components_.size + d.size + model.mean_.size
    return stored, lambda: model.inverse_transform(d).reshape(x.shape)


def best_ranks(squares: Floats, budget: int, *, whole: bool) -> tuple[int, ...]:
    """Tucker ranks within the budget that hold most of the energy of a complete core.

    All sides are tried, and as many of the images' rank as the budget then allows. With `whole` the mode of
    the images is not reduced (MPCA): there is one small core per image.
    """
    held = squares
    for k in range(4):
        held = np.cumsum(held, axis=k)
    n, h, w, c = squares.shape
    found = []
    for rh, rw, rc in np.ndindex(h, w, c):
        sides = (rh + 1, rw + 1, rc + 1)
        each, factors = int(np.prod(sides)), h * sides[0] + w * sides[1] + c * sides[2]
        rn = n if whole else min(n, each, (budget - factors) // (n + each))
        if rn >= 1 and factors + rn * each + (0 if whole else n * rn) <= budget:
            found.append((float(held[rn - 1, rh, rw, rc]), (int(rn), *sides)))
    if not found:
        raise SystemExit("no ranks fit the budget")
    return max(found)[1]


def tucker(x: Floats, budget: int) -> Fit:
    """Tucker by alternating least squares (HOOI) of all four modes, TensorLy; the best of the ranks tried."""
    return _tucker(x, budget, whole=False)


def mpca(x: Floats, budget: int) -> Fit:
    """MPCA: Tucker of the three modes of an image by ALS about the mean image, TensorLy's partial Tucker."""
    mean = x.mean(axis=0)
    stored, back = _tucker(x - mean, budget - mean.size, whole=True)
    return stored + mean.size, lambda: back() + mean


def _tucker(x: Floats, budget: int, *, whole: bool) -> Fit:
    import tensorly
    from tensorly.decomposition import partial_tucker

    modes = [1, 2, 3] if whole else [0, 1, 2, 3]
    # the ranks of the truncated HOSVD, which is quick, that lose least; then ALS with these
    core = x
    bases = {}
    for k in modes:
        rows = np.moveaxis(x, k, 0).reshape(x.shape[k], -1)
        bases[k] = np.linalg.eigh(rows @ rows.T)[1][:, ::-1]
    for k in modes:
        core = np.moveaxis(np.tensordot(bases[k].T, core, axes=(1, k)), 0, k)
    best = best_ranks(core**2, budget, whole=whole)
    del core
    (small, factors), _ = partial_tucker(
        tensorly.tensor(x), rank=[best[k] for k in modes], modes=modes, init="svd", n_iter_max=10, tol=1e-5
    )
    stored = small.size + sum(f.size for f in factors)
    return stored, lambda: np.asarray(tensorly.tenalg.multi_mode_dot(small, factors, modes=modes))


def tensor_train(x: Floats, budget: int) -> Fit:
    """The tensor train of the array with its images first, TensorLy (TT-SVD), the best ranks tried."""
    import tensorly
    from tensorly.decomposition import tensor_train as decompose

    full = min(len(x), x[0].size)
    best: tuple[float, int, Any] | None = None
    for order in ((0, 1, 2, 3), (1, 0, 2, 3), (1, 2, 0, 3)):
        y = np.ascontiguousarray(x.transpose(order))
        shape = y.shape
        tops = (shape[0], min(shape[0] * shape[1], shape[2] * shape[3]), shape[3])
        for share in (0.03, 0.1, 0.3, 1.0):
            last = tops[2]
            second = max(1, round(tops[1] * share))
            # r1 from what is left: shape0 r1 + r1 shape1 r2 + r2 shape2 r3 + r3 shape3
            while second > 1 and second * shape[2] * last > 0.8 * budget:
                second = int(second * 0.9)
            left = budget - second * shape[2] * last - last * shape[3]
            first = int(min(left // (shape[0] + shape[1] * second), tops[0], full))
            if first < 1:
                continue
            cores = decompose(tensorly.tensor(y), [1, first, second, last, 1])
            size = sum(core.size for core in cores.factors)
            back = np.asarray(cores.to_tensor())
            error = float(((back - y) ** 2).sum())
            if size <= budget and (best is None or error < best[0]):
                inverse = np.argsort(order)
                best = (error, size, (cores, inverse))
    if best is None:
        raise SystemExit("no ranks fit the budget")
    cores, inverse = best[2]
    return best[1], lambda: np.asarray(cores.to_tensor()).transpose(inverse)


METHODS: dict[str, tuple[str, Callable[[Floats, int], Fit]]] = {
    "ours": ("tensor PCA (`subspace`, `operator`, `rank1 --truncation svd`)", ours_subspace),
    "fast": ("tensor PCA, `--solver fast`", ours_fast),
    "rank1": ("tensor PCA, `rank1 --truncation indices`", ours_rank1),
    "pca": ("PCA (scikit-learn)", pca),
    "incremental": ("incremental PCA (scikit-learn)", incremental),
    "tucker": ("Tucker by ALS (TensorLy)", tucker),
    "mpca": ("MPCA (TensorLy, partial Tucker about the mean)", mpca),
    "train": ("tensor train (TensorLy)", tensor_train),
}


LEGEND = {
    "ours": "svd", "fast": "fast", "rank1": "indices", "pca": "PCA", "incremental": "IPCA",
    "tucker": "Tucker", "mpca": "MPCA", "train": "train",
}  # fmt: skip
"""Names on the plot; svd and indices are tensor PCA by its two truncations."""


def contest(name: str, array: Path, budget: int) -> dict[str, Any]:
    """One method in this process."""
    x = np.load(array).astype(np.float64)
    started, cpu = time.perf_counter(), time.process_time()
    stored, back = METHODS[name][1](x, budget)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    error = float(((back() - x) ** 2).sum())
    quality = 10 * np.log10(255**2 * x.size / max(error, 1e-300))
    return {"stored": stored, "psnr": float(quality), "seconds": seconds, "cpu": cpu_seconds, "peak": peak}


def main() -> None:
    if sys.argv[1:2] == ["--contest"]:
        print(json.dumps(contest(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", default="32x32")
    parser.add_argument("--limit", type=int, default=1530)
    parser.add_argument("--budgets", type=float, nargs="+", default=[2, 5, 10, 20])
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    parser.add_argument("--work", type=Path, default=Path("build/rivals"))
    given = parser.parse_args()
    from paper_measure import evenly, kept, load, table

    from tpca_cli.report import charts
    from tpca_cli.sources.scan import scan

    given.work.mkdir(parents=True, exist_ok=True)
    refs = scan([str(given.folder)]).refs
    refs = [refs[k] for k in evenly(len(refs), given.limit)]
    h, w = map(int, given.size.split("x"))
    frames, _ = load(refs, (h, w))
    array = given.work / "frames.npy"
    np.save(array, frames)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    rows, curves = [], []
    for name, (title, _) in METHODS.items():
        points = []
        for share in given.budgets:
            budget = int(frames.size * share / 100)

            def compute(name: str = name, budget: int = budget) -> dict[str, Any]:
                command = [sys.executable, __file__, "--contest", name, str(array), str(budget)]
                done = subprocess.run(command, stdout=subprocess.PIPE, env=environment)
                return json.loads(done.stdout) if done.returncode == 0 else {}

            key = [name, budget, list(frames.shape), int(frames[:: max(1, len(frames) // 7)].sum())]
            found = kept(given.work / f"{name}-{share:g}.json", key, compute)
            if not found:
                rows.append([title, f"{share:g} %", "", "no ranks fit", "", "", ""])
                continue
            points.append((100 * found["stored"] / frames.size, found["psnr"]))
            rows.append(
                [title, f"{share:g} %", f"{100 * found['stored'] / frames.size:.2f} %",
                 f"{found['psnr']:.2f} dB", f"{found['cpu']:.1f} s", f"{found['seconds']:.1f} s",
                 f"{found['peak'] / 1e6:,.0f} MB"]
            )  # fmt: skip
        curves.append(charts.Series(LEGEND[name], tuple(points)))
    rows.sort(key=lambda row: float(row[1].split()[0]))
    wins = []
    for share in given.budgets:
        at = sorted(
            (r for r in rows if r[1] == f"{share:g} %" and r[2]), key=lambda r: -float(r[3].split()[0])
        )
        wins.append(f"at {share:g} % {at[0][0]} ({at[0][3]}), then {at[1][0]} ({at[1][3]})")
    write(given.docs, frames, table(HEAD, rows), curves, wins)


HEAD = ("method", "budget", "stored", "PSNR", "CPU time", "elapsed", "peak memory")


def write(
    docs: Path, frames: NDArray[np.uint8], rows: str, curves: Sequence[Any], wins: Sequence[str]
) -> None:
    """The last part of docs/EXPERIMENTS.md, and its plot."""
    from paper_page import RIVALS

    from tpca_cli.report import charts

    n, h, w, _ = frames.shape
    axes = ("stored values, % of the samples", "PSNR, dB", True, False)
    pairs = [[curves[k] for k in some] for some in ((0, 2, 3, 4), (2, 5, 6, 7))]
    drawn = [charts.Chart(tuple(some), *axes, "PSNR of each method at equal stored values") for some in pairs]
    (docs / "figures").mkdir(parents=True, exist_ok=True)
    title = f"{n:,} images of {h}x{w}: error at an equal number of stored values"
    (docs / "figures" / "rivals.png").write_bytes(charts.to_file(drawn, title))
    page = docs / "EXPERIMENTS.md"
    before = page.read_text(encoding="utf-8").partition(RIVALS)[0] if page.exists() else ""
    words = WORDS.format(n=n, h=h, w=w, rows=rows, wins="; ".join(wins))
    page.write_text(f"{before}{RIVALS}\n{words}", encoding="utf-8")


WORDS = """
## Beside the methods it argues with

Written by `make rivals`: {n:,} images of {h}x{w} in color. Every method gets the same array and the same
budget of stored values, a share of the samples: basis or factors, coefficients or core, and a mean where it
has one, all counted. Tucker, MPCA and the tensor train take the ranks (the tensor train also the order of the
modes) that lose least among those tried within the budget. PSNR is that of the array that comes back, before
rounding. Time is that of the decomposition, the search for ranks included, reading the images not; memory is
the peak of its process.

The least error: {wins}.

{rows}

On the plot, *svd* and *indices* are tensor PCA by its two truncations, *train* is the tensor train.

![PSNR against stored values](figures/rivals.png)
"""


if __name__ == "__main__":
    main()
