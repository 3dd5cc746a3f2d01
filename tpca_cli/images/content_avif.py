"""The boxes of an AVIF file: one picture, its transparency, EXIF, XMP and a profile are all that is kept."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from tpca_cli.images.content import MANY, MAX_PARTS, Parts

_XMP = b"application/rdf+xml"
_ALPHA = b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha"
# Primaries and transfer of sRGB, or nothing said; whatever matrix there is was undone by the decoder.
_ORDINARY_COLORS = ((1, 13), (2, 2), (1, 2), (2, 13), (1, 1), (1, 6))
# Size, depth, configuration of the decoder, which item is the transparency.
_PROPERTIES = frozenset({b"ispe", b"pixi", b"av1C", b"auxC", b"colr"})
_OPEN_BITSTREAM_UNITS = frozenset({1, 2, 3, 4, 6, 7, 15})  # headers, frames, tiles, padding


@dataclass
class _Items:
    """What `meta` says of the items."""

    primary: int = 0
    kinds: dict[int, bytes] = field(default_factory=dict)  # with the content type of a `mime` item
    extents: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    aides: set[int] = field(default_factory=set)  # items that belong to the primary: its transparency


def avif_content(data: bytes, mode: str, parts: Parts) -> None:
    """Everything but the picture."""
    items, covered, media = _Items(), 0, 0
    for kind, start, end in _boxes(data, 0, len(data)):
        if kind == b"meta":
            _meta(data, start + 4, end, items, parts)
        elif kind == b"mdat":
            media += end - start
        elif kind != b"ftyp" and not (kind in (b"free", b"skip") and not data[start:end].strip(b"\0")):
            parts.note(f"the AVIF box {_shown(kind)}")
    for number, kind in items.kinds.items():
        content = b"".join(data[at : at + size] for at, size in items.extents.get(number, []))
        covered += len(content)
        if kind == b"Exif":
            parts.carries.add("exif")
        elif kind == b"mime" + _XMP:
            parts.keep("xmp", content)
        elif kind == b"av01" and number in {items.primary, *items.aides}:
            _units(content, parts)
        else:
            parts.note(f"further pictures or items ({_shown(kind[:4])})")
    if covered < media:
        parts.note("data that belong to no item")


def _boxes(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """(kind, first byte of the content, end) of consecutive boxes."""
    for _ in range(MAX_PARTS):
        if at == end:
            return
        size, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1:
            size, start = struct.unpack_from(">Q", data, start)[0], start + 8
        stop = end if size == 0 else at + size
        if not start <= stop <= end:
            raise ValueError("a box that does not fit")
        yield kind, start, stop
        at = stop
    raise ValueError(MANY)


def _meta(data: bytes, start: int, end: int, items: _Items, parts: Parts) -> None:
    for kind, at, stop in _boxes(data, start, end):
        if kind == b"pitm":
            items.primary = int.from_bytes(data[at + 4 : stop], "big")
        elif kind == b"iinf":
            at += 6 if data[at] == 0 else 8
            for _, entry, _ in _boxes(data, at, stop):
                _item(data, entry, items)
        elif kind == b"iloc":
            _locations(data, at, items)
        elif kind == b"iref":
            _references(data, at, stop, items, parts)
        elif kind == b"iprp":
            _properties(data, at, stop, parts)
        elif kind != b"hdlr" and not (kind in (b"free", b"skip") and not data[at:stop].strip(b"\0")):
            parts.note(f"the AVIF box {_shown(kind)}")


def _item(data: bytes, at: int, items: _Items) -> None:
    """One `infe`: number, kind, name, and what a `mime` item holds."""
    version = data[at]
    if version not in (2, 3):
        raise ValueError("an old entry")
    wide = 4 if version == 3 else 2
    number = int.from_bytes(data[at + 4 : at + 4 + wide], "big")
    at += 4 + wide + 2
    kind = data[at : at + 4]
    if kind == b"mime":
        after_name = data.index(b"\0", at + 4) + 1
        kind += data[after_name : data.index(b"\0", after_name)]
    items.kinds[number] = kind


def _locations(data: bytes, at: int, items: _Items) -> None:
    """`iloc`: where the bytes of each item are; only places in this file are followed."""
    version, sizes = data[at], struct.unpack_from(">BB", data, at + 4)
    offset_bytes, length_bytes, base_bytes, index_bytes = (
        nibble for byte in sizes for nibble in (byte >> 4, byte & 15)
    )
    wide = 4 if version == 2 else 2
    count = int.from_bytes(data[at + 6 : at + 6 + wide], "big")
    at += 6 + wide

    def number(size: int) -> int:
        nonlocal at
        at += size
        return int.from_bytes(data[at - size : at], "big")

    if count > MAX_PARTS:
        raise ValueError(MANY)
    for _ in range(count):
        item = number(wide)
        if version and number(2):
            raise ValueError("an item that is not in the file itself")
        if number(2):
            raise ValueError("an item in another file")
        base = number(base_bytes)
        extents: list[tuple[int, int]] = []
        for _ in range(number(2)):
            if version:
                number(index_bytes)
            start, length = base + number(offset_bytes), number(length_bytes)
            if start + length > len(data) or len(extents) > MAX_PARTS:
                raise ValueError("an item outside the file")
            extents.append((start, length))
        items.extents[item] = extents


def _references(data: bytes, at: int, end: int, items: _Items, parts: Parts) -> None:
    """`iref`: transparency and descriptions of the primary item; anything else is more than one picture."""
    wide = 4 if data[at] else 2
    for kind, start, _ in _boxes(data, at + 4, end):
        source = int.from_bytes(data[start : start + wide], "big")
        target = int.from_bytes(data[start + wide + 2 : start + 2 * wide + 2], "big")
        if kind == b"auxl" and target == items.primary and not items.aides:
            items.aides.add(source)
        elif kind != b"cdsc":
            parts.note(f"further pictures or items ({_shown(kind)})")


def _properties(data: bytes, at: int, end: int, parts: Parts) -> None:
    for kind, start, stop in _boxes(data, at, end):
        if kind not in (b"ipco", b"ipma"):
            parts.note(f"the AVIF box {_shown(kind)}")
        for name, inner, last in _boxes(data, start, stop) if kind == b"ipco" else ():
            body = data[inner:last]
            if name not in _PROPERTIES:
                parts.note(f"the AVIF property {_shown(name)}")
            elif name == b"auxC" and body[4:].split(b"\0")[0] != _ALPHA:
                parts.note("further pictures or items (auxC)")
            elif name == b"colr" and body[:4] in (b"prof", b"rICC"):
                parts.carries.add("icc")
            elif name == b"colr" and struct.unpack_from(">HH", body, 4) not in _ORDINARY_COLORS:
                parts.note("a description of its colors")


def _units(content: bytes, parts: Parts) -> None:
    """The units of the coded picture: metadata among them (of HDR, mostly) are not kept."""
    at = 0
    for _ in range(MAX_PARTS):
        if at >= len(content):
            return
        head = content[at]
        at += 2 if head & 4 else 1
        size = len(content) - at
        if head & 2:
            size = 0
            for place in range(8):
                size |= (content[at] & 127) << 7 * place
                at += 1
                if content[at - 1] < 128:
                    break
        if head >> 3 & 15 not in _OPEN_BITSTREAM_UNITS:
            parts.note("metadata inside the coded picture")
        at += size
    parts.note(MANY)


def _shown(name: bytes) -> str:
    text = name.decode("latin-1").strip()
    return text if text.isascii() and text.isalnum() else name.hex()
