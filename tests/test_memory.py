"""What `--memory` allows: how many work on how much, what is refused, and that nothing else depends on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import tpca
from hypothesis import given
from hypothesis import strategies as st
from pictures import folder, natural, save

from tpca_cli import Archive, memory
from tpca_cli.encode.fit_design import every_tile
from tpca_cli.encode.sample import Sample, take_sample
from tpca_cli.framing import Framing
from tpca_cli.memory import LEAST_MEMORY, Room, reading_bytes

MB = 1 << 20


@given(st.integers(LEAST_MEMORY, 1 << 40), st.integers(1, 64))
def test_workers_and_pictures_share_the_memory(size: int, workers: int) -> None:
    room = Room.within(size, workers)
    assert 1 <= room.workers <= workers
    assert 0 < room.size <= room.most < size
    assert Room.within(2 * size, workers).size >= room.size


@given(st.integers(LEAST_MEMORY, 1 << 34), st.integers(1, 16), st.integers(1, 1 << 32))
def test_all_workers_have_work_whatever_a_picture_weighs(size: int, workers: int, weight: int) -> None:
    room = Room.within(size, workers)
    at_once = min(max(1, room.size // weight), room.workers)
    assert room.workers // 2 < at_once * room.helpers(weight) <= room.workers


@pytest.mark.parametrize(("channels", "threads"), [(3, 2), (4, 1)])
def test_a_picture_alone_has_as_many_threads_as_have_room_beside_it(channels: int, threads: int) -> None:
    pixels = 27_000_000
    weight = reading_bytes(pixels, channels, 1, 17_000_000)
    assert Room.within(512 * MB, 2).helpers(weight, channels * pixels, channels) == threads
    assert Room.within(1024 * MB, 2).helpers(weight, channels * pixels, channels) <= 2


def test_photographs_of_24_megapixels_fit_in_512_mb() -> None:
    weight = reading_bytes(6000 * 4000, 3, 1, 20_000_000)
    assert weight <= Room.within(512 * MB, 2).size


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small picture, and one that takes more than the least memory leaves, which is a megabyte here."""
    monkeypatch.setattr("tpca_cli.memory._COMMAND", LEAST_MEMORY - memory._WORKER - MB)
    root = tmp_path / "in"
    save(root / "small.png", natural(40, 40, 1))
    save(root / "large.png", natural(500, 600, 1))
    return root


def test_an_image_beyond_the_memory_is_left_out_and_named(large: Path, tmp_path: Path) -> None:
    outcome = tpca("encode", large, "-o", tmp_path / "a.h5", "--json", "--memory", LEAST_MEMORY, code=3)
    (skipped,) = outcome.json["skipped"]
    assert skipped["path"].endswith("large.png")
    assert "raise --memory" in skipped["reason"]


def test_decoding_beyond_the_memory_is_refused_before_anything_is_written(
    large: Path, tmp_path: Path
) -> None:
    archive, out = tmp_path / "a.h5", tmp_path / "out"
    tpca("encode", large, "-o", archive, "--step", 20)
    outcome = tpca("decode", archive, "-o", out, "--memory", LEAST_MEMORY, code=2)
    assert "raise --memory" in outcome.err
    assert not any(out.iterdir())
    tpca("decode", archive, "-o", out, "--memory", LEAST_MEMORY, "--select", "small.png")


def test_files_that_an_archive_holds_are_not_weighed_by_their_pixels(large: Path, tmp_path: Path) -> None:
    save(large / "large.jpg", natural(500, 600))
    tpca("encode", large / "large.jpg", "-o", tmp_path / "a.h5", "--exact")
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out", "--memory", LEAST_MEMORY)
    assert (tmp_path / "out" / "large.jpg").read_bytes() == (large / "large.jpg").read_bytes()


KEPT = """
import resource, sys
import numpy as np
from tpca_cli.memory import Room
if sys.argv[1] == "returned":
    Room.within(1 << 30, 2)
def held():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20
np.ones(30 << 20, np.uint8)  # a picture that was read: from now on such arrays are kept
before, arrays, small = held(), [], []
for _ in range(10):
    arrays.append(np.ones(16 << 20, np.uint8))
    small.append(np.ones(1 << 16, np.uint8))
arrays.clear()
print(held() - before)
"""


def test_large_arrays_go_back_to_the_system_when_they_are_freed() -> None:
    command = [sys.executable, "-c", KEPT]
    kept, left = (
        int(subprocess.run([*command, way], capture_output=True, check=True).stdout)
        for way in ("kept", "returned")
    )
    assert left <= min(kept, 8)


def test_too_little_memory_is_a_wrong_option(tmp_path: Path) -> None:
    outcome = tpca("encode", tmp_path, "-o", tmp_path / "a.h5", "--memory", "100M", code=2)
    assert "256M or more" in outcome.err


def test_bytes_do_not_depend_on_memory_or_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "in", 3, sizes=((48, 64),))
    save(tmp_path / "in/large.png", natural(530, 1024, 3, seed=9))  # two bands
    found = []
    for allowed, workers in (("1G", 1), (str(LEAST_MEMORY), 2)):
        if workers > 1:  # as if the pictures were so large that no two of them fit
            monkeypatch.setattr(Room, "within", classmethod(lambda cls, memory, workers: cls(1, 1 << 40, 2)))
        output = tmp_path / f"{workers}.h5"
        tpca("encode", tmp_path / "in", "-o", output, "--step", 20, "--memory", allowed, "--workers", workers)
        found.append(output.read_bytes())
    assert found[0] == found[1]
    with Archive(output) as archive:
        place = archive.names.index("large.png")
        assert len(archive.index.blocks_of(place)) == 2
        assert np.array_equal(archive.read(place), archive.read(place, threads=2))


@given(st.integers(1, 90), st.integers(1, 40), st.integers(1, 7), st.data())
def test_every_nth_tile_is_the_same_whatever_is_held(
    height: int, width: int, apart: int, data: st.DataObject
) -> None:
    framing = Framing("tile", 8, 8, 1)
    first = data.draw(st.integers(0, apart - 1))
    pixels = np.arange(height * width, dtype=np.uint16).reshape(height, width, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpca_cli.encode.fit_design.TILES_HELD", data.draw(st.integers(1, 20)))
        assert np.array_equal(every_tile(framing, pixels, first, apart), framing.split(pixels)[first::apart])


def test_an_append_looks_at_no_more_of_a_large_image_than_people_see_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpca_cli.encode.sample.SEEN", 128)
    taken: list[int] = []

    def noted(*args: Any, **options: Any) -> Sample:
        sample = take_sample(*args, **options)
        taken.extend(pixels.shape[0] * pixels.shape[1] for pixels in sample.pictures)
        return sample

    for folder_name, seed in (("first", 1), ("more", 2)):
        save(tmp_path / folder_name / f"{folder_name}.png", natural(300, 400, 3, seed=seed))
    tpca("encode", tmp_path / "first", "-o", tmp_path / "a.h5", "--quality", 60)
    monkeypatch.setattr("tpca_cli.encode.append.take_sample", noted)
    tpca("encode", tmp_path / "more", "-o", tmp_path / "a.h5", "--append", code=None)
    assert taken and max(taken) <= 128 * 128
