"""Shards without an engine: the Makefile and the array script of docs/SCALE.md, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import tpca
from pictures import folder

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "SCALE.md").read_text()


def block(language: str, holding: str) -> str:
    """The one code block of the page that holds a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    (found,) = [text for text in blocks if holding in text]
    return found


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Photos, one of them damaged, and a folder of programs in which `tpca` is this one."""
    folder(tmp_path / "photos", 21, sizes=[(24, 32), (17, 40)])
    damaged = tmp_path / "photos" / "image_0004.png"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    program = tmp_path / "bin" / "tpca"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tpca_cli "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    tpca("fit-basis", "photos", "-o", "whole.h5", "--tile", 8, "--method", "rank1", code=3)
    return tmp_path


def test_make_gives_the_bytes_of_one_fit_and_goes_on_where_it_was(place) -> None:
    Path("shards.mk").write_text(block("make", "tpca merge"))
    make = ["make", "-f", "shards.mk", "-j2", "IMAGES=photos", "SHARDS=3"]
    subprocess.run(make, check=True, capture_output=True)
    assert Path("basis.h5").read_bytes() == Path("whole.h5").read_bytes()
    Path("basis.h5").unlink()
    Path("shards/1.h5").unlink()
    again = subprocess.run(make, check=True, capture_output=True, text=True).stdout
    assert again.count("tpca fit-basis") == 1
    assert Path("basis.h5").read_bytes() == Path("whole.h5").read_bytes()


def test_an_array_of_jobs_gives_the_bytes_of_one_fit(place) -> None:
    Path("shards.sh").write_text(block("sh", "SLURM_ARRAY_TASK_ID"))
    commands = re.findall(r"^\$ (.*)", block("console", "sbatch --parsable"), re.M)
    listing, merging = commands[0].replace("/shared/", ""), re.findall(r"'(.*)'", commands[2])[0]
    subprocess.run(listing, shell=True, check=True)
    for number in range(3):
        variables = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": "3"}
        subprocess.run(["sh", "shards.sh"], check=True, capture_output=True, env=os.environ | variables)
    subprocess.run(merging, shell=True, check=True, capture_output=True)
    assert Path("basis.h5").read_bytes() == Path("whole.h5").read_bytes()
