"""Laws of cutting a list of files into shards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tpca_cli.cluster.paths import SHARD_BYTES, SMALLEST, probes, shards_of

COUNTS = st.lists(st.integers(1, 300), max_size=60).map(lambda some: some * 40)


@given(COUNTS, st.integers(1, 40), st.sampled_from(["rank1", "operator", None]), st.integers(1, 60))
def test_shards_cover_the_list_and_shrink(
    counts: list[int], threads: int, method: str | None, side: int
) -> None:
    cuts = shards_of(counts, (side, side, 3), "u1", threads, method)
    covered = [number for cut in cuts for number in range(cut.start, cut.stop)]
    assert covered == list(range(len(counts)))
    sizes = [cut.stop - cut.start for cut in cuts]
    assert sizes == sorted(sizes, reverse=True)
    if method is None and counts:
        heaviest = 3 * side**2 * sum(counts) / len(counts) * sizes[0]  # on average
        assert heaviest <= SHARD_BYTES or sizes[0] <= max(SMALLEST, len(counts) // threads)


@given(COUNTS, st.integers(1, 40))
def test_an_operator_is_not_moved_for_few_frames(counts: list[int], threads: int) -> None:
    cuts = shards_of(counts, (8, 8, 3), "u1", threads, "operator")
    assert len(cuts) <= max(threads, sum(counts) // 192) + 1


@given(st.integers(0, 10**7), st.integers(1, 1000))
def test_headers_are_asked_for_in_few_tasks(files: int, threads: int) -> None:
    size = probes(files, threads)
    assert size >= 1
    assert -(-files // size) <= max(2 * threads, files / 1024 + 1)
