"""Counts how far a reader has to walk to follow a command: `python tests/trace_flows.py [COMMAND..]`.

Each command runs inside this process on four JPEG files, with one worker, and every call between functions of
the package is seen. It runs once before it is traced, so imports and compiled kernels are not in the count.

- A *hop* is a function that calls into another module. Each pair (function, module called) counts once,
  however often and with whichever function of that module it happens. Nested functions, lambdas and
  comprehensions belong to the function around them; code of other libraries in between is looked through;
  resuming a generator is a call.
- A *module* is touched when one of its functions runs.
- A hop *changes package* when the first part of the module's path differs: `store/read` to `archive/reader`,
  or `rate` to `codec/coder`.
- A file is *probed* or *decoded* when `images` is asked for its header or its pixels.
"""

from __future__ import annotations

import ast
import functools
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from command import tpca

import tpca_cli

PACKAGE = Path(tpca_cli.__file__).resolve().parent
SAMPLES = Path(__file__).resolve().parent.parent / "sample_data" / "clouds"
FLOWS = ("encode", "decode", "fit-basis")
IMAGES = 4


@dataclass(frozen=True)
class Place:
    """A function of the package, by the path of its module and its own name."""

    module: str
    function: str

    @property
    def package(self) -> str:
        return self.module.split("/")[0]

    def __str__(self) -> str:
        return f"{self.module}.{self.function}"


@dataclass
class Trace:
    """What one run of a command did: hops in the order in which they were first made."""

    hops: dict[tuple[Place, str], Place] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    probed: Counter[bytes] = field(default_factory=Counter)
    decoded: Counter[bytes] = field(default_factory=Counter)

    @property
    def package_changes(self) -> int:
        return sum(caller.package != called.package for (caller, _), called in self.hops.items())

    def see(self, frame: FrameType, event: str, argument: Any) -> None:
        """The profile function of the interpreter."""
        if event != "call" or (called := place_of(frame.f_code)) is None:
            return
        if called.module not in self.modules:
            self.modules.append(called.module)
        if called.package == "images" and called.function in ("probe", "read"):
            count = self.probed if called.function == "probe" else self.decoded
            count[frame.f_locals["path"]] += 1
        above = frame.f_back
        while above is not None:
            caller = place_of(above.f_code)
            if caller is not None:
                if caller.module != called.module:
                    self.hops.setdefault((caller, called.module), called)
                return
            above = above.f_back


@functools.cache
def place_of(code: CodeType) -> Place | None:
    """The function that holds a piece of code; None outside the package, and for what runs at import."""
    path = Path(code.co_filename)
    if PACKAGE not in path.parents:
        return None
    for first, last, name in functions_of(path):
        if first <= code.co_firstlineno <= last:
            return Place(path.relative_to(PACKAGE).with_suffix("").as_posix(), name)
    return None


@functools.cache
def functions_of(path: Path) -> list[tuple[int, int, str]]:
    """First line, last line and name of every function and method that is not inside another function."""
    found = []

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                found.append((first, node.end_lineno or node.lineno, prefix + node.name))
            elif isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")

    visit(ast.parse(path.read_text()).body, "")
    return found


def traced(run: Callable[[], object]) -> Trace:
    """The trace of a call, in this thread and in those that it starts."""
    trace = Trace()
    threading.setprofile(trace.see)
    sys.setprofile(trace.see)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return trace


def traces(folder: Path) -> dict[str, Trace]:
    """The trace of each flow on four JPEG files, in an empty folder."""
    photos = folder / "photos"
    photos.mkdir()
    for path in sorted(SAMPLES.glob("*.jpg"))[:IMAGES]:
        shutil.copy(path, photos)
    tpca("encode", photos, "-o", folder / "archive.h5", "--workers", 1)
    arguments = {
        "encode": ("encode", photos),
        "decode": ("decode", folder / "archive.h5"),
        "fit-basis": ("fit-basis", photos),
    }
    found = {}
    for flow, given in arguments.items():
        tpca(*given, "-o", folder / f"{flow}-before", "--workers", 1)
        found[flow] = traced(functools.partial(tpca, *given, "-o", folder / f"{flow}-traced", "--workers", 1))
    return found


def listing(trace: Trace) -> str:
    """The hops in order, a `*` before those that change package."""
    lines = []
    for (caller, _), called in trace.hops.items():
        lines.append(f"  {'*' if caller.package != called.package else ' '} {caller} -> {called}")
    return "\n".join(lines)


def main(flows: list[str]) -> None:
    """Print a table of the counts, then the hops of each flow."""
    with tempfile.TemporaryDirectory() as folder:
        found = traces(Path(folder))
    print(f"{'':10} {'hops':>5} {'modules':>8} {'package changes':>16} {'probed':>7} {'decoded':>8}")
    for flow in flows:
        trace = found[flow]
        probed, decoded = (max(count.values(), default=0) for count in (trace.probed, trace.decoded))
        row = f"{flow:10} {len(trace.hops):5} {len(trace.modules):8} {trace.package_changes:16}"
        print(f"{row} {probed:7} {decoded:8}")
    for flow in flows:
        print(f"\n{flow}\n{listing(found[flow])}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(FLOWS))
