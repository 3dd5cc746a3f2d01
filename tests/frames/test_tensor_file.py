"""Laws of the tensor file: found again for the same list only, and damage never goes unnoticed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import folder, natural, save
from staging import all_frames, check_staged, refs_of

from tpca_cli.errors import FileRefused, ImageRefused
from tpca_cli.frames.arrays import ArrayFrames, regroup
from tpca_cli.frames.stage import list_key, stage
from tpca_cli.frames.tensor_file import TensorFile
from tpca_cli.sources import read as reading
from tpca_cli.sources.scan import ImageRef

BIG = 1 << 30


def test_a_cache_is_found_again_only_for_the_same_list(tmp_path: Path) -> None:
    folder(tmp_path / "in", 5)
    (tmp_path / "in" / "image_0003.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(99))
    cache = tmp_path / "cache.h5"

    def reused(**options: Any) -> bool:
        refs = refs_of(tmp_path / "in")
        with stage(refs, **({"memory": BIG, "cache": cache} | options)) as result:
            check_staged(result, refs, options.get("size"))
            assert [os.path.basename(entry.path) for entry in result.skipped][:1] == [b"image_0003.png"]
            return result.reused

    assert not reused()
    assert reused()
    assert not reused(size=(8, 8))
    assert reused(size=(8, 8))
    os.utime(tmp_path / "in" / "image_0001.png", ns=(1, 1))
    assert not reused(size=(8, 8))
    save(tmp_path / "in" / "one_more.png", natural(24, 32))
    assert not reused(size=(8, 8))
    assert reused(size=(8, 8))
    with pytest.raises(ImageRefused, match="image_0003"):
        reused(size=(8, 8), on_error="fail")


def test_a_damaged_or_foreign_cache_is_refused_and_kept(tmp_path: Path) -> None:
    folder(tmp_path / "in", 40)
    refs = refs_of(tmp_path / "in")
    cache = tmp_path / "cache.h5"
    stage(refs, memory=0, cache=cache).close()
    clean = cache.read_bytes()
    for at in range(1000, len(clean), len(clean) // 60):
        cache.write_bytes(clean[:at] + bytes([clean[at] ^ 4]) + clean[at + 1 :])
        try:
            with stage(refs, memory=0, cache=cache) as result:
                check_staged(result, refs)
        except FileRefused as error:
            assert "cache.h5" in str(error)
    foreign = tmp_path / "photo.png"
    save(foreign, natural(4, 4))
    before = foreign.read_bytes()
    with pytest.raises(FileRefused):
        stage(refs, memory=0, cache=foreign)
    assert foreign.read_bytes() == before


def test_swapped_blocks_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "in", 130)
    refs = refs_of(tmp_path / "in")
    with stage(refs, memory=0, cache=tmp_path / "c.h5") as result:
        file = result.frames
        assert isinstance(file, TensorFile)
        real = file._reader.raw_rows

        def swapped(path: str, start: int, stop: int) -> Any:
            return real(path, 64, 128) if start == 0 else real(path, start, stop)

        monkeypatch.setattr(file._reader, "raw_rows", swapped)
        with pytest.raises(FileRefused, match="damaged at frame 0"):
            all_frames(file)


def test_large_images_are_stored_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PIECE_BYTES", 1000)
    folder(tmp_path / "in", 5, sizes=((40, 50), (24, 32)))
    refs = refs_of(tmp_path / "in")
    with stage(refs, memory=0, cache=tmp_path / "c.h5") as result:
        assert isinstance(result.frames, TensorFile)
        assert max(len(block) for block in result.frames._stored()) <= 1000 // (8 * 8 * 3)
        check_staged(result, refs)


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 11))
def test_regrouping_changes_only_the_lengths(lengths: list[int], rows: int) -> None:
    array = np.arange(sum(lengths))

    def blocks() -> Iterator[np.ndarray[Any, Any]]:
        start = 0
        for length in lengths:
            yield array[start : start + length]
            start += length

    result = list(regroup(blocks(), rows))
    np.testing.assert_array_equal(np.concatenate([array[:0], *result]), array)
    assert all(len(block) == rows for block in result[:-1])
    assert all(len(block) <= rows for block in result)
    assert [len(block) for block in ArrayFrames(array).blocks(rows)] == [len(block) for block in result]


def test_the_key_tells_lists_apart() -> None:
    one = ImageRef(b"/a", b"a", 1, 2)
    for other in (ImageRef(b"/b", b"a", 1, 2), ImageRef(b"/a", b"a", 2, 2), ImageRef(b"/a", b"a", 1, 3)):
        assert list_key([one], {}) != list_key([other], {})
    assert list_key([one], {"tile": 8}) != list_key([one], {"tile": 9})
    assert list_key([one, one], {}) != list_key([one], {})
