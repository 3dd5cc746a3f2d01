"""Run the tests with the oldest version of every library that `pyproject.toml` allows: `make oldest`.

Oldest means the lowest allowed version that has a wheel for the Python that runs this: numpy 1.26 has none
for Python 3.13. The libraries go into an environment of their own, `.venv-oldest-3.10` and so on, beside
`.venv`. Arguments are given to pytest.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / f".venv-oldest-{sys.version_info[0]}.{sys.version_info[1]}"
LISTS = ("dependencies", "dask", "heif", "jxl", "scores")
NUMBER = re.compile(r"[0-9.]+")  # no early version, nor what an index has besides
PIP = ("-m", "pip", "--disable-pip-version-check")


def floors(project: str) -> dict[str, Version]:
    """The lowest allowed version of each library for this Python, from the text of `pyproject.toml`."""
    found = {}
    for name in LISTS:
        entries = re.search(rf"^{name} = \[(.*?)\]", project, re.M | re.S)
        assert entries is not None, f"pyproject.toml has no list {name}"
        for text in re.findall(r'"([^"]+)"', entries[1]):
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate():
                lowest = [bound.version for bound in requirement.specifier if bound.operator == ">="]
                assert len(lowest) == 1, f"{text}: no lowest version"
                found[requirement.name] = Version(lowest[0])
    return found


def with_wheel(name: str, floor: Version) -> Version:
    """The lowest version from `floor` on that this Python can install without building it."""
    command = [sys.executable, *PIP, "index", "versions", name, "--only-binary", ":all:"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    listed = re.search(r"Available versions: (.*)", told)
    assert listed is not None, told
    allowed = sorted(
        v for text in listed[1].split(", ") if NUMBER.fullmatch(text) and (v := Version(text)) >= floor
    )
    return next(version for version in allowed if _installs(f"{name}=={version}"))


def _installs(exact: str) -> bool:
    """Whether there is a wheel of this version for this Python."""
    command = [sys.executable, *PIP, "install", "--dry-run", "--ignore-installed", "--no-deps"]
    command += ["--only-binary", ":all:", exact]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def main(arguments: list[str]) -> int:
    """Make the environment, run the tests in it."""
    lowest = floors((ROOT / "pyproject.toml").read_text())
    with ThreadPoolExecutor(4) as pool:
        exact = [
            f"{name}=={found}"
            for name, found in zip(lowest, pool.map(with_wheel, lowest, lowest.values()), strict=True)
        ]
    python = FOLDER / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER, with_pip=True)
    subprocess.run(
        [str(python), *PIP, "install", "--quiet", "--only-binary", ":all:", *exact, "-e", f"{ROOT}[dev]"],
        check=True,
    )
    print(f"Python {sys.version.split()[0]} with", ", ".join(exact), flush=True)
    return subprocess.run([str(python), "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
