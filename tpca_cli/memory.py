"""What work on pictures takes of the memory, and how many of them that leaves under way at a time.

`--memory` bounds all processes of a command together. A command has a fixed share, each worker another one
(its own pages and those of the kernel while it codes a band); what is left is for pictures, of which only so
many are read or written at once. One that leaves no room for a second is worked on by several threads.
What comes out does not depend on any of this.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

DEFAULT_MEMORY = 1 << 30
LEAST_MEMORY = 256 << 20
"""What a command takes with one worker and pictures of a few megapixels."""
_COMMAND = 110 << 20
_WORKER = 100 << 20
_THREAD = 50 << 20  # of each channel: a band that is coded and looked at
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_RETURNED, _TRIMMED = 8 << 20, 32 << 20  # bytes of an array that is given back; of smaller ones together


def reading_bytes(pixels: int, channels: int, sample_bytes: int, file_bytes: int) -> int:
    """What reading a picture takes: the file and what is kept of it, the decoder's pixels, and ours."""
    return pixels * (4 + channels * sample_bytes) + 2 * file_bytes


def writing_bytes(pixels: int, channels: int, sample_bytes: int) -> int:
    """What writing a picture takes: our pixels, those of the encoder, and a file that may be as large."""
    return pixels * (4 + 2 * channels * sample_bytes)


def keeping_bytes(file_bytes: int) -> int:
    """What a file takes that is kept as it is: itself, deflated, joined to a block and read back."""
    return 4 * file_bytes


@functools.cache
def _return_freed() -> None:
    """Let the C library give large arrays back to the system when they are freed.

    By itself it keeps them for others: of a picture of 24 megapixels as much as all that comes later takes.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, _RETURNED)
        library.mallopt(_M_TRIM_THRESHOLD, _TRIMMED)


@dataclass(frozen=True)
class Room:
    """What `--memory` leaves for pictures while workers share it; `most` if there is only one of both."""

    size: int
    most: int
    workers: int

    @classmethod
    def within(cls, memory: int, workers: int) -> Room:
        """As many workers as were asked for, unless their own shares would take more than pictures get.

        From now on this process returns what it frees.
        """
        _return_freed()
        left = max(memory - _COMMAND, 0)
        count = min(workers, max(1, left // (2 * _WORKER)))
        return cls(max(left - count * _WORKER, 0), max(left - _WORKER, 0), count)

    def helpers(self, weight: int, held: int = 0, channels: int = 3) -> int:
        """Threads for a picture of so many bytes: all workers that cannot have one of their own meanwhile.

        No more than have room for a band each beside what is `held` of a picture that is coded alone.
        """
        at_once = max(1, self.size // max(weight, 1))
        beside = (self.most + _WORKER - held) // (max(channels, 3) * _THREAD)
        return max(1, min(self.workers // at_once, beside))
