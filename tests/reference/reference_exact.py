"""Exact groups for tests, from docs/FORMAT.md alone: files, and the headers and skeletons of JPEG files.

What is coded by a model, coefficients and samples, is defined by the kernels and not read here.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from reference_decoder import BLOCK, IMAGE, Arrays, arrays_of, contents, names_of, table


@dataclass(frozen=True)
class Held:
    """An image of an exact group: its way, and its file (`files`) or its skeleton (`jpeg`)."""

    name: bytes
    mode: int
    way: str
    data: bytes = b""


def held(path: Path) -> list[Held]:
    """Section 14: every image of an archive whose groups are all exact, in order."""
    found: list[Held] = []
    file = contents(path)
    groups = file.meta["groups"]
    images, blocks = table(file, "images", IMAGE[2]), table(file, "blocks", BLOCK)
    names, payload = names_of(file), file.data["payload"]
    tables = [arrays_of(file.data[f"groups/{k}/tables"]) for k in range(len(groups))]
    at = 0
    for block in blocks:
        data, at = payload[at : at + block["size"]], at + block["size"]
        way = groups[block["group"]]["method"]
        numbers = range(block["first"], block["first"] + block["count"])
        sizes = [(images[k]["height"], images[k]["width"]) for k in numbers]
        parts = [b""] * len(sizes)
        if way == "files":
            parts = files(data, len(sizes))
        elif way == "jpeg":
            parts = skeletons(data, sizes, tables[block["group"]])
        if block["row"] == 0:
            found += [
                Held(names[k], images[k]["mode"], way, part) for k, part in zip(numbers, parts, strict=True)
            ]
    return found


def files(data: bytes, count: int) -> list[bytes]:
    """Lengths, then all files, deflated."""
    lengths = struct.unpack_from(f"<{count}I", data)
    flat, parts, at = zlib.decompress(data[4 * count :]), [], 0
    for length in lengths:
        parts.append(flat[at : at + length])
        at += length
    assert at == len(flat)
    return parts


def skeletons(data: bytes, sizes: list[tuple[int, int]], tables: Arrays) -> list[bytes]:
    """Files without the entropy-coded bytes of their scans."""
    _, length = struct.unpack_from("<II", data)
    templates, segments = (blobs(bytes(tables[name][1])) for name in ("templates", "segments"))
    dictionary = b"".join([*reversed(segments), *reversed(templates)])[-(1 << 15) :]
    flat = zlib.decompressobj(-15, zdict=dictionary).decompress(data[8 : 8 + length])
    parts, at = [], 0
    for height, width in sizes:
        assert flat[at] <= 2
        number, at = flat[at + 1], at + 2
        if number:
            bare = templates[number - 1]
        else:
            size = int.from_bytes(flat[at : at + 4], "little")
            bare, at = flat[at + 4 : at + 4 + size], at + 4 + size
        parts.append(sized(bare, height, width))
    assert at == len(flat)
    return parts


def blobs(data: bytes) -> list[bytes]:
    """Each behind its length."""
    parts, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return parts


def sized(bare: bytes, height: int, width: int) -> bytes:
    """A skeleton with its height and width put into the frame segment."""
    at = 2
    while bare[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + int.from_bytes(bare[at + 2 : at + 4], "big")
    return bare[: at + 5] + struct.pack(">HH", height, width) + bare[at + 9 :]


def without_scans(file: bytes) -> bytes:
    """A JPEG file without the entropy-coded bytes of its scans, restart markers included in these."""
    out, at = bytearray(file[:2]), 2
    while at + 4 <= len(file) and file[at + 1] != 0xD9:
        stop = at + 2 + int.from_bytes(file[at + 2 : at + 4], "big")
        out += file[at:stop]
        scan, at = file[at + 1] == 0xDA, stop
        while scan and not (file[at] == 0xFF and file[at + 1] not in (0, *range(0xD0, 0xD8))):
            at += 1
    return bytes(out + file[at:])
