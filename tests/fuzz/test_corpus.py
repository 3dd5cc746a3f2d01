"""Every input that a fuzzer started from or found is handled: without `atheris`, as plain tests."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from targets import TARGETS

CORPUS = Path(__file__).resolve().parent / "corpus"
INPUTS = sorted(path for path in CORPUS.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_input_is_taken_or_refused(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_a_little_damage_is_taken_or_refused(target: str) -> None:
    """A fuzzer without guidance, the same on every run."""
    rng = random.Random(target)
    seeds = [path.read_bytes() for path in INPUTS if path.parent.name == target]
    for _ in range(150):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            data[at] = rng.choice((0, 255, rng.randrange(256), data[at] ^ 1 << rng.randrange(8)))
        TARGETS[target](bytes(data))


def test_the_corpus_is_small_and_has_every_target() -> None:
    assert sum(path.stat().st_size for path in INPUTS) < 200_000
    assert {path.parent.name for path in INPUTS} == set(TARGETS)
