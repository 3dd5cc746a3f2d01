"""From the bytes of one file to a `Picture`: limits first, then the decoder, then the conversions."""

from __future__ import annotations

import ctypes
import io
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from PIL import (  # noqa: F401  (registers)
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
    _imaging,
)

from tpca_cli import formats
from tpca_cli.errors import ImageRefused, StorageError, TpcaError
from tpca_cli.formats import CHANNELS, DTYPES
from tpca_cli.images import deep as deep_color
from tpca_cli.images import headers, jpeg, metadata, plugins
from tpca_cli.images.content import FRAMES, Content
from tpca_cli.images.content_formats import content_of
from tpca_cli.images.modes import Pixels, widen
from tpca_cli.images.resize import draft_scale, resized, to_array, to_size
from tpca_cli.images.source import DIGEST_BYTES, Source, Stamp, open_source, read_source, source_digest

MAX_PIXELS = 1 << 26
MAX_SIDE = 65535
JPEG_MARK = b"\xff\xd8\xff"
_PROBE_BYTES = 4096
# Bytes per pixel that an uncompressed file may have, and room for metadata.
_FILE_BYTES_PER_PIXEL, _FILE_BYTES_BESIDE = 4, 1 << 26


def _silence_libtiff() -> None:
    """Take libtiff's error and warning printers away, once and for the whole process.

    What Pillow logs goes to whoever asked for logs, and not to stderr where nobody did. Symbols of libtiff
    are looked up through Pillow's own extension, so that it is the libtiff that Pillow uses. Where that is
    built in without its symbols, or missing, nothing is changed.
    """
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    try:
        library = ctypes.CDLL(_imaging.__file__)
        setters = library.TIFFSetErrorHandler, library.TIFFSetWarningHandler
    except (OSError, AttributeError):
        return
    for setter in setters:
        setter.argtypes, setter.restype = [ctypes.c_void_p], ctypes.c_void_p
        setter(None)


_silence_libtiff()
ImageFile.LOAD_TRUNCATED_IMAGES = False
warnings.filterwarnings("ignore", module=r"PIL\.")
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)


@dataclass(frozen=True, slots=True)
class Header:
    """What a picture will be, without its pixels."""

    height: int
    width: int
    channels: int
    dtype: str
    mode: str


@dataclass(frozen=True, slots=True)
class Picture:
    """One decoded file: pixels (h, w, c), its mode before any widening, and what else is worth keeping."""

    pixels: Pixels
    mode: str
    exif: bytes
    icc: bytes
    digest: bytes
    warnings: tuple[str, ...]
    metadata: Mapping[str, bytes] = field(default_factory=dict)  # by kind, as docs/FORMAT.md lists them
    reasons: tuple[str, ...] = ()  # what the file held that is not here, warnings included
    mode_bits: int = 0o644
    converted: bool = False  # the file has another mode than the picture: a palette, one bit, CMYK


def probe(
    path: bytes, max_pixels: int = MAX_PIXELS, *, stamp: Stamp | None = None, deep: bool = False
) -> Header:
    """The size and mode of an image from its header; the pixels may still turn out to be damaged."""
    descriptor, size = open_source(path, _file_limit(max_pixels), stamp)
    try:
        head = os.read(descriptor, _PROBE_BYTES)
        if head[:3] == JPEG_MARK:
            found = jpeg.parse(head) or jpeg.parse(head + os.read(descriptor, size))
            if found is not None:
                _check_size(found.height, found.width, max_pixels)
                return Header(found.height, found.width, found.channels, "u1", found.mode)
        kind = _kind(head)
        if kind in plugins.KINDS:  # metadata of any length may stand before what matters
            head += os.read(descriptor, size)
        os.lseek(descriptor, 0, os.SEEK_SET)
        with open(descriptor, "rb", closefd=False) as file, _refusing(kind):
            image = _open(file, kind, head, max_pixels, deep=deep)
            width, height = metadata.stored_size(image)
            mode = _target_mode(image, head)
    except OSError as error:
        raise StorageError.of(error, path, "read") from error
    finally:
        os.close(descriptor)
    return Header(height, width, CHANNELS[mode], DTYPES[mode], mode)


def read(
    path: bytes,
    *,
    max_pixels: int = MAX_PIXELS,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    stamp: Stamp | None = None,
    digest_bytes: int = DIGEST_BYTES,
    content: bool = False,
    deep: bool = False,
) -> Picture:
    """Decode one file. `size` (height, width) resizes; `channels` widens or refuses; `stamp` is what the file
    looked like when it was listed, and one that has changed since is refused. With `content`, whatever the
    file holds besides the picture is kept or named; with `deep`, color may have 16 bits per channel."""
    source = read_source(path, _file_limit(max_pixels), stamp)
    return picture_of(
        source,
        max_pixels=max_pixels,
        size=size,
        channels=channels,
        digest_bytes=digest_bytes,
        content=content,
        deep=deep,
    )


