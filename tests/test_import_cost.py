"""What each command loads: a command pays only for what it uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import tpca
from pictures import folder

ROOT = Path(__file__).resolve().parent.parent
RUN = """
import json, os, sys
from tpca_cli.cli.main import _run
code = _run(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump(sorted(sys.modules), file)
sys.exit(code)
"""

ALGORITHMS = tuple(
    f"tpca_cli.tensor_pca.{name}"
    for name in ("algorithm1", "algorithm1_streamed", "algorithm2", "algorithm3", "solve", "exact", "krylov")
)
FIT, ENCODE, DECODE, REPORT = (f"tpca_cli.{flow}" for flow in ("fit", "encode", "decode", "report"))
DRAW = "tpca_cli.images.draw"
CODEC, ARCHIVE, CLUSTER = (f"tpca_cli.{unit}" for unit in ("codec", "archive", "cluster"))
SOURCES, FRAMES = "tpca_cli.sources", "tpca_cli.frames"
EXTRAS = ("dask", "distributed", "fsspec", "pyarrow", "torch")
PICTURES = ("PIL", "simplejpeg")
KERNEL = ("wasmtime",)
WORKERS = ("multiprocessing", "concurrent", "threadpoolctl")
NUMBERS = ("numpy", "scipy", "h5py")

# a command, and what it must not load: these modules and everything below them
COMMANDS: dict[str, tuple[str, ...]] = {
    "--version": (FIT, ENCODE, DECODE, REPORT, *NUMBERS, *PICTURES, *KERNEL, *EXTRAS),
    "--help": (FIT, ENCODE, DECODE, REPORT, *NUMBERS, *PICTURES, *KERNEL, *EXTRAS),
    "fit-basis photos -o new.h5 --tile 8": (ENCODE, DECODE, REPORT, DRAW, CODEC, ARCHIVE, *KERNEL, *EXTRAS),
    "merge part.h5 -o new.h5": (ENCODE, DECODE, REPORT, DRAW, CODEC, ARCHIVE, *KERNEL, *EXTRAS),
    "encode photos -o new.h5 --step 8": (FIT, DECODE, REPORT, DRAW, *EXTRAS),
    "decode photos.h5 -o restored": (
        *(FIT, ENCODE, REPORT, CLUSTER, FRAMES, SOURCES, DRAW),
        *("scipy", *ALGORITHMS, *EXTRAS),
    ),
    "verify photos.h5": (FIT, ENCODE, REPORT, CLUSTER, FRAMES, "scipy", *ALGORITHMS, *EXTRAS),
    "repack photos.h5 -o new.h5": (FIT, ENCODE, REPORT, CLUSTER, FRAMES, "scipy", *ALGORITHMS, *EXTRAS),
    "ls photos.h5": (
        *(FIT, ENCODE, DECODE, CLUSTER, FRAMES, SOURCES),
        *("scipy", *ALGORITHMS, *PICTURES, *KERNEL, *EXTRAS, *WORKERS),
    ),
    "cat photos.h5 image_0000.png": (
        *(FIT, ENCODE, REPORT, CLUSTER, FRAMES, SOURCES),
        *("scipy", *ALGORITHMS, *EXTRAS),
    ),
    "export photos.h5 -o shards": (
        *(FIT, ENCODE, REPORT, CLUSTER, FRAMES, SOURCES),
        *("scipy", *ALGORITHMS, *EXTRAS),
    ),
    "diff photos.h5 photos": (FIT, ENCODE, REPORT, CLUSTER, FRAMES, "scipy", *ALGORITHMS, *EXTRAS),
    "inspect photos.h5": (
        *(FIT, ENCODE, DECODE, CLUSTER, FRAMES, SOURCES),
        *("scipy", *ALGORITHMS, *PICTURES, *KERNEL, *EXTRAS, *WORKERS),
    ),
    "encode photos -o new.h5 --basis basis.h5 --plain": (FIT, DECODE, REPORT, DRAW, *KERNEL, *EXTRAS),
    "inspect basis.h5": (
        *(FIT, ENCODE, DECODE, CLUSTER, FRAMES, SOURCES, CODEC),
        *("scipy", *PICTURES, *KERNEL, *EXTRAS),
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photos, an archive, a basis and the operator of a shard."""
    root = tmp_path_factory.mktemp("files")
    folder(root / "photos", 3)
    tpca("encode", root / "photos", "-o", root / "photos.h5", "--step", 8, "--force")
    tpca("fit-basis", root / "photos", "-o", root / "basis.h5", "--tile", 8)
    shard = ("--tile", 8, "--method", "rank1", "--operator-only")
    tpca("fit-basis", root / "photos", "-o", root / "part.h5", *shard)
    return root


def loaded(files: Path, *arguments: str) -> list[str]:
    """The modules in memory after a command that ran in an interpreter of its own."""
    listing = files / "modules.json"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    subprocess.run(
        [sys.executable, "-c", RUN, str(listing), *arguments],
        cwd=files,
        env=os.environ | {"PYTHONPATH": path, "TPCA_FORCE": "1"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    found: list[str] = json.loads(listing.read_text())
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_loads_only_what_it_uses(command: str, files: Path) -> None:
    modules = loaded(files, *command.split())
    assert "tpca_cli.cli.main" in modules
    extra = [m for m in modules for name in COMMANDS[command] if m == name or m.startswith(f"{name}.")]
    assert not extra, f"tpca {command} loads {', '.join(extra)}"


def test_every_unwanted_module_exists() -> None:
    """A name that nobody has any more would make the test above pass for nothing."""
    for name in {name for unwanted in COMMANDS.values() for name in unwanted if name.startswith("tpca_cli.")}:
        path = ROOT.joinpath(*name.split("."))
        assert path.is_dir() or path.with_suffix(".py").is_file(), name


def test_pictures_are_loaded_when_they_are_asked_for(files: Path) -> None:
    assert "PIL" in loaded(files, "inspect", "photos.h5", "--gallery", "photos", "gallery.png")
    assert "PIL" in loaded(files, "decode", "photos.h5", "-o", "restored")
