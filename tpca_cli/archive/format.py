"""The archive, version 1: what is where in the file.

| path              | dtype | shape    | meaning                                                             |
|-------------------|-------|----------|---------------------------------------------------------------------|
| `payload`         | u1    | (bytes,) | the coded blocks, one after another, in the order of `blocks`       |
| `blocks`          | u1    | (33, b)  | byte planes of `BLOCK_COLUMNS`: one record per block                |
| `images`          | u1    | (49, n)  | byte planes of `IMAGE_COLUMNS`: one per image, in block order       |
| `names`           | u1    | (bytes,) | n names, each ended by NUL; relative, `/` between folders           |
| `extras`          | u1    | (bytes,) | EXIF and ICC blobs, each behind its length (u4); no blob twice      |
| `skipped`         | u1    | (bytes,) | JSON list of [path, reason]: the inputs that were left out          |
| `groups/K/basis`  | u1    | (bytes,) | the basis arrays of group K's coder; absent when it is linked       |
| `groups/K/tables` | u1    | (bytes,) | the other arrays of group K's coder                                 |

Root attributes: `format` = "tpca-archive", `format_version` = 1, `digest`, and `meta`, a JSON object with
`target` (what was asked for) and `groups`: for each group its `method`, `dtype`, `channels`, `step`,
`basis_digest` and the settings of its `coder`. Integers are little-endian; byte planes and lists of arrays
are explained in `columns`. `extras` and `skipped` are absent when empty.

Invariants, checked when the file is opened:
- the digest covers every attribute and dataset except `payload`; each block's digest covers its bytes;
- block offsets are the running sum of sizes and end at the length of `payload`;
- a block holds whole images `first .. first + count` (`rows` = 0), or pixel rows `row .. row + rows` of the
  single image `first`; the bands of an image are consecutive blocks and cover its height;
- all images of a block belong to the block's group: same dtype, and as many channels or (gray) fewer;
- `mode` 0 marks an image that was replaced later: it still takes its place in its block, nothing else;
- names are safe to write below a folder and no two are equal.

A block is decoded by the group's coder from the shapes of its images alone, without any other block. A
later generation of the basis is one more group. `residual` (4 bytes, zero in version 1) in `blocks` is
the length of a refinement layer at the end of the block's bytes.
"""

from __future__ import annotations

from tpca_cli.store import Field, Schema

FORMAT = "tpca-archive"
VERSION = 1

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
    "digest": 8,  # blake2b of the source file
    "mtime": 8,  # microseconds since 1970, signed
    "source_size": 6,  # bytes of the source file
    "height": 3,
    "width": 3,
    "mode": 1,  # index into MODES
    "error": 8,  # sum of squared errors over the returned samples
    "exif": 4,  # 1 + position in `extras`, 0 for none
    "icc": 4,
    "flags": 1,  # what of the source is not in the archive, see FLAGS
    "reserved": 3,
}

FLAGS = {1: "it was resized", 2: "more frames or metadata than can be kept"}

MODES = ("", "L", "LA", "RGB", "RGBA", "I;16")
CHANNELS = {"": 0, "L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "I;16": 1}
PEAK = {"u1": 255, "u2": 65535}

SCHEMA = Schema(
    FORMAT,
    VERSION,
    {
        "payload": Field("u1", (None,), bulk=True),
        "blocks": Field("u1", (sum(BLOCK_COLUMNS.values()), None)),
        "images": Field("u1", (sum(IMAGE_COLUMNS.values()), None)),
        "names": Field("u1", (None,)),
        "extras": Field("u1", (None,), optional=True),
        "skipped": Field("u1", (None,), optional=True),
        "groups/*/basis": Field("u1", (None,), optional=True),
        "groups/*/tables": Field("u1", (None,)),
    },
)


def dtype_of(mode: str) -> str:
    """The sample type of a mode: `u1` for 8 bits, `u2` for 16."""
    return "u2" if mode == "I;16" else "u1"
