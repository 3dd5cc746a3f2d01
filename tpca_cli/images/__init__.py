"""Image files to arrays and back: the only package that knows Pillow and simplejpeg.

`read` gives pixels as (h, w, c) uint8 or uint16 in one of five modes (eight with `deep`), with EXIF, ICC and
a digest of the file; `encode_file` is its inverse. What cannot be kept without loss is refused with a reason,
never reduced silently. Converted: bilevel to L, palette to RGB or RGBA, CMYK to RGB, a transparent color to
an alpha channel. Of several frames the first is taken, with a warning; `content` says what else a file holds.
Orientation tags are kept, pixels are never rotated.
"""

from tpca_cli.formats import CHANNELS, FORMATS, SIGNATURES, sniff
from tpca_cli.images.decode import MAX_PIXELS, MAX_SIDE, Header, Picture, picture_of, probe, read, source_of
from tpca_cli.images.encode import (
    LOSSY_CODECS,
    OUTPUT_FORMATS,
    Extras,
    encode_file,
    encode_jpeg,
    left_out,
    lossy_copy,
    obstacle,
)
from tpca_cli.images.metadata import orientation_only
from tpca_cli.images.modes import common_channels, converted, narrow, widen, widens
from tpca_cli.images.resize import prepare_resizing
from tpca_cli.images.source import DIGEST_BYTES, Source, Stamp, file_digest, source_digest

__all__ = [
    "CHANNELS",
    "DIGEST_BYTES",
    "FORMATS",
    "LOSSY_CODECS",
    "MAX_PIXELS",
    "MAX_SIDE",
    "OUTPUT_FORMATS",
    "SIGNATURES",
    "Extras",
    "Header",
    "Picture",
    "Source",
    "Stamp",
    "common_channels",
    "converted",
    "encode_file",
    "encode_jpeg",
    "file_digest",
    "left_out",
    "lossy_copy",
    "narrow",
    "obstacle",
    "orientation_only",
    "picture_of",
    "prepare_resizing",
    "probe",
    "read",
    "sniff",
    "source_digest",
    "source_of",
    "widen",
    "widens",
]
