"""`--plain` of tensors of any order: a scores file, which more can be added to.

Finished products are kept in the checkpoint, by the digests of their files: a later run takes them over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from tpca_cli import store
from tpca_cli.archive.index import Entry, Index
from tpca_cli.archive.limits import usual_or_more
from tpca_cli.checkpoint import Checkpoint, check_partial, remove_partial, removed_unless_interrupted
from tpca_cli.encode.changes import differing
from tpca_cli.encode.plain import Plain, PlainRequest, Rows, basis_of, given_basis, write
from tpca_cli.errors import TpcaError, UsageError, printable
from tpca_cli.frames.items import ItemFrames, check_items
from tpca_cli.interfaces import Progress
from tpca_cli.names import check_names
from tpca_cli.parallel import alone, ordered_map
from tpca_cli.scores.format import DTYPES, VERSION
from tpca_cli.scores.project import PRODUCT_VALUES, Projector
from tpca_cli.scores.reader import Scores
from tpca_cli.scores.writer import ScoresBasis
from tpca_cli.sources.items import ItemRef, Items, find_items
from tpca_cli.sources.read_plan import Reading
from tpca_cli.tensors import Item

SINGLE = 1e-30, 1e38
"""Between which the largest coefficients have to lie to be kept in float32, with their smaller neighbors."""


def encode_plain_items(
    request: PlainRequest, progress: Progress | None = None, products: Products | None = None
) -> Plain:
    """Project tensors into `request.output`, by this machine or who else `products` asks.

    The caller holds the lock.
    """
    check_partial(request.output)
    if request.append and request.output.exists():
        limit = usual_or_more(request.reading.max_pixels)
        with Scores(request.output, basis=request.basis, max_pixels=limit) as old:
            return _append(request, old, progress, products)
    store.check_output(request.output, request.force)
    of = given_basis(request, tensors=True)
    dtype = DTYPES[request.dtype]
    found, entries = _items(request, of.item, dtype, progress)
    with removed_unless_interrupted(request.output):
        rows = _projected(request, of, found, entries, dtype, progress, products)
        facts = write(request, Index.build(list(entries.values()), []), rows, of, found.skipped, dtype)
    return Plain(len(entries), 0, 0, found.skipped, facts)


def _append(
    request: PlainRequest, old: Scores, progress: Progress | None, products: Products | None
) -> Plain:
    """Rows for what is new in the sources, behind those that are there."""
    of, dtype = basis_of(old, request), old.dtype.str
    found, entries = _items(request, old.item, dtype, progress)
    digests = old.index.images["digest"]
    known = {name: digests[image].tobytes() for image, name in enumerate(old.names_bytes)}
    new = [ref for ref in found.refs if known.get(ref.name) != entries[ref.name].digest]
    changed = [ref for ref in new if ref.name in known]
    unchanged = len(found.refs) - len(new)
    if changed and request.on_change == "fail":
        raise differing([ref.path for ref in changed])
    if request.on_change == "keep":
        new, changed = [ref for ref in new if ref.name not in known], []
    if not new:
        remove_partial(request.output)
        return Plain(0, 0, unchanged, found.skipped, old.info())
    gone = {ref.name for ref in changed}
    stay = [image for image, name in enumerate(old.names_bytes) if name not in gone]
    index = old.index.of_images(stay, []).joined(Index.build([entries[ref.name] for ref in new], []))
    check_names(index.names)
    chosen = replace(found, refs=tuple(new))
    rows = chain(old.rows_of(stay), _projected(request, of, chosen, entries, dtype, progress, products))
    with removed_unless_interrupted(request.output):
        facts = write(request, index, rows, of, found.skipped, dtype, old.identity)
    return Plain(len(new) - len(changed), len(changed), unchanged, found.skipped, facts)


def _items(
    request: PlainRequest, item: Item | None, dtype: str, progress: Progress | None
) -> tuple[Items, dict[bytes, Entry]]:
    """The tensors of the sources that can be read, and what a file says of each."""
    if item is None:
        raise UsageError(f"{printable(request.output)} holds scores of images: write another file")
    limit, on_error = request.reading.max_pixels, request.reading.on_error
    checked = check_items(find_items(request.sources, limit, item, on_error), limit, on_error, progress)
    found = checked.items
    # no coefficient is larger than the length of a tensor, |d_l| <= |X|
    largest = max(-checked.smallest, checked.largest) * item.size**0.5
    if dtype == DTYPES["float32"] and largest and not SINGLE[0] < largest < SINGLE[1]:
        raise TpcaError(
            f"{printable(found.refs[0].path)} and others have coefficients up to {largest:.2g}, and float32 "
            f"holds those between {SINGLE[0]:g} and {SINGLE[1]:g}: give --dtype float64"
            + (", with another output" if request.append else "")
        )
    return found, {ref.name: _entry(ref, item) for ref in found.refs}


def _entry(ref: ItemRef, item: Item) -> Entry:
    size, mtime_ns = ref.stat()
    return Entry(ref.name, ref.digest(), mtime_ns, size, *item.picture[:2], item.mode, 0)


@dataclass(frozen=True)
class ItemsPlan:
    """What every product of tensors needs; to a worker of a cluster it travels once."""

    projector: Projector
    item: Item
    max_values: int


Keep = Callable[[int, bytes], None]
"""Puts the rows of a product, by its number, where a later run finds them; no rows are not put."""

Products = Callable[[ItemsPlan, Iterable[Sequence[ItemRef]], Keep], Iterator[bytes]]
"""The rows of some tensors after the other, in order; each is kept as soon as it is there."""


def project_items(refs: Sequence[ItemRef], plan: ItemsPlan) -> bytes:
    """The rows of some tensors, in one product."""
    if not refs:
        return b""
    frames = ItemFrames(Items(tuple(refs), plan.item, ()), plan.max_values).blocks(len(refs))
    return plan.projector.coefficients([np.asarray(block) for block in frames]).tobytes()


def _products(
    reading: Reading, plan: ItemsPlan, parts: Iterable[Sequence[ItemRef]], keep: Keep
) -> Iterator[bytes]:
    """Rows by threads of this machine, as many as there is memory for."""
    each = plan.item.size * (8 + int(plan.item.dtype[1]))
    room = reading.room

    def work(numbered: tuple[int, Sequence[ItemRef]]) -> bytes:
        data = project_items(numbered[1], plan)
        keep(numbered[0], data)  # here: what waits for an earlier product is not lost when that one fails
        return data

    with alone():
        yield from ordered_map(
            work, enumerate(parts), room.workers, weight=lambda one: each * len(one[1]), budget=room.size
        )


def _projected(
    request: PlainRequest,
    of: ScoresBasis,
    found: Items,
    entries: dict[bytes, Entry],
    dtype: str,
    progress: Progress | None,
    products: Products | None,
) -> Iterator[Rows]:
    """The rows of tensors, in products of a fixed size; those of an earlier run as they were."""
    basis = {"digest": of.digest, "components": of.basis.components}
    files = [[ref.name.hex(), entries[ref.name].digest.hex()] for ref in found.refs]
    plan = ItemsPlan(Projector(of.basis, found.item.dtype, dtype), found.item, request.reading.max_pixels)
    slices = plan.projector.slices
    checkpoint = Checkpoint(
        request.output,
        {"scores": VERSION, "basis": basis, "dtype": dtype, "slices": slices, "tensors": files},
    )
    size = max(1, PRODUCT_VALUES // found.item.size)
    waiting: deque[bytes | None] = deque()  # of an earlier run, or none

    def parts() -> Iterator[Sequence[ItemRef]]:
        for number, start in enumerate(range(0, len(found.refs), size)):
            kept = checkpoint.get(number)
            waiting.append(None if kept is None else kept[1])
            yield found.refs[start : start + size] if kept is None else ()

    def keep(number: int, data: bytes) -> None:
        if data:
            checkpoint.put(number, {}, data)

    done = 0
    for made in (products or partial(_products, request.reading))(plan, parts(), keep):
        rows = np.frombuffer(waiting.popleft() or made, dtype).reshape(-1, of.basis.components)
        done += len(rows)
        if progress is not None:
            progress("projecting", done, len(found.refs))
        yield rows
