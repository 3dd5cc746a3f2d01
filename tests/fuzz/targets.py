"""What the fuzzers call: bytes that anybody may have written go in, only documented refusals come out.

Each target takes one input and returns; a refusal is caught here, anything else is a finding. An input
of all but `image` is a list of byte strings, as `store.columns.join_blobs` writes it.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tpca_cli import images
from tpca_cli.archive.format import BLOCK_COLUMNS, EXACT_METHODS, IMAGE_COLUMNS
from tpca_cli.archive.index import Index
from tpca_cli.archive.limits import Limits, check_description
from tpca_cli.codec.basis_coding import coder_from_arrays
from tpca_cli.errors import FileRefused, ImageRefused
from tpca_cli.exact.coders import PixelCoder, coder_of
from tpca_cli.names import check_names
from tpca_cli.store.columns import join_bundle, split_arrays, split_blobs, split_bundle
from tpca_cli.store.guard import parse_meta
from tpca_cli.store.hdf5 import BadFile

LARGEST_IMAGE = 1 << 16
LIMITS = Limits(max_pixels=1 << 20)


def index(data: bytes) -> None:
    """Groups and index of an archive: what passes the checks is consistent and can be walked."""
    try:
        meta, planes, records, names, *rest = split_blobs(np.frombuffer(data, np.uint8))
        arrays = {
            "images": _planes(planes, sum(IMAGE_COLUMNS.values())),
            "blocks": _planes(records, sum(BLOCK_COLUMNS.values())),
            "folded" if len(rest) > 2 else "names": np.frombuffer(names, np.uint8),
        }
        arrays |= {
            name: np.frombuffer(blob, np.uint8)
            for name, blob in zip(("extras", "skipped"), rest, strict=False)
        }
        described = parse_meta(meta.decode())
        check_description(described)
    except (FileRefused, BadFile, ValueError):  # no list of byte strings, no text, or refused
        return
    try:
        try:
            found = Index.from_arrays(arrays, 2)
        except (ValueError, TypeError):  # as the reader does
            return
        found.check(int(found.offsets[-1]), described["groups"])
        LIMITS.check(found, described["groups"], len(data))
    except FileRefused:
        return
    _walk(found)


def bundle(data: bytes) -> None:
    """Small datasets in one: what is taken is what a bundle of the same has, and within its bounds."""
    try:
        head, *deflated = split_blobs(np.frombuffer(data, np.uint8))
    except (FileRefused, ValueError):
        head, deflated = data, []
    packed = zlib.compress(head, 1, -15)
    raw = b"".join([len(packed).to_bytes(4, "little"), packed, *deflated])
    try:
        meta, parts = split_bundle(np.frombuffer(raw, np.uint8), 1 << 20)
    except BadFile:
        return
    assert sum(part.content.size for part in parts.values()) <= 1 << 20
    again = split_bundle(join_bundle(meta, {path: part.content for path, part in parts.items()}), 1 << 20)
    assert again[0] == meta and again[1].keys() == parts.keys()
    assert all(np.array_equal(again[1][path].content, part.content) for path, part in parts.items())


def block(data: bytes) -> None:
    """A coder from a file, and one block decoded with it: pictures of the announced shapes, or a refusal."""
    try:
        meta, basis, tables, shapes, coded = split_blobs(np.frombuffer(data, np.uint8))
        group = parse_meta(meta.decode())
        check_description({"groups": [group], "target": {}})
        sides = [(1 + shapes[k], 1 + shapes[k + 1]) for k in range(0, min(len(shapes), 8) - 1, 2)]
    except (FileRefused, BadFile, ValueError):
        return
    try:
        arrays = {
            **split_arrays(np.frombuffer(basis, np.uint8)),
            **split_arrays(np.frombuffer(tables, np.uint8)),
        }
        coder = coder_from_arrays(group["coder"], arrays)
        if coder.framing.kind == "whole":
            sides = [(coder.framing.height, coder.framing.width)]
        if not sides:
            return
        pictures = coder.decode(coded, sides)
    except FileRefused:
        return
    expected = [(*side, coder.framing.channels) for side in sides]
    assert [picture.shape for picture in pictures] == expected, (expected, [p.shape for p in pictures])


def exact(data: bytes) -> None:
    """A block that comes back exactly: as many files, or pictures of the announced shapes, or a refusal."""
    try:
        meta, tables, shapes, coded = split_blobs(np.frombuffer(data, np.uint8))
        group = parse_meta(meta.decode())
        check_description({"groups": [group], "target": {}})
        sides = [(1 + shapes[k], 1 + shapes[k + 1]) for k in range(0, min(len(shapes), 8) - 1, 2)]
    except (FileRefused, BadFile, ValueError):
        return
    if not sides or group["method"] not in EXACT_METHODS:
        return
    try:
        coder = coder_of(group, split_arrays(np.frombuffer(tables, np.uint8)))
        if not isinstance(coder, PixelCoder):
            assert len(coder.decode_files(coded, sides)) == len(sides)
            return
        pictures = coder.decode(coded, sides)
    except FileRefused:
        return
    expected = [(*side, coder.channels) for side in sides]
    assert [picture.shape for picture in pictures] == expected, (expected, [p.shape for p in pictures])
    assert all(int(picture.max()) <= coder.peak for picture in pictures), coder.peak


def image(data: bytes) -> None:
    """A file that claims to be an image: the header tells the shape of the pixels, or it is refused."""
    descriptor, path = tempfile.mkstemp(dir=_folder())
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        _picture(os.fsencode(path))
    finally:
        os.unlink(path)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "index": index,
    "bundle": bundle,
    "block": block,
    "exact": exact,
    "image": image,
}


def _folder() -> str | None:
    """Files in memory where the system has such a place: a fuzzer writes thousands in a second."""
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() and os.access(shared, os.W_OK) else None


def _picture(path: bytes) -> None:
    try:
        header = images.probe(path, LARGEST_IMAGE)
    except ImageRefused:
        header = None
    try:
        picture = images.read(path, max_pixels=LARGEST_IMAGE)
    except ImageRefused:
        return
    assert header is not None, "pixels without a header"
    assert picture.pixels.shape == (header.height, header.width, header.channels), header
    assert picture.mode == header.mode, header


def _planes(blob: bytes, rows: int) -> np.ndarray:
    """As many whole records as the bytes make."""
    return np.frombuffer(blob[: len(blob) // rows * rows], np.uint8).reshape(rows, -1)


def _walk(found: Index) -> None:
    """Every image has its blocks, and they hold its rows."""
    check_names(found.names[image] for image in found.alive)
    for image in found.alive:
        height, width = found.shape(image)
        blocks = found.blocks_of(image)
        covered = 0
        for number in blocks:
            assert 0 <= found.offsets[number] <= found.offsets[number + 1]
            shapes = found.block_shapes(number)
            assert shapes[int(image - found.blocks["first"][number])][1] == width
            covered += shapes[int(image - found.blocks["first"][number])][0]
        assert covered == height, (covered, height)
        assert isinstance(found.extra(image, "exif") + found.extra(image, "icc"), bytes)
        assert isinstance(found.missing(image), str)
    assert found.samples.min(initial=0) >= 0
