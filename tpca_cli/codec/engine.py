"""Runs compiled code, `kernel/walk.wasm`: the same bits on every machine.

The coder learns from every bit, which arrays cannot do. WebAssembly needs no compiler where it is
installed, starts in milliseconds, keeps no cache on disk, and cannot touch memory outside its own: a hostile
block can at worst make it stop. A `Job` is what it works on; jobs may run in any thread or forked process.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import wasmtime
from numpy.typing import NDArray

from tpca_cli.errors import FileRefused

ALIGNMENT = 16
PAGE = 1 << 16
MOST = 1 << 32
SMALL = 1 << 20

Array = NDArray[Any]

_local = threading.local()


@functools.lru_cache(maxsize=2)
def _compiled(frugal: bool) -> tuple[wasmtime.Engine, wasmtime.Module]:
    """The module; a frugal one reserves no addresses, for processes that may have few."""
    config = wasmtime.Config()
    config.parallel_compilation = False
    config.memory_init_cow = False  # it takes a file, which a limit on their size forbids
    if frugal:
        config.memory_reservation = SMALL
        config.memory_guard_size = PAGE
        config.memory_reservation_for_growth = SMALL
    engine = wasmtime.Engine(config)
    code = resources.files(__package__).joinpath("kernel/walk.wasm").read_bytes()
    return engine, wasmtime.Module(engine, code)


class _Machine:
    """One instance with memory of its own."""

    def __init__(self, frugal: bool) -> None:
        engine, module = _compiled(frugal)
        self.store = wasmtime.Store(engine)
        exports: Any = wasmtime.Instance(self.store, module, []).exports(self.store)
        self.memory, self._run, self.source = exports["memory"], exports["run"], exports["source"]
        self.base = _aligned(int(exports["__heap_base"].value(self.store)))

    def room(self, size: int) -> NDArray[np.uint8]:
        """The memory as bytes, grown to `size` if it is smaller."""
        missing = size - self.memory.data_len(self.store)
        if missing > 0:
            try:
                self.memory.grow(self.store, -(-missing // PAGE))
            except wasmtime.WasmtimeError as error:
                raise MemoryError(f"a block needs {size >> 20} MB, which cannot be had") from error
        address = ctypes.addressof(self.memory.data_ptr(self.store).contents)
        length = self.memory.data_len(self.store)
        return np.frombuffer((ctypes.c_ubyte * length).from_address(address), np.uint8)

    def run(self, job: int) -> None:
        self._run(self.store, job)


def _machine() -> _Machine:
    """The machine of this thread."""
    if not hasattr(_local, "machine"):
        try:
            _local.machine = _Machine(frugal=False)
        except (wasmtime.WasmtimeError, MemoryError):
            _local.machine = _Machine(frugal=True)
    found: _Machine = _local.machine
    return found


def prepare() -> None:
    """Compile now: processes that are forked later inherit the machine instead of making their own."""
    _machine()


def source_digest() -> str:
    """The first digits of the digest of the sources that the machine code was built from."""
    machine = _machine()
    return f"{machine.source(machine.store):x}"


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Room(NamedTuple):
    """An array that the walk needs, with zeros in it unless it is for scratch."""

    dtype: Any
    size: int
    scratch: bool = False


class Job:
    """Numbers and arrays in the order of the kernel's `Job`; arrays live in its memory until the next job."""

    def __init__(self, fields: Mapping[str, int | Array | Room]) -> None:
        """Arrays are copied in."""
        self._machine, self._names = _machine(), list(fields)
        self._places: dict[str, tuple[int, np.dtype[Any], int]] = {}
        at = self._machine.base + _aligned(4 * len(fields))
        head = []
        for name, given in fields.items():
            head.append(given if isinstance(given, int) else at)
            if not isinstance(given, int):
                dtype = np.dtype(given.dtype)
                self._places[name] = (at, dtype, given.size)
                at += _aligned(dtype.itemsize * given.size)
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
        except wasmtime.Trap as error:
            raise FileRefused(f"block is damaged ({str(error).splitlines()[0]})") from error
