"""Work in progress: taken over only for the same plan, and kept only in a folder that is ours."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from command import tpca
from pictures import folder

from tpca_cli.checkpoint import MARK, Checkpoint, check_partial, partial_folder, remove_partial
from tpca_cli.encode import extend, run
from tpca_cli.errors import Interrupted, OutputExists


def test_a_result_comes_back_for_its_plan_alone(tmp_path: Path) -> None:
    output = tmp_path / "a.h5"
    one, other = {"size": [8, 8]}, {"size": None}
    Checkpoint(output, one).put(3, {"a": 1}, b"bytes")
    assert Checkpoint(output, one).get(3) == ({"a": 1}, b"bytes")
    assert Checkpoint(output, other).get(3) is None
    assert Checkpoint(output, one, [b"tables"]).get(3) is None
    remove_partial(output)
    assert not partial_folder(output).exists()


def test_what_a_killed_removal_leaves_is_ours_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, real = tmp_path / "a.h5", os.unlink
    for killed_at in range(22):
        for plan in range(10):
            Checkpoint(output, {"plan": plan}).put(0, {}, b"bytes")
            Checkpoint(output, {"plan": plan}).put(1, {}, b"more")
        left = [killed_at]

        def unlink(*given: Any, left: list[int] = left, **named: Any) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            real(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", unlink)
            with contextlib.suppress(KeyboardInterrupt):
                remove_partial(output)
        check_partial(output)
        remove_partial(output)
        assert not partial_folder(output).exists()


@pytest.mark.parametrize("first", [["--size", "16x16"], ["--max-pixels", "5000"], ["--tile", "16"], []])
def test_a_run_with_other_options_takes_nothing_over(tmp_path: Path, monkeypatch, first) -> None:
    """What a killed run left behind belongs to its own options."""
    folder(tmp_path / "in", 4, sizes=[(24, 32)])
    command = ("encode", tmp_path / "in", "--step", 8, "--workers", 1, "--force")
    if "--tile" not in first:
        tpca("fit-basis", tmp_path / "in", "-o", tmp_path / "basis.h5", "--tile", 8)
        command += ("--basis", tmp_path / "basis.h5")
    tpca(*command, "-o", tmp_path / "clean.h5")

    def killed(*_: object, **__: object) -> int:
        raise Interrupted(9)

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_assembled", killed)
        tpca(*command, "-o", tmp_path / "a.h5", *first, code=137)
    assert any(partial_folder(tmp_path / "a.h5").glob("*/*"))
    coded = []
    real = Checkpoint.put

    def put(self: Checkpoint, number: int, header, data: bytes) -> None:
        coded.append(number)
        real(self, number, header, data)

    monkeypatch.setattr(Checkpoint, "put", put)
    tpca(*command, "-o", tmp_path / "a.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "clean.h5").read_bytes()
    assert bool(coded) == bool(first)  # the same options go on where the killed run left off


def test_an_append_of_another_size_takes_nothing_over(tmp_path: Path, monkeypatch) -> None:
    """A killed append with `--size` once gave its resized images to the next one without it."""
    folder(tmp_path / "in", 4, sizes=[(24, 32)])
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 8, "--tile", 8, "--force")
    (tmp_path / "clean.h5").write_bytes((tmp_path / "a.h5").read_bytes())
    folder(tmp_path / "in", 8, sizes=[(24, 32)])
    command = ("encode", tmp_path / "in", "--append", "--force")
    tpca(*command, "-o", tmp_path / "clean.h5")

    def killed(*_: object, **__: object) -> int:
        raise Interrupted(9)

    with monkeypatch.context() as patch:
        patch.setattr(extend, "write_archive", killed)
        tpca(*command, "-o", tmp_path / "a.h5", "--size", "16x16", code=137)
    tpca(*command, "-o", tmp_path / "a.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "clean.h5").read_bytes()


@pytest.mark.parametrize("command", ["encode", "append", "repack"])
@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_what_is_not_ours_is_neither_used_nor_removed(tmp_path: Path, kind: str, command: str) -> None:
    folder(tmp_path / "in", 3)
    archive = tmp_path / "a.h5"
    if command != "encode":
        tpca("encode", tmp_path / "in", "-o", archive, "--step", 8, "--force")
        folder(tmp_path / "in", 4)
    before = archive.read_bytes() if archive.exists() else None
    theirs, partial = tmp_path / "theirs", tmp_path / "a.h5.partial"
    theirs.mkdir()
    (theirs / "letter.txt").write_text("mine")
    if kind == "folder":
        theirs.rename(partial)
    elif kind == "link":
        partial.symlink_to(theirs)
    else:
        partial.write_text("mine")
    if command == "repack":
        ended = tpca("repack", archive, "-o", archive, "--force", code=6)
    else:
        options = ["--append"] if command == "append" else ["--step", 8, "--force"]
        ended = tpca("encode", tmp_path / "in", "-o", archive, *options, code=6)
    assert "a.h5.partial" in ended.err and "move it away" in ended.err
    if kind == "file":
        assert partial.read_text() == "mine"
    else:
        assert [path.name for path in partial.iterdir()] == ["letter.txt"]
    assert (archive.read_bytes() if archive.exists() else None) == before


@pytest.mark.parametrize("length", [247, 248, 255])
def test_work_for_a_long_name_is_kept_too(tmp_path: Path, length: int) -> None:
    """In a folder of its own for every output."""
    outputs = [tmp_path / ("x" * (length - 4) + ending) for ending in ("1.h5", "2.h5")]
    for number, output in enumerate(outputs):
        Checkpoint(output, {}).put(number, {"a": number}, b"bytes")
    for number, output in enumerate(outputs):
        assert [Checkpoint(output, {}).get(k) is not None for k in (0, 1)] == [number == 0, number == 1]
        remove_partial(output)
    assert os.listdir(tmp_path) == []
    folder(tmp_path / "in", 4, sizes=[(32, 32)])
    tpca("encode", tmp_path / "in", "-o", outputs[0], "--step", 9)
    folder(tmp_path / "in", 6, sizes=[(32, 32)])
    tpca("encode", tmp_path / "in", "-o", outputs[0], "--append")
    assert sorted(os.listdir(tmp_path)) == ["in", outputs[0].name]


def test_a_link_in_place_of_the_mark_is_no_mark(tmp_path: Path) -> None:
    output = tmp_path / "a.h5"
    partial_folder(output).mkdir()
    (tmp_path / "elsewhere").write_text("x")
    (partial_folder(output) / MARK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputExists):
        Checkpoint(output, {})
    remove_partial(output)
    assert (partial_folder(output) / MARK).is_symlink()
