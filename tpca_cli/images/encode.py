"""Pixels to the bytes of an image file, the mirror of `decode`; the caller writes them.

Every file is decoded again before it is handed out: a reader gets these pixels, or (JPEG) an error that was
measured. What a format cannot hold is known from `obstacle` and `left_out` before anything is encoded.

XMP, IPTC, text and density go back where the format has a place for them. The kinds and their blobs are those
of the archive: `xmp` and `iptc` as they are, `text` a JSON list of [keyword, text] or [keyword, text,
language, translated keyword], `density` a JSON list [x, y, unit] with inch, cm, meter or null, `png` chunks
that belong to the colors.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from tpca_cli.errors import TpcaError, UsageError
from tpca_cli.formats import CHANNELS, DTYPES
from tpca_cli.images import decode, deep, metadata, tiff
from tpca_cli.images.deep import chunk
from tpca_cli.images.modes import Pixels, common_channels, widen
from tpca_cli.images.resize import strips, to_array

_MODES: dict[str, frozenset[str]] = {
    "png": frozenset(CHANNELS),
    "tiff": frozenset(CHANNELS) - {"LA;16"},
    "webp": frozenset({"L", "LA", "RGB", "RGBA"}),
    "jpeg": frozenset({"L", "RGB"}),
    "bmp": frozenset({"L", "RGB"}),
    "ppm": frozenset({"L", "RGB", "I;16", "RGB;16"}),
}
OUTPUT_FORMATS: tuple[str, ...] = tuple(_MODES)
NOT_HELD = {
    **{mode: "samples of 16 bits" for mode in CHANNELS if DTYPES[mode] == "u2"},
}
_MAX_SIDE = {"webp": 16383, "jpeg": 65500}
_MAX_SEGMENT = 65533 - len(b"Exif\0\0")  # what one segment of a JPEG holds

_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"compress_level": 4},
    "webp": {"lossless": True, "exact": True, "quality": 50, "method": 2},
    "jpeg": {"subsampling": 0},
    "bmp": {},
    "ppm": {},
}
LOSSY_CODECS: dict[str, dict[str, Any]] = {"JPEG": {"optimize": True}, "WebP": {"method": 4}}
_WITH_METADATA = frozenset({"png", "tiff", "webp", "jpeg"})
_QUALITIES = (95, 97, 98, 99, 100)  # of JPEG, tried in turn

_NAMES = {"xmp": "XMP", "iptc": "IPTC", "text": "texts", "density": "density", "png": "PNG color chunks"}
_HELD: dict[str, frozenset[str]] = {
    "png": frozenset(_NAMES),
    "jpeg": frozenset({"xmp", "iptc", "text", "density"}),
    "tiff": frozenset({"xmp", "iptc", "density"}),
    "webp": frozenset({"xmp"}),
    "bmp": frozenset({"density"}),
    "ppm": frozenset({"text"}),
}
_COLOR_CHUNKS = frozenset(
    {b"gAMA", b"cHRM", b"sRGB", b"cICP", b"mDCV", b"mDCv", b"cLLI", b"cLLi", b"tIME", b"sBIT", b"bKGD"}
)
_SEGMENT = 65533
_XMP, _PHOTOSHOP = b"http://ns.adobe.com/xap/1.0/\0", b"Photoshop 3.0\0"
_PNG_XMP = b"XML:com.adobe.xmp"
_PNG_START = 33  # after the signature and IHDR
_PER_METER = {"inch": 1 / 0.0254, "cm": 100.0, "meter": 1.0}


@dataclass(frozen=True)
class Extras:
    """What goes into a file besides its pixels; `metadata` by kind, as above."""

    exif: bytes = b""
    icc: bytes = b""
    metadata: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self.exif) + len(self.icc) + sum(map(len, self.metadata.values()))


NOTHING = Extras()


def obstacle(format: str, mode: str, height: int, width: int, extras: Extras = NOTHING) -> str | None:
    """Why a format cannot hold an image as it is, or None."""
    if mode not in _MODES[format]:
        return f"{format} holds no {NOT_HELD.get(mode, 'alpha channel')}"
    side = _MAX_SIDE.get(format, decode.MAX_SIDE)
    if max(height, width) > side:
        return f"{format} holds at most {side} pixels in a row, not {max(height, width)}"
    if format == "jpeg" and len(extras.exif) > _MAX_SEGMENT:
        return f"jpeg holds at most {_MAX_SEGMENT} bytes of EXIF, not {len(extras.exif)}"
    if format == "tiff" and not tiff.fits(height, width, CHANNELS[mode], extras.size):
        return "tiff holds at most 4 GB"
    return None


def left_out(format: str, extras: Extras) -> tuple[str, ...]:
    """Which metadata of an image have no place in a format."""
    rest = _place(format, extras.metadata)[1]
    if format not in _WITH_METADATA:
        named = (("EXIF", extras.exif), ("ICC profile", extras.icc))
        return (*(name for name, blob in named if blob), *rest)
    if format == "tiff" and extras.exif and not tiff.is_exif(extras.exif):
        return ("EXIF that is damaged", *rest)
    return rest


def encode_file(
    pixels: Pixels, mode: str, *, format: str = "png", extras: Extras = NOTHING, quality: int = 95
) -> bytes:
    """The file for pixels (h, w, c) of a mode; every format but `jpeg` gives exactly these pixels back."""
    if format not in _MODES:
        raise UsageError(f"cannot write format {format}; choose one of {', '.join(OUTPUT_FORMATS)}")
    reason = obstacle(format, mode, pixels.shape[0], pixels.shape[1], extras)
    if reason is not None:
        raise UsageError(f"{reason}; choose png or tiff")
    if pixels.dtype != np.dtype(DTYPES[mode]) or pixels.ndim != 3 or pixels.shape[2] != CHANNELS[mode]:
        raise ValueError(f"{pixels.dtype} pixels of shape {pixels.shape} are not mode {mode}")
    held, _ = _place(format, extras.metadata)
    if format == "tiff":
        blobs = {700: held.get("xmp", b""), 33723: held.get("iptc", b""), 34675: extras.icc}
        density = _in_rationals(held["density"]) if "density" in held else None
        data = tiff.tiff_file(pixels, exif=extras.exif, blobs=blobs, density=density)
    else:
        data = _insert(_saved(pixels, format, extras, held, quality), format, held)
    if format != "jpeg":
        for top, found in _decoded(data, format, pixels):
            wanted = pixels[top : top + len(found)]
            # WebP has color only, and no alpha that is opaque everywhere: the same picture is what counts
            channels = common_channels([found.shape[2], pixels.shape[2]])
            if not np.array_equal(widen(found, channels), widen(wanted, channels)):
                raise TpcaError(f"what was written as {format} does not read back as the same pixels")
    return data


def encode_jpeg(pixels: Pixels, mode: str, allowed: float, extras: Extras = NOTHING) -> bytes | None:
    """A JPEG whose mean squared error against the pixels is below `allowed`, or None where there is none."""
    for quality in _QUALITIES:
        data = encode_file(pixels, mode, format="jpeg", extras=extras, quality=quality)
        error = 0
        for top, found in _decoded(data, "jpeg", pixels):
            difference = found.astype(np.int64) - pixels[top : top + len(found)]
            error += int(np.vdot(difference, difference))
        if error < allowed * pixels.size:
            return data
    return None


def _saved(pixels: Pixels, format: str, extras: Extras, held: Mapping[str, bytes], quality: int) -> bytes:
    """The file as Pillow writes it, or `deep` what Pillow does not."""
    if pixels.dtype == np.uint16 and pixels.shape[2] > 1:
        if format == "ppm":
            return deep.ppm_file(pixels)
        return deep.png_file(pixels, exif=extras.exif, icc=extras.icc)
    image = Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    options = dict(_OPTIONS[format])
    if format == "jpeg":
        options["quality"] = quality
    if format == "webp" and "xmp" in held:
        options["xmp"] = held["xmp"]
    if format in _WITH_METADATA:
        if extras.exif:
            options["exif"] = b"Exif\0\0" + extras.exif
        if extras.icc:
            options["icc_profile"] = extras.icc
    file = io.BytesIO()
    image.save(file, format.upper(), **options)
    return file.getvalue()


def _decoded(data: bytes, format: str, pixels: Pixels) -> Iterator[tuple[int, Pixels]]:
    """What a reader makes of the file of these pixels, as stored and not turned upright.

    Strips (rows, w, c), each with its first row; the size is that of the pixels.
    """
    unreadable = f"what was written as {format} does not read back"
    try:
        most = pixels.shape[0] * pixels.shape[1]
        image = decode._open(io.BytesIO(data), format.upper(), data, most, deep=True)
        orientation = metadata.tiff_orientation(image)
        parts: Iterator[tuple[int, Pixels]]
        if pixels.dtype == np.uint16 and pixels.shape[2] > 1:
            mode = decode._target_mode(image, data)
            parts = iter([(0, decode._deep_pixels(data, format.upper(), mode, most))])
        else:
            image.load()
            whole = orientation is not None
            parts = iter([(0, to_array(image))]) if whole else strips(image)
        if orientation is not None:
            parts = iter([(0, metadata.undo_orientation(next(parts)[1], orientation))])
        row = 0
        for row, found in parts:
            if found.shape[1] != pixels.shape[1]:
                break
            yield row, found
            row += len(found)
    except (OSError, ValueError, SyntaxError, struct.error) as error:
        raise TpcaError(f"{unreadable}: {error}") from error
    if row != pixels.shape[0]:
        raise TpcaError(f"{unreadable} at its size")


def lossy_copy(pixels: Pixels, codec: str, quality: int) -> tuple[int, Pixels]:
    """An 8-bit gray or color picture through one of LOSSY_CODECS: the bytes of the file, and its pixels.

    The codec's own defaults otherwise, subsampled color included: this measures what people would store.
    """
    gray = pixels.shape[2] == 1
    file = io.BytesIO()
    image = Image.fromarray(pixels[:, :, 0] if gray else pixels)
    image.save(file, codec.upper(), quality=quality, **LOSSY_CODECS[codec])
    size = file.getbuffer().nbytes
    file.seek(0)
    with Image.open(file, formats=[codec.upper()]) as back:
        decoded = np.asarray(back.convert("L" if gray else "RGB"))
    return size, decoded[:, :, None] if gray else decoded  # (h, w, c)


def _place(format: str, metadata: Mapping[str, bytes]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """What of the metadata a format holds, and the names of the rest."""
    held = {
        kind: blob for kind, blob in metadata.items() if kind in _HELD[format] and _fits(format, kind, blob)
    }
    return held, tuple(_NAMES.get(kind, kind) for kind in metadata if kind not in held)


def _insert(data: bytes, format: str, held: Mapping[str, bytes]) -> bytes:
    """The file with these metadata; TIFF and WebP get theirs while they are written."""
    if format == "png":
        return data[:_PNG_START] + b"".join(_png_chunks(held)) + data[_PNG_START:]
    if format == "jpeg":
        return _jpeg_header(data, held) + b"".join(_jpeg_segments(held)) + data[20:]
    if format == "bmp":  # Pillow would write one of its own
        density = _per_meter(held["density"]) if "density" in held else (0, 0)
        return data[:38] + struct.pack("<ii", *density) + data[46:]
    if format == "ppm" and "text" in held:
        lines = b"".join(b"# " + item[1].encode() + b"\n" for item in _texts(held["text"]))
        return data[:3] + lines + data[3:]
    return data


def _per_meter(blob: bytes) -> tuple[int, int]:
    """A density in whole pixels per meter."""
    x, y, unit = _density(blob)
    return round(x * _PER_METER[unit or "meter"]), round(y * _PER_METER[unit or "meter"])


def _in_rationals(blob: bytes) -> tuple[int, int, int, int]:
    """A density as TIFF has it: x and y over a denominator, and the unit (1 none, 2 inch, 3 cm)."""
    x, y, unit = _density(blob)
    below = 100 if unit == "meter" else 1
    return x, y, below, {None: 1, "inch": 2}.get(unit, 3)


def _density(blob: bytes) -> tuple[int, int, str | None]:
    x, y, unit = json.loads(blob)
    if type(x) is not int or type(y) is not int or unit not in (None, *_PER_METER):
        raise ValueError("not a density")
    if not (0 < x < 2**31 and 0 < y < 2**31):
        raise ValueError("not a density")
    return x, y, unit


def _texts(blob: bytes) -> list[list[str]]:
    items: Any = json.loads(blob)
    if not all(isinstance(part, str) for item in items for part in item):
        raise ValueError("not a list of texts")
    if any(len(item) not in (2, 4) or any(b"\0" in part.encode() for part in item) for item in items):
        raise ValueError("not a list of texts")
    return [list(item) for item in items]


def _fits(format: str, kind: str, blob: bytes) -> bool:
    """Whether a format that has a place for a kind can hold this one."""
    try:
        if kind == "density":
            unit = _density(blob)[2]
            if format == "jpeg":
                return max(_jfif(blob)[1:]) < 2**16
            return max(_per_meter(blob)) < 2**31 and (unit is not None or format != "bmp")
        if kind == "text":
            items = _texts(blob)
            if format == "png":
                return all(0 < len(item[0].encode("latin-1")) < 80 for item in items)
            comments = all(len(item) == 2 and item[0] == "Comment" for item in items)
            if format == "ppm":
                return comments and not any(set(item[1]) & set("\r\n") for item in items)
            return comments and all(len(item[1].encode()) <= _SEGMENT for item in items)
        if kind == "xmp" and format == "jpeg":
            return len(blob) <= _SEGMENT - len(_XMP)
        if kind == "png":
            return all(name in _COLOR_CHUNKS for name, _ in _color_chunks(blob))
    except (ValueError, TypeError, struct.error):
        return False
    return True


def _color_chunks(blob: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(blob):
        name, length = struct.unpack_from(">4sI", blob, at)
        if at + 8 + length > len(blob):
            raise ValueError("cut short")
        yield name, blob[at + 8 : at + 8 + length]
        at += 8 + length


def _png_chunks(held: Mapping[str, bytes]) -> Iterator[bytes]:
    for name, body in _color_chunks(held.get("png", b"")):
        yield chunk(name, body)
    if "density" in held:
        unit = _density(held["density"])[2]
        yield chunk(b"pHYs", struct.pack(">IIB", *_per_meter(held["density"]), unit is not None))
    if "xmp" in held:
        yield chunk(b"iTXt", _PNG_XMP + b"\0\0\0\0\0" + held["xmp"])
    if "iptc" in held:
        yield chunk(b"zTXt", b"Raw profile type iptc\0\0" + zlib.compress(_raw_profile(held["iptc"])))
    for keyword, text, *more in _texts(held["text"]) if "text" in held else ():
        if not more and _is_latin(text):
            yield chunk(b"tEXt", keyword.encode("latin-1") + b"\0" + text.encode("latin-1"))
            continue
        language, translated = more or ("", "")
        head = keyword.encode("latin-1") + b"\0\0\0" + language.encode("latin-1", "replace")
        yield chunk(b"iTXt", head + b"\0" + translated.encode() + b"\0" + text.encode())


def _is_latin(text: str) -> bool:
    return all(ord(letter) < 256 for letter in text)


def _raw_profile(blob: bytes) -> bytes:
    """Bytes as the hexadecimal text by which programs keep profiles in PNG files."""
    digits = blob.hex()
    lines = [digits[at : at + 72] for at in range(0, len(digits), 72)]
    return f"\niptc\n{len(blob):8d}\n{chr(10).join(lines)}\n".encode()


def _jfif(blob: bytes) -> tuple[int, int, int]:
    """Unit (0 none, 1 inch, 2 cm) and whole pixels in it."""
    x, y, unit = _density(blob)
    if unit == "meter":
        return 1, max(1, round(x * 0.0254)), max(1, round(y * 0.0254))
    return {None: 0, "inch": 1}.get(unit, 2), x, y


def _jpeg_header(data: bytes, held: Mapping[str, bytes]) -> bytes:
    """SOI and the JFIF segment, which has the density."""
    if data[2:4] != b"\xff\xe0" or data[6:11] != b"JFIF\0":
        raise ValueError("not a JFIF file")
    if "density" not in held:
        return data[:20]
    return data[:13] + struct.pack(">BHH", *_jfif(held["density"])) + data[18:20]


def _jpeg_segments(held: Mapping[str, bytes]) -> Iterator[bytes]:
    def segment(marker: int, body: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    if "xmp" in held:
        yield segment(0xE1, _XMP + held["xmp"])
    if "iptc" in held:
        blob = held["iptc"]
        resource = b"8BIM\x04\x04\0\0" + struct.pack(">I", len(blob)) + blob + bytes(len(blob) % 2)
        step = _SEGMENT - len(_PHOTOSHOP)
        for at in range(0, len(resource), step):
            yield segment(0xED, _PHOTOSHOP + resource[at : at + step])
    for item in _texts(held["text"]) if "text" in held else ():
        yield segment(0xFE, item[1].encode())
