"""Which files are images: the allowed formats, known by their first bytes and by their extensions.

A table and two questions, with no decoder behind them, so that `scan` can ask without knowing `images`.
"""

from __future__ import annotations

HEAD_BYTES = 32

EXTENSIONS: dict[bytes, str] = {
    b".jpg": "JPEG",
    b".jpeg": "JPEG",
    b".jpe": "JPEG",
    b".jfif": "JPEG",
    b".png": "PNG",
    b".apng": "PNG",
    b".tif": "TIFF",
    b".tiff": "TIFF",
    b".webp": "WEBP",
    b".bmp": "BMP",
    b".dib": "BMP",
    b".gif": "GIF",
    b".ppm": "PPM",
    b".pgm": "PPM",
    b".pbm": "PPM",
    b".pnm": "PPM",
}

FORMATS: tuple[str, ...] = ("JPEG", "PNG", "TIFF", "WEBP", "BMP", "GIF", "PPM")

# Formats whose first bytes alone identify them; BMP, PPM and WebP need a second look.
SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"II+\x00", "TIFF"),
    (b"MM\x00+", "TIFF"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
)

_BMP_HEADERS = {12, 16, 40, 52, 56, 64, 108, 124}
_PPM_KINDS = {b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"}


def sniff(head: bytes) -> str | None:
    """The format that a file's first HEAD_BYTES announce, or None."""
    for signature, name in SIGNATURES:
        if head.startswith(signature):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    # Two letters are too little to tell a bitmap from prose: its second header must have a known size.
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return "BMP"
    if head[:2] in _PPM_KINDS and head[2:3] in (b" ", b"\t", b"\n", b"\r", b"#"):
        return "PPM"
    return None


def has_image_extension(name: bytes) -> bool:
    """Whether the name promises an image, so that a file that is none deserves a word."""
    stem, dot, extension = name.rpartition(b".")
    return bool(stem and dot) and b"." + extension.lower() in EXTENSIONS
