"""The scores file: what is where. `tpca encode --plain` and `tpca fit-basis --scores` write it.

| path              | dtype    | shape       | scales    | meaning                                        |
|-------------------|----------|-------------|-----------|------------------------------------------------|
| `coefficients`    | f4 or f8 | (n, M)      | image,    | d = U'x (eq 4.1.2); of tiles (frames, M), and  |
|                   |          |             | component | the frames of an image row by row              |
| `image`           | i8       | (n,)        | itself    | 0, 1, 2, ..                                    |
| `component`       | i4       | (M,)        | itself    | 0, 1, 2, .., the strongest first               |
| `frame`           | i8       | (frames,)   | itself    | 0, 1, 2, ..; only of tiles                     |
| `image_of_frame`  | i8       | (frames,)   | frame     | the image of each frame; only of tiles         |
| `name`            | text     | (n,)        | image     | relative, `/` between folders, ended by NUL    |
| `label`           | text     | (n,)        | image     | the folder of the name; empty at the top       |
| `height`, `width` | i4       | (n,)        | image     | of the image, after a resize                   |
| `mode`            | text     | (n,)        | image     | L, LA, RGB, RGBA or I;16                       |
| `eigenvalue`      | f8       | (M,)        | component | energy of each component in the fit            |
| `sources/digest`  | u1       | (n, 16)     |           | blake2b of the source file                     |
| `sources/mtime`   | i8       | (n,)        |           | microseconds since 1970                        |
| `sources/size`    | i8       | (n,)        |           | bytes of the source file                       |
| `sources/access`  | u2       | (n,)        |           | permissions of the source file                 |
| `digests/NAME`    | u1       | (pieces, 8) |           | blake2b of each piece of rows of a dataset     |
| `basis/..`        | f8, i4   |             |           | the basis as in a basis file; absent if linked |
| `notes/skipped`   | u1       | (bytes,)    |           | JSON list of [path, reason]                    |

Root attributes: `format` = "tpca-scores", `format_version`, `digest`, `method`, `basis_digest` (the digest
of the basis file), `sample_type` (u1 or u2; of tensors also f4, f8), and `meta`, a JSON object with `method`,
`framing`, `dtype`, `components`, `total` and `measured` of the basis, `item` (shape and type) of tensors, and
`piece_rows`: how many rows of `coefficients`, `name` and `label` make a piece.

The rows of tiles are counted by `frame` instead of `image`. `coefficients`, `name` and `label` are read piece
by piece, each held to its digest; the root digest covers all else but `image`, `component`, `frame` and
`image_of_frame`, which follow from the rest (`verify` compares them). Text is UTF-8 where the file system has
it so, all of one length, filled up with NUL.
"""

from __future__ import annotations

from tpca_cli.basisfile import BASIS_SCHEMA
from tpca_cli.store import Field, Schema

FORMAT = "tpca-scores"
VERSION = 1
DTYPES = {"float32": "<f4", "float64": "<f8"}
TEXTS = ("name", "label")
PIECE_BYTES = 1 << 20  # a piece of rows, which is also a chunk of the file
TEXT_ROWS = 1 << 12

_IMAGE, _COMPONENT, _FRAME = ("image",), ("component",), ("frame",)

SCORES_SCHEMA = Schema(
    FORMAT,
    VERSION,
    {
        "coefficients": Field("<f4 <f8", (None, None), bulk=True, scales=("image", "component")),
        "image": Field("<i8", (None,), bulk=True, scales=_IMAGE),
        "component": Field("<i4", (None,), bulk=True, scales=_COMPONENT),
        "frame": Field("<i8", (None,), bulk=True, optional=True, scales=_FRAME),
        "image_of_frame": Field("<i8", (None,), bulk=True, optional=True, scales=_FRAME),
        "name": Field("S", (None,), bulk=True, scales=_IMAGE),
        "label": Field("S", (None,), bulk=True, scales=_IMAGE),
        "height": Field("<i4", (None,), scales=_IMAGE),
        "width": Field("<i4", (None,), scales=_IMAGE),
        "mode": Field("S", (None,), scales=_IMAGE),
        "eigenvalue": Field("<f8", (None,), scales=_COMPONENT),
        "sources/digest": Field("u1", (None, 16)),
        "sources/mtime": Field("<i8", (None,)),
        "sources/size": Field("<i8", (None,)),
        "sources/access": Field("<u2", (None,)),
        "digests/coefficients": Field("u1", (None, 8)),
        "digests/name": Field("u1", (None, 8)),
        "digests/label": Field("u1", (None, 8)),
        "notes/skipped": Field("u1", (None,), optional=True),
        **{path: field for path, field in BASIS_SCHEMA.fields.items() if path.startswith("basis/")},
    },
)


def piece_rows(row_bytes: int) -> int:
    """Rows of a piece."""
    return max(1, min(1 << 16, PIECE_BYTES // max(1, row_bytes)))


def label_of(name: bytes) -> bytes:
    """The folder that a name is in, which classes of images usually are."""
    return name.rpartition(b"/")[0]
