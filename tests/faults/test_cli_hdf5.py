"""HDF5 files that broke HDF5 itself: refused by every command that opens one, quickly, in little memory.

Case 84 of the table: our own files with one structure that lies (`broken_hdf5`), files of other programs with
the kinds of damage that were reported for HDF5, and every file of the folder that TPCA_CVE names: `make
faults CVE=folder`, with a checkout of the regression files that the HDF Group collects (cve_hdf5).
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import store_job
from broken_hdf5 import everything, short_chunks
from commands import HANG, QUICK, archived, check_failed, contents, forked, scaled
from harness import STORE, in_child, result
from test_bombs import children_seconds

SECONDS = 2.0
MEMORY = 300_000  # kilobytes resident


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hdf5")
    archived(root, 6, *QUICK)
    fit = ("fit-basis", root / "in", "-o", root / "b.h5", "--tile", "8", "--method", "rank1")
    assert forked(*fit, timeout=60).code == 0
    assert forked("decode", root / "a.h5", "-o", root / "whole", timeout=60).code == 0
    return root


def readers(place: Path, path: Path, out: Path) -> Iterator[tuple[object, ...]]:
    """Every way in which a command opens a file that somebody gave it."""
    yield "inspect", path
    yield "ls", path
    yield "cat", path, "x"
    yield "diff", path, place / "in"
    yield "verify", path
    yield "verify", path, "--decode", "--against", place / "in"
    yield "decode", path, "-o", out
    yield "decode", path, "-o", out, "--salvage"
    yield "decode", place / "a.h5", "-o", out, "--basis", path
    yield "repack", path, "-o", out
    yield "merge", path, place / "b.h5", "-o", out
    yield "merge", place / "b.h5", path, "-o", out
    yield "fit-basis", place / "in", "--update", path, "-o", out
    yield "encode", place / "in", "--basis", path, "-o", out
    yield "encode", place / "in", "--append", "-o", path


def refused_by_all(place: Path, path: Path, tmp_path: Path, *, shown: bool = False) -> None:
    """A refusal, not a crash; the file stays as it is and nothing is written.

    What is `shown` may be a page about the file, or a list, or that there is nothing to append, none of which
    needs pixels. Then `--salvage` may also give images back, and name others as lost: those that it writes
    are what they were.
    """
    before, out = path.read_bytes(), tmp_path / "out"
    for words in readers(place, path, out):
        began = children_seconds()
        ended = forked(*words, memory=2 << 30, timeout=HANG)
        salvaged = shown and "--salvage" in words and ended.code in (0, 3)
        listed = shown and words[0] in ("inspect", "ls", "diff", "cat") and ended.code in (0, 1, 3)
        unknown = words[0] == "diff" and ended.code == 2 and "is an archive" in ended.err
        nothing_new = shown and "--append" in words and ended.out == "nothing new (6 unchanged)\n"
        try:
            if not salvaged and not listed and not (nothing_new and ended.code == 0):
                check_failed(ended, 2 if unknown else 4)
        except AssertionError:
            raise AssertionError(f"{words}: {ended}") from None
        assert children_seconds() - began < SECONDS and ended.peak < MEMORY, (words, ended)
        assert path.read_bytes() == before, words
        for file in out.iterdir() if out.is_dir() else ():
            assert salvaged and file.read_bytes() == (place / "whole" / file.name).read_bytes(), words
        assert out.is_dir() or not out.exists(), words
        shutil.rmtree(out, ignore_errors=True)


def foreign(folder: Path) -> Iterator[Path]:
    """Files of plain h5py in its old and its new format, with what has been wrong in reports about HDF5."""
    for version in ("earliest", "latest"):
        path = folder / f"{version}.h5"
        with h5py.File(path, "w", libver=version) as file:
            file.attrs["format"] = "tpca-archive"
            file.attrs["text"] = "of variable length"
            group = file.create_group("g")
            for number in range(40):  # enough for a B-tree, a heap, and attributes that are stored apart
                group[f"d{number}"] = np.arange(number + 1)
                group.attrs[f"a{number}"] = np.arange(number + 1)
            file.create_dataset(
                "chunks", (300, 300), "f4", chunks=(7, 7), compression=4, maxshape=(None, None)
            )[:] = 1
            file["compound"] = np.zeros(3, [("a", "i4"), ("b", "f8", (2, 2))])
            file["words"] = np.array(["one", "two"], h5py.string_dtype())
        data = path.read_bytes()
        yield path
        rng = random.Random(84)
        marks = (b"TREE", b"HEAP", b"SNOD", b"GCOL", b"OHDR", b"BTHD", b"FRHP", b"EAHD", b"FADB", b"\x89HDF")
        for mark in marks:
            at = data.find(mark)
            if at < 0:
                continue
            for turn in range(scaled(2, 20)):
                copy = bytearray(data)
                where = at + len(mark) + rng.randrange(40)
                copy[where : where + 8] = rng.choice((b"\xff" * 8, bytes(8), at.to_bytes(8, "little")))
                named = folder / f"{version}-{mark[-3:].decode()}-{turn}.h5"
                named.write_bytes(copy)
                yield named


def test_84_files_of_other_programs(place: Path, tmp_path: Path) -> None:
    given = os.environ.get("TPCA_CVE")
    files = sorted(path for path in Path(given).rglob("*") if path.is_file()) if given else []
    (tmp_path / "own").mkdir()
    for number, path in enumerate([*foreign(tmp_path / "own"), *files]):
        copy = tmp_path / f"{number}.h5"
        copy.write_bytes(path.read_bytes())
        refused_by_all(place, copy, tmp_path)


def test_84_structures_that_lie_to_every_command(place: Path, tmp_path: Path) -> None:
    """With right checksums: refused, or what was changed says nothing and all pixels are the same."""
    wanted, path = contents(place / "a.h5"), tmp_path / "x.h5"
    made = everything((place / "a.h5").read_bytes())
    refused = 0
    for broken in random.Random(84).sample(made, scaled(250, len(made))):
        path.write_bytes(broken.data())
        began = children_seconds()
        code, _, memory = in_child(lambda: same(path, wanted), memory=2 << 30)
        assert code in (0, 4), (broken.name, code)
        assert children_seconds() - began < SECONDS and memory < MEMORY, broken.name
        refused += code == 4
        if code == 4 and refused % 25 == 0:
            refused_by_all(place, path, tmp_path, shown=True)
    assert refused > 100


def test_84_chunks_without_data(tmp_path: Path) -> None:
    """HDF5 would look for data before the beginning of such a chunk."""
    path, made = tmp_path / "x.h5", list(short_chunks(result(STORE)))
    assert made
    for broken in made:
        path.write_bytes(broken.data())
        code, _, _ = in_child(lambda: store_job.fingerprint(str(path)))
        assert code == 4, (broken.name, code)


def same(path: Path, wanted: str) -> None:
    assert contents(path) == wanted


def test_84_structures_of_many_chunks_that_lie(tmp_path: Path) -> None:
    """The same in a file whose data have an index of chunks."""
    data, path = result(STORE), tmp_path / "x.h5"
    path.write_bytes(data)
    wanted = store_job.fingerprint(str(path))
    made = everything(data)
    assert any(broken.part.kind in ("EAHD", "FAHD", "BTHD") for broken in made)
    for broken in random.Random(85).sample(made, scaled(250, len(made))):
        path.write_bytes(broken.data())

        def look() -> None:
            assert store_job.fingerprint(str(path)) == wanted

        began = children_seconds()
        code, _, memory = in_child(look, memory=2 << 30)
        assert code in (0, 4), (broken.name, code)
        assert children_seconds() - began < SECONDS and memory < MEMORY, broken.name
