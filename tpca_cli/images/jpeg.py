"""JPEG the quick way: headers read here, pixels by simplejpeg, and nothing that leaves a doubt.

Every function answers None where Pillow should decide instead: CMYK, unusual coding, several pictures in one
file, a header that does not parse, data that the decoder complains about. What is answered equals Pillow's
answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import simplejpeg

from tpca_cli.errors import ImageRefused
from tpca_cli.images.modes import Pixels

_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SOS, _EOI, _APP0, _APP1, _APP2 = 0xDA, 0xD9, 0xE0, 0xE1, 0xE2
# Each scan of a progressive file costs a pass over all pixels; encoders write about ten.
_MAX_SCANS = 100


@dataclass(frozen=True, slots=True)
class Jpeg:
    """What the markers say before the first scan."""

    height: int
    width: int
    channels: int
    exif: bytes
    icc: bytes
    progressive: bool
    jfif: bool

    @property
    def mode(self) -> str:
        """`L` for one channel, `RGB` otherwise."""
        return "L" if self.channels == 1 else "RGB"


def parse(data: bytes) -> Jpeg | None:
    """The header of a plain JPEG; None also when `data` ends before the first scan."""
    position, end = 2, len(data)
    frame: tuple[int, int, int, bool] | None = None
    exif = b""
    profile: list[bytes] = []
    jfif = False
    while True:
        if position + 4 > end or data[position] != 0xFF:
            return None
        marker = data[position + 1]
        length = data[position + 2] << 8 | data[position + 3]
        if marker == _SOS:
            break
        after = position + 2 + length
        if marker < 0xC0 or length < 2 or after > end or 0xD0 <= marker <= _EOI:
            return None
        if marker in _FRAMES:
            if marker > _PROGRESSIVE or frame is not None or length < 8 or data[position + 4] != 8:
                return None
            height = data[position + 5] << 8 | data[position + 6]
            width = data[position + 7] << 8 | data[position + 8]
            frame = (height, width, data[position + 9], marker == _PROGRESSIVE)
        elif marker == _APP0:
            jfif = jfif or data[position + 4 : position + 9] == b"JFIF\0"
        elif marker == _APP1 and data[position + 4 : position + 10] == b"Exif\0\0":
            exif += data[position + 10 : after]
        elif marker == _APP2:
            if data[position + 4 : position + 8] == b"MPF\0":
                return None
            if data[position + 4 : position + 16] == b"ICC_PROFILE\0":
                profile.append(data[position + 16 : after])
        position = after
    if frame is None or frame[2] not in (1, 3) or not frame[0] or not frame[1]:
        return None
    return Jpeg(frame[0], frame[1], frame[2], exif, _join_profile(profile), frame[3], jfif)


def _join_profile(parts: list[bytes]) -> bytes:
    """An ICC profile from its numbered parts; an incomplete one is worth nothing."""
    parts = sorted(parts)
    if not parts or len(parts[0]) < 2 or parts[0][1] != len(parts):
        return b""
    return b"".join(part[2:] for part in parts)


def decode(data: bytes, header: Jpeg, scale: int = 1) -> Pixels | None:
    """The pixels, (h, w, c) uint8, at 1/scale of the size (1, 2, 4 or 8) by the decoder's own reduction."""
    if header.progressive and data.count(b"\xff\xda") > _MAX_SCANS:
        raise ImageRefused(f"progressive JPEG with more than {_MAX_SCANS} scans")
    try:
        # JFIF means YCbCr or gray; without it the decoder goes by other marks, and we ask what it found
        if not header.jfif and simplejpeg.decode_jpeg_header(data)[2] not in ("YCbCr", "Gray"):
            return None
        target = "GRAY" if header.channels == 1 else "RGB"
        height, width = -(-header.height // scale), -(-header.width // scale)
        if scale == 1:
            pixels: Pixels = simplejpeg.decode_jpeg(data, target)
        else:
            pixels = simplejpeg.decode_jpeg(data, target, min_height=height, min_width=width)
    except ValueError:
        return None
    return pixels if pixels.shape == (height, width, header.channels) else None
