"""Decode the golden archives with the oldest and the newest WebAssembly runtime that are allowed.

Run by `make compat`. Of the versions that pyproject.toml allows, the oldest and the newest that can be
installed here go into a temporary folder each, ahead of the installed one. Instances with little memory are
tested too, since an old runtime takes settings that it does not know without a word.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = "wasmtime"
TESTS = (
    "tests/golden/test_golden.py",
    "tests/codec/test_entropy.py",
    "tests/codec/test_tabled.py",
    "tests/images/test_bicubic.py",
    "tests/codec/test_wasm.py",
)
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def versions() -> list[str]:
    """Allowed versions, oldest first."""
    bounds = re.search(rf'"{LIBRARY}>=([0-9.]+),<([0-9.]+)"', (ROOT / "pyproject.toml").read_text())
    assert bounds is not None
    listed = subprocess.run(
        [*PIP, "index", "versions", LIBRARY], capture_output=True, text=True, check=True
    ).stdout
    line = next(line for line in listed.splitlines() if line.startswith("Available versions:"))
    floor, ceiling = number(bounds[1]), number(bounds[2])
    known = [version for version in re.findall(r"[0-9.]+", line) if floor <= number(version) < ceiling]
    return sorted(known, key=number)


def installed(candidates: Iterable[str], folder: str) -> str | None:
    """The first version that could be installed into the folder."""
    for version in candidates:
        wanted = ["--no-deps", "--only-binary", ":all:", "--target", folder, f"{LIBRARY}=={version}"]
        command = [*PIP, "install", "--quiet", *wanted]
        if not subprocess.run(command, capture_output=True, check=False).returncode:
            return version
    return None


def check(candidates: Iterable[str]) -> int:
    """Run the tests with the first version that can be installed."""
    with tempfile.TemporaryDirectory() as folder:
        version = installed(candidates, folder)
        if version is None:
            print(f"no allowed version of {LIBRARY} can be installed here")
            return 1
        environment = os.environ | {"PYTHONPATH": folder}
        loaded = f"import {LIBRARY}; assert {LIBRARY}.__file__.startswith({folder!r})"
        subprocess.run([sys.executable, "-c", loaded], env=environment, check=True)
        print(f"golden archives and kernels with {LIBRARY} {version}:", flush=True)
        tests = [sys.executable, "-m", "pytest", "-q", *TESTS]
        return subprocess.run(tests, env=environment, cwd=ROOT, check=False).returncode


def main() -> int:
    allowed = versions()
    return check(allowed) or check(reversed(allowed))


if __name__ == "__main__":
    sys.exit(main())
