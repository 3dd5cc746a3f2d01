"""`tpca cat` gives the file that `tpca decode` writes, of tensors as well."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import tpca
from PIL import Image


def volumes(root: Path, form: str, depth: Any) -> None:
    """Six volumes as arrays, as TIFF of several pages, or as folders of slices."""
    rng = np.random.default_rng(0)
    for k in range(6):
        volume = rng.integers(0, 200, (8, 12, 10)).astype(depth)
        pages = [Image.fromarray(page) for page in volume]
        root.mkdir(exist_ok=True)
        if form == "npy":
            np.save(root / f"v{k}.npy", volume)
        elif form == "tiff":
            pages[0].save(root / f"v{k}.tif", save_all=True, append_images=pages[1:])
        else:
            (root / f"v{k}").mkdir()
            for z, page in enumerate(pages):
                page.save(root / f"v{k}" / f"z{z}.png")


def archived(tmp_path: Path, form: str, depth: Any) -> Path:
    volumes(tmp_path / "in", form, depth)
    options = ("--stack", "--components", 3, "--method", "subspace")
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", *options)
    return tmp_path / "a.h5"


@pytest.mark.parametrize("depth", [np.float32, np.uint8, np.uint16])
@pytest.mark.parametrize("form", ["npy", "tiff"])
def test_a_tensor_is_the_file_that_decode_writes(tmp_path, form, depth) -> None:
    archive = archived(tmp_path, form, depth)
    name = "v0.npy" if form == "npy" else "v0.tif"
    for more in ((), ("--components", 2)):
        tpca("decode", archive, "-o", tmp_path / "out", "--force", *more)
        wanted = (tmp_path / "out" / name).read_bytes()
        assert tpca("cat", archive, name, *more).out.encode("utf-8", "surrogateescape") == wanted
        told = tpca("cat", archive, name, "--json", *more).json
        assert base64.b64decode(told["data"]) == wanted and told["file"] == name
    tpca("cat", archive, name, "--format", "same")
    refused = tpca("cat", archive, name, "--format", "png", code=2)
    assert f"comes as {form}: leave --format out" in refused.err and not refused.out


def test_a_folder_of_slices_is_not_one_file(tmp_path) -> None:
    refused = tpca("cat", archived(tmp_path, "slices", np.uint8), "v0", code=2)
    assert "is a folder of slices" in refused.err and not refused.out
