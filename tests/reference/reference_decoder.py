"""A decoder of archives for tests: small, slow, plain loops over integers, from docs/FORMAT.md alone.

It shares nothing with the package but h5py, so whatever both decode to the same pixels is what the format
says. `python tests/reference_decoder.py ARCHIVE.h5` prints a digest of each image.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import zlib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import h5py
from reference_learned import learn
from reference_plan import Place
from reference_symbols import Block
from reference_tabled import TabledBlock
from reference_transform import Image, restore, shifted, synthesize, to_eighths, to_pixels, unlap

PRIORS = Path(__file__).parents[1] / "golden" / "v1" / "priors.json"
FIRST = (("mtime", 8), ("source_size", 6), ("height", 3), ("width", 3), ("mode", 1), ("error", 8),
         ("exif", 4), ("icc", 4))  # fmt: skip
IMAGE = {1: (("digest", 8), *FIRST, ("flags", 1), ("reserved", 3)),
         2: (("digest", 16), *FIRST, ("metadata", 4), ("reasons", 3), ("mode_bits", 2), ("quality", 2),
             ("flags", 1))}  # fmt: skip
BLOCK = (("size", 5), ("group", 2), ("first", 5), ("count", 3), ("row", 3), ("rows", 3), ("residual", 4),
         ("digest", 8))  # fmt: skip
MODES = (("", 0), ("L", 1), ("LA", 2), ("RGB", 3), ("RGBA", 4), ("I;16", 1))

FEATURES = {"coded-basis", "regions", "model-2", "model-3", "model-4", "tensor-items"}
FEATURES |= {"grains", "whole-grains", "oblique-colors", "bounded-filter", "learned-filter"}

Arrays = dict[str, tuple[list[int], list[int]]]  # shape and flat values
Group = tuple[dict[str, Any], Arrays]  # settings and arrays


@dataclass(frozen=True)
class Decoded:
    """An image as the archive holds it."""

    name: bytes
    depth: int
    pixels: Image

    def sha256(self) -> str:
        """Of the samples in C order, little-endian."""
        samples = [s for row in self.pixels for pixel in row for s in pixel]
        return hashlib.sha256(
            struct.pack(f"<{len(samples)}{'B' if self.depth == 8 else 'H'}", *samples)
        ).hexdigest()


@dataclass(frozen=True)
class Record:
    """What an archive of version 2 says of an image besides its pixels."""

    metadata: dict[str, bytes]
    reasons: list[str]
    mode_bits: int
    peak: int


@dataclass(frozen=True)
class Contents:
    """The metadata and the datasets of a file."""

    version: int
    meta: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    data: dict[str, bytes]


def contents(path: Path) -> Contents:
    """Section 2: everything in the file, in a bundle or not, held to the digest."""
    with h5py.File(path, "r") as file:
        attributes = dict(file.attrs)
        datasets: dict[str, Any] = {}
        file.visititems(
            lambda at, item: datasets.update({at: item}) if isinstance(item, h5py.Dataset) else None
        )
        shapes = {at: tuple(item.shape) for at, item in datasets.items()}
        data = {at: item[()].tobytes() for at, item in datasets.items()}
    if "bundle" in data:
        del shapes["bundle"]
        raw = data.pop("bundle")
        at = 4 + int.from_bytes(raw[:4], "little")
        meta, *lines = zlib.decompress(raw[4:at], -15).split(b"\n")
        attributes["meta"] = meta
        for line in lines:
            name, shape, size = line.decode().split(" ")
            shapes[name] = tuple(int(side) for side in shape.split("x"))
            data[name] = zlib.decompress(raw[at : at + int(size)], -15)
            at += int(size)
        assert at == len(raw)
    check_digest(attributes, shapes, data)
    return Contents(int(attributes["format_version"]), json.loads(attributes["meta"]), shapes, data)


def records(path: Path) -> list[Record]:
    """Section 3: of each image that was not replaced, in order."""
    file = contents(path)
    groups = file.meta["groups"]
    images, blocks = table(file, "images", IMAGE[2]), table(file, "blocks", BLOCK)
    extras, at, raw = [b""], 0, file.data.get("extras", b"")
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "little")
        extras.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    kinds, reasons = (
        [empty, *json.loads(file.data.get(name, b"[]"))]
        for name, empty in (("metadata", {}), ("reasons", []))
    )
    group = {b["first"] + k: b["group"] for b in blocks for k in range(b["count"])}
    return [
        Record(
            {kind: extras[image[kind]] for kind in ("exif", "icc") if image[kind]}
            | {kind: extras[place] for kind, place in kinds[image["metadata"]].items()},
            reasons[image["reasons"]],
            image["mode_bits"],
            groups[group[k]]["peak"],
        )
        for k, image in enumerate(images)
        if image["mode"]
    ]


def decode(path: Path, components: int | None = None) -> list[Decoded]:
    """All images of an archive that were not replaced, in order."""
    file = contents(path)
    holders = {
        group["basis_digest"]: k
        for k, group in reversed(list(enumerate(file.meta["groups"])))
        if f"groups/{k}/basis" in file.data
    }
    groups = [
        (
            group["coder"],
            arrays_of(file.data[f"groups/{holders[group['basis_digest']]}/basis"])
            | arrays_of(file.data[f"groups/{k}/tables"]),
        )
        for k, group in enumerate(file.meta["groups"])
    ]
    assert all(set(group.get("features", [])) <= FEATURES for group in file.meta["groups"])
    images, blocks = table(file, "images", IMAGE[file.version]), table(file, "blocks", BLOCK)
    names, payload = names_of(file), file.data["payload"]
    priors = json.loads(PRIORS.read_text())
    groups = [with_plain_basis(priors, *group) for group in groups]
    parts: dict[int, Image] = {}
    at = 0
    for block in blocks:
        data = payload[at : at + block["size"]]
        at += block["size"]
        assert hashlib.blake2b(data, digest_size=8).digest() == block["digest"].to_bytes(8, "little")
        first = block["first"]
        shapes = [(i["height"], i["width"]) for i in images[first : first + block["count"]]]
        if block["rows"]:
            shapes = [(block["rows"], shapes[0][1])]
        decoded = decode_block(priors, groups[block["group"]], data, shapes, components)
        for k, pixels in enumerate(decoded):
            parts.setdefault(first + k, []).extend(pixels)  # bands of an image follow one another
    return [
        Decoded(names[k], 16 if image["mode"] == 5 else 8, narrow(parts[k], MODES[image["mode"]][1]))
        for k, image in enumerate(images)
        if image["mode"]
    ]


def check_digest(
    attributes: dict[str, Any], shapes: dict[str, tuple[int, ...]], data: dict[str, bytes]
) -> None:
    """Section 2: the root digest covers every attribute and dataset but the payload's bytes."""
    whole = hashlib.blake2b(digest_size=16)

    def part(data: bytes) -> None:
        whole.update(struct.pack("<Q", len(data)) + data)

    for name in ("format", "format_version", "meta"):
        value = attributes[name]
        part(name.encode())
        part(b"int" if name == "format_version" else b"str")
        part(struct.pack("<q", value) if name == "format_version" else bytes(value))
    part(b"datasets")
    for path in sorted(data):
        part(path.encode())
        part(b"u1")
        part(struct.pack(f"<{len(shapes[path])}Q", *shapes[path]))
        part(b"" if path == "payload" else hashlib.blake2b(data[path], digest_size=16).digest())
    assert whole.hexdigest().encode() == bytes(attributes["digest"])


