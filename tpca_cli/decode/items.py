"""From an archive of tensors back to files: `.npy`, TIFF of several pages, folders of slices."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tpca_cli import store
from tpca_cli.archive.reader import Archive
from tpca_cli.decode.run import Decoded, DecodeRequest, check_output, selected
from tpca_cli.errors import FileRefused, UsageError
from tpca_cli.images import arrays
from tpca_cli.interfaces import Progress
from tpca_cli.names import folders_of


def decode_items(request: DecodeRequest, archive: Archive, progress: Progress | None = None) -> Decoded:
    """Restore the tensors of an open archive into a folder, each in the form that it had."""
    if request.resume:
        raise UsageError("--resume is for images: decode tensors with --force")
    chosen, unknown = selected(archive, request.select, request.named)
    planned = {position: _names(archive, position) for position in chosen}
    names = [name for some in planned.values() for name in some]
    check_output(request, names)
    result, written = Decoded(unknown=unknown), []
    for number, position in enumerate(chosen, 1):
        image = int(archive.alive[position])
        try:
            tensor = archive.tensor(position, components=request.components)
        except FileRefused as error:
            if not request.salvage:
                raise
            result.lost.append((archive.names_bytes[position], str(error)))
            continue
        bits = archive.index.mode_bits(image)
        for name, data in zip(planned[position], _contents(archive, position, tensor), strict=True):
            store.write_file(
                name,
                data,
                force=request.force,
                mtime_ns=int(archive.index.images["mtime"][image]) * 1000,
                mode=None if bits is None else bits & 0o777,
                durable=True,
                root=request.output,
            )
            written.append(name)
            result.written_bytes += len(data)
        result.images += 1
        result.source_bytes += int(archive.index.images["source_size"][image])
        if progress is not None:
            progress("decoding", number, len(chosen))
    store.sync_folders(request.output, folders_of(written))
    return result


def _names(archive: Archive, position: int) -> list[bytes]:
    """The files that a tensor becomes."""
    name, about = archive.names_bytes[position], archive.about_tensor(position)
    if about["form"] != "slices":
        return [name]
    count = int(about["shape"][0])
    stems = [os.path.splitext(os.path.basename(each))[0] for each in about["slices"]]
    if len(set(stems)) != count or not all(stems):
        stems = [f"{k:0{len(str(count))}d}" for k in range(count)]
    return [b"%s/%s.png" % (name, os.fsencode(stem)) for stem in stems]


def _contents(archive: Archive, position: int, tensor: NDArray[np.generic]) -> Iterator[bytes]:
    form = archive.about_tensor(position)["form"]
    if form == "slices":
        yield from arrays.slice_bytes(tensor)
    elif form == "tiff":
        yield arrays.tiff_bytes(tensor)
    else:
        yield arrays.npy_bytes(tensor)
