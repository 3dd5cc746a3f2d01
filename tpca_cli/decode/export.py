"""An archive as shards that other loaders read: WebDataset tar files, or Parquet tables with an image column.

A shard is put together in memory and written whole. The folder of an image is its label; the numbers of the
labels follow their alphabetical order, as in `training`. The same archive gives the same bytes.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpca_cli import store
from tpca_cli.archive.reader import Archive
from tpca_cli.decode.plan import Target, plan
from tpca_cli.decode.run import OneFile, file_of, selected
from tpca_cli.errors import OutputExists, StorageError, TpcaError, UsageError, printable
from tpca_cli.formats import EXTENSIONS, FILE, HEAD_BYTES, sniff
from tpca_cli.interfaces import Progress
from tpca_cli.parallel import ordered_map

KINDS = {"webdataset": "tar", "parquet": "parquet"}
LATEST = 0o77777777777  # second that a tar file has room for, in the year 2242


@dataclass(frozen=True)
class ExportRequest:
    """What to write, and how."""

    output: Path
    kind: str  # of KINDS
    shard_bytes: int
    select: Sequence[str] = ()
    format: str | None = None
    components: int | None = None
    workers: int = 1


@dataclass
class Exported:
    """What was written."""

    images: int = 0
    shards: list[str] = field(default_factory=list)
    written_bytes: int = 0
    classes: list[str] = field(default_factory=list)
    notes: list[tuple[bytes, str]] = field(default_factory=list)
    skipped: list[bytes] = field(default_factory=list)  # files that are no pictures


@dataclass(frozen=True)
class _Row:
    """One image with all that is said of it."""

    number: int
    label: int
    labeled: str
    mtime: int  # seconds
    file: OneFile


def export(request: ExportRequest, archive: Archive, progress: Progress | None = None) -> Exported:
    """Write the shards of an open archive into a folder that is empty or not there."""
    if archive.holds_tensors:
        raise UsageError(f"{printable(archive.path)} holds tensors, no images: tpca decode restores them")
    write = _tar if request.kind == "webdataset" else _parquet_writer()
    chosen, _ = selected(archive, request.select)
    modes = {position: archive.index.mode(int(archive.alive[position])) for position in chosen}
    targets = plan(archive, [position for position in chosen if modes[position] != FILE], request.format)
    _empty_folder(request.output)
    result = Exported()
    result.skipped = [archive.names_bytes[position] for position in chosen if modes[position] == FILE]
    labels = [_label(archive.names_bytes[target.position]) for target in targets]
    result.classes = sorted(set(labels))
    numbers = {label: number for number, label in enumerate(result.classes)}
    archive.prepare()
    shard: list[_Row] = []
    size = 0
    with _removed_if_failed(request.output, result.shards):
        for number, (target, file) in enumerate(_files(request, archive, targets)):
            label = labels[number]
            mtime = int(archive.index.images["mtime"][int(archive.alive[target.position])]) // 1_000_000
            if shard and size + len(file.data) > request.shard_bytes:
                _write(request, result, write(shard, result.classes))
                shard, size = [], 0
            shard.append(_Row(number, numbers[label], label, mtime, file))
            size += len(file.data)
            result.notes += [(file.name, note) for note in file.notes]
            if progress:
                progress("exporting", number + 1, len(targets))
        _write(request, result, write(shard, result.classes))
    store.sync_folders(request.output, [])
    result.images = len(targets)
    return result


@contextmanager
def _removed_if_failed(folder: Path, shards: Sequence[str]) -> Iterator[None]:
    """Take away what was written if an error or a signal ends the run: the next one wants an empty folder."""
    try:
        yield
    except BaseException:
        for name in shards:
            with suppress(OSError):
                os.unlink(folder / name)
        raise


def _files(
    request: ExportRequest, archive: Archive, targets: Sequence[Target]
) -> Iterator[tuple[Target, OneFile]]:
    """The files in the order of the archive; the images of a block are neighbours, and it is decoded once."""
    return ordered_map(
        lambda target: (target, file_of(archive, target, request.components)), targets, request.workers
    )


def _label(name: bytes) -> str:
    return printable(name.rpartition(b"/")[0])


def _empty_folder(path: Path) -> None:
    """Make the folder; shards of another run must not be taken for those of this one."""
    try:
        os.makedirs(path, exist_ok=True)
        if os.listdir(path):
            raise OutputExists(f"{printable(path)} is not empty: choose another folder")
    except FileExistsError:
        raise OutputExists(f"{printable(path)} is a file: choose another output folder") from None
    except OSError as error:
        raise StorageError.of(error, path, "make the folder") from error


def _write(request: ExportRequest, result: Exported, data: bytes) -> None:
    name = f"shard-{len(result.shards):06d}.{KINDS[request.kind]}"
    store.write_file(name.encode(), data, durable=True, root=request.output)
    result.shards.append(name)
    result.written_bytes += len(data)


def _about(row: _Row) -> dict[str, Any]:
    """What is said of an image beside its file."""
    file = row.file
    return {
        "name": printable(file.name),
        "label": row.labeled,
        "height": file.height,
        "width": file.width,
        "mode": file.mode,
    }


def _tar(rows: Sequence[_Row], classes: Sequence[str]) -> bytes:
    """Members of one name and three endings for each image: the file, its class, and what is said of it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for row in rows:
            about = json.dumps(_about(row), sort_keys=True).encode()
            members = {_ending(row.file.data): row.file.data, "cls": str(row.label).encode(), "json": about}
            for name, data in members.items():
                info = tarfile.TarInfo(f"{row.number:09d}.{name}")
                info.size, info.mtime = len(data), min(max(row.mtime, 0), LATEST)
                tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _ending(data: bytes) -> str:
    """The usual ending of a format, by what the file holds: its name may end in anything, `json` and `cls`
    included."""
    kind = sniff(data[:HEAD_BYTES])
    return next((ending.decode()[1:] for ending, each in EXTENSIONS.items() if each == kind), "bin")


def _parquet_writer() -> Any:
    """Makes a table of rows; an error that names the extra where pyarrow is missing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TpcaError("--to parquet needs pyarrow: pip install 'tpca-cli[parquet]'") from error

    def table(rows: Sequence[_Row], classes: Sequence[str]) -> bytes:
        files = [row.file for row in rows]
        images = [{"bytes": file.data, "path": printable(file.target)} for file in files]
        kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        about = [_about(row) for row in rows]
        columns = {
            "image": pyarrow.array(images, kind),
            "label": pyarrow.array([row.label for row in rows], pyarrow.int64()),
            **{name: pyarrow.array([each[name] for each in about]) for name in ("name", "mode")},
            **{
                name: pyarrow.array([each[name] for each in about], pyarrow.int32())
                for name in ("height", "width")
            },
        }
        # what Hugging Face reads to show pictures and labels instead of bytes and numbers
        features = {
            "image": {"_type": "Image"},
            "label": {"names": list(classes), "_type": "ClassLabel"},
            **{name: {"dtype": "string", "_type": "Value"} for name in ("name", "mode")},
            **{name: {"dtype": "int32", "_type": "Value"} for name in ("height", "width")},
        }
        told = json.dumps({"info": {"features": features}}, sort_keys=True)
        made = pyarrow.table(columns).replace_schema_metadata({"huggingface": told})
        out = io.BytesIO()
        # images do not deflate, and rows in small groups can be read one by one
        pyarrow.parquet.write_table(made, out, compression="none", row_group_size=100)
        return out.getvalue()

    return table
