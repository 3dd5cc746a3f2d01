"""docs/SCORES.md and the scripts of docs/examples, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import tpca
from PIL import Image
from test_docs import blocks, commands

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "docs" / "examples"


def example(name: str, *arguments: object) -> str:
    """What a script prints; it must end well."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_about_scores_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pictures import folder

    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("ann", "ben")):
        folder(tmp_path / "faces" / name, 8, sizes=[(12, 16)], channels=(1,), seed=100 * number)
    text = (ROOT / "docs" / "SCORES.md").read_text()
    for block in blocks("sh", text):
        for arguments in commands(block):
            tpca(*arguments)
    for block in blocks("python", text):
        exec(compile(block, "SCORES.md", "exec"), {})
    assert len(list((tmp_path / "rebuilt").rglob("*.png"))) == 16


def test_eigenfaces_find_the_same_person_and_rebuild_a_face(tmp_path: Path) -> None:
    said = example("eigenfaces.py", tmp_path)
    found = re.search(r"same person for (\d+) %", said)
    assert found is not None and int(found[1]) >= 90
    committed = Image.open(ROOT / "docs" / "pictures" / "eigenfaces.png")
    assert Image.open(tmp_path / "eigenfaces.png").size == committed.size
