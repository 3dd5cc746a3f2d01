"""A damaged TIFF is refused in our words; libtiff says nothing by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from images.containers import tiff
from pictures import noise
from PIL import Image

SCRIPT = """
import sys
from tpca_cli import images
from tpca_cli.errors import ImageRefused
try:
    images.read(sys.argv[1].encode())
except ImageRefused as refused:
    print("refused", refused)
"""


def test_libtiff_keeps_quiet(tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    Image.fromarray(noise(64, 64)).save(path, compression="tiff_adobe_deflate")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True)
    assert done.stdout.startswith("refused TIFF cannot be decoded") and done.stderr == ""


def test_pillow_keeps_quiet(tmp_path: Path) -> None:
    """It logs what it refuses, and logs that nobody asked for would go to stderr."""
    data = tiff({277: (3, 40_000)})
    (tmp_path / "x.tif").write_bytes(data)
    words = [sys.executable, "-c", SCRIPT, str(tmp_path / "x.tif")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout.startswith("refused ") and done.stderr == ""
