"""Decode the golden archives with the oldest WebAssembly runtime that is allowed and installable here.

Run by `make compat`. The runtime goes into a temporary folder, ahead of the installed one. Machines with
little memory are tested too, since an old runtime takes settings that it does not know without a word.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = "wasmtime"
TESTS = ("tests/test_golden.py", "tests/test_codec_entropy.py")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def versions() -> list[str]:
    """Allowed versions, oldest first."""
    floor = re.search(rf'"{LIBRARY}>=([0-9.]+)', (ROOT / "pyproject.toml").read_text())
    assert floor is not None
    listed = subprocess.run(
        [*PIP, "index", "versions", LIBRARY], capture_output=True, text=True, check=True
    ).stdout
    line = next(line for line in listed.splitlines() if line.startswith("Available versions:"))
    known = [version for version in re.findall(r"[0-9.]+", line) if number(version) >= number(floor[1])]
    return sorted(known, key=number)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        for version in versions():
            wanted = ["--no-deps", "--only-binary", ":all:", "--target", folder, f"{LIBRARY}=={version}"]
            if not subprocess.run(
                [*PIP, "install", "--quiet", *wanted], capture_output=True, check=False
            ).returncode:
                break
        else:
            print(f"no allowed version of {LIBRARY} can be installed here")
            return 1
        environment = os.environ | {"PYTHONPATH": folder}
        check = f"import {LIBRARY}; assert {LIBRARY}.__file__.startswith({folder!r})"
        subprocess.run([sys.executable, "-c", check], env=environment, check=True)
        print(f"golden archives and machines with {LIBRARY} {version}:", flush=True)
        tests = [sys.executable, "-m", "pytest", "-q", *TESTS]
        return subprocess.run(tests, env=environment, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
