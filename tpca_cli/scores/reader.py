"""Reads a scores file: coefficients by row or by image, and the images that they rebuild.

    scores = Scores("scores.h5")
    scores.rows(0, 100)             # (100, M), the coefficients as they are in the file
    scores.coefficients(7)          # (frames, M) of one image
    scores[7]                       # (h, w, c), rebuilt from all components
    scores.read(7, components=20)   # the same from the first 20

What `decode`, `verify` and `append` ask of an archive they find here under the same names.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from tpca_cli import basisfile, store
from tpca_cli.archive.batches import Named, component_count
from tpca_cli.archive.format import CHANNELS, DTYPES, IMAGE_COLUMNS, MODES, PEAK
from tpca_cli.archive.index import Index
from tpca_cli.archive.limits import MAX_PIXELS, MAX_SIDE, skipped_pair
from tpca_cli.errors import FileRefused, printable
from tpca_cli.framing import TILE, Framing
from tpca_cli.interfaces import Pixels
from tpca_cli.names import check_names
from tpca_cli.scores.format import SCORES_SCHEMA, TEXTS, label_of
from tpca_cli.scores.items import about_tensor, item_of, tensor_of
from tpca_cli.scores.writer import ScoresBasis, facts_of, frame_counts

Rows = npt.NDArray[Any]
BLOCK_VALUES = 1 << 21  # samples that are rebuilt together
CACHED = 4


class Scores(Named):
    """The coefficients of images, and the images that they rebuild, by position or name."""

    digest_bytes = IMAGE_COLUMNS["digest"]
    workers = 1

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        basis: str | os.PathLike[str] | None = None,
        skim: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """`basis` is the basis file of scores that only link to it; `skim` is for a page about the file."""
        self.path = store.location(path)
        self._basis_path = None if basis is None else _lasting(store.location(basis))
        self._skim = skim
        self._max_pixels = max_pixels
        self._open()
        self._place = _lasting(self.path)  # for other processes, which may be in another folder

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._pieces: OrderedDict[tuple[str, int], Rows] = OrderedDict()
        self._blocks: OrderedDict[tuple[int, int | None], list[Pixels]] = OrderedDict()
        self._context = store.open_checked(self.path, SCORES_SCHEMA, skim=self._skim)
        self._file = self._context.__enter__()
        try:
            self._load()
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            self.close()
            raise FileRefused(f"{printable(self.path)} was refused: {error}") from error
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        file, meta = self._file, self._file.meta
        self.meta = meta
        self.framing = Framing.from_dict(meta["framing"])
        self.method, self.samples = str(meta["method"]), str(meta["dtype"])
        self.basis_digest = str(file.attrs["basis_digest"])
        self.components = int(meta["components"])
        self.eigenvalues: npt.NDArray[np.float64] = file.array("eigenvalue")
        self.eigenvalues.flags.writeable = False  # who asks for them gets these
        self.item = item_of(meta, self.framing)
        if self.samples not in PEAK if self.item is None else self.samples != self.item.dtype:
            raise ValueError(f"samples of type {self.samples!r}")
        self._rows = {name: int(meta["piece_rows"][name]) for name in ("coefficients", *TEXTS)}
        self.frames, m = file.shapes["coefficients"]
        if {m, self.components, *file.shapes["eigenvalue"], *file.shapes["component"]} != {m} or not m:
            raise ValueError(f"{m} columns and {self.components} components")
        self.dtype = np.dtype(file.dtype("coefficients"))
        for name in ("coefficients", *TEXTS):
            pieces = -(-file.shapes[name][0] // max(1, self._rows[name]))
            if self._rows[name] < 1 or file.shapes[f"digests/{name}"][0] != pieces:
                raise ValueError(f"{name!r} has not one digest for each piece")
        self.index = self._read_index()
        self.alive = self.index.alive
        self.names_bytes = self.index.names
        counts = frame_counts(self.index, self.framing)
        self._starts = np.concatenate([[0], np.cumsum(counts)])  # frames before each image, and all
        if int(self._starts[-1]) != self.frames:
            raise ValueError(f"{self.frames} rows, where the images have {self._starts[-1]} frames")
        if ("frame" in file.shapes) != (self.framing.kind == TILE):
            raise ValueError("rows are counted otherwise than the frames say")

    def _read_index(self) -> Index:
        file = self._file
        n = file.shapes["image"][0]
        columns: dict[str, Any] = {name: np.zeros(n, np.int64) for name in IMAGE_COLUMNS}
        paths = {"mtime": "sources/mtime", "source_size": "sources/size", "mode_bits": "sources/access"}
        for name in ("height", "width", "mtime", "source_size", "mode_bits"):
            columns[name] = file.array(paths.get(name, name)).astype(np.int64)
        columns["digest"] = file.array("sources/digest")
        known = {mode.encode(): number for number, mode in enumerate(MODES) if mode}
        columns["mode"] = np.array([known[mode] for mode in file.array("mode").tolist()], np.int64)
        columns["peak"] = np.full(n, PEAK.get(self.samples, 0), np.int64)
        names = tuple(name for piece in self._texts("name") for name in piece.tolist())
        if {len(values) for values in columns.values()} | {len(names), file.shapes["label"][0]} != {n}:
            raise ValueError("the columns of the images differ in length")
        check_names(names)
        self._check_sizes(columns)
        notes = file.array("notes/skipped").tobytes() if "notes/skipped" in file.shapes else b"[]"
        skipped = tuple(skipped_pair(item) for item in json.loads(notes))
        return Index(names, columns, self._table(columns), skipped=skipped)

    def _check_sizes(self, columns: dict[str, Any]) -> None:
        heights, widths = columns["height"], columns["width"]
        if not len(heights):
            return
        if min(heights.min(), widths.min()) < 1 or max(heights.max(), widths.max()) > MAX_SIDE:
            raise ValueError("an image has an impossible side")
        if (heights * widths).max() > self._max_pixels:
            raise ValueError(f"an image of more than {self._max_pixels} pixels; raise --max-pixels")
        modes = [MODES[k] for k in sorted(set(columns["mode"].tolist()))]
        for mode in modes:
            if self.item is not None:
                if mode != self.item.mode or {*heights, *widths} - {*self.item.picture[:2]}:
                    raise ValueError(f"a {mode} image among tensors {self.item}")
            elif DTYPES[mode] != self.samples or CHANNELS[mode] > self.framing.channels:
                raise ValueError(f"a {mode} image in {self.framing.channels} channels of {self.samples}")

    def _table(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Neighboring images that are rebuilt together, as blocks of an index."""
        values = columns["height"] * columns["width"] * self.framing.channels
        firsts, have = [], BLOCK_VALUES
        for image, count in enumerate(values.tolist()):
            if have + count > BLOCK_VALUES:
                firsts.append(image)
                have = 0
            have += count
        first = np.array(firsts, np.int64)
        table = {
            name: np.zeros(len(first), np.int64) for name in ("size", "group", "row", "rows", "residual")
        }
        count = np.diff(np.append(first, len(values)))
        return {**table, "first": first, "count": count, "digest": np.zeros((len(first), 8), np.uint8)}

    def _texts(self, name: str) -> Any:
        rows = self._file.shapes[name][0]
        return (self.piece(name, k) for k in range(-(-rows // self._rows[name])))

    def piece(self, name: str, number: int) -> Rows:
        """A piece of `coefficients`, `name` or `label`, held to its digest."""
        start, size = number * self._rows[name], self._rows[name]
        rows = self._file.rows(name, start, min(start + size, self._file.shapes[name][0]))
        if store.digest_of(rows.tobytes()) != self._digests[name][number].tobytes():
            raise FileRefused(f"{printable(self.path)}: {name} is damaged in rows {start} to {start + size}")
        return rows

    @cached_property
    def _digests(self) -> dict[str, Rows]:
        return {name: self._file.array(f"digests/{name}") for name in ("coefficients", *TEXTS)}

    def pieces(self) -> int:
        """How many pieces the coefficients have."""
        return -(-self.frames // self._rows["coefficients"])

    def images_in(self, number: int) -> range:
        """The images with a frame in a piece of the coefficients."""
        size = self._rows["coefficients"]
        start, stop = number * size, min((number + 1) * size, self.frames)
        first = int(np.searchsorted(self._starts, start, "right")) - 1
        return range(first, int(np.searchsorted(self._starts, stop, "left")))

    def first_row(self, number: int) -> int:
        """The first row of a piece of the coefficients."""
        return number * self._rows["coefficients"]

    def image_of(self, row: int) -> int:
        """The image that a row belongs to."""
        return int(np.searchsorted(self._starts, row, "right")) - 1

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The folder of each image."""
        return tuple(label_of(name).decode("utf-8", "surrogateescape") for name in self.names_bytes)

    def rows(self, start: int, stop: int) -> Rows:
        """Coefficients of the frames `start` to `stop`, (stop - start, M)."""
        if not 0 <= start <= stop <= self.frames:
            raise IndexError(f"rows {start}:{stop} of {self.frames}")
        size = self._rows["coefficients"]
        parts = [np.zeros((0, self.components), self.dtype)]
        for number in range(start // size, -(-stop // size)):
            first = number * size
            parts.append(self._held(number)[max(0, start - first) : stop - first])
        return np.concatenate(parts)

    def rows_of(self, images: Sequence[int]) -> Iterator[Rows]:
        """The coefficients of some images, in their order, a stretch of neighbors at a time."""
        first = 0
        for at in range(1, len(images) + 1):
            if at == len(images) or images[at] != images[at - 1] + 1:
                start, stop = int(self._starts[images[first]]), int(self._starts[images[at - 1] + 1])
                for row in range(start, stop, self._rows["coefficients"]):
                    yield self.rows(row, min(row + self._rows["coefficients"], stop))
                first = at

    def _held(self, number: int) -> Rows:
        key = ("coefficients", number)
        with self._lock:
            if key in self._pieces:
                self._pieces.move_to_end(key)
                return self._pieces[key]
        rows = self.piece(*key)
        with self._lock:
            self._pieces[key] = rows
            while len(self._pieces) > CACHED:
                self._pieces.popitem(last=False)
        return rows

    def coefficients(self, position: int) -> Rows:
        """The coefficients of one image, (frames, M); one frame where images are framed whole."""
        position = self.place_of(position)
        return self.rows(int(self._starts[position]), int(self._starts[position + 1]))

    @cached_property
    def of(self) -> ScoresBasis:
        """The basis: the one in the file, or the one that was named."""
        linked = "basis/energies" not in self._file.shapes
        if not linked:
            basis = basisfile.basis_in(self._file, self.method, self.framing, self.item)
        elif self._basis_path is None:
            raise FileRefused(
                f"{printable(self.path)}: its basis {self.basis_digest} is in another file: "
                "name it with --basis"
            )
        else:
            stored = basisfile.read_basis(self._basis_path)
            if stored.digest != self.basis_digest:
                raise FileRefused(
                    f"{printable(self.path)} was made with basis {self.basis_digest}, "
                    f"and {printable(self._basis_path)} is {stored.digest}"
                )
            basis = stored.basis.truncate(self.components)
        if basis.components != self.components:
            raise FileRefused(
                f"{printable(self.path)} was refused: a basis of {basis.components} "
                f"for {self.components} columns"
            )
        return ScoresBasis(basis, self.framing, self.samples, self.basis_digest, linked, self.item)

    def read(self, position: int, *, components: int | None = None, threads: int = 0) -> Pixels:
        """One image, `(h, w, c)`, rounded to its sample type; fewer `components` give a blurrier one.

        `threads` are for the bands of an archive's large images; here every image is one.
        """
        if self.item is not None:
            return self.tensor(position, components=components)
        from tpca_cli.images import narrow  # late: numbers can be had without image decoders

        position, components = self.place_of(position), component_count(components)
        block = self.index.blocks_of(position)[0]
        key = (block, components)
        with self._lock:
            pictures = self._blocks.get(key)
        if pictures is None:
            pictures = self._rebuilt(block, components)
            with self._lock:
                self._blocks[key] = pictures
                while len(self._blocks) > CACHED:
                    self._blocks.popitem(last=False)
        pixels = pictures[position - int(self.index.blocks["first"][block])]
        return np.array(narrow(pixels, self.index.mode(position)), order="C")  # who asks may change it

    @property
    def holds_tensors(self) -> bool:
        """Whether it was made of tensors and not of images."""
        return self.item is not None

    def tensor(self, position: int, *, components: int | None = None) -> Rows:
        """One tensor, rebuilt in its own shape and type."""
        return tensor_of(self.of, self.coefficients(position)[:, : component_count(components)])

    def about_tensor(self, position: int) -> dict[str, Any]:
        """Shape, type and form of a tensor."""
        return about_tensor(self.item, self.names_bytes[position])

    def _rebuilt(self, block: int, components: int | None) -> list[Pixels]:
        """X_in = U_il d_nl (eq 4.1.1) of the images of a block."""
        first, count = (int(self.index.blocks[name][block]) for name in ("first", "count"))
        rows = self.rows(int(self._starts[first]), int(self._starts[first + count]))[:, :components]
        if not np.isfinite(rows).all():
            raise FileRefused(f"{printable(self.path)}: coefficients that are no numbers")
        frames = np.rint(self.of.basis.reconstruct(rows)).clip(0, PEAK[self.samples])
        frames = frames.astype(self.samples)
        pictures, have = [], 0
        for image in range(first, first + count):
            frame_count = int(self._starts[image + 1] - self._starts[image])
            own = frames[have : have + frame_count]
            pictures.append(self.framing.join(own, *self.index.shape(image)))
            have += frame_count
        return pictures

    @overload
    def __getitem__(self, item: int | str | bytes) -> Pixels: ...
    @overload
    def __getitem__(self, item: slice) -> list[Pixels]: ...
    def __getitem__(self, item: int | str | bytes | slice) -> Pixels | list[Pixels]:
        if isinstance(item, slice):
            return [self.read(position) for position in range(*item.indices(len(self)))]
        return self.read(self.place_of(item))

    def metadata(self, position: int) -> dict[str, bytes]:
        """What is kept besides pixels: nothing."""
        return {}

    @property
    def target(self) -> dict[str, Any]:
        """What was asked for: nothing but the numbers."""
        return {}

    def holds_file(self, position: int) -> bool:
        """Whether the source file can be had: it cannot."""
        return False

    def prepare(self) -> None:
        """Nothing is compiled for products."""

    def came_exactly(self, position: int) -> bool:
        """Whether an image comes back exactly: none does."""
        return False

    def file(self, position: int) -> bytes | None:
        """The source file: it is not here."""
        return None

    def counters(self) -> list[tuple[str, Rows]]:
        """What `image`, `component`, `frame` and `image_of_frame` must be, for `verify`."""
        found: list[tuple[str, Rows]] = [
            ("image", np.arange(len(self))),
            ("component", np.arange(self.components)),
        ]
        if self.framing.kind == TILE:
            counts = np.diff(self._starts)
            found += [("frame", np.arange(self.frames))]
            found += [("image_of_frame", np.repeat(np.arange(len(self)), counts))]
        return found

    def holds(self, path: str, expected: Rows) -> bool:
        """Whether a counter is what it must be."""
        file = self._file
        return file.shapes[path] == expected.shape and all(
            np.array_equal(
                file.rows(path, at, min(at + (1 << 20), len(expected))), expected[at : at + (1 << 20)]
            )
            for at in range(0, len(expected), 1 << 20)
        )

    def texts_agree(self) -> bool:
        """Whether every label is the folder of its name."""
        labels = [label for piece in self._texts("label") for label in piece.tolist()]
        return labels == [label_of(name) for name in self.names_bytes]

    def info(self) -> dict[str, Any]:
        """What there is to know without reading coefficients."""
        return facts_of(self._file, self.index, self.eigenvalues, self.dtype)

    @property
    def digest(self) -> str:
        """The digest over everything in the file but what is read piece by piece."""
        return str(self._file.digest)

    @property
    def identity(self) -> store.Identity:
        """The file that is open, to notice before replacing it that another has taken its place."""
        return self._file.identity

    def close(self) -> None:
        """Close the file; nothing can be read afterwards."""
        with self._lock:
            self._pieces.clear()
            self._blocks.clear()
        self._context.__exit__(None, None, None)

    def __enter__(self) -> Scores:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: vars(self)[name] for name in ("_basis_path", "_skim", "_max_pixels")}
        return kept | {"path": self._place, "_place": self._place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


def _lasting(path: Path | store.Address) -> Path | store.Address:
    """The same place from whatever folder it is opened later; an address is that already."""
    return path.absolute() if isinstance(path, Path) else path
