"""Many images at once: the same pixels as one by one, with no block decoded twice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tpca_cli

COUNT = 41


@pytest.fixture
def archive(path, monkeypatch):
    """With a list of the blocks that were decoded."""
    archive = tpca_cli.Archive(path)
    archive.decoded = []
    original = archive.decode_block
    monkeypatch.setattr(
        archive, "decode_block", lambda block, **k: archive.decoded.append(block) or original(block, **k)
    )
    return archive


def same(found, archive, positions) -> bool:
    return len(found) == len(positions) and all(map(np.array_equal, found, (archive[p] for p in positions)))


@pytest.mark.parametrize("workers", [1, 2])
def test_read_many_gives_what_one_by_one_gives_and_decodes_each_block_once(archive, workers) -> None:
    positions = [7, 40, 0, 7, -1, 12, 3, -41]
    found = archive.read_many(positions, workers=workers)
    assert len(archive.decoded) == len(set(archive.decoded))
    assert not np.shares_memory(found[0], found[3])  # whoever changes one does not change the other
    assert same(found, archive, positions)
    assert archive.read_many([], workers=workers) == []


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("order", ["forward", "shuffled", "random"])
def test_prefetch_gives_every_image_in_the_order_asked_for(archive, workers, order) -> None:
    positions = {
        "forward": None,
        "shuffled": list(archive.shuffled(seed=2)),
        "random": np.random.default_rng(1).permutation(COUNT),
    }[order]
    found = list(archive.prefetch(positions, workers=workers))
    assert len(archive.decoded) == len(set(archive.decoded)) == len(archive.index.blocks["first"])
    assert same(found, archive, range(COUNT) if positions is None else positions)


def test_little_memory_only_costs_time(archive) -> None:
    positions = list(np.random.default_rng(3).permutation(COUNT))
    assert same(list(archive.prefetch(positions, memory=1)), archive, positions)


def test_prefetch_looks_ahead_no_farther_than_its_memory(archive) -> None:
    taken = itertools.count()
    reading = archive.prefetch((next(taken) % 24 for _ in itertools.count()), memory=3 * 4 * 96 * 128)
    assert np.array_equal(next(reading), archive[0])
    reading.close()
    assert next(taken) < 40  # the positions have no end


def test_a_position_that_is_not_there_is_named_where_it_is_due(archive) -> None:
    with pytest.raises(IndexError, match="image 41 of 41"):
        archive.read_many([0, COUNT])


def test_some_pictures_of_a_block_are_those_of_the_whole(archive) -> None:
    whole = archive.decode_block(0)
    assert len(whole) > 3
    for wanted in ([2], [3, 0], list(range(len(whole)))):
        some = archive.decode_block(0, wanted=wanted)
        assert all(map(np.array_equal, some, (whole[place] for place in wanted)))


def test_bands_of_one_image_are_decoded_side_by_side_to_the_same_pixels(path) -> None:
    alone, together = tpca_cli.Archive(path), tpca_cli.Archive(path, workers=2)
    assert len(alone.index.blocks_of(int(alone.alive[-1]))) > 1
    assert np.array_equal(alone[-1], together[-1])


def test_batches_come_in_the_mode_of_the_archive(path) -> None:
    gray = tpca_cli.Archive(path, mode="L")
    assert same(gray.read_many([4, 2]), gray, [4, 2]) and gray.read_many([4])[0].shape == (96, 128, 1)
