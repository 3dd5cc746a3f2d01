"""`python -O` leaves asserts out: none of ours may do anything but look."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from command import tpca
from pictures import folder
from PIL import Image

import tpca_cli

PACKAGE = Path(tpca_cli.__file__).parent
# Calls that only look.
HARMLESS = {"isinstance", "issubclass", "len", "all", "any", "min", "max", "callable", "hasattr", "type"}
EFFECTS = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


def effects(assertion: ast.Assert) -> list[ast.AST]:
    """The parts of an assertion that may do something."""
    return [
        node
        for node in ast.walk(assertion.test)
        if isinstance(node, EFFECTS)
        or (isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in HARMLESS))
    ]


def test_the_check_finds_effects() -> None:
    for text in ("assert f()", "assert (x := 1)", "assert a.pop() > 2", "assert all(g(x) for x in y)"):
        assert effects(ast.parse(text).body[0])  # type: ignore[arg-type]
    assert not effects(ast.parse("assert isinstance(a, b) and c is not None").body[0])  # type: ignore[arg-type]


def test_no_assert_does_anything() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert) and effects(node)
    ]
    assert found == []


def test_decode_without_asserts(tmp_path: Path) -> None:
    folder(tmp_path / "in", 3)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 8, "--force")
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "with")
    command = [
        sys.executable,
        "-O",
        "-m",
        "tpca_cli",
        "decode",
        tmp_path / "a.h5",
        "-o",
        tmp_path / "without",
    ]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)})
    names = sorted(path.name for path in (tmp_path / "with").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "without").iterdir())
    for name in names:
        one, two = (np.asarray(Image.open(tmp_path / kind / name)) for kind in ("with", "without"))
        assert np.array_equal(one, two)