def table(file: Contents, name: str, columns: tuple[tuple[str, int], ...]) -> list[dict[str, int]]:
    """Section 3: a record is a column of bytes; each field is little-endian."""
    raw, count = file.data[name], file.shapes[name][1]
    found = []
    for record in (raw[k::count] for k in range(count)):
        at, fields = 0, {}
        for field, width in columns:
            fields[field] = int.from_bytes(record[at : at + width], "little")
            at += width
        found.append(fields)
    return found


def names_of(file: Contents) -> list[bytes]:
    """Section 3: the names of images, folded or not."""
    if "names" in file.data:
        return file.data["names"].split(b"\0")
    raw, count = file.data["folded"], file.shapes["images"][1]
    found, last = [], b""
    for begin, end, middle in zip(raw, raw[count:], raw[2 * count :].split(b"\0")[:count], strict=False):
        last = last[:begin] + middle + last[len(last) - end :]
        found.append(last)
    return found


def arrays_of(raw: bytes) -> Arrays:
    """Section 3: named arrays, each behind a line of text; as (shape, flat list)."""
    at, found = 0, {}
    while at < len(raw):
        end = raw.index(b"\n", at)
        name, code, text = raw[at:end].decode().split(" ")
        shape = [int(side) for side in text.split("x")]
        count = 1
        for side in shape:
            count *= side
        kind = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q"}[code]
        size = count * int(code[1])
        found[name] = (shape, list(struct.unpack(f"<{count}{kind}", raw[end + 1 : end + 1 + size])))
        at = end + 1 + size
    return found


