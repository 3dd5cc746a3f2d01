"""JPEG files to bytes and back, bit for bit.

A JPEG file is a rank-1 basis, the cosines, with a quantiser of its own: its integers are taken out, predicted
from neighbouring blocks and coded with contexts. What is left of the file, its *skeleton*, is headers, tables
and whatever stands before and after the picture. A file that does not come back identical is not taken.

The kernel parses hostile files: it checks every offset, and can at worst stop itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca_cli.errors import FileRefused
from tpca_cli.exact import priors
from tpca_cli.wasm import Field, Job, Kernel, KernelStopped, Room

KINDS = 3
INPUTS = 4
MODEL = priors.Model(
    "jpeg",
    KINDS * 3 * 160 * 64
    + KINDS * 2 * 3 * 128 * 8
    + KINDS * INPUTS * 16 * (1176 + 560 + 240)
    + KINDS * (64 * 27 + 2 * 14 * 64 + 2 * 64)
    + KINDS * 3 * 16 * 12,
    1 << 12,
    INPUTS,
)
TAKE_APART, PUT_TOGETHER, SKELETONS = 0, 1, 2
ITEM = np.dtype([("length", np.int32), ("skeleton", np.int32), ("padding", np.int32), ("foreign", np.int32)])
BLOCKS_PER_BYTE = 8
"""A file has no more blocks of 8 x 8 than bits; one that claims more is not taken apart."""
SIDE = 8

JPEG = Kernel(
    "exact/kernel/jpeg.wasm",
    [
        Field("i32", "mode", "TAKE_APART, PUT_TOGETHER or SKELETONS"),
        Field("i32", "files"),
        Field("Item *", "items"),
        Field("const u8 *", "input", "files, or skeletons"),
        Field("u8 *", "output", "skeletons, or files"),
        Field("i32", "output_room"),
        Field("u8 *", "coded"),
        Field("i32", "coded_room"),
        Field("i32", "coded_length"),
        Field("i16 *", "coefficients", "of one file"),
        Field("i64", "room", "for so many coefficients"),
        *priors.FIELDS,
    ],
    {"Item": ITEM},
    {
        "TAKE_APART": TAKE_APART,
        "PUT_TOGETHER": PUT_TOGETHER,
        "SKELETONS": SKELETONS,
        "JPEG_COUNTERS": MODEL.counters,
        "INPUTS": MODEL.inputs,
        "MIXERS": MODEL.mixers,
        "SLOWEST": 200,
        "CALM": 3,
    },
    header="jpeg_job.h",
)
FIRST = priors.Model("jpeg", KINDS * 230_208, 1 << 12, 6, 1)
FIRST_JPEG = Kernel(
    "exact/kernel_1/jpeg.wasm",
    [field for field in JPEG.fields if field.name not in ("given", "missing")],
    JPEG.records,
    {
        "TAKE_APART": TAKE_APART,
        "PUT_TOGETHER": PUT_TOGETHER,
        "SKELETONS": SKELETONS,
        "JPEG_COUNTERS": FIRST.counters,
        "INPUTS": FIRST.inputs,
        "MIXERS": FIRST.mixers,
    },
    header="jpeg_job.h",
)
MODELS = {1: (FIRST, FIRST_JPEG), 2: (MODEL, JPEG)}
"""By their numbers: a block is read with those that it was coded with."""


@dataclass(frozen=True)
class Skeleton:
    """A file without its coefficients, and the value of the bits that pad its scans (-1: there are none)."""

    data: bytes
    padding: int


@dataclass(frozen=True)
class Parts:
    """Files taken apart: their skeletons, None for one that cannot be; the coefficients of all, coded."""

    skeletons: tuple[Skeleton | None, ...]
    coded: bytes


def take_apart(files: Sequence[bytes], model: int = priors.MODEL) -> Parts:
    """The parts of some files; those of a file that cannot be taken apart are not among them."""
    return _taken(_apart(TAKE_APART, files, None, model))


def skeletons_of(files: Sequence[bytes]) -> tuple[Skeleton | None, ...]:
    """The skeletons alone, which takes much less time."""
    return _taken(_apart(SKELETONS, files, None, priors.MODEL)).skeletons


def learned_from(files: Sequence[bytes]) -> priors.Bytes:
    """The state of an untrained model after these files."""
    return np.array(_apart(TAKE_APART, files, MODEL.untrained(), priors.MODEL).arrays["learned"])


def _apart(mode: int, files: Sequence[bytes], state: priors.Bytes | None, model: int) -> Job:
    items = np.zeros(len(files), ITEM)
    items["length"] = [len(data) for data in files]
    whole = np.frombuffer(b"".join(files), np.uint8)
    room = max((_coefficients(data) for data in files), default=1)
    coded = Room(whole.size + 4096, scratch=True)
    job = _ran(mode, items, whole, whole.size, coded, room, state, model)
    if job.numbers["damaged"]:
        raise RuntimeError("coded JPEG files take more room than the files")
    return job


def _taken(job: Job) -> Parts:
    skeletons: list[Skeleton | None] = []
    at = 0
    for item in job.arrays["items"].copy():
        data = job.arrays["output"][at : at + int(item["skeleton"])].tobytes()
        at += int(item["skeleton"])
        skeletons.append(None if item["foreign"] else Skeleton(data, int(item["padding"])))
    return Parts(tuple(skeletons), job.arrays["coded"][: job.numbers["coded_length"]].tobytes())


def put_together(
    skeletons: Sequence[Skeleton], coded: bytes, size: int, model: int = priors.MODEL
) -> list[bytes]:
    """The files of these parts, `size` bytes in all; FileRefused if they do not belong together."""
    items = np.zeros(len(skeletons), ITEM)
    items["skeleton"] = [len(skeleton.data) for skeleton in skeletons]
    items["padding"] = [skeleton.padding for skeleton in skeletons]
    whole = np.frombuffer(b"".join(skeleton.data for skeleton in skeletons), np.uint8)
    room = max((_coefficients(skeleton.data, size) for skeleton in skeletons), default=1)
    try:
        given = np.frombuffer(coded, np.uint8)
        job = _ran(PUT_TOGETHER, items, whole, size, given, room, None, model)
    except KernelStopped as error:
        raise FileRefused(f"JPEG files that cannot be put together ({error})") from None
    output, lengths = job.arrays["output"], job.arrays["items"]["length"].astype(np.int64)
    if job.numbers["damaged"] or int(lengths.sum()) != size:
        raise FileRefused("JPEG files that cannot be put together")
    ends = np.cumsum(lengths)
    return [output[end - length : end].tobytes() for length, end in zip(lengths, ends, strict=True)]


def _ran(
    mode: int,
    items: np.ndarray[tuple[int], np.dtype[np.void]],
    given: priors.Bytes,
    output: int,
    coded: priors.Bytes | Room,
    room: int,
    state: priors.Bytes | None,
    model: int,
) -> Job:
    used, kernel = MODELS[model]
    return used.run(
        kernel,
        {
            "mode": mode,
            "files": len(items),
            "items": items,
            "input": given,
            "output": Room(output, scratch=True),
            "output_room": output,
            "coded": coded,
            "coded_room": coded.size,
            "coded_length": 0 if isinstance(coded, Room) else coded.size,
            "coefficients": Room(room, scratch=True),
            "room": room,
        },
        state,
    )


def frame_at(data: bytes) -> int:
    """Where the segment that gives the size of the picture stands in a file or skeleton; -1 for none."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] not in (0xD9, 0xDA):
        if data[at + 1] in (0xC0, 0xC1, 0xC2):
            return at
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return -1


def _coefficients(data: bytes, size: int = 0) -> int:
    """How many coefficients a file may have, as far as its header can be believed."""
    at = frame_at(data)
    if at < 0 or at + 10 > len(data):
        return 1
    height, width = (int.from_bytes(data[at + k : at + k + 2], "big") for k in (5, 7))
    planes = [data[at + 11 + 3 * k] for k in range(min(data[at + 9], 4)) if at + 11 + 3 * k < len(data)]
    across, down = (max((s >> 4 for s in planes), default=1), max((s & 15 for s in planes), default=1))
    if len(planes) == 1:
        across, down = 1, 1
    units = -(-width // (SIDE * max(across, 1))) * -(-height // (SIDE * max(down, 1)))
    blocks = units * (1 if len(planes) == 1 else sum((s >> 4) * (s & 15) for s in planes))
    return SIDE * SIDE * max(min(blocks, BLOCKS_PER_BYTE * max(len(data), size) + 64), 1)
