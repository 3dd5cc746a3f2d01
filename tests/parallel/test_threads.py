"""Laws of the ordered map: order, bounds, and a clean end however it ends."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from tpca_cli import parallel
from tpca_cli.errors import Interrupted
from tpca_cli.parallel import alone, busy_map, ordered_map, side_by_side
from tpca_cli.tensor_pca.solve import fixed_threads


@settings(max_examples=20)
@given(st.integers(0, 40), st.integers(1, 4), st.integers(1, 6))
def test_results_are_in_the_order_of_the_items(count: int, workers: int, window: int) -> None:
    def slow_for_some(item: int) -> int:
        time.sleep(0.001 * (item % 3))
        return item * item

    results = list(ordered_map(slow_for_some, range(count), workers, window=window))
    assert results == [item * item for item in range(count)]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_no_more_items_are_taken_than_the_window_allows(workers: int) -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(50):
            taken += 1
            yield item

    for done, _ in enumerate(ordered_map(lambda item: item, items(), workers, window=4)):
        assert taken <= done + 1 + 4


def test_heavy_items_go_alone() -> None:
    lock = threading.Lock()
    load = peak = 0

    def carry(weight: int) -> int:
        nonlocal load, peak
        with lock:
            load += weight
            peak = max(peak, load)
        time.sleep(0.002)
        with lock:
            load -= weight
        return weight

    weights = [1, 1, 1, 50, 1, 3, 3, 50, 50, 1]
    results = list(ordered_map(carry, weights, 4, window=8, weight=float, budget=5))
    assert results == weights
    assert peak <= 50


@pytest.mark.parametrize("workers", [1, 3])
def test_an_exception_comes_at_its_place_and_stops_the_rest(workers: int) -> None:
    begun: list[int] = []

    def fail_at_five(item: int) -> int:
        begun.append(item)
        if item == 5:
            raise KeyError(item)
        return item

    results = []
    with pytest.raises(KeyError):
        for result in ordered_map(fail_at_five, range(1000), workers, window=4):
            results.append(result)
    assert results == [0, 1, 2, 3, 4]
    assert len(begun) <= 5 + 1 + 4


@pytest.mark.parametrize("error", [Interrupted(15), KeyboardInterrupt()])
def test_nothing_runs_after_the_consumer_was_interrupted(error: BaseException) -> None:
    running = threading.Event()
    finished = []

    def work(item: int) -> int:
        running.set()
        time.sleep(0.01)
        finished.append(item)
        return item

    results = ordered_map(work, range(1000), 2)
    next(results)
    with pytest.raises(type(error)):
        try:
            raise error
        finally:
            results.close()  # type: ignore[attr-defined]
    assert running.is_set()
    seen = len(finished)
    time.sleep(0.05)
    assert len(finished) == seen


@pytest.mark.parametrize("taken", [0, 3])
def test_a_thread_that_dies_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    """As one does that finds no memory for a call: before its first item, or while it has one."""

    def die(function: object, tasks: SimpleQueue[object], token: object) -> None:
        for _ in range(taken):
            tasks.get()

    monkeypatch.setattr(parallel, "_work_off", die)
    with pytest.raises(MemoryError, match="thread"):
        list(ordered_map(abs, range(10), 2))


def test_a_thread_needs_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(parallel.mmap, "mmap", full)
    with pytest.raises(MemoryError, match="threads"):
        list(ordered_map(abs, range(10), 2))


def test_python_ends_while_a_map_is_half_read() -> None:
    """What runs is finished first, and nothing is waited for that cannot come."""
    program = """
import time
from tpca_cli.parallel import ordered_map
def work(item):
    time.sleep(0.05)
    print(item, flush=True)
    return item
results = ordered_map(work, range(1000), 2)
next(results)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0 and not ended.stderr
    assert 1 <= len(ended.stdout.split()) <= 1 + 2 * 2


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("way", ["alone", "side by side"])
def test_the_last_to_leave_gives_blas_its_threads_back(way: str) -> None:
    """Whoever came first, and whoever left first."""

    def inside() -> Iterator[int]:
        if way == "side by side":
            yield from side_by_side(abs, [1, 2, 3])
        else:
            with alone():
                yield 1

    np.eye(2) @ np.eye(2)
    before = blas_threads()
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        first, second = inside(), inside()
        for pool, entered in ((one, first), (other, second)):
            assert pool.submit(next, entered).result() == 1
            assert set(blas_threads()) == {1}
        one.submit(first.close).result()  # type: ignore[attr-defined]
        assert set(blas_threads()) == {1}
        other.submit(second.close).result()  # type: ignore[attr-defined]
        assert blas_threads() == before
        limit = one.submit(threadpool_limits, 1).result()  # and each of them may set one again
        assert set(blas_threads()) == {1}
        one.submit(limit.restore_original_limits).result()
        assert blas_threads() == before


def test_a_number_of_blas_threads_is_given_back_beside_others() -> None:
    """As fits ask for one, each in a thread of its own."""
    np.eye(2) @ np.eye(2)
    before = blas_threads()
    contexts = [alone(), fixed_threads(), alone(), fixed_threads()]
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        pools = [one, other, other, one]
        for pool, context in zip(pools, contexts, strict=True):
            pool.submit(context.__enter__).result()
        for number in (0, 3, 2, 1):
            pools[number].submit(contexts[number].__exit__, None, None, None).result()
        assert blas_threads()[: len(before)] == before


def test_large_items_and_large_results_pass_each_other() -> None:
    """Both far beyond what a pipe holds: neither end may wait for the other."""
    items = [bytes([k]) * (1 << 20) for k in range(12)]
    assert list(busy_map(lambda item: item * 2, items, 2)) == [item * 2 for item in items]
