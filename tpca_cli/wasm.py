"""Runs compiled kernels, WebAssembly that is part of the package: the same bits on every machine.

They need no compiler where the package is installed, start in milliseconds, keep no cache on disk, and cannot
touch memory outside their own: hostile data can at worst make one stop.

All kernels are called the same way. A kernel works on one C struct, its `Job`: numbers, and addresses of
arrays in its memory. It exports `run`, without arguments; `job`, the address of the struct; `layout`, the
checksum of the struct and the constants that it was compiled with; and `source`, the digest of its sources.
The fields are written once, in the list of a `Kernel`: `tools/build_kernels.py` writes the C struct from it,
and a program that was compiled with another list is refused when it is loaded.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import threading
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import wasmtime
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

ALIGNMENT = 16
PAGE = 1 << 16
ADDRESSES = 1 << 32
FRUGAL_BYTES = 1 << 20
"""What a frugal instance reserves of the addresses of its process."""

C_TYPES: dict[str, np.dtype[Any]] = {
    "u8": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "u16": np.dtype(np.uint16),
    "i16": np.dtype(np.int16),
    "u32": np.dtype(np.uint32),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}
"""Types of the elements of a kernel's arrays, by their names in C."""
STRUCT_CODES = {"u32": "I", "i32": "i", "i64": "q", "double": "d"}
"""Types that numbers of a job may have."""

SPARE = 4
"""Instances that are kept for threads to come, of all kernels together."""

HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
"""What a system with large pages is told of the memory of instances: fewer of them, found sooner."""

_LIBRARY = ctypes.CDLL(None)
_local = threading.local()
_spare: deque[tuple[str, WasmInstance]] = deque(maxlen=SPARE)


