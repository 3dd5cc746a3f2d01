"""Run the tests with the oldest version of every library that `pyproject.toml` allows: `make oldest`.

The libraries go into an environment of their own, `.venv-oldest`, beside `.venv`. It needs an interpreter
that those versions know: Python 3.10, 3.11 or 3.12. Arguments are given to pytest.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv-oldest"
LISTS = ("dependencies", "dask")


def floors(project: str) -> dict[str, str]:
    """The lowest allowed version of each library that a user may have, from the text of `pyproject.toml`."""
    found = {}
    for name in LISTS:
        entries = re.search(rf"^{name} = \[(.*?)\]", project, re.M | re.S)
        assert entries is not None, f"pyproject.toml has no list {name}"
        for requirement in re.findall(r'"([^"]+)"', entries[1]):
            parts = re.match(r"([A-Za-z0-9-]+)>=([0-9.]+)", requirement)
            assert parts is not None, f"{requirement}: no lowest version"
            found[parts[1]] = parts[2]
    return found


def main(arguments: list[str]) -> int:
    """Make the environment, run the tests in it."""
    if not (3, 10) <= sys.version_info[:2] <= (3, 12):
        print(
            f"the oldest libraries need Python 3.10 to 3.12, this is {sys.version.split()[0]}; set PYTHON=.."
        )
        return 1
    python = FOLDER / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER, with_pip=True)
    exact = [f"{name}=={version}" for name, version in floors((ROOT / "pyproject.toml").read_text()).items()]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *exact, "-e", f"{ROOT}[dev]"], check=True)
    print("tests with", ", ".join(exact), flush=True)
    return subprocess.run([str(python), "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