def picture_of(
    source: Source,
    *,
    max_pixels: int = MAX_PIXELS,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    digest_bytes: int = DIGEST_BYTES,
    content: bool = False,
    deep: bool = False,
) -> Picture:
    """Decode a file that is in memory, as `read` does."""
    data = source.data
    picture = _read_jpeg(data, max_pixels, size) or _read_any(data, max_pixels, size, deep=deep)
    if content:
        picture = _with_content(picture, content_of(data, picture.mode))
    pixels = picture.pixels if channels is None else widen(picture.pixels, channels)
    digest = source_digest(data, digest_bytes)
    return replace(picture, pixels=pixels, digest=digest, mode_bits=source.mode_bits)


def source_of(path: bytes, max_pixels: int = MAX_PIXELS) -> Source:
    """A file as it is, if it is no longer than an image of `max_pixels` may be."""
    return read_source(path, _file_limit(max_pixels))


def _with_content(picture: Picture, found: Content) -> Picture:
    exif = picture.exif or found.exif
    reasons = dict.fromkeys((*picture.warnings, *found.missing(exif, picture.icc)))
    return replace(picture, exif=exif, metadata=found.metadata, reasons=tuple(reasons))


def _read_jpeg(data: bytes, max_pixels: int, size: tuple[int, int] | None) -> Picture | None:
    """The quick path, or None where Pillow decides."""
    if data[:3] != JPEG_MARK:
        return None
    header = jpeg.parse(data)
    if header is None:
        return None
    _check_size(header.height, header.width, max_pixels)
    scale = 1 if size is None else draft_scale((header.height, header.width), size)
    pixels = jpeg.decode(data, header, scale)
    if pixels is None:
        return None
    pixels = resized(pixels, size)
    return Picture(pixels, header.mode, header.exif, header.icc, b"", ())


