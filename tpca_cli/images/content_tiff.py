"""The tags of a TIFF file: every one is known, or named as not kept."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tpca_cli.images.content import Parts, photoshop_resources

_SIZES = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}
_MAX_ENTRIES = 4096
_SUBFILE, _OLD_SUBFILE, _BITS, _PHOTOMETRIC, _SAMPLES, _EXTRA = 254, 255, 258, 262, 277, 338
_YCBCR, _REFERENCE = 6, 532  # the values of black and white, with which Pillow reads YCbCr alone
_SAMPLE_FORMAT = 339  # 1 unsigned, 4 undefined; signed ones are read as if they were unsigned
_EXIF, _GPS, _INTEROP, _MAKER_NOTE = 34665, 34853, 40965, 37500
_STRIPS, _TILES, _OLD_JPEG = (273, 279), (324, 325), (513, 514)
# How the picture is stored; strips, tiles, tables of the coders, color map.
_STORAGE = frozenset(
    {
        256,
        257,
        258,
        259,
        262,
        263,
        264,
        265,
        266,
        273,
        277,
        278,
        279,
        284,
        288,
        289,
        292,
        293,
        317,
        320,
        322,
        323,
    }
    | {324, 325, 338, 339, 347, 512, 513, 514, 515, 517, 518, 519, 520, 521, 529, 530, 531, 532, 254, 255}
)
# Kept in EXIF, which is a TIFF structure itself.
DESCRIPTIVE = frozenset(
    {269, 270, 271, 272, 274, 282, 283, 285, 296, 297, 305, 306, 315, 316, 33432, _EXIF, _GPS}
    | {40091, 40092, 40093, 40094, 40095}
)
_NAMED = {
    330: "further pictures (SubIFDs)",
    37724: "Photoshop layers",
    **dict.fromkeys((33550, 33922, 34264, 34735, 34736, 34737, 42112, 42113), "GeoTIFF tags"),
    **dict.fromkeys((50838, 50839), "tags of ImageJ"),
    **dict.fromkeys(range(50706, 51182), "raw data of a camera"),
    **dict.fromkeys((33421, 33422, 37398, 46275), "raw data of a camera"),
    **dict.fromkeys((301, 318, 319), "a description of its colors"),
}
_BANDS = {0: 1, 1: 1, 2: 3, 3: 1, 5: 4, 6: 3}


@dataclass(frozen=True)
class _Entry:
    kind: int
    count: int
    start: int
    size: int


class _Tiff:
    """The structure of a file; remembers how far it reaches."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.order = "<" if data[:2] == b"II" else ">"
        self.big = self.unpack("H", 2)[0] == 43
        self.end = 16 if self.big else 8

    def unpack(self, layout: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(self.order + layout, self.data, at)

    def first(self) -> int:
        return self.unpack("Q", 8)[0] if self.big else self.unpack("I", 4)[0]

    def directory(self, at: int) -> tuple[dict[int, _Entry], int]:
        """The entries of a directory, and where the next one is."""
        count = self.unpack("Q" if self.big else "H", at)[0]
        if count > _MAX_ENTRIES:
            raise ValueError(f"{count} tags")
        width, inline = (20, 8) if self.big else (12, 4)
        at += 8 if self.big else 2
        entries = {}
        for _ in range(count):
            tag, kind, number = self.unpack("HHQ" if self.big else "HHI", at)
            size = _SIZES.get(kind, 0) * number
            start = at + width - inline
            if size > inline:
                start = self.unpack("Q" if self.big else "I", start)[0]
                self.reach(start, size)
            entries[tag] = _Entry(kind, number, start, size)
            at += width
        following = self.unpack("Q" if self.big else "I", at)[0]
        self.reach(at, 8 if self.big else 4)
        return entries, following

    def reach(self, start: int, size: int) -> None:
        if start + size > len(self.data):
            raise ValueError("a value outside the file")
        self.end = max(self.end, start + size)

    def raw(self, entry: _Entry) -> bytes:
        return self.data[entry.start : entry.start + entry.size]

    def numbers(self, entry: _Entry | None) -> tuple[int, ...]:
        if entry is None:
            return ()
        layout = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}.get(entry.kind)
        if layout is None:
            return ()
        return self.unpack(f"{entry.count}{layout}", entry.start)


def tiff_content(data: bytes, mode: str, parts: Parts) -> None:
    """Everything but the picture."""
    file = _Tiff(data)
    tags, following = file.directory(file.first())
    if following:
        parts.note("further pages")
    for tag, entry in tags.items():
        if tag == 700:
            parts.keep("xmp", file.raw(entry).rstrip(b"\0"))
        elif tag == 33723:
            parts.keep("iptc", file.raw(entry))
        elif tag == 34377:
            photoshop_resources(file.raw(entry), parts)
        elif tag == 34675:
            parts.carries.add("icc")
        elif tag in DESCRIPTIVE:
            parts.carries.add("exif")
        elif tag not in _STORAGE:
            parts.note(_NAMED.get(tag, f"the TIFF tag {tag}"))
    _check_picture(file, tags, mode, parts)
    _check_exif(file, tags, parts)
    if not following and 330 not in tags:
        for starts, sizes in (_STRIPS, _TILES, _OLD_JPEG):
            for start, size in zip(
                file.numbers(tags.get(starts)), file.numbers(tags.get(sizes)), strict=False
            ):
                file.end = max(file.end, start + size)
        parts.after_end(data[file.end :])


def _check_picture(file: _Tiff, tags: dict[int, _Entry], mode: str, parts: Parts) -> None:
    """Whether the picture is the one that the file is about, with all of its samples."""
    reduced = file.numbers(tags.get(_SUBFILE)) not in ((), (0,))
    if reduced or file.numbers(tags.get(_OLD_SUBFILE)) not in ((), (1,)):
        parts.note("the full picture (the first one is a reduced version, a page or a mask)")
    if set(file.numbers(tags.get(_SAMPLE_FORMAT))) - {1, 4}:
        parts.note("samples that are not unsigned")
    if any(8 < bits < 16 for bits in file.numbers(tags.get(_BITS))):
        parts.note("the number of bits of its samples, which are kept in 16")
    photometric = (*file.numbers(tags.get(_PHOTOMETRIC)), 1)[0]
    samples = (*file.numbers(tags.get(_SAMPLES)), 1)[0]
    if photometric == 5:
        parts.note("colors of CMYK, which became RGB")
    if photometric != _YCBCR and _REFERENCE in tags:
        parts.note("a description of its colors")
    if photometric not in _BANDS:
        parts.note("raw data of a camera, or colors of an unusual kind")
        return
    extra = samples - _BANDS[photometric]
    alpha = mode.partition(";")[0] in ("LA", "RGBA")
    if extra > alpha:
        parts.note("bands besides color and alpha")
    if alpha and file.numbers(tags.get(_EXTRA))[:1] == (1,):
        parts.note("colors multiplied by alpha, which were divided again")


def _check_exif(file: _Tiff, tags: dict[int, _Entry], parts: Parts) -> None:
    """Directories inside: their tags are copied into a new block, where notes of cameras lose their way."""
    for tag in (_EXIF, _GPS):
        for at in file.numbers(tags.get(tag)):
            inner, _ = file.directory(at)
            if _MAKER_NOTE in inner:
                parts.note("notes of the camera maker")
            if _INTEROP in inner:
                parts.note("interoperability tags")