def with_plain_basis(priors: dict[str, Any], settings: dict[str, Any], arrays: Arrays) -> Group:
    """Section 13: the integers of a coded basis, as if the file held them."""
    coded, frame = settings["basis"].get("coded"), settings["basis"]["frame"]
    if coded is None:
        return settings, arrays
    prefix = "basis_coded_"
    inner = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
    if len(frame) >= 3 and frame[-1] <= 4:
        height, width, channels = frame[0], frame[-2], frame[-1]
        for side in frame[1:-2]:
            height *= side
    else:
        height, width, channels = 1, frame[-1], 1
        for side in frame[:-1]:
            height *= side
    lengths, payload, at = inner["lengths"][1], bytes(inner["payload"][1]), 0
    tile = coded["framing"]["height"]
    each = max(1, 2**19 // (-(-height // tile) * -(-width // tile) * tile * tile))
    columns: list[list[int]] = []
    for block, size in enumerate(inner["sizes"][1]):
        shapes = [(height, width)] * min(each, len(lengths) - block * each)
        images = values_of_block(priors, (coded, inner), payload[at : at + size], shapes, None)
        columns += [[value for row in image for pixel in row for value in pixel] for image in images]
        at += size
    if "rotation" in inner:
        turn, count = inner["rotation"][1], len(lengths)
        columns = [
            [
                shifted(sum(turn[count * row + k] * columns[k][x] for k in range(count)), 10)
                for x in range(height * width * channels)
            ]
            for row in range(count)
        ]
    matrix = [
        shifted(column[x] * length, 39 - settings["basis"]["bits"])
        for x in range(height * width * channels)
        for column, length in zip(columns, lengths, strict=True)
    ]
    return settings, {**arrays, "basis_factor0": ([height * width * channels, len(lengths)], matrix)}


def decode_block(
    priors: dict[str, Any], group: Group, data: bytes, shapes: list[tuple[int, int]], components: int | None
) -> list[Image]:
    """Sections 4 to 11."""
    settings, arrays = group
    kept = settings["components"]
    near = 5 * settings["restore"] <= 8 * settings["step"] <= 13 * settings["restore"]
    out = []
    factors: list[dict[tuple[int, int], int]] = []
    for n, image in enumerate(values_of_block(priors, group, data, shapes, components, factors)):
        if "restore" in arrays and near and (components is None or components >= kept):
            fine = to_eighths(image)
            if "network" in settings:
                learn(fine, settings["network"], settings["step"], factors[n])
            out.append(restore(fine, arrays["restore"][1], settings.get("bound", 0)))
        else:
            out.append(to_pixels(image, 6, 2 ** settings["basis"]["depth"] - 1))
    return out


def values_of_block(
    priors: dict[str, Any],
    group: Group,
    data: bytes,
    shapes: list[tuple[int, int]],
    components: int | None,
    factors: list[dict[tuple[int, int], int]] | None = None,
) -> list[Image]:
    """Sections 4 to 10: images in 1/64; the factors of the steps of their tiles are added to `factors`."""
    settings, arrays = group
    (h, w, c), kept = settings["basis"]["frame"], settings["components"]
    if settings["basis"]["kind"] == "dense":
        places = [(m, 0, 0) for m in range(kept)]
    else:
        places = [(k // (w * c), k // c % w, k % c) for k in arrays["basis_indices"][1][:kept]]
    gains = arrays["gains"][1] if "gains" in arrays else [256] * kept
    channels, levels = arrays["lowest"][0]
    by_borders = settings.get("model") == 3 and not settings["lapped"]
    numbers = {
        "places": places,
        "steps": [max((settings["step"] * 256 + gain // 2) // gain, 1) for gain in gains],
        "scales": arrays["scales"][1],
        "lowest": [arrays["lowest"][1][levels * k : levels * (k + 1)] for k in range(channels)],
        "centers": arrays["centers"][1],
        "factors": arrays["factors"][1] if "factors" in arrays else [64],
        "grains": arrays["grains"][1] if "grains" in arrays else [0] * kept,
        "whole": settings.get("whole", 0),
        "region": settings.get("region", 1),
        "model": settings.get("model", 1),
        "shares": rows_of(*arrays["shares"]) if "shares" in arrays else [],
        "borders": borders_of(settings["basis"], arrays, places) if by_borders else {},
        **tokens_of(arrays),
    }
    grids = [(-(-height // h), -(-width // w)) for height, width in shapes]
    kind = TabledBlock if numbers["model"] == 4 else Block
    block = kind(priors, numbers, grids)
    values = block.decode(data)
    shown = places if components is None else places[: max(components, 0)]
    out = []
    for n, (height, width) in enumerate(shapes):
        rows, columns = grids[n]
        canvas = [[[0] * c for _ in range(columns * w)] for _ in range(rows * h)]
        for r, s in product(range(rows), range(columns)):
            coefficients = [values.get((place, (n, r, s)), 0) for place in shown]
            tile = synthesize(settings["basis"], arrays, coefficients)
            for y, x in product(range(h), range(w)):
                canvas[r * h + y][s * w + x] = tile[(y * w + x) * c : (y * w + x + 1) * c]
        if settings["lapped"]:
            unlap(canvas, h)
        out.append([row[:width] for row in canvas[:height]])
        if factors is not None:
            every = product(range(rows), range(columns))
            factors.append({(r, s): numbers["factors"][block.grades.get((n, r, s), 0)] for r, s in every})
    return out


def rows_of(shape: list[int], values: list[int]) -> list[list[int]]:
    return [values[shape[1] * k : shape[1] * (k + 1)] for k in range(shape[0])]


def tokens_of(arrays: Arrays) -> dict[str, Any]:
    """Section 16: the moves of frequencies, by set and row, and the set of each component."""
    if "token_moves" not in arrays:
        return {}
    (sets, rows, tokens), moves = arrays["token_moves"]
    lines = rows_of([sets * rows, tokens], moves)
    return {
        "token_moves": [lines[rows * s : rows * (s + 1)] for s in range(sets)],
        "token_sets": arrays["token_sets"][1],
    }


def borders_of(basis: dict[str, Any], arrays: Arrays, places: list[Place]) -> dict[Place, list[int]]:
    """Section 6: samples of each component along the borders of a tile, in 1/256."""
    if basis["kind"] == "dense":
        return {}
    down, across = (rows_of(*arrays[f"basis_factor{k}"]) for k in (0, 1))
    samples = {(i, j, c): [down[0][i], down[-1][i], across[0][j], across[-1][j]] for i, j, c in places}
    shift = basis["bits"] - 8
    return {
        place: [shifted(x, shift) if shift > 0 else x << -shift for x in each]
        for place, each in samples.items()
    }


def narrow(image: Image, channels: int) -> Image:
    """Section 12: gray, and alpha, out of a group with more channels."""
    have = len(image[0][0])
    if have == channels:
        return image
    if channels == 3 or have == 2:
        return [[pixel[:channels] for pixel in row] for row in image]
    return [[[(sum(pixel[:3]) + 1) // 3, *pixel[3:]][:channels] for pixel in row] for row in image]


if __name__ == "__main__":
    for found in decode(Path(sys.argv[1])):
        print(found.sha256(), found.name.decode(errors="replace"))
