"""What travels beside the pixels: EXIF, ICC profiles, orientation, further frames.

EXIF is kept as the TIFF structure alone, without the `Exif` mark that some containers put before it.
"""

from __future__ import annotations

import numpy as np
from PIL import ExifTags, Image, TiffImagePlugin

from tpca_cli.images.content_tiff import DESCRIPTIVE
from tpca_cli.images.modes import Pixels

_MARK = b"Exif\0\0"
_ORIENTATION = int(ExifTags.Base.Orientation)
_NESTED = (ExifTags.IFD.Exif, ExifTags.IFD.GPSInfo)


def exif_bytes(image: Image.Image, notes: list[str]) -> bytes:
    """The EXIF block of a file that is open but not loaded, as it stands where the container allows."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        raw = image.info.get("exif", b"")
        return raw.removeprefix(_MARK) if isinstance(raw, bytes) else b""
    try:
        found = image.getexif()
        exif = Image.Exif()
        for tag, value in found.items():
            if tag in DESCRIPTIVE:
                exif[tag] = value
        for nested in _NESTED:
            if nested in exif:
                exif[nested] = dict(found.get_ifd(nested))
        if not len(exif):
            return b""
        block = exif.tobytes()
        if not _same_tags(found, block):
            notes.append("EXIF tags that cannot be copied")
        return block.removeprefix(_MARK)
    except MemoryError:
        raise
    except Exception:  # the tags of a stranger's file: any of Pillow's readers and writers may stumble
        notes.append("EXIF tags that cannot be copied")
        return b""


def _same_tags(found: Image.Exif, block: bytes) -> bool:
    """Whether a block gives back every tag that was put into it."""
    again = Image.Exif()
    again.load(block)
    plain = [tag for tag in found if tag in DESCRIPTIVE and tag not in _NESTED]
    return all(again.get(tag) == found[tag] for tag in plain) and all(
        dict(again.get_ifd(nested)) == dict(found.get_ifd(nested)) for nested in _NESTED
    )


def orientation_only(exif: bytes) -> bytes:
    """EXIF that says how to turn the picture and nothing else; empty where it need not be turned."""
    block = Image.Exif()
    try:
        block.load(_MARK + exif)
        orientation = block.get(_ORIENTATION)
    except Exception:  # a stranger's EXIF: any of Pillow's readers may stumble
        return b""
    if not isinstance(orientation, int) or not 2 <= orientation <= 8:
        return b""
    bare = Image.Exif()
    bare[_ORIENTATION] = orientation
    return bare.tobytes().removeprefix(_MARK)


def icc_bytes(image: Image.Image, mode: str, notes: list[str]) -> bytes:
    """The color profile, unless the conversion to `mode` made it wrong."""
    profile = image.info.get("icc_profile") or b""
    if not isinstance(profile, bytes):
        return b""
    if profile and image.mode == "CMYK" and mode != "CMYK":
        notes.append("the CMYK color profile, which does not fit RGB")
        return b""
    return profile


def tiff_orientation(image: Image.Image) -> int | None:
    """The orientation by which Pillow turns a TIFF while loading (and then forgets), or None."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return None
    value = image.tag_v2.get(_ORIENTATION)
    return value if isinstance(value, int) and 2 <= value <= 8 else None


def stored_size(image: Image.Image) -> tuple[int, int]:
    """Width and height as stored, before any turning."""
    width, height = image.size
    return (height, width) if (tiff_orientation(image) or 1) >= 5 else (width, height)


def undo_orientation(pixels: Pixels, orientation: int) -> Pixels:
    """Turn pixels (h, w, c) that were set upright back to how they are stored."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 6, 7):
        pixels = pixels[::-1]
    if orientation in (2, 3, 7, 8):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def has_more_frames(image: Image.Image) -> bool:
    """Whether a frame follows the first."""
    return bool(getattr(image, "is_animated", False))
