"""Build the compiled kernels of the package, or check that they are what their sources give.

Run by `make kernel` and `make kernel-check`. The compiler is the one that pyproject.toml pins in the extra
`kernel`: `ziglang` is clang and a linker for WebAssembly as a Python package, so everybody gets the same
bytes. Versions 0.14.1, 0.15.2 and 0.17.0 give code of the same speed, within 3 % of one another.

The list of fields, records and constants of a kernel stands in Python; `job.h` beside its sources is written
from it. The digest of all sources goes into the program, where a test finds it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tpca_cli.codec import kernel_job  # noqa: E402
from tpca_cli.exact.jpeg import FIRST_JPEG, JPEG  # noqa: E402
from tpca_cli.exact.pixels import FIRST_PIXELS, PIXELS  # noqa: E402
from tpca_cli.images.resize import bicubic_kernel  # noqa: E402
from tpca_cli.visual.ssimulacra2 import KERNEL  # noqa: E402
from tpca_cli.wasm import C_TYPES, Field, Kernel  # noqa: E402

PACKAGE = ROOT / "tpca_cli"
FLAGS = [
    "--target=wasm32-freestanding",
    "-std=c11",
    "-O3",
    "-msimd128",
    "-mbulk-memory",
    "-ffreestanding",
    "-nostdlib",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wl,--no-entry",
    "-Wl,--strip-all",
    "-Wl,--export=__heap_base",
]

# Of the three weights of a mixer it would make vectors, which have to be put together first.
SPECIAL_FLAGS = {"walk.c": ["-fno-slp-vectorize"]}

OPENING = """\
// Written by `make kernel` from the list in {module}: change it there.
//
// The kernel works on `the_job`; Python finds it through `job`, and compares `layout` with its own list.

#include "{types}"
"""
CLOSING = """
static Job the_job;

EXPORT(job) Job *job_address(void) {{ return &the_job; }}
EXPORT(layout) i32 job_layout(void) {{ return 0x{checksum:08x}; }}
EXPORT(source) i64 source_digest(void) {{ return SOURCE; }}  // the first digits, given by the build
"""


def kernels() -> dict[str, Kernel]:
    """Every kernel of the package, by the file that lists its fields."""
    return {
        "codec/kernel_job.py": kernel_job.KERNEL,
        "images/resize.py": bicubic_kernel(),
        "visual/ssimulacra2.py": KERNEL,
        "exact/jpeg.py": JPEG,
        "exact/pixels.py": PIXELS,
        "exact/jpeg.py, FIRST_JPEG": FIRST_JPEG,
        "exact/pixels.py, FIRST_PIXELS": FIRST_PIXELS,
    }


def header(module: str, kernel: Kernel) -> str:
    """The C of what a kernel and Python must agree on."""
    types = os.path.relpath(PACKAGE / "kernel" / "types.h", (PACKAGE / kernel.program).parent)
    parts = [OPENING.format(module=module, types=types)]
    if kernel.constants:
        lines = [f"    {name} = {value}," for name, value in kernel.constants.items()]
        parts.append("\n".join(["\nenum {", *lines, "};\n"]))
    names = {dtype: name for name, dtype in C_TYPES.items()}
    for record, dtype in kernel.records.items():
        lines = []
        for name, (inner, *_) in (dtype.fields or {}).items():
            size = "".join(f"[{side}]" for side in inner.shape)
            lines.append(f"    {names[inner.base]} {name}{size};")
        parts.append("\n".join(["\ntypedef struct {", *lines, f"}} {record};\n"]))
    members = [member(field) for field in kernel.fields]
    width = max(map(len, members)) + 2
    notes = [f"// {field.note}" if field.note else "" for field in kernel.fields]
    lines = [f"    {text:{width}}{note}".rstrip() for text, note in zip(members, notes, strict=True)]
    parts.append("\n".join(["\ntypedef struct {", *lines, "} Job;\n\n"]))
    asserts = [f"offsetof(Job, {name}) == {offset}" for name, offset in kernel.offsets.items()]
    asserts += [f"sizeof(Job) == {kernel.size}"]
    asserts += [f"sizeof({record}) == {dtype.itemsize}" for record, dtype in kernel.records.items()]
    parts.append("".join(f'_Static_assert({law}, "as in Python");\n' for law in asserts))
    parts.append(CLOSING.format(checksum=kernel.checksum))
    return "".join(parts)


def member(field: Field) -> str:
    return f"{field.c_type}{'' if field.is_array else ' '}{field.name};"


def sources_of(source: Path) -> list[Path]:
    """A C file and all that it includes of the package."""
    found = [source]
    for path in found:
        names = re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)
        found += [beside for name in names if (beside := (path.parent / name).resolve()) not in found]
    return found


def sources_digest(source: Path) -> str:
    """The first digits of the digest of all sources of a kernel."""
    sources = b"".join(path.read_bytes() for path in sources_of(source))
    return hashlib.sha256(sources).hexdigest()[:15]


def compiled(source: Path) -> bytes:
    """What the pinned compiler makes of a C file."""
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "kernel.wasm"
        digest = f"-DSOURCE=0x{sources_digest(source)}"
        environment = os.environ | {"ZIG_GLOBAL_CACHE_DIR": place, "ZIG_LOCAL_CACHE_DIR": place}
        flags = [*FLAGS, *SPECIAL_FLAGS.get(source.name, []), digest]
        command = [sys.executable, "-m", "ziglang", "cc", *flags, "-o", str(output), source.name]
        subprocess.run(command, cwd=source.parent, env=environment, check=True)
        return output.read_bytes()


def check_compiler() -> None:
    """Stop unless the compiler is the one that is pinned."""
    pinned = re.search(r'"ziglang==([0-9.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pinned is not None
    try:
        found = metadata.version("ziglang")
    except metadata.PackageNotFoundError:
        found = "none"
    if found != pinned[1]:
        sys.exit(f"kernels are built with ziglang {pinned[1]}, here is {found}: pip install -e '.[kernel]'")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="build, compare with what is there, write nothing"
    )
    check = parser.parse_args().check
    check_compiler()
    stale = 0
    for module, kernel in kernels().items():
        program = PACKAGE / kernel.program
        listed = program.with_name(kernel.header)
        written = {listed: header(module, kernel).encode()}
        if not check:
            listed.write_bytes(written[listed])
        written[program] = compiled(program.with_suffix(".c"))
        for path, data in written.items():
            name = path.relative_to(ROOT)
            if check and (not path.exists() or path.read_bytes() != data):
                print(f"{name} is not what its sources give: run `make kernel`")
                stale = 1
            elif not check:
                path.write_bytes(data)
                print(f"{name}: {len(data):,} bytes")
    if check and not stale:
        print("the kernels are what their sources give")
    return stale


if __name__ == "__main__":
    sys.exit(main())
