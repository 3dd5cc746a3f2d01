"""Laws of staging: the same frames wherever they are kept, whoever reads them, and nothing silent."""

from __future__ import annotations

import _thread
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pictures import folder, natural, noise, save, save_frames
from staging import check_staged, refs_of

from tpca_cli.errors import ImageRefused, Interrupted, StorageError, TpcaError, UsageError
from tpca_cli.frames.stage import Staged, stage
from tpca_cli.framing import TILE, WHOLE, Framing
from tpca_cli.sources import read as intake
from tpca_cli.sources.read_plan import DEFAULT_TILE
from tpca_cli.sources.scan import ImageRef

BIG = 1 << 30


@pytest.fixture(params=["threads", "processes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The two ways of reading in parallel, whatever the number of images."""
    monkeypatch.setattr(intake, "_MANY", 0 if request.param == "processes" else 1 << 30)
    return str(request.param)


@pytest.fixture(params=["memory", "file", "cache", "source"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> dict[str, Any]:
    """The four places where frames may live, as options of `stage`."""
    (tmp_path / "out").mkdir()
    options: dict[str, Any] = {"memory": BIG if request.param == "memory" else 0, "workers": 2}
    if request.param == "cache":
        options["cache"] = tmp_path / "out" / "cache.h5"
    else:
        options["beside"] = tmp_path / "out" / "basis.h5"
    if request.param == "source":
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=1))
    return options | {"_name": request.param}


def staging(refs: Sequence[ImageRef], place: dict[str, Any], **options: Any) -> Staged:
    known = {name: value for name, value in place.items() if name != "_name"}
    result = stage(refs, **(known | options))
    assert result.place == place["_name"]
    return result


def test_images_of_one_size_are_one_frame_each(tmp_path: Path, place: dict[str, Any]) -> None:
    folder(tmp_path / "in", 9, channels=(3, 1))
    refs = refs_of(tmp_path / "in")
    with staging(refs, place) as result:
        assert result.framing == Framing(WHOLE, 24, 32, 3)
        assert len(result.refs) == 9
        check_staged(result, refs)
        check_staged(result, refs)  # a second pass


def test_mixed_sizes_are_cut_into_tiles(tmp_path: Path, place: dict[str, Any]) -> None:
    folder(tmp_path / "in", 7, sizes=((9, 17), (24, 8), (1, 1)), channels=(4, 3, 2))
    refs = refs_of(tmp_path / "in")
    with staging(refs, place) as result:
        assert result.framing == Framing(TILE, DEFAULT_TILE, DEFAULT_TILE, 4)
        check_staged(result, refs)
    with staging(refs, place, tile=5) as result:
        assert result.framing == Framing(TILE, 5, 5, 4)
        check_staged(result, refs)


def test_sixteen_bits_and_resizing(tmp_path: Path, place: dict[str, Any]) -> None:
    folder(tmp_path / "in", 5, sizes=((20, 17), (24, 8)), channels=(1,), dtype=np.uint16)
    refs = refs_of(tmp_path / "in")
    with staging(refs, place, size=(12, 10)) as result:
        assert result.framing == Framing(WHOLE, 12, 10, 1)
        assert result.frames.dtype == np.uint16
        check_staged(result, refs, (12, 10))


def test_nothing_is_left_beside_the_output(tmp_path: Path, place: dict[str, Any]) -> None:
    folder(tmp_path / "in", 3)
    with staging(refs_of(tmp_path / "in"), place):
        pass
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == ({"cache.h5"} if place["_name"] == "cache" else set())


def test_workers_and_timing_change_nothing(tmp_path: Path, way: str) -> None:
    folder(tmp_path / "in", 150, sizes=((5, 6), (7, 8)))
    refs = refs_of(tmp_path / "in")
    files = []
    for workers in (1, 2, 5):
        with stage(refs, memory=0, cache=tmp_path / f"{workers}.h5", workers=workers):
            files.append((tmp_path / f"{workers}.h5").read_bytes())
    assert files[0] == files[1] == files[2]


@pytest.mark.parametrize("tile", [None, 8])
def test_a_late_exception_to_the_rule_is_noticed(tmp_path: Path, way: str, tile: int | None) -> None:
    """Few headers are looked at when all images seem alike; the result must not depend on which."""
    for odd in (natural(24, 32, 4), natural(25, 32, 3)):
        root = tmp_path / str(odd.shape)
        folder(root, 200, channels=(1, 3))
        save(root / "image_0101.png", odd)
        refs = refs_of(root)
        with stage(refs, memory=BIG, workers=2, tile=tile) as result:
            assert result.framing.kind == (WHOLE if odd.shape[2] == 4 and tile is None else TILE)
            assert result.framing.channels == odd.shape[2]
            assert len(result.refs) == 200
            check_staged(result, refs)


def test_a_late_large_image_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "GUESSED_PIXELS", 24 * 32)
    folder(tmp_path / "in", 100)
    save(tmp_path / "in" / "image_0051.png", natural(60, 60))
    with stage(refs_of(tmp_path / "in"), memory=BIG, size=(8, 8)) as result:
        assert len(result.refs) == 100
        assert not result.skipped


def test_eight_and_sixteen_bits_do_not_mix(tmp_path: Path) -> None:
    folder(tmp_path / "in", 3, channels=(1,))
    save(tmp_path / "in" / "z.png", natural(24, 32, 1, dtype=np.uint16))
    refs = refs_of(tmp_path / "in")
    with pytest.raises(UsageError, match="8-bit and 16-bit"):
        stage(refs, memory=BIG)
    with stage(refs, Framing(WHOLE, 24, 32, 1), dtype="u1", memory=BIG) as result:
        assert [entry.reason for entry in result.skipped] == ["16-bit samples where the frames have 8 bits"]


def test_a_given_framing_skips_what_does_not_fit(tmp_path: Path) -> None:
    root = tmp_path / "in"
    for name, picture in {
        "gray": natural(8, 8, 1),
        "large": natural(9, 8),
        "alpha": natural(8, 8, 4),
        "fits": natural(8, 8),
    }.items():
        save(root / f"{name}.png", picture)
    refs = refs_of(root)
    with stage(refs, Framing(WHOLE, 8, 8, 3), dtype="u1", memory=BIG) as result:
        assert [ref.name for ref in result.refs] == [b"fits.png", b"gray.png"]
        reasons = {os.path.basename(entry.path): entry.reason for entry in result.skipped}
        assert "without loss" in reasons[b"alpha.png"]
        assert "9x8 pixels" in reasons[b"large.png"]
        check_staged(result, refs)


def test_damaged_and_changed_files_are_skipped_with_the_reason(tmp_path: Path, place: dict[str, Any]) -> None:
    paths = folder(tmp_path / "in", 6)
    refs = refs_of(tmp_path / "in")
    paths[1].write_bytes(paths[1].read_bytes()[:200])
    paths[3].unlink()
    save(paths[4], natural(24, 32, seed=99))
    with staging(refs, place) as result:
        reasons = [entry.reason for entry in result.skipped]
        assert reasons[0] == reasons[2] == "changed since it was listed"
        assert "no longer" in reasons[1]
        assert [entry.path for entry in result.skipped] == [os.fsencode(paths[i]) for i in (1, 3, 4)]
        assert len(result.refs) == 3
        check_staged(result, refs)
    damaged = save(tmp_path / "in" / "image_0002.png", noise(24, 32))
    damaged.write_bytes(damaged.read_bytes()[:-100])
    with staging(refs_of(tmp_path / "in"), place) as result:
        assert len(result.skipped) == 2
    with pytest.raises(ImageRefused, match=r"image_000[12]\.png: PNG cannot"):
        stage(refs_of(tmp_path / "in"), memory=BIG, on_error="fail")


def test_a_read_error_is_skipped_or_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = folder(tmp_path / "in", 4)
    real = os.open

    def failing(path: Any, *rest: Any, **more: Any) -> int:
        if os.fsencode(path) == os.fsencode(paths[2]):
            raise OSError(5, "Input/output error")
        return real(path, *rest, **more)

    refs = refs_of(tmp_path / "in")
    monkeypatch.setattr(os, "open", failing)
    with stage(refs, memory=BIG) as result:
        assert "Input/output error" in result.skipped[0].reason
    with pytest.raises(StorageError):
        stage(refs, memory=BIG, on_error="fail")


def test_nothing_to_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(TpcaError, match="no images"):
        stage([], memory=BIG)
    path = save(tmp_path / "x.png", natural(4, 4))
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(TpcaError, match=r"none of 1 images.*x\.png") as caught:
        stage(refs_of(tmp_path), memory=BIG)
    assert caught.value.skipped[0][0].endswith(b"x.png")


def test_warnings_are_kept(tmp_path: Path, place: dict[str, Any]) -> None:
    (tmp_path / "in").mkdir()
    save_frames(tmp_path / "in" / "x.gif", [np.full((4, 4, 3), v, np.uint8) for v in (0, 9)])
    with staging(refs_of(tmp_path / "in"), place) as result:
        assert "first" in result.warnings[0].reason


def test_an_interrupt_leaves_no_file(tmp_path: Path, way: str) -> None:
    folder(tmp_path / "in", 300)
    (tmp_path / "out").mkdir()

    def interrupt(_: str, done: int, total: int) -> None:
        assert 0 < done <= total == 300
        raise Interrupted(15)

    for options in ({"cache": tmp_path / "out" / "c.h5"}, {"beside": tmp_path / "out" / "b.h5"}):
        with pytest.raises(Interrupted):
            stage(refs_of(tmp_path / "in"), memory=0, workers=2, progress=interrupt, **options)  # type: ignore[arg-type]
    assert not list((tmp_path / "out").iterdir())
    assert _thread._count() < 10
