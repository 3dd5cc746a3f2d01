"""Writes one picture as a TIFF file around its EXIF block, which stays as it is.

An EXIF block is itself a TIFF structure without a picture. It opens the file unchanged, so that every offset
in it, those inside maker notes included, leads where it led; only the list of tags (IFD0) is a new one. Into
that list go the tags of the block that describe the picture and cannot change it, and our own on its storage.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from tpca_cli.images.modes import Pixels

_STRIP_BYTES = 1 << 18
_BYTE, _ASCII, _SHORT, _LONG, _RATIONAL, _OPAQUE = 1, 2, 3, 4, 5, 7
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_TEXT = frozenset({_BYTE, _ASCII, _OPAQUE})
_MAX_BYTES = 2**32 - 2**16  # offsets have 32 bits

# Tags that an EXIF block may bring along, with the types that they may have.
_ORIENTATION, _EXIF, _GPS = 274, 34665, 34853
_DESCRIPTIVE: dict[int, frozenset[int]] = {
    **dict.fromkeys(
        (269, 270, 271, 272, 285, 305, 306, 315, 316, 33432), _TEXT
    ),  # description, maker, dates, rights
    **dict.fromkeys((282, 283), frozenset({_RATIONAL})),  # resolution
    **dict.fromkeys((_ORIENTATION, 296, 297, 18246, 18249), frozenset({_SHORT})),  # unit, page, rating
    **dict.fromkeys((*range(40091, 40096), 50341), _TEXT),  # titles in UTF-16, print settings
    **dict.fromkeys((_EXIF, _GPS), frozenset({_LONG, 13})),
}
_SINGLE = frozenset({282, 283, _ORIENTATION, 296, 18246, 18249, _EXIF, _GPS})


class _Tag(NamedTuple):
    tag: int
    kind: int
    length: int
    value: bytes  # what stands in the entry: up to four bytes, or an offset


def is_exif(block: bytes) -> bool:
    """Whether a block begins like EXIF: what does not has no place in a TIFF file."""
    return _order(block) is not None


def fits(height: int, width: int, channels: int, extras: int) -> bool:
    """Whether pixels (of two bytes at most) and metadata surely stay within 32-bit offsets."""
    return 3 * height * width * channels + extras < _MAX_BYTES


def tiff_file(
    pixels: Pixels,
    *,
    exif: bytes = b"",
    blobs: dict[int, bytes] | None = None,
    density: tuple[int, int, int, int] | None = None,
) -> bytes:
    """The file for pixels (h, w, c), uint8 or uint16. `blobs` are opaque tags: an ICC profile, XMP, IPTC.

    `density` is x, y, their denominator and the unit; where EXIF has one, that counts.
    """
    order = _order(exif)
    described = {} if order is None else {item.tag: item for item in _described(exif, order)}
    file = bytearray(exif if order else b"II*\0\0\0\0\0")
    order = order or "<"
    height, width, channels = pixels.shape
    bits = 8 * pixels.dtype.itemsize
    rows = max(1, _STRIP_BYTES // (width * channels * bits // 8))
    offsets, counts = [], []
    for first in range(0, height, rows):
        strip = zlib.compress(_differences(pixels[first : first + rows], order), 6)
        offsets.append(_append(file, strip))
        counts.append(len(strip))
    values: dict[int, tuple[int, list[int]]] = {
        256: (_LONG, [width]),
        257: (_LONG, [height]),
        258: (_SHORT, [bits] * channels),
        259: (_SHORT, [8]),  # deflate
        262: (_SHORT, [2 if channels >= 3 else 1]),  # RGB, or gray where 0 is black
        273: (_LONG, offsets),
        277: (_SHORT, [channels]),
        278: (_LONG, [rows]),
        279: (_LONG, counts),
        284: (_SHORT, [1]),  # channels side by side
        317: (_SHORT, [2]),  # each sample less its left neighbor
    }
    if channels in (2, 4):
        values[338] = (_SHORT, [2])  # alpha, colors not multiplied by it
    tags = dict(described)
    for tag, (kind, numbers) in values.items():
        data = struct.pack(f"{order}{len(numbers)}{'H' if kind == _SHORT else 'I'}", *numbers)
        tags[tag] = _placed(file, order, tag, kind, len(numbers), data)
    if density is not None and not tags.keys() & {282, 283}:
        x, y, below, unit = density
        for tag, above in ((282, x), (283, y)):
            tags[tag] = _placed(file, order, tag, _RATIONAL, 1, struct.pack(order + "II", above, below))
        tags[296] = _placed(file, order, 296, _SHORT, 1, struct.pack(order + "H", unit))
    for tag, blob in (blobs or {}).items():
        if blob:
            tags[tag] = _placed(file, order, tag, _BYTE if tag == 700 else _OPAQUE, len(blob), blob)
    table = b"".join(struct.pack(order + "HHI", *tags[tag][:3]) + tags[tag].value for tag in sorted(tags))
    start = _append(file, struct.pack(order + "H", len(tags)) + table + bytes(4))
    file[4:8] = struct.pack(order + "I", start)
    return bytes(file)


def _order(exif: bytes) -> str | None:
    """The byte order of an EXIF block, or None for bytes that are none."""
    return {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4]) if len(exif) >= 8 else None


def _described(exif: bytes, order: str) -> Iterator[_Tag]:
    """The tags of IFD0 that may go along: known, of the right type, wholly inside the block."""
    start = struct.unpack_from(order + "I", exif, 4)[0]
    if start + 2 > len(exif):
        return
    count = struct.unpack_from(order + "H", exif, start)[0]
    for at in range(start + 2, min(start + 2 + 12 * count, len(exif) - 11), 12):
        tag, kind, length = struct.unpack_from(order + "HHI", exif, at)
        value = exif[at + 8 : at + 12]
        if kind not in _DESCRIPTIVE.get(tag, ()) or not length or (tag in _SINGLE and length != 1):
            continue
        offset, size = struct.unpack(order + "I", value)[0], _SIZES[kind] * length
        if tag in (_EXIF, _GPS):
            inside = 8 <= offset <= len(exif) - 2
        else:
            inside = size <= 4 or (offset >= 8 and offset + size <= len(exif))
        upright = tag != _ORIENTATION or 1 <= struct.unpack(order + "H", value[:2])[0] <= 8
        if inside and upright:
            yield _Tag(tag, kind, length, value)


def _placed(file: bytearray, order: str, tag: int, kind: int, count: int, data: bytes) -> _Tag:
    """An entry of the list of tags; a value that does not fit in it goes to the end of the file."""
    value = data.ljust(4, b"\0") if len(data) <= 4 else struct.pack(order + "I", _append(file, data))
    return _Tag(tag, kind, count, value)


def _append(file: bytearray, data: bytes) -> int:
    """Where data begins that is added to the end, at an even address."""
    file += bytes(len(file) % 2)
    start = len(file)
    file += data
    return start


def _differences(rows: Pixels, order: str) -> bytes:
    """Samples (h, w, c) less those to their left, as the file stores them."""
    result = rows.copy()
    result[:, 1:] -= rows[:, :-1]  # modulo 2^bits
    data: bytes = result.astype(result.dtype.newbyteorder(order)).tobytes()
    return data
