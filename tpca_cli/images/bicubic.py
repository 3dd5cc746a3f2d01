"""Bicubic resizing of small 8-bit pictures by compiled code, `kernel/bicubic.wasm`.

A third of the time of Pillow's, whose answer it gives to within one level, and the same on every machine and
with every version of Pillow. Larger pictures and other kinds are Pillow's: see `resize`.
"""

from __future__ import annotations

import functools
import struct

from tpca_cli.images.modes import Pixels
from tpca_cli.machine import aligned, machine

_PROGRAM = "images/kernel/bicubic.wasm"
_JOB = struct.Struct("<2d5i4I")  # `Job` of the program
_SLACK = 64
_MOST_PIXELS = 1 << 20


def prepare() -> None:
    """Compile now: processes that are forked later inherit it."""
    machine(_PROGRAM)


def source_digest() -> str:
    """The first digits of the digest of the source that the program was built from."""
    return f"{machine(_PROGRAM).constant('source'):x}"


def suits(have: tuple[int, int], want: tuple[int, int]) -> bool:
    """Whether picture, result and what is between them, all (height, width), are small enough for here."""
    return max(have[0] * have[1], want[0] * have[1], want[0] * want[1]) <= _MOST_PIXELS


def bicubic(pixels: Pixels, size: tuple[int, int], extent: tuple[float, float]) -> Pixels:
    """The uint8 picture (h, w, 1 or 3) at another size (height, width).

    `extent` is how much of the picture counts, from its corner: less than all if the last pixel was cut.
    """
    program = machine(_PROGRAM)
    end, stop, most, job = _layout(program.base, pixels.shape, size, extent)
    memory = program.room(most)
    memory[program.base : program.base + pixels.size] = pixels.reshape(-1)
    memory.data[program.constant("job") :][: len(job)] = job
    program.run()
    result: Pixels = memory[end:stop].reshape(*size, pixels.shape[2]).copy()
    return result


@functools.lru_cache(maxsize=256)
def _layout(
    base: int, shape: tuple[int, ...], size: tuple[int, int], extent: tuple[float, float]
) -> tuple[int, int, int, bytes]:
    """With the picture at `base`: where the result begins and ends, the end of all, the program's `Job`."""
    (height, width, channels), (new_height, new_width) = shape, size
    lines = 64 * (height + width + new_height + new_width)  # the taps of every new row and column
    end = aligned(base + height * width * channels + width * channels + _SLACK)
    stop = end + new_height * new_width * channels
    between = aligned(stop + _SLACK)
    scratch = aligned(between + 2 * new_height * width * channels + _SLACK)
    job = _JOB.pack(*extent, height, width, channels, *size, base, end, between, scratch)
    return end, stop, scratch + lines + _SLACK, job
