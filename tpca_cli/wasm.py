"""Runs compiled code, WebAssembly that is part of the package: the same bits on every machine.

It needs no compiler where it is installed, starts in milliseconds, keeps no cache on disk, and cannot touch
memory outside its own: hostile data can at worst make it stop. A program exports `run`, and `source`, the
digest of what it was built from.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from importlib import resources
from types import SimpleNamespace
from typing import Any

import numpy as np
import wasmtime
from numpy.typing import NDArray

ALIGNMENT = 16
PAGE = 1 << 16
MOST = 1 << 32
SMALL = 1 << 20

_local = threading.local()


@functools.lru_cache(maxsize=4)
def _compiled(program: str, frugal: bool) -> tuple[wasmtime.Engine, wasmtime.Module]:
    """The module; a frugal one reserves no addresses, for processes that may have few."""
    config = wasmtime.Config()
    config.parallel_compilation = False
    config.memory_init_cow = False  # it takes a file, which a limit on their size forbids
    if frugal:
        config.memory_reservation = SMALL
        config.memory_guard_size = PAGE
        config.memory_reservation_for_growth = SMALL
    engine = wasmtime.Engine(config)
    code = resources.files(__package__).joinpath(program).read_bytes()
    return engine, wasmtime.Module(engine, code)


class Stopped(Exception):
    """The program stopped itself: the data are not what it can work on."""


class WasmInstance:
    """One instance of a program with memory of its own; for one thread. Use `machine`."""

    def __init__(self, program: str, frugal: bool) -> None:
        engine, module = _compiled(program, frugal)
        self._store = wasmtime.Store(engine)
        exports: Any = wasmtime.Instance(self._store, module, []).exports(self._store)
        self._exports, self._memory, self._run = exports, exports["memory"], exports["run"]
        kind = self._run.type(self._store)
        signature = SimpleNamespace(params=kind.params, results=kind.results, owner=kind)
        self._run.type = lambda _: signature  # it would be asked for, and made anew, in every call
        self.base = aligned(int(self._exports["__heap_base"].value(self._store)))
        self._bytes = self._look()
        self._constants: dict[str, int] = {}

    def _look(self) -> NDArray[np.uint8]:
        address = ctypes.addressof(self._memory.data_ptr(self._store).contents)
        length = self._memory.data_len(self._store)
        return np.frombuffer((ctypes.c_ubyte * length).from_address(address), np.uint8)

    def room(self, size: int) -> NDArray[np.uint8]:
        """The memory as bytes, grown to `size` if it is smaller; earlier answers are then void."""
        missing = size - len(self._bytes)
        if missing > 0:
            try:
                self._memory.grow(self._store, -(-missing // PAGE))
            except wasmtime.WasmtimeError as error:
                raise MemoryError(f"work on a block needs {size >> 20} MB, which cannot be had") from error
            self._bytes = self._look()
        return self._bytes

    def run(self, *arguments: int) -> None:
        """Call the program."""
        try:
            self._run(self._store, *arguments)
        except wasmtime.Trap as error:
            raise Stopped(str(error).splitlines()[0]) from error

    def constant(self, name: str) -> int:
        """The answer of an exported function that always gives the same one."""
        if name not in self._constants:
            self._constants[name] = int(self._exports[name](self._store))
        return self._constants[name]


def machine(program: str) -> WasmInstance:
    """This thread's machine for a file of the package.

    Processes that are forked after the first call inherit it instead of compiling their own.
    """
    machines: dict[str, WasmInstance] = _local.__dict__
    if program not in machines:
        try:
            machines[program] = WasmInstance(program, frugal=False)
        except (wasmtime.WasmtimeError, MemoryError):
            machines[program] = WasmInstance(program, frugal=True)
    return machines[program]


def aligned(size: int) -> int:
    """The size that leaves the next array where the program may expect it."""
    return -(-size // ALIGNMENT) * ALIGNMENT
