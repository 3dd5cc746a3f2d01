"""The archive as Python code sees it: a sequence, picklable, cheap to read in any order that keeps blocks."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from command import tpca

import tpca_cli
from tpca_cli.archive.index import BlockRecord, Entry, Index
from tpca_cli.errors import FileRefused, UsageError


def _sum(job) -> int:
    archive, position = job
    return int(archive[position].sum())


def test_it_is_a_sequence_of_images(path) -> None:
    archive = tpca_cli.Archive(path)
    assert len(archive) == len(archive.names) == 41
    assert archive[0].shape == (96, 128, 3) and archive[-1].shape == (750, 800, 3)
    assert np.array_equal(archive[1:3][1], archive[2])
    assert sum(1 for _ in archive) == 41
    with pytest.raises(IndexError):
        archive[41]


@pytest.mark.parametrize("exact", [False, True])
def test_an_image_belongs_to_who_asked_for_it(exact, path, tmp_path) -> None:
    """Changing it changes no image that is read later, and keeping it keeps no others in memory."""
    if exact:
        tpca("encode", path.parent / "in", "-o", tmp_path / "exact.h5", "--exact")
    archive = tpca_cli.Archive(tmp_path / "exact.h5" if exact else path)
    ways = {
        "by position": lambda: archive[2],
        "by name": lambda: archive[archive.names[2]],
        "read": lambda: archive.read(2),
        "many": lambda: archive.read_many([2])[0],
        "ahead": lambda: next(archive.prefetch([2])),
        "slice": lambda: archive[2:3][0],
    }
    right = tpca_cli.Archive(archive.path)[2]
    for way, read in ways.items():
        image = read()
        assert np.array_equal(image, right), way
        assert image.base is None or image.base.nbytes == image.nbytes, way
        image[:] = 0


@pytest.mark.parametrize("exact", [False, True])
def test_nothing_is_read_after_closing(exact, path, tmp_path) -> None:
    """Whether it was read before or not; what was pickled opens the file again."""
    if exact:
        tpca("encode", path.parent / "in", "-o", tmp_path / "exact.h5", "--exact")
    archive = tpca_cli.Archive(tmp_path / "exact.h5" if exact else path)
    first, copy = archive[0], pickle.dumps(archive)
    archive.close()
    for way in (archive.__getitem__, archive.read, lambda position: archive.read_many([position])):
        for position in (0, 40):
            with pytest.raises(UsageError, match=r"\.h5 is closed"):
                way(position)
    with pickle.loads(copy) as again:
        assert np.array_equal(again[0], first)


def test_a_relative_path_is_of_the_folder_where_it_was_given(path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(path.parent)
    with tpca_cli.Archive("a.h5") as archive:
        assert archive.path == Path("a.h5")
        monkeypatch.chdir(tmp_path)
        with pickle.loads(pickle.dumps(archive)) as other, pickle.loads(pickle.dumps(other)) as third:
            assert np.array_equal(other[5], archive[5]) and np.array_equal(third[5], archive[5])


def test_worker_processes_read_the_same_pixels(path) -> None:
    archive = tpca_cli.Archive(path)
    copy = pickle.loads(pickle.dumps(archive))
    assert np.array_equal(copy[5], archive[5])
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        sums = list(pool.map(_sum, [(archive, position) for position in (0, 7, 40)]))
    assert sums == [int(archive[position].sum()) for position in (0, 7, 40)]


def test_a_shuffled_pass_reads_every_image_once_and_every_block_once(path, monkeypatch) -> None:
    archive = tpca_cli.Archive(path, cache_blocks=4)
    decoded = []
    original = archive.decode_block
    monkeypatch.setattr(
        archive, "decode_block", lambda block, **k: decoded.append(block) or original(block, **k)
    )
    order = list(archive.shuffled(seed=3))
    assert sorted(order) == list(range(41)) and order != sorted(order)
    assert order == list(archive.shuffled(seed=3)) != list(archive.shuffled(seed=4))
    for position in order:
        archive[position]
    assert len(decoded) == len(set(decoded))


def test_large_images_come_in_bands(path) -> None:
    archive = tpca_cli.Archive(path)
    last = int(archive.alive[-1])
    assert len(archive.index.blocks_of(last)) > 1


def make_index() -> Index:
    entries = [Entry(b"a/%d" % k, bytes(16), 10**18 + k, 100, 8, 9, "RGB", 5, b"e", b"") for k in range(5)]
    blocks = [BlockRecord(10, 0, 0, 2, 0, 0, bytes(8)), BlockRecord(7, 0, 2, 3, 0, 0, bytes(8))]
    return Index.build(entries, blocks, [("p", "r")])


GROUPS = [{"dtype": "u1", "channels": 3, "coder": {"framing": {"height": 8, "width": 8}}}]


def test_an_index_survives_its_arrays() -> None:
    index = make_index()
    back = Index.from_arrays(index.to_arrays())
    back.check(17, GROUPS)
    assert back.names == index.names and back.extras == (b"e",) and back.skipped == (("p", "r"),)
    assert all(np.array_equal(back.images[name], index.images[name]) for name in index.images)


def test_joining_and_replacing_keep_an_index_sound() -> None:
    index = make_index()
    both = index.without([1]).joined(
        Index.build(
            [Entry(b"a/1", b"x" * 16, 0, 1, 4, 4, "L", 0, b"f")], [BlockRecord(3, 0, 0, 1, 0, 0, bytes(8))]
        )
    )
    both.check(20, GROUPS)
    assert len(both.alive) == 5 and both.extra(5, "exif") == b"f" and both.extra(0, "exif") == b"e"


@pytest.mark.parametrize(
    ("table", "column", "row", "value"),
    [
        ("blocks", "size", 0, 11),
        ("blocks", "first", 1, 3),
        ("blocks", "count", 1, 4),
        ("blocks", "count", 0, 0),
        ("blocks", "group", 0, 1),
        ("blocks", "row", 1, 8),
        ("blocks", "rows", 1, 3),
        ("images", "height", 2, 0),
        ("images", "height", 2, 2**24 - 1),
        ("images", "mode", 2, 6),
        ("images", "mode", 2, 5),
        ("images", "mode", 2, 4),
        ("images", "exif", 2, 2),
    ],
)
def test_an_index_that_contradicts_itself_is_refused(table, column, row, value) -> None:
    index = make_index()
    getattr(index, table)[column][row] = value
    if column == "height" and value > 100:
        index.images["width"][row] = value
    with pytest.raises(FileRefused):
        Index.from_arrays(index.to_arrays()).check(17, GROUPS)
