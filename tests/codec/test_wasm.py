"""Laws of the compiled kernels: C and Python agree on every field, programs come from their sources."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import threading
import weakref
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tpca_cli.codec import kernel_job
from tpca_cli.wasm import Field, Job, Kernel, Room, WasmInstance

ROOT = Path(__file__).resolve().parents[2]


def build_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_kernels", ROOT / "tools" / "build_kernels.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


BUILD = build_script()
KERNELS: dict[str, Kernel] = BUILD.kernels()


@pytest.mark.parametrize("module", KERNELS)
def test_the_header_is_the_list_of_fields(module: str) -> None:
    path = BUILD.PACKAGE / KERNELS[module].program
    assert path.with_name(KERNELS[module].header).read_text() == BUILD.header(module, KERNELS[module])


@pytest.mark.parametrize("module", KERNELS)
def test_the_program_was_built_from_its_sources(module: str) -> None:
    kernel = KERNELS[module]
    source = (BUILD.PACKAGE / kernel.program).with_suffix(".c")
    assert kernel.instance().constant("source") == int(BUILD.sources_digest(source), 16)


@pytest.mark.parametrize("change", ["order", "type", "constant", "record", "missing"])
def test_a_program_built_from_another_list_is_refused(change: str) -> None:
    good = kernel_job.KERNEL
    fields, records, constants = list(good.fields), dict(good.records), dict(good.constants)
    if change == "order":
        fields[3], fields[4] = fields[4], fields[3]
    elif change == "type":
        fields[9] = fields[9]._replace(c_type="i32")
    elif change == "constant":
        constants["CLASSES"] += 1
    elif change == "record":
        records["Level"] = np.dtype([("fineness", np.int32), ("count", np.int32)])
    else:
        fields.pop()
    WasmInstance(Kernel(good.program, good.fields, good.records, good.constants), frugal=True)
    with pytest.raises(RuntimeError, match="make kernel"):
        WasmInstance(Kernel(good.program, fields, records, constants), frugal=True)


def test_numbers_lie_where_c_puts_them() -> None:
    """Padding before a double, and behind the last number, as in any C struct."""
    fields = [
        Field("i32", "a"),
        Field("double", "b"),
        Field("u8 *", "c"),
        Field("i64", "d"),
        Field("i32", "e"),
    ]
    kernel = Kernel("none.wasm", fields)
    assert kernel.offsets == {"a": 0, "b": 8, "c": 16, "d": 24, "e": 32}
    assert kernel.size == 40
    head = memoryview(kernel.pack([-1, 0.5, (1 << 32) - 16, -(1 << 40), 7]))
    assert kernel.unpack(head) == {"a": -1, "b": 0.5, "c": (1 << 32) - 16, "d": -(1 << 40), "e": 7}


def block_values(**changes: object) -> dict[str, object]:
    return {field.name: 0 for field in kernel_job.KERNEL.fields} | changes


def test_more_than_can_be_addressed_is_refused() -> None:
    with pytest.raises(MemoryError, match="MB"):
        Job.of(kernel_job.KERNEL, block_values(bytes=Room(1 << 32)))


def test_arrays_do_not_overlap_and_are_aligned() -> None:
    rooms = {field.name: Room(3) for field in kernel_job.KERNEL.fields if field.is_array}
    layout = kernel_job.KERNEL.lay_out(block_values(**rooms))
    spans = sorted((start, stop) for start, stop, _ in layout.arrays.values())
    assert all(start % 16 == 0 and stop > start for start, stop in spans)
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(spans))
    assert spans[0][0] >= kernel_job.KERNEL.instance().base and spans[-1][1] <= layout.end


@pytest.mark.parametrize("wrong", [{"unknown": 1}, None])
def test_a_job_has_exactly_the_fields_of_its_kernel(wrong: dict[str, int] | None) -> None:
    values = block_values(**wrong) if wrong else block_values()
    if wrong is None:
        del values["mode"]
    with pytest.raises(ValueError, match="unknown" if wrong else "mode"):
        kernel_job.KERNEL.lay_out(values)


def test_a_thread_leaves_its_instance_to_the_next() -> None:
    """Threads that live at once never share one; one after another they need not make their own."""
    kernel, found = kernel_job.KERNEL, []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(kernel.instance()))
        thread.start()
        thread.join()
    assert found[0] is found[1] is not kernel.instance()


def test_an_array_is_copied_again_unless_it_cannot_have_changed() -> None:
    kernel = kernel_job.KERNEL
    fixed = kernel.typed({"phases": np.arange(5)})["phases"]
    for first, changed in [(fixed, fixed), (np.arange(5, dtype=np.int32), fixed + 1), (fixed, fixed * 2)]:
        Job.of(kernel, block_values(phases=first))
        if first is not changed and first.flags.writeable:
            first += 1  # in place: the same array with other numbers
        job = Job.of(kernel, block_values(phases=first if first.flags.writeable else changed))
        np.testing.assert_array_equal(job.arrays["phases"], changed)
    Job.of(kernel, block_values(phases=fixed))
    assert kernel.instance().held["phases"][1] is fixed
    Job.of(kernel, block_values(regions=np.zeros(3, kernel.dtypes["regions"]), phases=fixed))  # elsewhere
    np.testing.assert_array_equal(Job.of(kernel, block_values(phases=fixed)).arrays["phases"], fixed)


def test_an_instance_made_anew_leaves_the_memory_of_earlier_jobs() -> None:
    kernel = kernel_job.KERNEL
    kernel.instance().memory(1 << 26)
    old = weakref.ref(kernel.instance())
    kernel_job.prepare()
    assert kernel.instance() is old()
    kernel_job.prepare(anew=True)
    assert old() is None
    assert len(kernel.instance().memory(0)) < 1 << 23


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no large pages to give"
)
def test_all_memory_of_an_instance_may_have_large_pages() -> None:
    """Also what it got later."""
    instance = WasmInstance(kernel_job.KERNEL, frugal=False)
    last = instance.memory(len(instance.memory(0)) + (1 << 24)).ctypes.data + (1 << 24)
    flags, inside = "", False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        start, dash, stop = line.split(" ")[0].partition("-")
        if dash:
            inside = int(start, 16) <= last < int(stop, 16)
        elif inside and line.startswith("VmFlags:"):
            flags = line
    assert "hg" in flags.split()
