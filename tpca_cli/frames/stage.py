"""Decides where the frames of a list of images live, and puts them there.

In memory when they fit, otherwise in a private file beside the output, or, where the disk has no room for it,
nowhere: then every pass decodes again. With `cache` they go to a file that the next run finds.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tpca_cli import store
from tpca_cli.errors import FileRefused, StorageError, TpcaError, printable
from tpca_cli.frames.arrays import ArrayFrames, SourceFrames
from tpca_cli.frames.tensor_file import TENSOR_SCHEMA, Index, TensorFile, TensorWriter
from tpca_cli.framing import Framing
from tpca_cli.images import MAX_PIXELS, Header
from tpca_cli.interfaces import AnyPath, Frames, Progress
from tpca_cli.sources.probe import guess_plan, probe_headers
from tpca_cli.sources.read import read_batches
from tpca_cli.sources.read_plan import (
    FramingOptions,
    OnError,
    ReadPlan,
    WrongGuess,
    after_resize,
    count_headers,
    failure,
    misfit,
    plan_reading,
)
from tpca_cli.sources.scan import ImageRef, Skipped
from tpca_cli.sources.transfer import Batch, ReadImage, Refusal


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
    on_error: OnError = "skip",
    progress: Progress | None = None,
    elsewhere: RemoteStaging | None = None,
) -> Staged:
    """Read every image of the list once and give back frames to compute with.

    `framing` (of a basis, with its `dtype`) decides what fits, and other images are skipped. Without it,
    `size` (height, width) resizes all images to one frame, `tile` cuts them; with neither, images of one size
    are one frame each, and mixed sizes are cut into tiles. `memory` is the largest tensor, in bytes, to keep
    in memory. `on_error` is "skip" or "fail". The order is that of the list, whatever the workers do.
    `elsewhere` reads the files, and keeps the frames, on other machines.
    """
    wish = FramingOptions(framing, size, tile, dtype, max_pixels)
    key = "" if cache is None else list_key(refs, wish.to_dict())
    if cache is not None and os.path.lexists(cache):
        found = reuse(refs, cache, key, on_error)
        if found is not None:
            return found
    run = _Run(refs, on_error, progress, workers, elsewhere)
    guessed = guess_plan(refs, wish)
    if guessed is not None:
        try:
            return run.place(*guessed, key, memory, cache, beside)
        except WrongGuess:
            run = _Run(refs, on_error, progress, workers, elsewhere)
    return run.place(*run.plan(wish), key, memory, cache, beside)


class _Run:
    """One staging: what was skipped and read so far."""

    def __init__(
        self,
        refs: Sequence[ImageRef],
        on_error: OnError,
        progress: Progress | None,
        workers: int,
        elsewhere: RemoteStaging | None = None,
    ) -> None:
        self.refs = refs
        self.fail = on_error == "fail"
        self.progress = progress
        self.workers = workers
        self.elsewhere = elsewhere
        self.refused: list[Refusal] = []
        self.taken: list[ReadImage] = []

    def plan(self, wish: FramingOptions) -> tuple[list[tuple[int, Header]], ReadPlan]:
        """Look at every header, choose the framing, drop what cannot be framed."""
        headers: list[tuple[int, Header]] = []
        if self.elsewhere is not None:
            probed = self.elsewhere.probe(self.refs, wish.max_pixels)
        else:
            probed = probe_headers(self.refs, wish.max_pixels, self.workers)
        for index, found in enumerate(probed):
            if isinstance(found, Refusal):
                self._refuse(found)
            else:
                headers.append((index, found))
        self._need_some(headers)
        recipe = plan_reading([header for _, header in headers], wish)
        chosen = []
        for index, header in headers:
            problem = misfit(after_resize(header, wish.size), recipe.framing, recipe.dtype)
            if problem is None:
                chosen.append((index, header))
            else:
                self._refuse(Refusal(index, problem))
        self._need_some(chosen)
        return chosen, recipe

    def batches(self, chosen: Sequence[tuple[int, Header]], recipe: ReadPlan) -> Iterator[Batch]:
        """Read the chosen images, noting what was skipped."""
        done = 0
        for batch in read_batches(self.refs, chosen, recipe, self.workers):
            for refusal in batch.refused:
                self._refuse(refusal)
            self.taken += batch.taken
            done += len(batch.taken) + len(batch.refused)
            yield batch
            del batch  # before the next one is made: an image may be large
            if self.progress is not None:
                self.progress("read images", done, len(chosen))

    def place(
        self,
        chosen: Sequence[tuple[int, Header]],
        recipe: ReadPlan,
        key: str,
        memory: int,
        cache: AnyPath | None,
        beside: AnyPath | None,
    ) -> Staged:
        """Read the chosen images to where there is room for their frames."""
        if self.elsewhere is not None:
            return self.to_elsewhere(self.elsewhere, chosen, recipe)
        frames = sum(times * recipe.frames_of(header) for header, times in count_headers(chosen).items())
        need = frames * int(np.prod(recipe.framing.frame_shape)) * np.dtype(recipe.dtype).itemsize
        batches = self.batches(chosen, recipe)
        if cache is not None:
            _check_room(cache, need)
            return self.to_file(batches, recipe, key, cache, "cache")
        if need <= memory:
            return self.to_memory(batches, recipe, frames)
        folder, name = os.path.split(os.fsencode(beside if beside is not None else b"tpca-frames"))
        if need > _room(folder):
            return self.to_source(batches, recipe)
        return self.to_file(batches, recipe, key, os.path.join(folder, name), "file")

    def to_memory(self, batches: Iterator[Batch], recipe: ReadPlan, frames: int) -> Staged:
        array = np.empty((frames, *recipe.framing.frame_shape), recipe.dtype)
        have = 0
        for batch in batches:
            array[have : have + len(batch.frames)] = batch.frames
            have += len(batch.frames)
        return self._staged(ArrayFrames(array[:have]), recipe.framing, "memory")

    def to_source(self, batches: Iterator[Batch], recipe: ReadPlan) -> Staged:
        """Decode once to learn what can be read; the frames come from a second decoding."""
        count = sum(len(batch.frames) for batch in batches)
        chosen = [(taken.number, taken.header) for taken in self.taken]
        again = SourceFrames(self.refs, chosen, recipe, self.workers, count)
        return self._staged(again, recipe.framing, "source")

    def to_elsewhere(
        self, elsewhere: RemoteStaging, chosen: Sequence[tuple[int, Header]], recipe: ReadPlan
    ) -> Staged:
        """Let others read, and learn from them what can be read."""
        taken, refused = elsewhere.read(self.refs, chosen, recipe, self.fail, self.progress)
        for refusal in refused:
            self._refuse(refusal)
        self.taken += taken
        self._need_some(self.taken)
        return self._staged(elsewhere.frames(self.refs, taken, recipe), recipe.framing, "cluster")

    def to_file(
        self, batches: Iterator[Batch], recipe: ReadPlan, key: str, path: AnyPath, place: str
    ) -> Staged:
        private = place == "file"
        with store.create(path, TENSOR_SCHEMA, force=True, private=private) as writer:
            tensor = TensorWriter(writer, recipe.framing, recipe.dtype)
            for batch in batches:
                tensor.add(batch)
                del batch
            self._need_some(self.taken)
            tensor.finish(self._index(), key)
            reader = writer.finish()
        file = TensorFile(path, reader)
        return self._staged(file, recipe.framing, place, file)

    def _staged(
        self, frames: Frames, framing: Framing, place: str, owned: TensorFile | None = None
    ) -> Staged:
        self._need_some(self.taken)
        return _describe(self.refs, self._index(), frames, framing, place, owned)

    def _index(self) -> Index:
        skipped = sorted((refusal.index, str(refusal.error)) for refusal in self.refused)
        warnings = [(taken.number, text) for taken in self.taken for text in taken.warnings]
        return Index(
            tuple(taken.number for taken in self.taken),
            tuple(taken.header for taken in self.taken),
            np.frombuffer(b"".join(taken.digest for taken in self.taken), np.uint8).reshape(-1, 8),
            tuple(skipped),
            tuple(warnings),
        )

    def _refuse(self, refusal: Refusal) -> None:
        if self.fail:
            raise failure(self.refs[refusal.index].path, refusal.error, "--on-error skip would leave it out")
        self.refused.append(refusal)

    def _need_some(self, found: Sequence[Any]) -> None:
        if found:
            return
        if not self.refused:
            raise TpcaError("there are no images to read")
        first = min(self.refused, key=lambda refusal: refusal.index)
        path = printable(self.refs[first.index].path)
        error = TpcaError(f"none of {len(self.refs)} images can be used; the first is {path}: {first.error}")
        error.skipped = tuple((self.refs[refusal.index].path, str(refusal.error)) for refusal in self.refused)
        raise error


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
    _owned: TensorFile | None = field(default=None, repr=False)

    def only(self, keep: NDArray[np.bool_]) -> Frames:
        """The frames of some of the images."""
        counts = [self.framing.count(header.height, header.width) for header in self.headers]
        return self.frames.only(keep, counts)

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


def _describe(
    refs: Sequence[ImageRef],
    index: Index,
    frames: Frames,
    framing: Framing,
    place: str,
    owned: TensorFile | None,
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


def reuse(refs: Sequence[ImageRef], cache: AnyPath, key: str, on_error: OnError) -> Staged | None:
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


def list_key(refs: Sequence[ImageRef], request: Mapping[str, Any]) -> str:
    """A digest of which files, unchanged since when, read how."""
    whole = hashlib.blake2b(json.dumps(dict(request), sort_keys=True).encode(), digest_size=16)
    for ref in refs:
        path = ref.path if ref.path.startswith(b"/") else os.path.abspath(ref.path)
        whole.update(struct.pack("<QQq", len(path), ref.size, ref.mtime_ns))
        whole.update(path)
    return whole.hexdigest()


class RemoteStaging(Protocol):
    """Other machines that see the same files."""

    def probe(self, refs: Sequence[ImageRef], max_pixels: int) -> Iterator[Header | Refusal]:
        """The header of every file, in order."""
        ...

    def read(
        self,
        refs: Sequence[ImageRef],
        chosen: Sequence[tuple[int, Header]],
        recipe: ReadPlan,
        fail: bool,
        progress: Progress | None,
    ) -> tuple[Sequence[ReadImage], Sequence[Refusal]]:
        """Decode the chosen files once: what was read and what was not; with `fail`, up to the first."""
        ...

    def frames(self, refs: Sequence[ImageRef], taken: Sequence[ReadImage], recipe: ReadPlan) -> Frames:
        """The frames of the files that were read."""
        ...
