"""Decides where the frames of a list of images live, and puts them there.

In memory when they fit, otherwise in a private file beside the output, or, where the disk has no room for it,
nowhere: then every pass decodes again. With `cache` they go to a file that the next run finds.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tpca_cli import store
from tpca_cli.errors import FileRefused, StorageError, TpcaError, printable
from tpca_cli.framing import Framing
from tpca_cli.images import MAX_PIXELS, Header
from tpca_cli.scan import ImageRef, Skipped
from tpca_cli.tensors.choice import choose_framing, misfit, one_dtype
from tpca_cli.tensors.frames import ArrayFrames, Block, Frames, regroup
from tpca_cli.tensors.intake import Batch, Recipe, Refusal, Taken, framed, probe_all, read_batches, with_path
from tpca_cli.tensors.tensorfile import TENSOR_SCHEMA, Index, TensorFile, TensorWriter, packed

Progress = Callable[[str, int, int], None]
AnyPath = str | bytes | os.PathLike[str]


class _Closes(Protocol):
    def close(self) -> None: ...


@dataclass
class Staged:
    """The frames of the images that could be read, and what is known of each; close it when done.

    `place` is "memory", "file" (private), "cache" or "source" (decoded again in every pass).
    """

    frames: Frames
    framing: Framing
    refs: tuple[ImageRef, ...]
    headers: tuple[Header, ...]
    digests: NDArray[np.uint8]
    skipped: tuple[Skipped, ...]
    warnings: tuple[Skipped, ...]
    place: str
    reused: bool = False
    _owned: _Closes | None = field(default=None, repr=False)

    def close(self) -> None:
        """Let go of the staging file; a private one is gone with this."""
        if self._owned is not None:
            owned, self._owned = self._owned, None
            owned.close()

    def __enter__(self) -> Staged:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def stage(
    refs: Sequence[ImageRef],
    framing: Framing | None = None,
    *,
    memory: int,
    size: tuple[int, int] | None = None,
    tile: int | None = None,
    dtype: str | None = None,
    cache: AnyPath | None = None,
    beside: AnyPath | None = None,
    workers: int = 1,
    max_pixels: int = MAX_PIXELS,
    on_error: str = "skip",
    progress: Progress | None = None,
) -> Staged:
    """Read every image of the list once and give back frames to compute with.

    `framing` (of a basis, with its `dtype`) decides what fits, and other images are skipped. Without it,
    `size` (height, width) resizes all images to one frame, `tile` cuts them; with neither, images of one size
    are one frame each, and mixed sizes are cut into tiles. `memory` is the largest tensor, in bytes, to keep
    in memory. `on_error` is "skip" or "fail". The order is that of the list, whatever the workers do.
    """
    request = {
        "framing": None if framing is None else framing.to_dict(),
        "size": size,
        "tile": tile,
        "dtype": dtype,
        "max_pixels": max_pixels,
    }
    key = _key(refs, request)
    if cache is not None and os.path.lexists(cache):
        found = _reuse(refs, cache, key, on_error)
        if found is not None:
            return found
    run = _Run(refs, on_error, progress, workers)
    chosen, recipe = run.plan(framing, size, tile, dtype, max_pixels)
    after = [framed(header, size) for _, header in chosen]
    frames = sum(recipe.framing.count(header.height, header.width) for header in after)
    need = frames * int(np.prod(recipe.framing.frame_shape)) * np.dtype(recipe.dtype).itemsize
    batches = run.batches(chosen, recipe)
    if cache is not None:
        _check_room(cache, need)
        return run.to_file(batches, recipe, key, cache, "cache")
    if need <= memory:
        return run.to_memory(batches, recipe, frames)
    folder, name = os.path.split(os.fsencode(beside if beside is not None else b"tpca"))
    if need > _room(folder):
        return run.to_source(batches, recipe)
    private = os.path.join(folder, b".%s.%s.tmp" % (name[:200], secrets.token_hex(4).encode()))
    return run.to_file(batches, recipe, key, private, "file")


class _Run:
    """One staging: what was skipped and read so far."""

    def __init__(
        self, refs: Sequence[ImageRef], on_error: str, progress: Progress | None, workers: int
    ) -> None:
        if on_error not in ("skip", "fail"):
            raise ValueError(f"on_error is {on_error!r}, not skip or fail")
        self.refs = refs
        self.fail = on_error == "fail"
        self.progress = progress
        self.workers = workers
        self.refused: list[Refusal] = []
        self.taken: list[Taken] = []

    def plan(
        self,
        framing: Framing | None,
        size: tuple[int, int] | None,
        tile: int | None,
        dtype: str | None,
        max_pixels: int,
    ) -> tuple[list[tuple[int, Header]], Recipe]:
        """Look at every header, choose the framing, drop what cannot be framed."""
        headers: list[tuple[int, Header]] = []
        for index, found in enumerate(probe_all(self.refs, max_pixels, self.workers)):
            if isinstance(found, Refusal):
                self._refuse(found)
            else:
                headers.append((index, found))
        self._need_some(headers)
        if dtype is None:
            dtype = one_dtype(header for _, header in headers)
        if framing is None:
            framing = choose_framing([framed(header, size) for _, header in headers], size, tile)
        recipe = Recipe(framing, dtype, size, max_pixels)
        chosen = []
        for index, header in headers:
            problem = misfit(framed(header, size), framing, dtype)
            if problem is None:
                chosen.append((index, header))
            else:
                self._refuse(Refusal(index, problem))
        self._need_some(chosen)
        return chosen, recipe

    def batches(self, chosen: Sequence[tuple[int, Header]], recipe: Recipe) -> Iterator[Batch]:
        """Read the chosen images, noting what was skipped."""
        done = 0
        for batch in read_batches(self.refs, chosen, recipe, self.workers):
            for refusal in batch.refused:
                self._refuse(refusal)
            self.taken += batch.taken
            yield batch
            done += len(batch.taken) + len(batch.refused)
            if self.progress is not None:
                self.progress("read images", done, len(chosen))

    def to_memory(self, batches: Iterator[Batch], recipe: Recipe, frames: int) -> Staged:
        array = np.empty((frames, *recipe.framing.frame_shape), recipe.dtype)
        have = 0
        for batch in batches:
            array[have : have + len(batch.frames)] = batch.frames
            have += len(batch.frames)
        return self._staged(ArrayFrames(array[:have]), recipe.framing, "memory")

    def to_source(self, batches: Iterator[Batch], recipe: Recipe) -> Staged:
        """Decode once to learn what can be read; the frames come from a second decoding."""
        count = sum(len(batch.frames) for batch in batches)
        chosen = [(taken.index, taken.header) for taken in self.taken]
        again = _SourceFrames(self.refs, chosen, recipe, self.workers, count)
        return self._staged(again, recipe.framing, "source")

    def to_file(
        self, batches: Iterator[Batch], recipe: Recipe, key: str, path: AnyPath, place: str
    ) -> Staged:
        try:
            with store.create(path, TENSOR_SCHEMA, force=True) as writer:
                tensor = TensorWriter(writer, recipe.framing, recipe.dtype)
                for batch in batches:
                    tensor.add(batch)
                self._need_some(self.taken)
                tensor.finish(self._index(), key)
            file = TensorFile(path)
        finally:
            if place == "file" and os.path.lexists(path):
                os.unlink(path)  # the open descriptor keeps the content; nothing is left behind by a crash
        return self._staged(file, recipe.framing, place, file)

    def _staged(self, frames: Frames, framing: Framing, place: str, owned: _Closes | None = None) -> Staged:
        self._need_some(self.taken)
        return _describe(self.refs, self._index(), frames, framing, place, owned)

    def _index(self) -> Index:
        skipped = sorted((refusal.index, str(refusal.error)) for refusal in self.refused)
        warnings = [(taken.index, text) for taken in self.taken for text in taken.warnings]
        return Index(
            tuple(taken.index for taken in self.taken),
            tuple(taken.header for taken in self.taken),
            packed([taken.digest for taken in self.taken]),
            tuple(skipped),
            tuple(warnings),
        )

    def _refuse(self, refusal: Refusal) -> None:
        if self.fail:
            raise with_path(self.refs[refusal.index], refusal.error)
        self.refused.append(refusal)

    def _need_some(self, found: Sequence[Any]) -> None:
        if found:
            return
        if not self.refused:
            raise TpcaError("there are no images to read")
        first = min(self.refused, key=lambda refusal: refusal.index)
        path = printable(self.refs[first.index].path)
        raise TpcaError(f"none of {len(self.refs)} images can be used; the first is {path}: {first.error}")


class _SourceFrames:
    """Frames that are decoded from the files again in every pass."""

    def __init__(
        self,
        refs: Sequence[ImageRef],
        chosen: Sequence[tuple[int, Header]],
        recipe: Recipe,
        workers: int,
        count: int,
    ) -> None:
        self._refs = refs
        self._chosen = chosen
        self._recipe = recipe
        self._workers = workers
        self.count = count
        self.frame_shape: tuple[int, ...] = recipe.framing.frame_shape
        self.dtype: np.dtype[Any] = np.dtype(recipe.dtype)

    def blocks(self, rows: int) -> Iterator[Block]:
        return regroup(self._decoded(), rows)

    def _decoded(self) -> Iterator[Block]:
        for batch in read_batches(self._refs, self._chosen, self._recipe, self._workers):
            for refusal in batch.refused:  # it could be read before: the result would not be of one folder
                raise with_path(self._refs[refusal.index], refusal.error)
            yield batch.frames


def _describe(
    refs: Sequence[ImageRef],
    index: Index,
    frames: Frames,
    framing: Framing,
    place: str,
    owned: _Closes | None,
) -> Staged:
    return Staged(
        frames=frames,
        framing=framing,
        refs=tuple(refs[i] for i in index.kept),
        headers=index.headers,
        digests=index.digests,
        skipped=tuple(Skipped(refs[i].path, reason) for i, reason in index.skipped),
        warnings=tuple(Skipped(refs[i].path, text) for i, text in index.warnings),
        place=place,
        _owned=owned,
    )


def _reuse(refs: Sequence[ImageRef], cache: AnyPath, key: str, on_error: str) -> Staged | None:
    """The cache, if it was made from this very list in this very way; None if it may be replaced."""
    try:
        file = TensorFile(cache)
    except FileRefused as error:
        raise FileRefused(f"{error} (given as cache)") from error
    if file.key != key or (on_error == "fail" and file.index.skipped):
        file.close()
        return None
    try:
        staged = _describe(refs, file.index, file, file.framing, "cache", file)
    except IndexError:
        file.close()
        raise FileRefused(f"{printable(cache)} does not belong to its list of files; delete it") from None
    staged.reused = True
    return staged


def _key(refs: Sequence[ImageRef], request: dict[str, Any]) -> str:
    """A digest of which files, unchanged since when, read how."""
    whole = hashlib.blake2b(json.dumps(request, sort_keys=True).encode(), digest_size=16)
    for ref in refs:
        path = ref.path if ref.path.startswith(b"/") else os.path.abspath(ref.path)
        whole.update(struct.pack("<QQq", len(path), ref.size, ref.mtime_ns))
        whole.update(path)
    return whole.hexdigest()


def _room(folder: bytes) -> int:
    try:
        space = os.statvfs(folder or b".")
    except OSError as error:
        raise StorageError.of(error, folder or b".", "look at") from error
    return space.f_bavail * space.f_frsize


def _check_room(cache: AnyPath, need: int) -> None:
    have = _room(os.path.dirname(os.fsencode(cache)))
    if need > have:
        raise StorageError(
            f"cannot write {printable(cache)}: it needs {need} bytes, the disk has {have}; leave out --cache"
        )
