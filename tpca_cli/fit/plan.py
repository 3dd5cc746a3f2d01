"""Which algorithm for how many frames of which size, and what it costs: decided before anything is computed.

The choice depends on counts alone, never on timing, so the same folder and options always take the same
way. Estimates of time are for orientation; those of memory are what `--memory` is held to.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from tpca_cli.basisfile import StoredBasis
from tpca_cli.cluster.cluster import Cluster
from tpca_cli.errors import UsageError
from tpca_cli.sources.read_plan import OnError
from tpca_cli.sources.scan import Skipped
from tpca_cli.tensor_pca.algorithm1 import SMALL, guarded
from tpca_cli.tensor_pca.algorithm1_streamed import COORDINATES, LEAST
from tpca_cli.tensor_pca.algorithm3 import SMALL as LAPACK_FRAMES
from tpca_cli.tensor_pca.algorithm3 import sums_held
from tpca_cli.tensor_pca.fold import THREADS
from tpca_cli.tensor_pca.solve import GRAM_BYTES, by_gram

OVERHEAD = 128 << 20  # interpreter, libraries, blocks in flight
COMPLETE = 1024  # frames of up to this many values get all their components unless fewer are asked for
DEFAULT_COMPONENTS = 256  # and larger ones these
AFFORDABLE = 4096  # values per frame up to which `auto` forms the operator: seconds, not minutes
KEPT = 1024  # values per frame up to which the operator is kept in the file unasked: at most 4 MB


@dataclass(frozen=True)
class FitOptions:
    """What was asked for."""

    method: str = "auto"
    solver: str = "auto"
    components: int | None = None
    energy: float | None = None
    all_pairs: bool = False
    center: bool = False
    tolerance: float | None = None
    keep_operator: bool = False
    operator_only: bool = False
    truncation: str | None = None  # of rank1: "indices", "svd" or "products"

    @property
    def choice(self) -> dict[str, int | float | bool] | None:
        """How many components, in the form that the file records."""
        if self.all_pairs:
            return {"all": True}
        if self.energy is not None:
            return {"energy": self.energy}
        return None if self.components is None else {"components": self.components}


@dataclass(frozen=True)
class Plan:
    """What is going to be done. `streamed` means that the operator is multiplied but never formed."""

    method: str
    solver: str
    streamed: bool
    components: int | None  # None: all, or as many as hold `energy`
    energy: float | None
    keep_operator: bool
    memory: int
    seconds: float
    reason: str
    truncation: str | None = None  # of rank1: which components are kept, and in which order
    principal: Plan | None = None  # of rank1 with "svd": how the singular vectors are found


@dataclass(frozen=True)
class ProblemSize:
    """What a plan depends on besides the wish."""

    frames: int
    frame_shape: tuple[int, ...]
    itemsize: int
    memory: int
    given: bool = False  # an operator is there already: it is added to, or solved

    @property
    def size(self) -> int:
        """L."""
        return prod(self.frame_shape)


def plan(wish: FitOptions, counts: ProblemSize) -> Plan:
    """The algorithm, the solver and the costs; an error where the wish cannot be had."""
    method, reason = _method(wish, counts)
    if method == "rank1":
        return _rank1(wish, counts, reason)
    components, energy = _choice(wish, counts, method)
    if method == "subspace":
        return _subspace(wish, counts, components, energy, reason)
    return _operator(wish, counts, components, energy, reason)


def _method(wish: FitOptions, counts: ProblemSize) -> tuple[str, str]:
    n, size = counts.frames, counts.size
    if wish.truncation is not None and wish.method in ("operator", "subspace"):
        raise UsageError(
            f"--truncation is for --method rank1: {wish.method} keeps its strongest eigentensors"
        )
    if wish.truncation is not None and wish.method == "auto":
        return "rank1", "the method that --truncation belongs to"
    if wish.method != "auto":
        if wish.method == "subspace" and n >= size:
            raise UsageError(
                f"subspace needs fewer frames than values in a frame, and there are {n} frames of {size}; "
                "use --method operator"
            )
        return wish.method, "as asked for"
    if wish.choice is None:
        return "rank1", "a complete basis of a few kilobytes (give --components or --energy for a dense one)"
    if wish.all_pairs:
        if _dense_memory(counts, size, all_pairs=True) <= counts.memory:
            return "operator", f"all {size} eigentensors fit the memory"
        return "rank1", f"all {size} eigentensors do not fit the memory; rank-1 tensors are complete as well"
    needs_operator = wish.operator_only or wish.keep_operator or counts.given
    if not needs_operator and wish.solver != "fast" and n < size and n <= AFFORDABLE:
        return (
            "subspace",
            f"{n} frames are fewer than the {size} values of one: an N x N operator is smallest",
        )
    return "operator", f"the best basis for {n} frames of {size} values"


def _choice(wish: FitOptions, counts: ProblemSize, method: str) -> tuple[int | None, float | None]:
    if wish.choice is not None or method == "subspace" or counts.size <= COMPLETE:
        return wish.components, wish.energy
    return DEFAULT_COMPONENTS, None


def _rank1(wish: FitOptions, counts: ProblemSize, reason: str) -> Plan:
    if wish.solver == "fast":
        reason += "; its small operators are always solved exactly"
    flops = 2.0 * counts.frames * counts.size * sum(counts.frame_shape)
    memory = OVERHEAD + 40 * counts.size
    components = None if wish.all_pairs else wish.components
    truncation, principal = wish.truncation, None
    if truncation is not None and truncation != "products" and counts.given:
        raise UsageError(
            f"--truncation {truncation} is measured on the pixels of all images, and those counted earlier "
            "are not at hand: fit all images at once, or use --truncation products"
        )
    if truncation == "svd" and not wish.operator_only:
        principal = _principal(wish, counts)
        memory, flops = memory + principal.memory, 2 * flops
    elif truncation is None and (components or wish.energy) is not None and not counts.given:
        truncation = "indices"
    if truncation == "products" and wish.energy is not None:
        raise UsageError("--energy needs measured energies: use --truncation indices or svd")
    if truncation == "indices":
        flops *= 2
    elif components is not None and truncation != "svd":
        truncation = "products"
        reason += "; ordered by products of mode eigenvalues, which need no pixels"
    seconds = _time(flops, 8) + (principal.seconds if principal else 0.0)
    return Plan(
        "rank1",
        principal.solver if principal else "exact",
        False,
        components,
        wish.energy,
        True,
        memory,
        seconds,
        reason,
        truncation,
        principal,
    )


def _principal(wish: FitOptions, counts: ProblemSize) -> Plan:
    """The way to the singular vectors: by the N x N operator where it is the smaller one and fits."""
    n, size = counts.frames, counts.size
    m = min(wish.components or n, n)
    spanned = n < size and n <= LAPACK_FRAMES and _gram_memory(n, size, m, counts.itemsize) <= counts.memory
    inner = replace(
        wish,
        method="subspace" if spanned else "operator",
        all_pairs=wish.choice is None or wish.all_pairs,
        keep_operator=False,
        truncation=None,
    )
    return plan(replace(inner, all_pairs=False) if spanned else inner, counts)


def _operator(
    wish: FitOptions, counts: ProblemSize, components: int | None, energy: float | None, reason: str
) -> Plan:
    n, size = counts.frames, counts.size
    every = components is None and energy is None
    m = min(size, n) if every else min(components or max(256, size // 8), size)
    keep = wish.keep_operator or wish.operator_only or size <= KEPT
    dense = _dense_memory(counts, m, all_pairs=every, keep=keep)
    stream = _stream_memory(size, m)
    if by_gram(n, size, components):
        stream = max(stream, _gram_memory(n, size, min(components or n, n), counts.itemsize))
    must = every or wish.keep_operator or wish.operator_only or counts.given
    if must and dense > counts.memory:
        raise UsageError(
            f"the operator of frames of {size} values needs {dense / 2**30:.1f}G of memory and --memory is "
            f"{counts.memory / 2**30:.1f}G: raise it, or use --method rank1 or smaller frames"
        )
    if must and wish.solver == "fast":
        raise UsageError(f"--solver fast never forms the operator: {_without_operator(wish, counts)}")
    solver, streamed = wish.solver, False
    if not must and (dense > counts.memory or solver == "fast"):
        streamed = True
        if dense > counts.memory:
            reason += f"; its {size} x {size} operator does not fit the memory, so its products are streamed"
    if solver == "auto":
        solver = "exact" if must or (not streamed and size <= AFFORDABLE) else "fast"
        streamed = streamed or solver == "fast"
    if streamed:
        passes = 3 if solver == "fast" else 12
        flops = 4.0 * n * size * m * passes / 2
        return Plan("operator", solver, True, components, energy, False, stream, _time(flops, 4), reason)
    solve = 9.0 * size**3 if every or size <= SMALL else 2.0 * size**2 * (12 * m)
    seconds = _time(float(n) * size**2, 4) + _time(solve, 8)
    return Plan("operator", "exact", False, components, energy, keep, dense, seconds, reason)


def _without_operator(wish: FitOptions, counts: ProblemSize) -> str:
    """What to ask for instead, where something needs the operator."""
    asked = {
        "--update": counts.given,
        "--all": wish.all_pairs,
        "--keep-operator": wish.keep_operator and not counts.given,  # updating keeps it unasked
        "--operator-only": wish.operator_only,
    }
    found = [option for option, given in asked.items() if given]
    if found:
        return f"leave out {', '.join(found)}"
    return f"all {counts.size} components need it, use --components or --energy for fewer"


def _subspace(
    wish: FitOptions, counts: ProblemSize, components: int | None, energy: float | None, reason: str
) -> Plan:
    n, size = counts.frames, counts.size
    if wish.operator_only or wish.keep_operator or counts.given:
        raise UsageError(
            "the N x N operator of subspace needs the pixels of both frames for each entry, so it can be "
            "neither kept nor merged: use --method operator or rank1"
        )
    m = min(components or n, n)
    memory = _gram_memory(n, size, m, counts.itemsize)
    if memory > counts.memory:
        raise UsageError(
            f"subspace with {n} frames needs {memory / 2**30:.1f}G of memory and --memory is "
            f"{counts.memory / 2**30:.1f}G: raise it, or use --method operator"
        )
    flops = float(n) ** 2 * size + 9.0 * n**3 + 4.0 * n * size * m
    return Plan("subspace", "exact", False, components, energy, False, memory, _time(flops, 6), reason)


def _dense_memory(counts: ProblemSize, m: int, *, all_pairs: bool, keep: bool = False) -> int:
    """A in int64 with the rows gathered for it, or, turned into floats, with what the solver holds."""
    size = counts.size
    rows = min(counts.frames * size, max(1 << 25, 512 * size))  # room grows with the frames that there are
    gathered = (8 if counts.itemsize == 1 else 14) * rows + 12 * 1024 * size
    block = guarded(m, size)
    if all_pairs or size <= SMALL or 4 * m > size:
        solve = 8 * 4 * size**2
    else:
        solve = 8 * size * 12 * block
    return OVERHEAD + 8 * size**2 * (2 if keep else 1) + max(gathered, solve)


def _gram_memory(n: int, size: int, m: int, itemsize: int) -> int:
    """The frames beside their N x N operator in integers; its eigenvectors; Q beside what it is made from."""
    gathered = (4 if itemsize == 1 else 8) * min(1 << 25, n * size)
    inner = min(2 * n * size * itemsize, GRAM_BYTES) + gathered + 24 * n**2
    pairs = 48 * n**2
    spanned = 8 * size * m + 8 * (n**2 + n * m + 2 * m**2)
    sums = 8 * size * m + 8 * (n**2 + n * m) + 8 * sums_held(size, THREADS)
    # Beside Q there are rows under way, and what BLAS and the C library keep: more of it the larger Q is.
    return OVERHEAD + max(inner, pairs, max(spanned, sums) + min(1 << 27, 2 * size * m))


def _stream_memory(size: int, m: int) -> int:
    """Q, A Q and a product under way, with the matrices of the start."""
    block = guarded(m, size)
    return OVERHEAD + 8 * size * 7 * block + 24 * max(LEAST, COORDINATES * block) ** 2 + 8 * (1 << 24)


def _time(flops: float, itemsize: int) -> float:
    """Seconds at the speed of an ordinary core: 40 single or 20 double Gflop/s."""
    return flops / ((os.cpu_count() or 1) * 160e9 / itemsize)


STAGED_SHARE = 4  # frames may take this part of the memory before they go to disk,
STAGED_MOST = 1 << 24  # and never more than this: passes over a file are as fast


@dataclass(frozen=True)
class FitRequest:
    """Everything that `tpca fit-basis` was asked to do."""

    sources: Sequence[str]
    output: Path
    wish: FitOptions
    size: tuple[int, int] | None = None
    tile: int | None = None
    memory: int = 2 << 30
    workers: int = 1
    max_pixels: int = 250_000_000
    on_error: OnError = "skip"
    on_duplicate: str = "refuse"
    cache: Path | None = None
    update: Path | None = None
    force: bool = False
    cluster: Cluster | None = None
    scores: Path | None = None  # where the coefficients of the images go
    scores_dtype: str = "float32"


def inherited(wish: FitOptions, base: StoredBasis) -> FitOptions:
    """The wish with what the file says where the command line is silent."""
    origin = base.origin
    if wish.method not in ("auto", origin.method):
        raise UsageError(f"the basis to update has method {origin.method}, not {wish.method}")
    wish = replace(wish, method=origin.method, center=origin.center or wish.center)
    choice = origin.choice or {}
    if wish.choice is None:
        wish = replace(
            wish,
            components=choice.get("components"),
            energy=choice.get("energy"),
            all_pairs=bool(choice.get("all")),
        )
    return wish if origin.method == "rank1" else replace(wish, keep_operator=True)


def _named(skipped: Sequence[Skipped]) -> tuple[tuple[bytes, str], ...]:
    return tuple((item.path, item.reason) for item in skipped)


def held_bytes(pixels: int, request: FitRequest) -> int:
    """What frames take of the memory; on a cluster as much, so that the plan is that of one machine."""
    return pixels if request.cache is None and pixels <= staged_most(request.memory) else 0


def staged_most(memory: int) -> int:
    """Bytes of frames that are held in memory rather than in a file."""
    return min(memory // STAGED_SHARE, STAGED_MOST)
