"""The tensor file, format `tpca-tensor` version 1: frames, and which images they came from.

| path | type | shape | meaning |
|---|---|---|---|
| frames8 or frames16 | u1 or u2 | (frames, h, w, c) | the pixels, in the order of the list of files |
| block_rows | u4 | (blocks,) | frames that were written together |
| block_sums | u4 | (blocks,) | CRC-32 of each such block, checked when it is read |
| kept | u4 | (images,) | position of each image in the list of files |
| sizes | u2 | (images, 2) | height and width as framed |
| modes | u1 | (images,) | position in MODES |
| digests | u1 | (images, 8) | digest of each source file |
| notes | u1 | (bytes,) | JSON: positions and reasons of skipped files, positions and warnings |

`meta`: `framing`, `key` (a digest of the list of files with sizes and times, and of how they are read).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli import store
from tpca_cli.errors import FileRefused, printable
from tpca_cli.formats import CHANNELS
from tpca_cli.frames.arrays import LocalFrames, regroup
from tpca_cli.framing import TILE, Framing
from tpca_cli.images import Header
from tpca_cli.interfaces import Block
from tpca_cli.sources.read import BATCH_IMAGES, checksum, pieces
from tpca_cli.sources.transfer import Batch

MODES = ("L", "LA", "RGB", "RGBA", "I;16")
_CHUNK_BYTES = 1 << 20

TENSOR_SCHEMA = store.Schema(
    "tpca-tensor",
    1,
    {
        "frames8": store.Field("u1", (None, None, None, None), bulk=True, optional=True),
        "frames16": store.Field("<u2", (None, None, None, None), bulk=True, optional=True),
        "block_rows": store.Field("<u4", (None,)),
        "block_sums": store.Field("<u4", (None,)),
        "kept": store.Field("<u4", (None,)),
        "sizes": store.Field("<u2", (None, 2)),
        "modes": store.Field("u1", (None,)),
        "digests": store.Field("u1", (None, 8)),
        "notes": store.Field("u1", (None,)),
    },
)


@dataclass(frozen=True)
class Index:
    """What is known of the images besides their frames; positions refer to the list of files."""

    kept: tuple[int, ...]
    headers: tuple[Header, ...]
    digests: NDArray[np.uint8]
    skipped: tuple[tuple[int, str], ...]
    warnings: tuple[tuple[int, str], ...]


class TensorFile(LocalFrames):
    """A tensor file that is open for reading; `Frames` with an index. Close it after use."""

    def __init__(self, path: Any, reader: store.Reader | None = None) -> None:
        self._context: AbstractContextManager[store.Reader] | None = None
        if reader is None:
            self._context = store.open_checked(path, TENSOR_SCHEMA)
            reader = self._context.__enter__()
        self._reader = reader
        self.path = path
        try:
            self._check()
        except (KeyError, TypeError, ValueError, UnicodeDecodeError, IndexError) as error:
            self.close()
            raise FileRefused(f"{printable(path)} was refused: {error}; delete it and run again") from error
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        r = self._reader
        self._field = "frames16" if "frames16" in r.shapes else "frames8"
        if ("frames8" in r.shapes) == ("frames16" in r.shapes):
            raise ValueError("frames are missing or there twice")
        self.framing = Framing.from_dict(r.meta["framing"])
        self.key = str(r.meta["key"])
        shape = r.shapes[self._field]
        if shape[1:] != self.framing.frame_shape:
            raise ValueError(f"frames of shape {shape[1:]} are not {self.framing.frame_shape}")
        self.count, self.frame_shape = shape[0], shape[1:]
        self.dtype = np.dtype(np.uint16 if self._field == "frames16" else np.uint8)
        self._rows = r.array("block_rows").astype(np.int64)
        self._sums = r.array("block_sums")
        if len(self._rows) != len(self._sums) or int(self._rows.sum()) != shape[0]:
            raise ValueError("blocks do not add up to the frames")
        self.index = self._read_index()
        kinds = Counter(self.index.headers)
        if sum(n * self.framing.count(h.height, h.width) for h, n in kinds.items()) != shape[0]:
            raise ValueError("images do not add up to the frames")

    def _read_index(self) -> Index:
        r = self._reader
        kind = "u2" if self._field == "frames16" else "u1"
        same: dict[tuple[int, int, int], Header] = {}
        headers = []
        for (height, width), code in zip(r.array("sizes").tolist(), r.array("modes").tolist(), strict=True):
            header = same.get((height, width, code))
            if header is None:
                header = Header(height, width, CHANNELS[MODES[code]], kind, MODES[code])
                same[height, width, code] = header
            headers.append(header)
        notes = json.loads(r.array("notes").tobytes())
        kept = tuple(r.array("kept").tolist())
        if not len(kept) == len(headers) == r.shapes["digests"][0]:
            raise ValueError("the columns of the index differ in length")
        return Index(
            kept,
            tuple(headers),
            r.array("digests"),
            tuple((int(i), str(text)) for i, text in notes["skipped"]),
            tuple((int(i), str(text)) for i, text in notes["warnings"]),
        )

    def blocks(self, rows: int) -> Iterator[Block]:
        """Frames in order; each stored block is held to its checksum before any of it is handed out."""
        return regroup(self._stored(), rows)

    def _stored(self) -> Iterator[Block]:
        start, sums = 0, self._sums.tolist()
        for number, rows in enumerate(self._rows.tolist()):
            block = self._reader.raw_rows(self._field, start, start + rows)
            if checksum(block) != sums[number]:
                raise FileRefused(
                    f"{printable(self.path)} is damaged at frame {start}; delete it and run again"
                )
            yield block
            start += rows

    def close(self) -> None:
        """Let go of the file; a private one is gone with this."""
        if self._context is not None:
            context, self._context = self._context, None
            context.__exit__(None, None, None)
        else:
            self._reader.close()


class TensorWriter:
    """Fills a tensor file batch by batch; `finish` writes the index."""

    def __init__(self, writer: store.Writer, framing: Framing, dtype: str) -> None:
        self._writer = writer
        self._framing = framing
        kind = np.dtype(dtype)
        path = "frames16" if kind.itemsize == 2 else "frames8"
        shape = framing.frame_shape
        # A batch of whole images is then one chunk, or several, and is written without another copy.
        chunk = min(BATCH_IMAGES, max(1, _CHUNK_BYTES // (int(np.prod(shape)) * kind.itemsize)))
        if framing.kind == TILE:
            chunk = max(1, _CHUNK_BYTES // (int(np.prod(shape)) * kind.itemsize))
        self._stream = writer.stream(path, kind, shape, chunk)
        self._rows: list[int] = []
        self._sums: list[int] = []

    def add(self, batch: Batch) -> None:
        """Append the frames of a batch, with a checksum per piece."""
        for piece, total in zip(pieces(batch.frames), batch.sums, strict=True):
            self._stream.append(piece)
            self._rows.append(len(piece))
            self._sums.append(total)

    def finish(self, index: Index, key: str) -> None:
        """Write what is known of the images, and the key of what was asked for."""
        w = self._writer
        w.meta({"framing": self._framing.to_dict(), "key": key})
        w.put("block_rows", np.array(self._rows, "<u4"))
        w.put("block_sums", np.array(self._sums, "<u4"))
        w.put("kept", np.array(index.kept, "<u4"))
        sizes = [(header.height, header.width) for header in index.headers]
        w.put("sizes", np.array(sizes, "<u2").reshape(-1, 2))
        w.put("modes", np.array([MODES.index(header.mode) for header in index.headers], "u1"))
        w.put("digests", index.digests, compress=False)
        notes = json.dumps({"skipped": index.skipped, "warnings": index.warnings}, separators=(",", ":"))
        w.put("notes", np.frombuffer(notes.encode(), "u1"))
