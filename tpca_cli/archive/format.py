"""The archive: what is where in the file, in version 2 and in version 1.

| path              | dtype | shape    | meaning                                                             |
|-------------------|-------|----------|---------------------------------------------------------------------|
| `payload`         | u1    | (bytes,) | the coded blocks, one after another, in the order of `blocks`       |
| `blocks`          | u1    | (33, b)  | byte planes of `BLOCK_COLUMNS`: one record per block                |
| `images`          | u1    | (63, n)  | byte planes of `IMAGE_COLUMNS`: one per image, in block order       |
| `names`           | u1    | (bytes,) | n names, each ended by NUL; relative, `/` between folders           |
| `folded`          | u1    | (bytes,) | the same in its place in version 2: what differs from name to name  |
| `extras`          | u1    | (bytes,) | EXIF, ICC, XMP, .. blobs, each behind its length (u4); none twice   |
| `metadata`        | u1    | (bytes,) | JSON list of {kind: 1 + position in `extras`}, see METADATA         |
| `reasons`         | u1    | (bytes,) | JSON list of lists of texts: why images are kept in part            |
| `skipped`         | u1    | (bytes,) | JSON list of [path, reason]: the inputs that were left out          |
| `groups/K/basis`  | u1    | (bytes,) | the basis arrays of group K's coder; absent when it is linked, and  |
|                   |       |          | (version 2) when an earlier group of the same `basis_digest` has it |
| `groups/K/tables` | u1    | (bytes,) | the other arrays of group K's coder                                 |

Root attributes: `format` = "tpca-archive", `format_version`, `digest`, and `meta`, a JSON object with
`target` (what was asked for) and `groups`: for each group its `method`, `dtype`, `channels`, `step`, `peak`
(the largest sample value that its images use: PSNR is relative to it), `features` (names of whatever a
reader must know besides this table; one that it does not know makes it refuse the file), `basis_digest` and
the settings of its `coder`. Integers are little-endian; byte planes and lists of arrays are explained in
`columns`. `extras`, `metadata`, `reasons` and `skipped` are absent when empty. Where all datasets but
`payload` have at most half a megabyte, version 2 holds them and `meta` in one, `bundle` (`store.columns`).

Version 1 has image records of 49 bytes (`IMAGE_COLUMNS_V1`), neither `metadata` nor `reasons`, and neither
`peak` nor `features`; it is read for ever, and an archive that was made in it is extended in it.

Invariants, checked when the file is opened:
- the digest covers every attribute and dataset except `payload`; each block's digest covers its bytes;
- block offsets are the running sum of sizes and end at the length of `payload`;
- a block holds whole images `first .. first + count` (`rows` = 0), or pixel rows `row .. row + rows` of the
  single image `first`; the bands of an image are consecutive blocks and cover its height;
- all images of a block belong to the block's group: same dtype, and as many channels or (gray) fewer;
- `mode` 0 marks an image that was replaced later: it still takes its place in its block, nothing else;
- an image of mode `file` is no picture that can be read: it has no samples, 1 x 1 as its size, and is in a
  group of method `files`;
- names are safe to write below a folder and no two are equal.

A block is decoded by the group's coder from the shapes of its images alone, without any other block. A
later generation of the basis is one more group. `residual` (4 bytes, zero until it is used) in `blocks` is
the length of a refinement layer at the end of the block's bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tpca_cli import formats
from tpca_cli.formats import FILE
from tpca_cli.store import Field, Schema

FORMAT = "tpca-archive"
VERSION = 2

BLOCK_COLUMNS = {
    "size": 5,  # bytes in the payload
    "group": 2,
    "first": 5,  # the first image
    "count": 3,  # how many images
    "row": 3,  # first pixel row of a band
    "rows": 3,  # pixel rows of a band, 0 for whole images
    "residual": 4,
    "digest": 8,  # blake2b of the bytes
}

IMAGE_COLUMNS = {
    "digest": 16,  # blake2b of the source file
    "mtime": 8,  # microseconds since 1970, signed
    "source_size": 6,  # bytes of the source file
    "height": 3,
    "width": 3,
    "mode": 1,  # index into MODES
    "error": 8,  # sum of squared errors over the returned samples
    "exif": 4,  # 1 + position in `extras`, 0 for none
    "icc": 4,
    "metadata": 4,  # 1 + position in `metadata`, 0 for none
    "reasons": 3,  # 1 + position in `reasons`, 0 for none
    "mode_bits": 2,  # permissions of the source file, 12 bits
    "quality": 2,  # SSIMULACRA 2 in hundredths from LOWEST_QUALITY on, plus 1; 0 where it was not measured
    "flags": 1,  # what of the source is not in the archive, see FLAGS
}
IMAGE_COLUMNS_V1 = {
    "digest": 8,
    "mtime": 8,
    "source_size": 6,
    "height": 3,
    "width": 3,
    "mode": 1,
    "error": 8,
    "exif": 4,
    "icc": 4,
    "flags": 1,
    "reserved": 3,
}
COLUMNS = {1: IMAGE_COLUMNS_V1, 2: IMAGE_COLUMNS}
DIGEST_BYTES = {version: columns["digest"] for version, columns in COLUMNS.items()}
"""How many bytes the digests of source files have."""

RESIZED, PARTIAL, STRIPPED = 1, 2, 4
FLAGS = {
    RESIZED: "its full size (it was resized)",
    PARTIAL: "further frames or metadata",
    STRIPPED: "its metadata (left out by --strip-metadata)",
}
"""What is missing, in words that follow `without`."""

EXACT_METHODS = ("jpeg", "files", "pixels")
"""Groups whose images come back exactly (`pixels`: within a stated error); the first two hold whole files."""
FILE_METHODS = EXACT_METHODS[:2]
CODED_BASIS, REGIONS, ITEMS = "coded-basis", "regions", "tensor-items"
GRAINS, WHOLE_GRAINS, OBLIQUE, BOUNDED = "grains", "whole-grains", "oblique-colors", "bounded-filter"
LEARNED = "learned-filter"
MODELS = {2: "model-2", 3: "model-3", 4: "model-4"}
"""What values are predicted from, beyond what all readers know, and the feature that says so."""
FAST_MODEL = 4
FEATURES: frozenset[str] = frozenset(
    {CODED_BASIS, REGIONS, ITEMS, GRAINS, WHOLE_GRAINS, OBLIQUE, BOUNDED, LEARNED, *MODELS.values()}
    | {f"exact-{method}" for method in EXACT_METHODS}
)
"""What a group may ask of its reader by name; a group with any other is refused."""

LOWEST_QUALITY = -200.0
"""Scores of SSIMULACRA 2 below this are stored as this."""


def coding_of(group: Mapping[str, Any]) -> str:
    """How the blocks of a group are coded, as `encode --coding` has it, or `exact`."""
    if group["method"] in EXACT_METHODS:
        return "exact"
    return "fast" if group["coder"].get("model") == FAST_MODEL else "small"


def any_exact(groups: Iterable[Mapping[str, Any]]) -> bool:
    """Whether some groups come back exactly: files may be among their images that are no pictures."""
    return any(group["method"] in EXACT_METHODS for group in groups)


MODES = ("", "L", "LA", "RGB", "RGBA", "I;16", "LA;16", "RGB;16", "RGBA;16", FILE)
MODES_V1 = 6
"""So many of these may be in an archive of version 1."""
CHANNELS = {"": 0, **formats.CHANNELS, FILE: 0}
DTYPES = {"": "u1", **formats.DTYPES}
PEAK = {"u1": 255, "u2": 65535}
MODE_PEAKS = {mode: PEAK[dtype] for mode, dtype in DTYPES.items()}
"""The largest value that a sample of a mode can have."""

_FIELDS_V1 = {
    "payload": Field("u1", (None,), bulk=True),
    "blocks": Field("u1", (sum(BLOCK_COLUMNS.values()), None)),
    "images": Field("u1", (sum(IMAGE_COLUMNS_V1.values()), None)),
    "names": Field("u1", (None,)),
    "extras": Field("u1", (None,), optional=True),
    "skipped": Field("u1", (None,), optional=True),
    "groups/*/basis": Field("u1", (None,), optional=True),
    "groups/*/tables": Field("u1", (None,)),
}
_FIELDS = {
    **_FIELDS_V1,
    "images": Field("u1", (sum(IMAGE_COLUMNS.values()), None)),
    "names": Field("u1", (None,), optional=True),  # as in version 1, or:
    "folded": Field("u1", (None,), optional=True),
    "metadata": Field("u1", (None,), optional=True),
    "reasons": Field("u1", (None,), optional=True),
    "bundle": Field("u1", (None,), optional=True),
}
SCHEMAS = {1: Schema(FORMAT, 1, _FIELDS_V1), 2: Schema(FORMAT, 2, _FIELDS)}
