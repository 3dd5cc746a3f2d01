"""Pictures to bytes and back, every sample exactly, or none off by more than a given error.

A sample is predicted by least squares over its neighbourhood, in its own plane and in those coded before;
what it differs by is coded with contexts, in steps of 2 T + 1 if samples may be off by T. The kernel computes
with floats: WebAssembly defines every operation to the bit, so all machines agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpca_cli.errors import FileRefused
from tpca_cli.exact import priors
from tpca_cli.interfaces import Pixels
from tpca_cli.wasm import Field, Job, Kernel, KernelStopped, Room

KINDS = 3
CONTEXTS, SLOT = 400, 32
INPUTS, FLAT_INPUTS = 8, 6
FLAT_CONTEXTS = 1 << 12
MODEL = priors.Model(
    "pixels",
    KINDS * (INPUTS * CONTEXTS * SLOT + 3 * 128 + 18 * 18 + 3 * FLAT_INPUTS * FLAT_CONTEXTS),
    124 * SLOT + KINDS * 3 * 48,
    INPUTS,
)
ENCODE, DECODE = 0, 1
MARGIN, STRIP = 4, 8
SUMS = 18 * 20 + 4
"""Numbers that are kept of a strip."""
WIDEST = 65535
BITS_PER_SAMPLE = 24
"""No sample takes more: what it takes to be surprised sixteen times."""

PIXELS = Kernel(
    "exact/kernel/pixels.wasm",
    [
        Field("i32", "mode", "ENCODE or DECODE"),
        Field("i32", "pictures"),
        Field("const i32 *", "shapes", "height and width of each"),
        Field("i32", "channels"),
        Field("i32", "peak", "the largest value of a sample"),
        Field("i32", "tolerance", "the largest error of a sample"),
        Field("u16 *", "samples", "of all pictures; what a decoder will get, afterwards"),
        Field("i32 *", "planes", "of one picture, with margins"),
        Field("i16 *", "errors", "of its predictions"),
        Field("float *", "strips", "sums of the strips of a row"),
        Field("u8 *", "coded"),
        Field("i32", "coded_room"),
        Field("i32", "coded_length"),
        *priors.FIELDS,
    ],
    {},
    {
        "ENCODE": ENCODE,
        "DECODE": DECODE,
        "PIXEL_COUNTERS": MODEL.counters,
        "INPUTS": MODEL.inputs,
        "MIXERS": MODEL.mixers,
        "SLOWEST": 128,
        "CALM": 4,
        "CONTEXTS": CONTEXTS,
        "SLOT": SLOT,
        "FLAT_CONTEXTS": FLAT_CONTEXTS,
        "MARGIN": MARGIN,
        "STRIP": STRIP,
        "SUMS": SUMS,
        "WIDEST_PICTURE": WIDEST,
    },
    header="pixels_job.h",
)
FIRST = priors.Model("pixels", KINDS * (6 * CONTEXTS * SLOT + 3 * 128 + 256 + 18 * 18), 1 << 12, 6, 1)
FIRST_TAPS = 20
FIRST_PIXELS = Kernel(
    "exact/kernel_1/pixels.wasm",
    [
        field._replace(c_type="double *") if field.name == "strips" else field
        for field in PIXELS.fields
        if field.name not in ("given", "missing")
    ],
    PIXELS.records,
    {
        "ENCODE": ENCODE,
        "DECODE": DECODE,
        "PIXEL_COUNTERS": FIRST.counters,
        "INPUTS": FIRST.inputs,
        "MIXERS": FIRST.mixers,
        "CONTEXTS": CONTEXTS,
        "SLOT": SLOT,
        "MARGIN": MARGIN,
        "STRIP": STRIP,
        "MOST_TAPS": FIRST_TAPS,
        "WIDEST_PICTURE": WIDEST,
    },
    header="pixels_job.h",
)
MODELS = {
    1: (FIRST, FIRST_PIXELS, FIRST_TAPS * FIRST_TAPS + FIRST_TAPS + 1),
    2: (MODEL, PIXELS, SUMS),
}
"""By their numbers, with what they keep of a strip: a block is read with those that it was coded with."""


def encode(
    pictures: Sequence[Pixels], peak: int, tolerance: int = 0, model: int = priors.MODEL
) -> tuple[bytes, list[Pixels]]:
    """Pictures (h, w, c) of one kind as bytes, and what a decoder will make of them."""
    job = _encoded(pictures, (peak, tolerance), None, model)
    data = job.arrays["coded"][: job.numbers["coded_length"]].tobytes()
    back = pictures if not tolerance else _split(job, [p.shape for p in pictures], pictures[0].dtype)
    return data, list(back)


def learned_from(pictures: Sequence[Pixels], peak: int) -> priors.Bytes:
    """The state of an untrained model after these pictures."""
    return np.array(_encoded(pictures, (peak, 0), MODEL.untrained(), priors.MODEL).arrays["learned"])


def _encoded(
    pictures: Sequence[Pixels], bounds: tuple[int, int], state: priors.Bytes | None, model: int
) -> Job:
    """A job that coded pictures and, if it began with a given state, tells what it learned."""
    shapes = [(int(p.shape[0]), int(p.shape[1])) for p in pictures]
    samples = np.concatenate([p.ravel() for p in pictures])
    room = Room(samples.size * BITS_PER_SAMPLE // 8 + 4096, scratch=True)
    job = _ran(ENCODE, shapes, pictures[0].shape[2], bounds, samples, room, state, model)
    if job.numbers["damaged"]:
        raise RuntimeError("coded pixels take more room than foreseen")
    return job


def decode(
    data: bytes,
    shapes: Sequence[tuple[int, int]],
    channels: int,
    peak: int,
    tolerance: int = 0,
    model: int = priors.MODEL,
) -> list[Pixels]:
    """The pictures of these shapes; FileRefused if the bytes are not theirs."""
    total = sum(h * w for h, w in shapes) * channels
    coded = np.frombuffer(data, np.uint8)
    bounds, samples = (peak, tolerance), Room(total, scratch=True)
    try:
        job = _ran(DECODE, shapes, channels, bounds, samples, coded, None, model)
    except KernelStopped as error:
        raise FileRefused(f"pixels that cannot be decoded ({error})") from None
    if job.numbers["damaged"]:
        raise FileRefused("pixels that cannot be decoded")
    dtype = np.dtype(np.uint8 if peak < 256 else np.uint16)
    return _split(job, [(h, w, channels) for h, w in shapes], dtype)


def _split(job: Job, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[np.generic]) -> list[Pixels]:
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = np.split(job.arrays["samples"], ends[:-1])
    return [part.reshape(shape).astype(dtype) for part, shape in zip(parts, shapes, strict=True)]


def _ran(
    mode: int,
    shapes: Sequence[tuple[int, int]],
    channels: int,
    bounds: tuple[int, int],
    samples: Pixels | Room,
    coded: priors.Bytes | Room,
    state: priors.Bytes | None,
    model: int,
) -> Job:
    used, kernel, sums = MODELS[model]
    widest = max(w for _, w in shapes)
    padded = max((h + MARGIN + 2) * (w + 2 * MARGIN) for h, w in shapes) * channels
    return used.run(
        kernel,
        {
            "mode": mode,
            "pictures": len(shapes),
            "shapes": np.array(shapes, np.int32),
            "channels": channels,
            "peak": bounds[0],
            "tolerance": bounds[1],
            "samples": samples,
            "planes": Room(padded, scratch=True),
            "errors": Room(padded, scratch=True),
            "strips": Room((widest // STRIP + 2) * sums, scratch=True),
            "coded": coded,
            "coded_room": coded.size,
            "coded_length": 0 if isinstance(coded, Room) else coded.size,
        },
        state,
    )