class _Lease:
    """An instance that a thread has; it is left to another when the thread ends.

    A new one has to be given its memory page by page, which takes as long as decoding a few thumbnails.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.program = kernel.program
        self.instance = _left_over(kernel.program) or _new_instance(kernel)

    def __del__(self) -> None:
        if hasattr(self, "instance"):
            _spare.append((self.program, self.instance))


class KernelStopped(Exception):
    """The kernel stopped itself: the data are not what it can work on."""


class Field(NamedTuple):
    """A member of a `Job`: a number (`i32`), or an array (`double *`, `const i32 *` if it is only read)."""

    c_type: str
    name: str
    note: str = ""

    @property
    def is_array(self) -> bool:
        """Whether the struct holds an address."""
        return self.c_type.endswith("*")

    @property
    def element(self) -> str:
        """The type of the number, or of the elements of the array."""
        return self.c_type.removeprefix("const ").rstrip(" *")


class Room(NamedTuple):
    """An array of so many elements that the kernel fills; it starts with zeros unless it is for scratch."""

    size: int
    scratch: bool = False


Value: TypeAlias = int | float | Array | Room
Values: TypeAlias = Mapping[str, Value]


class Kernel:
    """A program of the package and what it was compiled with.

    `records` are structs that arrays consist of, `constants` are numbers that C and Python share; `header` is
    the file beside the program that `tools/build_kernels.py` writes all of this to.
    """

    def __init__(
        self,
        program: str,
        fields: Sequence[Field],
        records: Mapping[str, np.dtype[Any]] | None = None,
        constants: Mapping[str, int] | None = None,
        header: str = "job.h",
    ) -> None:
        self.program, self.fields, self.header = program, tuple(fields), header
        self.records, self.constants = dict(records or {}), dict(constants or {})
        types = C_TYPES | self.records
        self.dtypes = {field.name: types[field.element] for field in self.fields if field.is_array}
        self.read_only = {field.name for field in self.fields if field.c_type.startswith("const ")}
        self.offsets: dict[str, int] = {}
        packed, widest = "<", 1
        for field in self.fields:
            code = STRUCT_CODES["u32" if field.is_array else field.element]
            side = struct.calcsize(f"<{code}")
            packed += "x" * (-struct.calcsize(packed) % side)  # C aligns a number to its own size
            self.offsets[field.name], widest = struct.calcsize(packed), max(widest, side)
            packed += code
        self._struct = struct.Struct(packed + "x" * (-struct.calcsize(packed) % widest))
        self.size = self._struct.size

    @functools.cached_property
    def checksum(self) -> int:
        """31 bits over the offsets, types and names of all fields, the records and the constants."""
        lines = [f"{self.offsets[field.name]} {field.c_type} {field.name}" for field in self.fields]
        lines += [f"{name} {dtype.descr}" for name, dtype in self.records.items()]
        lines += [f"{name} {value}" for name, value in self.constants.items()]
        return zlib.crc32("\n".join(lines).encode()) >> 1

    def pack(self, numbers: Sequence[int | float]) -> bytes:
        """The struct with these numbers and addresses, one for each field."""
        return self._struct.pack(*numbers)

    def unpack(self, head: memoryview) -> dict[str, int]:
        """The numbers and addresses of a struct, by their fields; all that a kernel writes are whole."""
        return dict(zip(self.offsets, self._struct.unpack(head), strict=True))

    def typed(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """Arrays in the types that the list says, which nobody changes from now on."""
        found = {
            name: np.ascontiguousarray(array, self.dtypes[name]).view() for name, array in arrays.items()
        }
        for array in found.values():
            array.flags.writeable = False
        return found

    def instance(self) -> WasmInstance:
        """This thread's instance.

        Processes that are forked after the first call inherit it instead of compiling their own.
        """
        instances: dict[str, WasmInstance] = _local.__dict__
        if self.program not in instances:
            lease = _Lease(self)
            instances[self.program] = lease.instance
            _local.__dict__.setdefault(" leases", []).append(lease)
        return instances[self.program]

    def renew(self) -> None:
        """Let this thread's instances go and make one that has no memory yet, before processes are forked.

        They inherit it instead of compiling their own, and nothing that was only needed before: what has been
        freed goes back to the system.
        """
        for lease in _local.__dict__.pop(" leases", []):
            del lease.instance
        _local.__dict__.clear()
        _spare.clear()
        if hasattr(_LIBRARY, "malloc_trim"):
            _LIBRARY.malloc_trim(0)
        self.instance()

    def lay_out(self, values: Values) -> Layout:
        """Where the arrays of a job lie, and its struct. Every field needs a value; 0 stands for no array."""
        if values.keys() != self.offsets.keys():
            wrong = sorted(values.keys() ^ self.offsets.keys())
            raise ValueError(f"the fields of {self.program} and what was given differ in {wrong}")
        numbers: list[int | float] = []
        arrays: dict[str, tuple[int, int, np.dtype[Any]]] = {}
        at = self.instance().base
        for field in self.fields:
            value = values[field.name]
            if isinstance(value, (int, float)):
                numbers.append(value)
                continue
            dtype = self.dtypes[field.name]
            stop = at + dtype.itemsize * int(value.size)
            numbers.append(at)
            arrays[field.name] = (at, stop, dtype)
            at = aligned(stop)
        if at > ADDRESSES:
            raise MemoryError(f"a job needs {at >> 20} MB, more than a kernel can address")
        return Layout(self.pack(numbers), arrays, at)


class Layout(NamedTuple):
    """The struct of a job; where its arrays begin and end, and their types; the end of all."""

    head: bytes
    arrays: dict[str, tuple[int, int, np.dtype[Any]]]
    end: int


class Job:
    """A job in the memory of this thread's instance.

    Its `arrays` are there in place, until the next job; `numbers` are those of the struct, once it ran.
    """

    numbers: dict[str, int]

    def __init__(self, kernel: Kernel, layout: Layout) -> None:
        self._kernel, self._instance = kernel, kernel.instance()
        self._instance.held = {}
        memory = self._instance.memory(layout.end)
        self.arrays: dict[str, Array] = {
            name: memory[start:stop].view(dtype) for name, (start, stop, dtype) in layout.arrays.items()
        }
        self._head = memory.data[self._instance.job : self._instance.job + kernel.size]
        self._head[:] = layout.head

    @staticmethod
    def of(kernel: Kernel, values: Values) -> Job:
        """A job with these numbers and arrays.

        Arrays are copied in, except those that cannot have changed since the job before had them there: the
        tables of a model take as long to copy as some thumbnails to decode.
        """
        held = kernel.instance().held
        layout = kernel.lay_out(values)
        job = Job(kernel, layout)
        for name, array in job.arrays.items():
            value, start = values[name], layout.arrays[name][0]
            if isinstance(value, Room):
                if not value.scratch:
                    array[:] = 0
                continue
            assert isinstance(value, np.ndarray)
            place, before = held.get(name, (0, None))
            if value is not before or place != start:
                array[:] = value.ravel()
            if name in kernel.read_only and not value.flags.writeable:
                job._instance.held[name] = start, value
        return job

    def run(self) -> Job:
        """Run the kernel over it."""
        self._instance.run()
        self.numbers = self._kernel.unpack(self._head)
        return self


def _left_over(program: str) -> WasmInstance | None:
    for _ in range(len(_spare)):
        try:
            kept, instance = _spare.pop()
        except IndexError:  # another thread was faster
            break
        if kept == program:
            return instance
        _spare.appendleft((kept, instance))
    return None


def _new_instance(kernel: Kernel) -> WasmInstance:
    try:
        return WasmInstance(kernel, frugal=False)
    except (wasmtime.WasmtimeError, MemoryError):
        return WasmInstance(kernel, frugal=True)


@functools.lru_cache(maxsize=4)
def _compiled(program: str, frugal: bool) -> tuple[wasmtime.Engine, wasmtime.Module]:
    """The module; a frugal one reserves no addresses, for processes that may have few."""
    config = wasmtime.Config()
    config.parallel_compilation = False
    config.memory_init_cow = False  # it takes a file, which a limit on their size forbids
    if frugal:
        config.memory_reservation = FRUGAL_BYTES
        config.memory_guard_size = PAGE
        config.memory_reservation_for_growth = FRUGAL_BYTES
    engine = wasmtime.Engine(config)
    code = resources.files(__package__).joinpath(program).read_bytes()
    return engine, wasmtime.Module(engine, code)


class WasmInstance:
    """One instance of a kernel with memory of its own; for one thread. Use `Kernel.instance`."""

    def __init__(self, kernel: Kernel, frugal: bool) -> None:
        engine, module = _compiled(kernel.program, frugal)
        self._store = wasmtime.Store(engine)
        exports: Any = wasmtime.Instance(self._store, module, []).exports(self._store)
        self._exports, self._memory, self._run = exports, exports["memory"], exports["run"]
        if self.constant("layout") != kernel.checksum:
            raise RuntimeError(f"{kernel.program} was not built from this list of fields: run `make kernel`")
        self.held: dict[str, tuple[int, Array]] = {}  # what the last job has that cannot change, and where
        self.job = self.constant("job")
        self.base = aligned(int(self._exports["__heap_base"].value(self._store)))
        self._bytes = self._look()

    def _look(self) -> NDArray[np.uint8]:
        address = ctypes.addressof(self._memory.data_ptr(self._store).contents)
        length = self._memory.data_len(self._store)
        if HUGE_PAGES is not None:  # no harm if the answer is no
            _LIBRARY.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), HUGE_PAGES)
        return np.frombuffer((ctypes.c_ubyte * length).from_address(address), np.uint8)

    def memory(self, size: int) -> NDArray[np.uint8]:
        """The memory as bytes, grown to `size` if it is smaller; earlier answers are then void."""
        missing = size - len(self._bytes)
        if missing > 0:
            try:
                self._memory.grow(self._store, -(-missing // PAGE))
            except wasmtime.WasmtimeError as error:
                raise MemoryError(f"work on a block needs {size >> 20} MB, which cannot be had") from error
            self._bytes = self._look()
        return self._bytes

    def run(self) -> None:
        """Run the kernel over its job.

        wasmtime asks for the type of a function in every call. Without arguments there is nothing to convert:
        a call takes 7.5 us, and one with an argument 15.6 us.
        """
        try:
            self._run(self._store)
        except wasmtime.Trap as error:
            raise KernelStopped(str(error).splitlines()[0]) from error

    def constant(self, name: str) -> int:
        """The answer of an exported function that always gives the same one."""
        return int(self._exports[name](self._store))


def aligned(size: int) -> int:
    """The size that leaves the next array where the kernel may expect it."""
    return -(-size // ALIGNMENT) * ALIGNMENT