def _read_any(data: bytes, max_pixels: int, size: tuple[int, int] | None, *, deep: bool) -> Picture:
    """Everything else, and every doubtful JPEG."""
    kind = _kind(data)
    if kind == "PNG":
        headers.check_chunks(data)
    notes: list[str] = []
    with _refusing(kind):
        image = _open(io.BytesIO(data), kind, data, max_pixels, deep=deep)
        mode = _target_mode(image, data)
        orientation = metadata.tiff_orientation(image)
        exif = metadata.exif_bytes(image, notes)
        icc = metadata.icc_bytes(image, mode, notes)
        if metadata.has_more_frames(image):
            notes.append(FRAMES)
        if kind in plugins.KINDS and plugins.beside(kind):
            notes.append(plugins.beside(kind))
        if mode in _DEEP:
            pixels = _deep_pixels(data, kind, mode, max_pixels)
            if orientation is not None:
                pixels = metadata.undo_orientation(pixels, orientation)
            return Picture(resized(pixels, size), mode, exif, icc, b"", tuple(notes))
        if size is not None:
            scale = draft_scale((image.height, image.width), size)
            image.draft(None, (image.width // scale, image.height // scale))
        image.load()
        own = image.mode == mode or (mode == "I;16" and image.mode.startswith("I"))
        if mode not in ("I;16", image.mode):
            image = image.convert(mode)
        if size is not None and mode != "I;16" and orientation is None:
            pixels = to_size(image, size)  # before there is a second copy
        else:
            pixels = to_array(image)
        if orientation is not None:
            pixels = metadata.undo_orientation(pixels, orientation)
        pixels = resized(pixels, size)
    return Picture(pixels, mode, exif, icc, b"", tuple(notes), converted=not own)


def _deep_pixels(data: bytes, kind: str, mode: str, max_pixels: int) -> Pixels:
    """The samples of a picture in color with 16 bits per channel."""
    found = deep_color.ppm_pixels(data) if kind == "PPM" else None
    if found is not None:
        return found
    return deep_color.pixels_of(
        data, mode, lambda: _open(io.BytesIO(data), kind, data, max_pixels, deep=True)
    )


def _kind(head: bytes) -> str:
    kind = formats.sniff(head)
    if kind is None:
        raise ImageRefused("not an image by content")
    return kind


def _open(file: BinaryIO, kind: str, head: bytes, max_pixels: int, *, deep: bool = False) -> Image.Image:
    """Pillow's lazy view of a file whose announced size and depth are acceptable."""
    headers.check_depth(kind, head, deep=deep)
    if kind in plugins.KINDS:
        announced = plugins.check_announced(kind, head)
    else:
        announced = headers.announced_size(kind, head)
    if announced is not None:
        _check_size(*announced, max_pixels)
    if Image.MAX_IMAGE_PIXELS is not None and max_pixels > Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = max_pixels  # the user asked for more than Pillow's own limit
    image = Image.open(file, formats=[kind])
    _check_size(image.height, image.width, max_pixels)
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        _check_tiff_depth(image, deep=deep)
    if kind in plugins.KINDS:
        plugins.check_depth(kind, head, image)
    transparent = image.info.get("transparency")
    if kind == "PNG" and isinstance(transparent, int) and image.mode == "L":
        image.info["transparency"] = transparent * headers.transparent_gray_factor(head)
    return image


def _check_tiff_depth(image: TiffImagePlugin.TiffImageFile, *, deep: bool) -> None:
    """Refuse samples of more than 8 bits that Pillow would cut to 8, or give as a negative."""
    bits = image.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE, (1,))
    if max(bits) <= 8:
        return
    if max(len(bits), image.tag_v2.get(TiffImagePlugin.SAMPLESPERPIXEL, 1)) == 1:
        if image.tag_v2.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == 0:
            raise ImageRefused("gray of more than 8 bits whose zero is white is not supported")
    elif not deep or max(bits) != 16:
        raise ImageRefused(headers.TOO_DEEP)
    elif deep_color.mode_of(image) is None:  # uncompressed planes: Pillow takes them for planes of 8 bits
        raise ImageRefused("16 bits per channel in planes of their own are not supported uncompressed")


def _check_size(height: int, width: int, max_pixels: int) -> None:
    if height < 1 or width < 1:
        raise ImageRefused("image without pixels")
    if height * width > max_pixels:
        raise ImageRefused(f"{height}x{width} pixels are more than {max_pixels}; raise --max-pixels")
    if max(height, width) > MAX_SIDE:
        raise ImageRefused(f"{height}x{width}: a side is longer than {MAX_SIDE} pixels")


def _file_limit(max_pixels: int) -> int:
    return _FILE_BYTES_PER_PIXEL * max_pixels + _FILE_BYTES_BESIDE


@contextmanager
def _refusing(kind: str) -> Iterator[None]:
    """Whatever Pillow makes of a damaged file becomes a refusal; a failing disk stays what it is."""
    try:
        yield
    except (TpcaError, MemoryError):
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise ImageRefused("far more pixels than can be decoded safely; raise --max-pixels") from None
    except UnidentifiedImageError:
        raise ImageRefused(f"damaged or unsupported {kind} file") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise ImageRefused(f"{kind} cannot be decoded: {text}") from error


_PLAIN = {
    "1": "L",
    "L": "L",
    "LA": "LA",
    "La": "LA",
    "P": "RGB",
    "PA": "RGBA",
    "RGB": "RGB",
    "RGBX": "RGB",
    "RGBA": "RGBA",
    "RGBa": "RGBA",
    "CMYK": "RGB",
    "I;16": "I;16",
    "I;16B": "I;16",
    "I;16L": "I;16",
}
_WITH_ALPHA = {"1": "LA", "L": "LA", "P": "RGBA", "RGB": "RGBA"}
_REASONS = {
    "F": "floating-point samples",
    "I": "32-bit or signed samples",
    "LAB": "LAB colors",
    "YCbCr": "YCbCr colors",
}


_DEEP = frozenset({"LA;16", "RGB;16", "RGBA;16"})


def _target_mode(image: Image.Image, head: bytes) -> str:
    """Which of the modes holds this image without loss (CMYK: by the documented conversion)."""
    deep = deep_color.mode_of(image)
    if deep is not None:
        return deep
    if image.format == "PPM" and image.mode == "RGB" and (headers.ppm_numbers(head) or (0, 0, 0))[2] > 255:
        return "RGB;16"
    if image.mode == "I" and image.format in ("PPM", "PNG"):  # 16 bits, in Pillow's wider container
        mode = "I;16"
    elif image.mode in _PLAIN:
        mode = _PLAIN[image.mode]
    else:
        raise ImageRefused(f"{_REASONS.get(image.mode, f'samples of mode {image.mode}')} are not supported")
    if image.has_transparency_data:
        if mode == "I;16":
            raise ImageRefused("16-bit gray with a transparent value is not supported")
        mode = _WITH_ALPHA.get(image.mode, mode)
    return mode
