"""Skeletons of JPEG files, coded against those that other files of the folder have.

Files of one folder have come out of few programs: most share their headers and tables, and differ in the size
of the picture alone, which the archive knows. So a group holds *templates*, common skeletons without that
size, and a file names its template in one byte; whatever has none is deflated, with the templates as
dictionary.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpca_cli.errors import FileRefused
from tpca_cli.exact.jpeg import Skeleton, frame_at

MOST_TEMPLATES, TEMPLATE_BYTES = 120, 1 << 15
WINDOW = 1 << 15
"""What deflate can look back on."""


@dataclass(frozen=True)
class Templates:
    """Common skeletons without the size of the picture and other common segments, the most frequent first."""

    skeletons: tuple[bytes, ...] = ()
    segments: tuple[bytes, ...] = ()

    @classmethod
    def common(cls, skeletons: Iterable[bytes]) -> Templates:
        """What a sample of files has more than once, and its most frequent skeleton in any case."""
        bare = [_without_size(data) for data in skeletons]
        kept = _frequent(Counter(bare), TEMPLATE_BYTES, MOST_TEMPLATES, anyway=1)
        inside = b"".join(kept)
        segments = Counter(part for data in bare for part in segments_of(data) if part not in inside)
        return cls(tuple(kept), tuple(_frequent(segments, WINDOW - len(inside[:WINDOW]), 1000)))

    def pack(self, skeletons: Sequence[Skeleton]) -> bytes:
        """The skeletons of one block."""
        known = {data: number for number, data in enumerate(self.skeletons, 1)}
        out = bytearray()
        for skeleton in skeletons:
            bare = _without_size(skeleton.data)
            out += bytes([skeleton.padding + 1, known.get(bare, 0)])
            if bare not in known:
                out += len(bare).to_bytes(4, "little") + bare
        packer = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zdict=self._dictionary)
        return packer.compress(bytes(out)) + packer.flush()

    def unpack(self, data: bytes, shapes: Sequence[tuple[int, int]], most: int) -> list[Skeleton]:
        """The inverse of `pack` for files of these pictures that have `most` bytes together."""
        unpacker = zlib.decompressobj(-15, zdict=self._dictionary)
        try:
            flat = unpacker.decompress(data, most + 6 * len(shapes) + 1)
        except zlib.error as error:
            raise FileRefused(f"headers of JPEG files that cannot be read ({error})") from None
        if unpacker.unconsumed_tail or unpacker.unused_data or not unpacker.eof:
            raise FileRefused("headers of JPEG files that are too long")
        found, at = [], 0
        for shape in shapes:
            if at + 2 > len(flat) or flat[at] > 2 or flat[at + 1] > len(self.skeletons):
                raise FileRefused("headers of JPEG files that cannot be read")
            padding, number = flat[at] - 1, flat[at + 1]
            at += 2
            if number:
                bare = self.skeletons[number - 1]
            else:
                length = int.from_bytes(flat[at : at + 4], "little")
                bare = flat[at + 4 : at + 4 + length]
                at += 4 + length
            if at > len(flat):
                raise FileRefused("headers of JPEG files that end early")
            found.append(Skeleton(_with_size(bare, shape), padding))
        return found

    @property
    def _dictionary(self) -> bytes:
        # what is near is cheaper: the most frequent last
        return b"".join([*reversed(self.segments), *reversed(self.skeletons)])[-WINDOW:]


def _frequent(counts: Counter[bytes], room: int, most: int, anyway: int = 0) -> list[bytes]:
    """What is there more than once, as far as there is room, the most frequent first."""
    kept: list[bytes] = []
    for data, times in counts.most_common(most):
        if (times > 1 or len(kept) < anyway) and len(data) <= room:
            kept.append(data)
            room -= len(data)
    return kept


def segments_of(data: bytes) -> list[bytes]:
    """The segments of a skeleton up to its first scan."""
    found, at = [], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] not in (0xD9, 0xDA):
        stop = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        found.append(data[at:stop])
        at = stop
    return found


def _without_size(data: bytes) -> bytes:
    return _with_size(data, (0, 0))


def _with_size(data: bytes, shape: tuple[int, int]) -> bytes:
    at = frame_at(data) + 5
    if at < 5:
        return data
    size = b"".join(side.to_bytes(2, "big") for side in shape)
    return data[:at] + size + data[at + 4 :]
