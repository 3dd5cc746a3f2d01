"""Reading an archive: a sequence of images that reads one block at a time and can be pickled.

    archive = Archive("photos.h5")
    len(archive), archive.names[0], archive[0]      # (h, w, c) uint8 or uint16
    archive["holiday/beach.jpg"]                    # the same by name
    archive.read_many([5, 3, 8])                    # see `batches`

A worker process gets its own file handle: what is pickled is the path and the options. Nearby images share
a block, so a small cache of decoded blocks serves sequential and block-wise shuffled reading.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from tpca_cli import store
from tpca_cli.archive import batches, limits
from tpca_cli.archive.facts import archive_facts
from tpca_cli.archive.format import DIGEST_BYTES, EXACT_METHODS, FILE_METHODS, PEAK, SCHEMAS
from tpca_cli.archive.index import Index
from tpca_cli.archive.items import about_item, group_item
from tpca_cli.archive.limits import COMPONENTS, MAX_PIXELS, Limits
from tpca_cli.archive.writer import Contents, Group, linked_basis
from tpca_cli.errors import FileRefused, UsageError, printable
from tpca_cli.interfaces import Pixels
from tpca_cli.parallel import ordered_map
from tpca_cli.store.columns import split_arrays
from tpca_cli.tensors import Grid, Item

if TYPE_CHECKING:
    from tpca_cli.codec.coder import Coder

FIRST_GROUPS = 4  # that are prepared in advance; few archives have more


class Archive(batches.Named):
    """The images of an archive file, by position or name; `names` has their names in the same order."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        basis: str | os.PathLike[str] | npt.NDArray[np.uint8] | None = None,
        mode: str | None = None,
        cache_blocks: int = 8,
        workers: int = 1,
        skim: bool = False,
        ready: bool = True,
        cut: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """With `mode` (L, LA, RGB or RGBA), every image is converted to it; without, each keeps its own.

        An image that has several blocks is decoded by so many `workers`, threads of this process.
        With `ready`, what the first image needs is prepared now: it then takes no longer than others.
        With `cut`, the file may end early: blocks that are not in it any more count as damaged.
        An archive with an image of more than `max_pixels`, or that takes memory as if, is refused.
        """
        if mode not in (None, "L", "LA", "RGB", "RGBA"):
            raise UsageError(f"mode {mode!r} is not one of L, LA, RGB and RGBA")
        if cache_blocks < 0:
            raise UsageError(f"cache_blocks is {cache_blocks}: at least 0 of them can be kept")
        self.path = store.location(path)
        self.mode = mode
        self.cache_blocks = cache_blocks
        self.workers = workers
        self._basis = linked_basis(basis) if isinstance(basis, str | os.PathLike) else basis
        self._skim = skim  # for a page about the archive: no basis is read, and no image can be
        self._ready = ready and not skim
        self._cut = cut
        self._limits = Limits(max_pixels)
        self._open()
        # for other processes, which may be in another folder
        self._place = self.path.absolute() if isinstance(self.path, Path) else self.path

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[int, int | None], list[Pixels]] = OrderedDict()
        self._files: tuple[int, list[bytes]] = (-1, [])  # of the last block that was read
        self._context = store.open_checked(self.path, *SCHEMAS.values(), skim=self._skim, cut=self._cut)
        self._file = self._context.__enter__()
        try:
            self._load()
            if self._ready:
                self._make_ready()
        except BaseException as error:
            self.close()
            where = printable(self.path)
            if isinstance(error, FileRefused) and where not in str(error):
                raise FileRefused(f"{where}: {error}") from None
            raise

    def _load(self) -> None:
        file, self.meta = self._file, self._file.meta
        # what can be said before the index or a basis is read
        limits.check_description(self.meta)
        stored = sum(file.stored.values())
        parts = [name for name in file.stored if name.startswith("groups/")]
        records = file.shapes["images"][1] + file.shapes["blocks"][1]
        tables = sum(file.shapes[name][0] for name in parts)
        self._limits.check_sums(records, stored, tables, sum(file.stored[name] for name in parts))
        groups, self.target = self.meta["groups"], self.meta["target"]
        self.version = int(file.version)
        names = ("names", "folded", "images", "blocks", "extras", "metadata", "reasons", "skipped")
        try:
            arrays = {name: file.array(name) for name in names if name in file.shapes}
            index = Index.from_arrays(arrays, self.version)
        except (ValueError, TypeError) as error:
            raise FileRefused(f"{printable(self.path)}: the index is not readable: {error}") from None
        index.check(file.shapes["payload"][0], groups)
        self.index = index.with_peaks(groups)
        if not self._skim:
            self._limits.check(self.index, groups, stored)
        self.groups: list[Group] = []
        bases: dict[str, npt.NDArray[np.uint8]] = {}  # groups that share a basis hold it once
        for number, meta in enumerate(groups):
            name = f"groups/{number}/basis"
            basis = file.array(name) if name in file.shapes and not self._skim else None
            if basis is not None:
                bases.setdefault(str(meta["basis_digest"]), basis)
            elif self.version > 1:
                basis = bases.get(str(meta["basis_digest"]))
            self.groups.append(Group(meta, basis, file.array(f"groups/{number}/tables")))
        self.holds_tensors = any("item" in group for group in groups)
        self._coders: dict[int, Coder] = {}
        self.alive = self.index.alive
        self.names_bytes = tuple(self.index.names[image] for image in self.alive)

    def prepare(self) -> None:
        """Compile what its groups need: processes that are forked later inherit it."""
        exact_groups = [group for number, group in enumerate(self.groups) if self.is_exact(number)]
        if exact_groups:
            from tpca_cli.archive import exact  # late: few archives have such groups

            for group in exact_groups:
                exact.coder(group).prepare()
        if len(exact_groups) < len(self.groups):
            from tpca_cli.codec.kernel_job import prepare

            prepare()

    def _make_ready(self) -> None:
        import tpca_cli.images  # noqa: F401

        self.prepare()
        for number, group in enumerate(self.groups[:FIRST_GROUPS]):
            if group.basis is not None:
                _ = self.coder(number).model  # made on first use

    @overload
    def __getitem__(self, item: int | str | bytes) -> Pixels: ...
    @overload
    def __getitem__(self, item: slice) -> list[Pixels]: ...
    def __getitem__(self, item: int | str | bytes | slice) -> Pixels | list[Pixels]:
        if isinstance(item, slice):
            return [self.tensor(position) for position in range(*item.indices(len(self)))]
        return self.tensor(self.place_of(item))

    def read_many(self, positions: Iterable[int], *, workers: int | None = None) -> list[npt.NDArray[Any]]:
        """What `[i]` gives for each of these, in their order; a block that holds several is decoded once."""
        return list(batches.in_advance(self, positions, workers or self.workers, float("inf")))

    def prefetch(
        self, positions: Iterable[int] | None = None, *, workers: int = 2, memory: int = 1 << 26
    ) -> Iterator[npt.NDArray[Any]]:
        """What `[i]` gives for each of these, or of all, decoded ahead by threads.

        About `memory` bytes of images are looked at together: each of their blocks is decoded once.
        """
        return batches.in_advance(self, positions, workers, memory)

    def read(self, position: int, *, components: int | None = None, threads: int = 0) -> Pixels:
        """One image, `(h, w, c)`; fewer `components` give a blurrier one; `threads` if not `workers`."""
        if components is not None:
            batches.component_count(components)
        image = int(self.alive[position])
        blocks = self.index.blocks_of(image)

        def part(block: int) -> Pixels:
            place = image - int(self.index.blocks["first"][block])
            if self.holds_files(block):  # others in it may be no pictures
                return self.pictures(block, [place])[0]
            return np.array(self.block(block, components=components)[place])  # who asks may change it

        threads = (threads or self.workers) if len(blocks) > 1 else 1
        return self.picture(position, list(ordered_map(part, blocks, threads)))

    def picture(self, position: int, parts: Sequence[Pixels]) -> Pixels:
        """An image from the pictures that its blocks hold of it."""
        # late: opening an archive must not wait for image decoders
        from tpca_cli.images import converted, narrow

        pixels = parts[0] if len(parts) == 1 else np.concatenate(parts)
        pixels = np.ascontiguousarray(narrow(pixels, self.index.mode(int(self.alive[position]))))
        if self.mode is None:
            return pixels
        if self.holds_tensors and self.item(position) is not None:
            raise UsageError(f"{printable(self.names_bytes[position])} is a tensor: open without a mode")
        if pixels.dtype != np.uint8:
            name = printable(self.names_bytes[position])
            raise UsageError(f"{name} has 16 bits per sample, mode {self.mode} 8: open without a mode")
        return np.ascontiguousarray(converted(pixels, self.mode))

    def tensor(self, position: int, *, components: int | None = None) -> npt.NDArray[Any]:
        """One tensor of an archive of such, in its own shape and type; of an image, its pixels."""
        return self.samples(position, self.read(position, components=components))

    def samples(self, position: int, picture: Pixels) -> npt.NDArray[Any]:
        """The tensor that is stored as this picture; of an image, the picture."""
        found = self.item(position) if self.holds_tensors else None
        return picture if found is None else found[1].samples(picture, found[0])

    def item(self, position: int) -> tuple[Item, Grid] | None:
        """The kind of a tensor and the grid of its samples; None for an image."""
        return group_item(self.groups[self._group(position)].meta)

    def _group(self, position: int) -> int:
        return int(self.index.group_of[self.alive[position]])

    def about_tensor(self, position: int) -> dict[str, Any]:
        """Shape, type and form of a tensor."""
        found = self.item(position)
        if found is None:
            raise UsageError(f"{printable(self.names_bytes[position])} is an image")
        return about_item(self.metadata(position).get("item", b""), found[0])

    def coefficients(self, position: int) -> npt.NDArray[np.float64]:
        """What is stored of an image, (frames, M): in the basis of integers, lapped if its tiles are."""
        return batches.coefficients(self, position)

    def shuffled(self, seed: int = 0) -> Iterator[int]:
        """Every position once: blocks in random order, and so are the images inside each block."""
        return batches.shuffled(self, seed)

    def block(self, block: int, *, components: int | None = None) -> list[Pixels]:
        """The decoded pictures of a block, replaced ones too, as the cache keeps them: only to look at."""
        key = (block, components)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        pictures = self.decode_block(block, components=components)
        with self._lock:
            self._cache[key] = pictures
            while len(self._cache) > self.cache_blocks:
                self._cache.popitem(last=False)
        return pictures

    def pictures(self, block: int, wanted: Sequence[int]) -> list[Pixels]:
        """Some pictures of a block, by their places in it; they are not kept for the next reader."""
        with self._lock:
            kept = self._cache.get((block, None))
        return [kept[place].copy() for place in wanted] if kept else self.decode_block(block, wanted=wanted)

    def decode_block(
        self, block: int, *, components: int | None = None, wanted: Sequence[int] | None = None
    ) -> list[Pixels]:
        """The images of a block, or some of them, or the one band in it.

        With `components`, they are made from the first that many only.
        """
        group, shapes = int(self.index.blocks["group"][block]), self.index.block_shapes(block)
        if self.is_exact(group):
            from tpca_cli.archive import exact  # late: few archives have such groups

            return exact.block_pictures(self, block, wanted, self._limits.max_pixels)
        return self.coder(group).decode(self.block_bytes(block), shapes, components, wanted)

    def is_exact(self, group: int) -> bool:
        """Whether the images of a group come back exactly, or within a stated error: it has no basis."""
        return self.groups[group].meta["method"] in EXACT_METHODS

    def file(self, position: int) -> bytes | None:
        """The source file of an image, bit for bit, if the archive holds it; None if it holds its pixels."""
        if not self.holds_file(position):
            return None
        image = int(self.alive[position])
        block = self.index.blocks_of(image)[0]
        return self.block_files(block)[image - int(self.index.blocks["first"][block])]

    def holds_file(self, position: int) -> bool:
        """Whether the source file of an image can be had bit for bit."""
        return self.groups[self._group(position)].meta["method"] in FILE_METHODS

    def came_exactly(self, position: int) -> bool:
        """Whether an image was archived exactly, or within a stated error."""
        return self.is_exact(self._group(position))

    def holds_files(self, block: int) -> bool:
        """Whether a block is one of whole files."""
        return self.groups[int(self.index.blocks["group"][block])].meta["method"] in FILE_METHODS

    def block_files(self, block: int) -> list[bytes]:
        """The files of a block, each held to the digest of its source unless it was replaced."""
        from tpca_cli.archive import exact  # late: few archives have such groups

        with self._lock:
            if self._files[0] == block:
                return self._files[1]
        group = self.groups[int(self.index.blocks["group"][block])]
        found = exact.checked_files(group, self.index, block, self.block_bytes(block), self._limits.scale)
        with self._lock:
            self._files = block, found
        return found

    def block_bytes(self, block: int) -> bytes:
        """The coded bytes of a block, checked against its digest."""
        start, stop = (int(self.index.offsets[block + k]) for k in (0, 1))
        data = self.payload(start, stop)
        if store.digest_of(data) != self.index.blocks["digest"][block].tobytes():
            raise FileRefused(
                f"{printable(self.path)}: block {block} is damaged; `tpca verify` lists the images it holds, "
                "`tpca decode --salvage` restores all others"
            )
        return data

    def payload(self, start: int, stop: int) -> bytes:
        """A stretch of the payload as it is on the disk: whoever uses it holds it to the blocks' digests."""
        return self._file.raw_rows("payload", start, stop).tobytes()

    def coder(self, group: int) -> Coder:
        """The decoder of a group, made on first use."""
        from tpca_cli.codec.basis_coding import coder_from_arrays  # late: a page about an archive needs none

        found = self._coders.get(group)
        if self.is_exact(group):
            raise UsageError(f"{printable(self.path)}: its images are kept exactly, there is no basis")
        if found is None:
            item = self.groups[group]
            basis = item.basis
            if basis is None:
                basis = self._linked_basis(item.meta["basis_digest"])
            arrays = {**split_arrays(basis), **split_arrays(item.tables)}
            found = coder_from_arrays(item.meta["coder"], arrays)
            self._keep_coder(group, found)
        return found

    def _keep_coder(self, group: int, coder: Coder) -> None:
        """For the next block; older ones go while all together have more components than one may have."""
        with self._lock:
            self._coders[group] = coder
            total = sum(each.components for each in self._coders.values())
            while total > COMPONENTS and len(self._coders) > 1:
                total -= self._coders.pop(next(iter(self._coders))).components

    def _linked_basis(self, wanted: str) -> npt.NDArray[np.uint8]:
        if self._basis is None:
            raise FileRefused(
                f"{printable(self.path)}: its basis {wanted} is in another file: name it with --basis"
            )
        given = store.digest_of(self._basis.tobytes()).hex()
        if given != wanted:
            raise FileRefused(
                f"{printable(self.path)} was made with basis {wanted}, and --basis holds {given}"
            )
        return self._basis

    def info(self) -> dict[str, Any]:
        """What there is to know without decoding: counts, bytes by part, measured quality."""
        return archive_facts(Contents.of(self._file, self.index, [group.meta for group in self.groups]))

    def metadata(self, position: int) -> dict[str, bytes]:
        """What is kept of an image besides its pixels: `exif`, `icc`, and what docs/FORMAT.md lists."""
        image = int(self.alive[position])
        known = {kind: self.index.extra(image, kind) for kind in ("exif", "icc")}
        return {kind: blob for kind, blob in known.items() if blob} | self.index.metadata_of(image)

    @property
    def group_peaks(self) -> list[int]:
        """The range of the samples of each group."""
        return [int(group.meta.get("peak", PEAK[group.meta["dtype"]])) for group in self.groups]

    @property
    def digest_bytes(self) -> int:
        """How many bytes the digests of the source files have."""
        return DIGEST_BYTES[self.version]

    @property
    def digest(self) -> str:
        """The digest over everything in the file but the payload."""
        return str(self._file.digest)

    @property
    def file_bytes(self) -> int:
        """The size of the file."""
        return self._file.size

    @property
    def cut_off(self) -> bool:
        """Whether the file ends before its end; only an archive that was opened with `cut` can."""
        return self._file.cut_off

    @property
    def identity(self) -> store.Identity:
        """The file that is open, to notice before replacing it that another has taken its place."""
        return self._file.identity

    def close(self) -> None:
        """Close the file; nothing can be read afterwards."""
        with self._lock:
            self._cache.clear()
            self._files = -1, []
        self._context.__exit__(None, None, None)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        kept = ("path", "mode", "cache_blocks", "workers", "_basis", "_skim", "_ready", "_cut", "_limits")
        return {name: self.__dict__[name] for name in kept} | {"path": self._place, "_place": self._place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()
