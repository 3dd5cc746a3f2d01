"""Arrays that lie, are cut off or do not belong: refused or skipped with the reason, and never unpickled."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import tpca
from PIL import Image

from tpca_cli import Archive
from tpca_cli.errors import FileRefused


def good(folder: Path, count: int = 5) -> None:
    folder.mkdir()
    for k in range(count):
        np.save(folder / f"{k}.npy", np.random.default_rng(k).normal(size=(4, 6, 5)).astype(np.float32))


def headed(text: str, data: bytes = b"") -> bytes:
    header = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


class Evil:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('unpickled')",)


def pickled() -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([Evil()], object), allow_pickle=True)
    return file.getvalue()


def plain(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000, 1000000), }"
HOSTILE = {
    "objects": (pickled(), "object"),
    "a huge shape": (headed(HUGE), "combinations"),
    "a huge side": (headed(HUGE.replace("(1000000, 1000000, 1000000)", "(60000, 60000)")), "--max-pixels"),
    "a shape larger than the file": (headed(HUGE.replace("1000000", "40"), bytes(100)), "header says"),
    "a negative side": (headed(HUGE.replace("1000000", "-4")), "shape"),
    "an empty side": (plain(np.zeros((4, 0, 5), np.float32)), "shape"),
    "no axes": (plain(np.float32(3)), "shape"),
    "no header": (b"\x93NUMPY\x01\x00", "not a .npy"),
    "a header that is code": (headed("__import__('os').abort()"), "not a .npy"),
    "a deep header": (headed("(" * 5000), "not a .npy"),
    "a long header": (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31), "not a .npy"),
    "another version": (b"\x93NUMPY\x09\x00" + bytes(60), "version"),
    "text": (b"hello", "not a .npy"),
    "complex samples": (plain(np.zeros((4, 6, 5), np.complex64)), "complex64"),
    "signed samples": (plain(np.zeros((4, 6, 5), np.int32)), "int32"),
    "records": (plain(np.zeros((4, 6, 5), [("a", "f4")])), "samples of type"),
    "cut off": (plain(np.zeros((4, 6, 5), np.float32))[:-7], "header says"),
    "too long": (plain(np.zeros((4, 6, 5), np.float32)) + b"xx", "header says"),
    "another shape": (plain(np.zeros((4, 6, 6), np.float32)), "4x6x6 float32, where the others are 4x6x5"),
    "another type": (plain(np.zeros((4, 6, 5), np.uint8)), "where the others are"),
    "not a number": (plain(np.full((4, 6, 5), np.nan, np.float32)), "not a number"),
    "infinite": (plain(np.full((4, 6, 5), np.inf, np.float32)), "infinite"),
    "too many modes": (plain(np.zeros((1,) * 9, np.float32)), "modes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_used_is_skipped_with_the_reason(name: str, tmp_path: Path) -> None:
    data, why = HOSTILE[name]
    good(tmp_path / "in")
    (tmp_path / "in" / "bad.npy").write_bytes(data)
    for words in (("fit-basis",), ("encode",)):
        outcome = tpca(*words, tmp_path / "in", "-o", tmp_path / "o.h5", "--components", 3, "--force",
                       "--json", code=3)  # fmt: skip
        (skipped,) = outcome.json["skipped"]
        assert skipped["path"].endswith("bad.npy") and why in skipped["reason"]
        assert "\n" not in skipped["reason"]
    with Archive(tmp_path / "o.h5") as archive:
        assert len(archive) == 5
    options = ("-o", tmp_path / "p.h5", "--components", 3, "--on-error", "fail")
    tpca("encode", tmp_path / "in", *options, code=1)
    assert not (tmp_path / "p.h5").exists()


@pytest.mark.parametrize("name", [name for name in HOSTILE if not name.startswith("another ")])
def test_alone_it_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "bad.npy").write_bytes(HOSTILE[name][0])
    tpca("encode", tmp_path / "bad.npy", "-o", tmp_path / "o.h5", "--components", 3, code=1)
    assert not (tmp_path / "o.h5").exists()


def test_damaged_npz_files_are_skipped(tmp_path: Path) -> None:
    good(tmp_path / "in")
    with zipfile.ZipFile(tmp_path / "in" / "bad.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("huge.npy", headed(HUGE))
        archive.writestr("evil.npy", pickled())
        archive.writestr("readme.txt", "no tensor")
    (tmp_path / "in" / "cut.npz").write_bytes((tmp_path / "in" / "bad.npz").read_bytes()[:50])
    outcome = tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", "--json", code=3)
    assert len(outcome.json["skipped"]) == 3


def test_stacks_of_unequal_slices_are_skipped(tmp_path: Path) -> None:
    for case in range(4):
        folder = tmp_path / "in" / f"case{case}"
        folder.mkdir(parents=True)
        for z in range(3):
            side = 9 if case == 1 and z == 2 else 8
            Image.fromarray(np.full((side, 8), 10 * z + case, np.uint8)).save(folder / f"{z}.png")
    (tmp_path / "in" / "case2" / "1.png").write_bytes(b"rotten")
    outcome = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--stack", "--components", 2,
                   "--json", code=3)  # fmt: skip
    reasons = {item["path"][-5:]: item["reason"] for item in outcome.json["skipped"]}
    assert "slice 2.png" in reasons["case1"] and "slice 1.png" in reasons["case2"]


def test_a_basis_and_sources_of_other_kinds_do_not_mix(tmp_path: Path) -> None:
    good(tmp_path / "in")
    tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "b.h5", "--components", 3)
    (tmp_path / "photos").mkdir()
    Image.fromarray(np.zeros((6, 5, 3), np.uint8)).save(tmp_path / "photos" / "a.png")
    tpca("encode", tmp_path / "photos", "-o", tmp_path / "a.h5", "--basis", tmp_path / "b.h5", code=2)
    (tmp_path / "other").mkdir()
    np.save(tmp_path / "other" / "a.npy", np.zeros((4, 6, 6), np.float32))
    outcome = tpca("encode", tmp_path / "other", "-o", tmp_path / "a.h5", "--basis", tmp_path / "b.h5",
                   "--components", 3, code=1)  # fmt: skip
    assert "4x6x6" in outcome.err
    tpca("fit-basis", tmp_path / "photos", "-o", tmp_path / "images.h5", "--tile", 8)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--basis", tmp_path / "images.h5",
         "--components", 3, code=2)  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"shape": [4, 6, 6]}, {"shape": "x"}, {"shape": [10**9, 10**9]}, {"dtype": "O"}, {"scale": 0},
     {"scale": "1"}, {"zero": -1}, {"zero": 70000}, {"shape": []}],
)  # fmt: skip
def test_archives_that_lie_about_their_items_are_refused(change: dict[str, Any]) -> None:
    from tpca_cli.archive.items import group_item

    honest = {"shape": [4, 6, 5], "dtype": "f4", "zero": 3, "scale": 0.5}
    framing = {"kind": "whole", "height": 24, "width": 5, "channels": 1}
    assert group_item({"item": honest, "coder": {"framing": framing}}) is not None
    with pytest.raises(FileRefused):
        group_item({"item": {**honest, **change}, "coder": {"framing": framing}})
