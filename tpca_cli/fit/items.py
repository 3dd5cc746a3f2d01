"""Fit a basis to tensors of any order, or take a given operator: find, check, accumulate, solve, write."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from tpca_cli import basisfile, store
from tpca_cli.basisfile import Origin
from tpca_cli.errors import TpcaError, UsageError, printable
from tpca_cli.fit.plan import FitOptions
from tpca_cli.frames.items import Checked, ItemFrames, check_items
from tpca_cli.framing import Framing
from tpca_cli.images.arrays import MAX_HEADER
from tpca_cli.images.source import file_digest
from tpca_cli.interfaces import Progress, Say
from tpca_cli.sources.items import find_items
from tpca_cli.sources.scan import Skipped
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, measured_rank1, singular_rank1, solve_modes
from tpca_cli.tensor_pca.basis import TensorBasis
from tpca_cli.tensor_pca.floating import check_energies, self_adjoint, solve_floats, solve_matrix
from tpca_cli.tensor_pca.solve import fixed_threads, new_operator, solve_frames, solve_given
from tpca_cli.tensors import Item

LARGEST_OPERATOR = 4096
"""Samples of an item up to which `auto` forms the L x L operator."""
OPERATOR_BYTES = {"f": (4, 8), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8)}
"""Types that the entries of a given operator may have."""
BROKEN = (
    ValueError,
    TypeError,
    OverflowError,
    EOFError,
    SyntaxError,
    TokenError,
    RecursionError,
    MemoryError,
)
"""What numpy raises for a header that makes no sense."""


@dataclass(frozen=True)
class FittedItems:
    """What came out."""

    facts: Mapping[str, Any]  # of the file
    item: Item
    skipped: tuple[Skipped, ...]


def fit_items(
    sources: tuple[str, ...],
    output: Path,
    wish: FitOptions,
    *,
    memory: int,
    max_values: int,
    on_error: str,
    force: bool,
    say: Say,
    progress: Progress | None = None,
) -> FittedItems:
    """Learn a basis from tensors and write it."""
    store.check_output(output, force)
    found = check_items(find_items(sources, max_values, on_error=on_error), max_values, on_error, progress)
    with fixed_threads():
        basis = solve_items(found, wish, memory, max_values, say, progress)
    items = found.items
    digests = np.frombuffer(b"".join(sorted(ref.digest(8) for ref in items.refs)), np.uint8).reshape(-1, 8)
    origin = Origin(
        method=basis.method,
        framing=Framing("whole", *items.item.picture),
        dtype=items.item.dtype,
        frames=len(items.refs),
        digests=digests,
        center=wish.center,
        choice=wish.choice,
        item=items.item,
    )
    facts = basisfile.write(output, origin, basis, None, force=force)
    return FittedItems(facts, items.item, items.skipped)


def solve_items(
    found: Checked,
    wish: FitOptions,
    memory: int,
    max_values: int,
    say: Say,
    progress: Progress | None = None,
) -> TensorBasis:
    """The basis of tensors: integers are added up exactly, floats in float64."""
    items = found.items
    frames = ItemFrames(items, max_values)
    size, count = prod(frames.frame_shape), frames.count
    method = wish.method
    if method == "auto":
        method = "subspace" if count < size else "operator" if size <= LARGEST_OPERATOR else "rank1"
    _check_wish(wish, method, size, count, memory)
    sums = "float64 sums" if items.item.floating else "exact sums"
    say(f"{method}: {count} tensors {items.item}, {sums}")
    choice = {"energy": wish.energy, "center": wish.center, "tolerance": wish.tolerance}
    truncation = wish.truncation or "indices"
    if items.item.floating:
        return solve_floats(frames, method, wish.components, **choice, truncation=truncation)  # type: ignore[arg-type]
    if method == "subspace" or (method == "operator" and count < size):
        return solve_frames(frames, method if method == "subspace" else "operator", wish.components, **choice)  # type: ignore[arg-type]
    operator = new_operator(method, frames.frame_shape, frames.dtype)
    frames.add_to(operator, progress)
    if not isinstance(operator, ModeOperators):
        return solve_given(operator, wish.components, **choice, consume=True)  # type: ignore[arg-type]
    complete = solve_modes(operator, center=wish.center)
    if truncation == "svd":
        return singular_rank1(complete, solve_frames(frames, "operator", wish.components, **choice))  # type: ignore[arg-type]
    return measured_rank1(complete, frames, wish.components, energy=wish.energy)


def _check_wish(wish: FitOptions, method: str, size: int, count: int, memory: int) -> None:
    if wish.operator_only or wish.keep_operator:
        raise UsageError("tensors are fitted in one run: leave out --operator-only and --keep-operator")
    if wish.truncation == "products":
        raise UsageError("--truncation products is for images: use indices or svd")
    side = {"subspace": count, "operator": min(size, count)}.get(method, 0)
    if wish.truncation == "svd":
        side = min(size, count)
    kept = min(wish.components or min(size, count), size, count) * size
    need = 8 * (3 * side * side + (3 * kept if method != "rank1" or wish.truncation == "svd" else 2 * size))
    if need > memory:
        raise UsageError(
            f"{method} takes {need} bytes for {count} tensors of {size} samples, --memory allows {memory}: "
            "raise it, keep fewer --components, or use --method rank1"
        )


def fit_operator(
    path: Path, output: Path, wish: FitOptions, *, memory: int, max_values: int, force: bool, say: Say
) -> FittedItems:
    """Algorithm 1 for a given self-adjoint operator with 2d modes, from a `.npy` file."""
    if wish.method not in ("auto", "operator") or wish.center or wish.operator_only or wish.keep_operator:
        raise UsageError("--operator is the input of Algorithm 1: it goes with --method operator alone")
    if wish.truncation is not None:
        raise UsageError("--truncation belongs to --method rank1, not to --operator")
    store.check_output(output, force)
    name = printable(path)
    try:
        given = _read_operator(path, max_values)
        if 4 * 8 * given.size > memory:
            raise UsageError(f"{name} has {given.size} entries; raise --memory to {32 * given.size} bytes")
        matrix, shape = self_adjoint(given)
        item = Item(shape, "f8")
        if item.problem() is not None:
            raise TpcaError(f"an operator on {item.problem()}")
        say(f"operator: given, {len(matrix)} x {len(matrix)}")
        with fixed_threads():
            precision = np.finfo(given.dtype if given.dtype.kind == "f" else np.float64).eps
            check_energies(matrix, float(precision))
    except TpcaError as error:
        if isinstance(error, UsageError):
            raise
        raise TpcaError(f"{name}: {error}") from None
    with fixed_threads():
        basis = solve_matrix(matrix, shape, wish.components, energy=wish.energy, tolerance=wish.tolerance)
    origin = Origin(
        method="operator",
        framing=Framing("whole", *item.picture),
        dtype="f8",
        frames=1,
        digests=np.frombuffer(file_digest(os.fsencode(path), 8), np.uint8).reshape(1, 8),
        choice=wish.choice,
        item=item,
    )
    facts = basisfile.write(output, origin, basis, None, force=force)
    return FittedItems(facts, item, ())


def _read_operator(path: Path, max_values: int) -> NDArray[Any]:
    """The array of a `.npy` file, mapped; the limits of an item are for half of its modes, not for all."""
    if not path.is_file():
        raise TpcaError("no such file" if not path.exists() else "not a regular file")
    try:
        with np.errstate(over="ignore"):  # of sides that no file can have, which are then refused
            given = open_memmap(path, "r", max_header_size=MAX_HEADER)
    except OSError as error:
        raise TpcaError(f"cannot be read: {error.strerror or error}") from None
    except BROKEN as error:
        raise TpcaError(f"damaged, or not a .npy file: {' '.join(str(error).split())[:200]}") from None
    if path.stat().st_size != given.offset + given.nbytes:
        raise TpcaError(
            f"{path.stat().st_size - given.offset} bytes of entries, its header says {given.nbytes}"
        )
    if given.dtype.kind not in "iuf" or given.dtype.itemsize not in OPERATOR_BYTES[given.dtype.kind]:
        raise TpcaError(f"entries of type {given.dtype}; use float32, float64 or integers")
    if not 0 < given.size <= max_values:
        raise TpcaError(f"an operator of {given.size} entries, the limit is {max_values}; raise --max-pixels")
    return given
