"""Which files are images: the allowed formats, known by their first bytes and by their extensions; modes.

Tables and three questions, with no decoder behind them, so that `scan` can ask without knowing `images`.
Other media (raw files of cameras, video, drawings, rarer image formats) are known too: they are not read, and
leaving one out deserves a word.
"""

from __future__ import annotations

import re

HEAD_BYTES = 512
FILE = "file"
"""The mode of a file that is kept as it is, because it is no picture that can be read."""
CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "I;16": 1, "LA;16": 2, "RGB;16": 3, "RGBA;16": 4}
"""The modes of pictures. Five are read everywhere; color of 16 bits only where nothing of it may be lost."""
DTYPES = {mode: "u2" if mode.endswith(";16") else "u1" for mode in (*CHANNELS, FILE)}
"""The sample type of each mode."""

FORMATS: tuple[str, ...] = ("JPEG", "PNG", "TIFF", "WEBP", "BMP", "GIF", "PPM", "AVIF", "HEIF", "JXL")

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
    b".avif": "AVIF",
    b".avifs": "AVIF",
    b".heic": "HEIF",
    b".heics": "HEIF",
    b".heif": "HEIF",
    b".heifs": "HEIF",
    b".hif": "HEIF",
    b".jxl": "JXL",
}
JPEG_ENDINGS = tuple(ending for ending, kind in EXTENSIONS.items() if kind == "JPEG")

# Formats whose first bytes alone identify them; BMP, PPM, WebP, AVIF and HEIF need a second look.
SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"II+\x00", "TIFF"),
    (b"MM\x00+", "TIFF"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"\xff\x0a", "JXL"),
    (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "JXL"),
)

_BMP_HEADERS = {12, 16, 40, 52, 56, 64, 108, 124}
_PPM_KINDS = {b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"}
_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"}
_AUDIO_BRANDS = {b"M4A ", b"M4B ", b"M4P "}

_VIDEO = "video (MP4 or QuickTime)"
_DRAWING = "a drawing (SVG)"
_FOREIGN_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"IIRO", "camera raw (ORF)"),
    (b"IIRS", "camera raw (ORF)"),
    (b"MMOR", "camera raw (ORF)"),
    (b"IIU\x00", "camera raw (RW2)"),
    (b"FUJIFILMCCD-RAW", "camera raw (RAF)"),
    (b"FOVb", "camera raw (X3F)"),
    (b"\x00MRM", "camera raw (MRW)"),
    (b"8BPS", "an image in layers (PSD)"),
    (b"gimp xcf", "an image in layers (XCF)"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"II\xbc\x01", "JPEG XR"),
    (b"\x76\x2f\x31\x01", "OpenEXR"),
    (b"#?RADIANCE", "a Radiance image (HDR)"),
    (b"SIMPLE  =", "FITS"),
    (b"qoif", "QOI"),
    (b"DDS ", "a texture (DDS)"),
    (b"\x1a\x45\xdf\xa3", "video (Matroska or WebM)"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "video (WMV)"),
    (b"FLV\x01", "video (FLV)"),
    (b"\x00\x00\x01\xba", "video (MPEG)"),
    (b"\x00\x00\x01\xb3", "video (MPEG)"),
    (b"<svg", _DRAWING),
)
_SVG = re.compile(rb"(?:\xef\xbb\xbf)?\s*<\?xml\b.*<svg\b", re.S)

# Names that promise media which are not read. `.ts`, `.mts` and `.raw` are not among them: most of these are
# programs or anything at all, and a video is known by its content.
_FOREIGN_EXTENSIONS: dict[str, str] = {
    "camera raw": "3fr arw cr2 cr3 crw dcr dng erf fff gpr iiq k25 kdc mef mos mrw nef nrw orf pef ptx raf "
    "rw2 rwl sr2 srf srw x3f",
    "video": "3g2 3gp asf avi flv insv m2ts m2v m4v mjpeg mjpg mkv mov mp4 mpe mpeg mpg mxf ogv vob webm wmv "
    "y4m",
    "a drawing": "ai cdr emf eps svg svgz wmf",
    "an image format": "bpg cur dcm dds djvu exr fit fits flif hdp hdr icns ico j2c j2k jp2 jpf jpx jxr "
    "kra ora pam pcx pfm psb psd qoi ras sgi tga wbmp wdp xbm xcf xpm",
}
_FOREIGN_NAMES: dict[bytes, str] = {
    b"." + extension.encode(): what
    for what, line in _FOREIGN_EXTENSIONS.items()
    for extension in line.split()
}


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
    brands = _brands(head)
    if brands & {b"avif", b"avis"}:
        return "AVIF"
    return "HEIF" if brands & _HEIF_BRANDS else None


def foreign(head: bytes, name: bytes) -> str | None:
    """What a file is that looks like media but is not read, by its first bytes or by its name, or None."""
    if sniff(head):
        return None
    brands = _brands(head)
    if brands and head[8:12] not in _AUDIO_BRANDS:
        return "camera raw (CR3)" if b"crx " in brands else _VIDEO
    for signature, what in _FOREIGN_SIGNATURES:
        if head.startswith(signature):
            return what
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "video (AVI)"
    if head[128:132] == b"DICM":
        return "a medical image (DICOM)"
    if any(head[at::packet][:3] == b"GGG" for at, packet in ((0, 188), (4, 192))):
        return "video (MPEG)"
    if _SVG.match(head):
        return _DRAWING
    extension = _extension(name)
    if extension not in _FOREIGN_NAMES:
        return None
    return f"{_FOREIGN_NAMES[extension]} ({extension[1:].decode().upper()})"


def promises_media(name: bytes) -> bool:
    """Whether the name alone promises an image or other media, so that leaving it out deserves a word."""
    extension = _extension(name)
    return extension in EXTENSIONS or extension in _FOREIGN_NAMES


def _extension(name: bytes) -> bytes:
    """`.jpg` of `a.JPG`, and nothing of `.jpg`."""
    stem, _, extension = name.rpartition(b"/")[2].rpartition(b".")
    return b"." + extension.lower() if stem else b""


def _brands(head: bytes) -> set[bytes]:
    """What a file made of ISO boxes says it is: its own brand and those that it is compatible with."""
    if head[4:8] != b"ftyp":
        return set()
    stop = min(int.from_bytes(head[:4], "big"), len(head))
    return {head[8:12], *(head[at : at + 4] for at in range(16, stop - 3, 4))}
