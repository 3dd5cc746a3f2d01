"""Manual pages are built from the help with every wheel; everything else is in pyproject.toml."""

import os
import sys
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from build_man import build  # noqa: E402

PAGES = build(ROOT / "build" / "man")
setup(data_files=[("share/man/man1", [os.path.relpath(page, ROOT) for page in PAGES])])
