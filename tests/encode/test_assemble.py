"""Where a pass misses the target by little, another step for a share of its jobs is enough."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command import tpca
from pictures import natural, save

from tpca_cli import Archive
from tpca_cli.archive import packing
from tpca_cli.checkpoint import Checkpoint
from tpca_cli.encode import assemble, run
from tpca_cli.encode.assemble import MOST_MOVE, share_for
from tpca_cli.encode.code_blocks import Share
from tpca_cli.errors import Interrupted
from tpca_cli.quality import psnr


def pixels_of(number: int) -> np.ndarray:
    return natural(40, 48, 3 if number < 14 else 4, seed=number)


@pytest.fixture
def missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder of two kinds in blocks of one image, and a sample that reads low by an eighth of a decibel."""
    for number in range(20):
        save(tmp_path / "in" / f"{number:02}.png", pixels_of(number))
    estimated = run.sample_value
    monkeypatch.setattr(packing, "BLOCK_PIXELS", 40 * 48)
    monkeypatch.setattr(packing, "FEW_PIXELS", 0)
    monkeypatch.setattr(assemble, "GROUP_SHARE", 0)
    monkeypatch.setattr(run, "sample_value", lambda *args, **options: estimated(*args, **options) - 0.13)
    return tmp_path


def encode(root: Path, name: str, *more: object):
    return tpca("encode", root / "in", "-o", root / name, "--psnr", 33, "--force", "--json", *more).json


def test_a_share_of_the_blocks_moves_the_result_into_its_interval(missing, monkeypatch) -> None:
    coded: list[int] = []
    put = Checkpoint.put
    monkeypatch.setattr(
        Checkpoint, "put", lambda self, number, *rest: (coded.append(number), put(self, number, *rest))
    )
    facts = encode(missing, "a.h5", "--workers", 1)
    assert 20 < len(coded) <= 30  # all once, few of them twice
    first, last = facts["steps"][0], facts["steps"][-1]
    assert (
        first["psnr"] > 33.1 and 33 <= last["psnr"] <= 33.1 and last["psnr"] == pytest.approx(facts["psnr"])
    )
    with Archive(missing / "a.h5") as archive:
        groups = archive.index.group_of
        steps = [float(group.meta["step"]) for group in archive.groups]
        assert len(np.unique(groups)) == len(steps) == 4  # each kind with two steps
        assert len({group.meta["basis_digest"] for group in archive.groups}) == 2
        apart = np.diff(np.flatnonzero(groups >= 2))
        assert len(set(apart)) == 1 and apart[0] >= 2
        error = samples = 0
        for number in range(20):
            back, pixels = archive[f"{number:02}.png"], pixels_of(number)
            error += int(((back.astype(int) - pixels.reshape(back.shape)) ** 2).sum())
            samples += back.size
        assert psnr(error, samples, 255) == pytest.approx(facts["psnr"])
    tpca("verify", missing / "a.h5", "--against", missing / "in")


def test_workers_and_a_kill_change_no_byte(missing, monkeypatch) -> None:
    encode(missing, "a.h5", "--workers", 1)
    encode(missing, "b.h5", "--workers", 2)

    def killed(*_: object, **__: object) -> None:
        raise Interrupted(9)

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_assembled", killed)
        tpca("encode", missing / "in", "-o", missing / "c.h5", "--psnr", 33, "--force", code=137)
    monkeypatch.setattr(Checkpoint, "put", killed)  # what the killed run left is all there is to do
    encode(missing, "c.h5", "--workers", 1)
    assert len({(missing / name).read_bytes() for name in ("a.h5", "b.h5", "c.h5")}) == 1


def test_a_budget_is_kept_and_used(missing) -> None:
    size = int(0.985 * encode(missing, "a.h5")["archive_bytes"])
    command = ("encode", missing / "in", "-o", missing / "b.h5", "--max-bytes", size, "--tune", "psnr")
    tpca(*command, "--force")
    assert 0.97 * size <= (missing / "b.h5").stat().st_size <= size


def result(errors: list[float], payload: int = 10**7) -> assemble.Assembled:
    group = SimpleNamespace(tables=np.zeros(1000, np.uint8))
    return SimpleNamespace(errors=errors, groups=[group], payload_bytes=payload)  # type: ignore[return-value]


def test_the_further_it_is_the_more_jobs_it_takes() -> None:
    even = [1.0] * 60
    shares = [share_for(result(even), move)[0].apart for move in (0.01, 0.025, -0.035, 0.05)]
    assert shares == [6, 4, 3, 2]
    assert share_for(result(even), MOST_MOVE) is None
    assert share_for(result(even[:3]), 0.01) is None
    assert share_for(result(even, payload=10**5), 0.01) is None
    assert share_for(result([0.0] * 60), 0.01) is None


def test_jobs_are_those_with_a_usual_error() -> None:
    errors = [5.0, 1.0, 0.1, 1.1, 0.1, 0.1] * 10
    assert share_for(result(errors), 0.01) == (Share(3, 6), pytest.approx(1.1 / 7.4))
