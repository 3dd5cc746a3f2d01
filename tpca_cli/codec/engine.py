"""Hands work to the compiled coder, `kernel/walk.wasm`.

The coder learns from every bit, which arrays cannot do. A `Job` is what it works on; jobs may run in any
thread or forked process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpca_cli.errors import FileRefused
from tpca_cli.machine import MOST, Stopped, aligned, machine

_PROGRAM = "codec/kernel/walk.wasm"

Array = NDArray[Any]


def prepare() -> None:
    """Compile now: processes that are forked later inherit the machine instead of making their own."""
    machine(_PROGRAM)


def source_digest() -> str:
    """The first digits of the digest of the sources that the machine code was built from."""
    return f"{machine(_PROGRAM).constant('source'):x}"


class Room(NamedTuple):
    """An array that the walk needs, with zeros in it unless it is for scratch."""

    dtype: Any
    size: int
    scratch: bool = False


class Job:
    """Numbers and arrays in the order of the kernel's `Job`; arrays live in its memory until the next job."""

    def __init__(self, fields: Mapping[str, int | Array | Room]) -> None:
        """Arrays are copied in."""
        self._machine, self._names = machine(_PROGRAM), list(fields)
        self._places: dict[str, tuple[int, np.dtype[Any], int]] = {}
        at = self._machine.base + aligned(4 * len(fields))
        head = []
        for name, given in fields.items():
            head.append(given if isinstance(given, int) else at)
            if not isinstance(given, int):
                dtype = np.dtype(given.dtype)
                self._places[name] = (at, dtype, given.size)
                at += aligned(dtype.itemsize * given.size)
        if at > MOST:
            raise MemoryError(f"a block needs {at >> 20} MB, more than coding can address")
        self._memory = self._machine.room(at)
        self._head = self._memory[self._machine.base :][: 4 * len(fields)].view(np.uint32)
        self._head[:] = head
        for name, given in fields.items():
            if isinstance(given, Room):
                if not given.scratch:
                    self[name][:] = 0
            elif not isinstance(given, int):
                self[name][:] = given.ravel()

    def __getitem__(self, name: str) -> Array:
        """An array of the job, in place."""
        at, dtype, size = self._places[name]
        return self._memory[at : at + dtype.itemsize * size].view(dtype)

    def number(self, name: str) -> int:
        """A number that the walk wrote."""
        return int(self._head[self._names.index(name)])

    def run(self) -> None:
        """Run it; whatever stops the machine was caused by the data."""
        try:
            self._machine.run(self._machine.base)
        except Stopped as error:
            raise FileRefused(f"block is damaged ({error})") from error
