"""Laws of the forked map: order, memory, and no process left behind however it ends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli.errors import Interrupted, TpcaError
from tpca_cli.parallel import busy_map, can_fork, forked_map


def square(item: int, memory: memoryview) -> tuple[int, int]:
    time.sleep(0.0005 * (item % 3))
    memory[:8] = (item * item).to_bytes(8, "little")
    return item, os.getpid()


def check_no_children() -> None:
    # helpers of other tests in this process (a resource tracker, say) are no workers of ours
    assert multiprocessing.active_children() == []


@settings(max_examples=8)
@given(st.integers(0, 40), st.integers(1, 4))
def test_results_and_memory_are_in_the_order_of_the_items(count: int, workers: int) -> None:
    seen = set()
    for expected, ((item, pid), memory) in enumerate(forked_map(square, range(count), workers, 8)):
        assert item == expected
        assert int.from_bytes(memory, "little") == item * item
        seen.add(pid)
    assert os.getpid() not in seen
    assert len(seen) <= workers
    check_no_children()


def test_memory_stays_until_the_next_result_is_asked_for() -> None:
    for (item, _), memory in forked_map(square, range(30), 2, 8):
        time.sleep(0.005)  # the workers run ahead meanwhile
        assert int.from_bytes(memory, "little") == item * item


@pytest.mark.parametrize("frozen", [False, True])
def test_the_collector_of_garbage_is_left_as_it_was(frozen: bool) -> None:
    gc.unfreeze()
    if frozen:
        gc.freeze()
    try:
        assert [item for (item, _), _ in forked_map(square, range(5), 2, 8)] == list(range(5))
        assert (gc.get_freeze_count() > 0) == frozen
    finally:
        gc.unfreeze()


def test_an_exception_comes_at_its_place() -> None:
    def fail_at_five(item: int, _: memoryview) -> int:
        if item == 5:
            raise TpcaError("five")
        return item

    results = []
    with pytest.raises(TpcaError, match="five"):
        for result, _ in forked_map(fail_at_five, range(1000), 3, 1):
            results.append(result)
    assert results == [0, 1, 2, 3, 4]
    check_no_children()


def test_a_worker_that_dies_ends_the_run_with_a_word() -> None:
    def die(item: int, _: memoryview) -> int:
        if item == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    with pytest.raises(TpcaError, match="worker process died"):
        list(forked_map(die, range(1000), 2, 1))
    check_no_children()


def test_an_interrupt_of_the_consumer_ends_the_workers() -> None:
    results = forked_map(square, range(100000), 2, 8)
    next(results)
    with pytest.raises(Interrupted):
        try:
            raise Interrupted(15)
        finally:
            results.close()  # type: ignore[attr-defined]
    check_no_children()


def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    program = (
        "import os, time\n"
        "from tpca_cli.parallel import forked_map\n"
        "def tell(item, memory):\n    return os.getpid()\n"
        "for pid, _ in forked_map(tell, range(10**6), 2, 1):\n"
        "    print(pid, flush=True)\n"
        "    time.sleep(0.01)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = {int(parent.stdout.readline()) for _ in range(10)}
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(map(running, workers)):
        time.sleep(0.02)
    assert not [pid for pid in workers if running(pid)]


def running(pid: int) -> bool:
    """Whether a process still runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_side_threads_do_not_fork() -> None:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(can_fork()))
    thread.start()
    thread.join()
    assert answers == [False]


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 12), st.integers(1, 4))
@settings(max_examples=8, deadline=None)
def test_items_under_way_weigh_no_more_than_the_budget(weights: list[int], budget: int, workers: int) -> None:
    """Or there is only one of them."""
    load, count, worst = (multiprocessing.Value("i", 0, lock=False) for _ in range(3))
    lock = multiprocessing.Lock()

    def work(weight: int) -> int:
        with lock:
            load.value, count.value = load.value + weight, count.value + 1
            if count.value > 1:
                worst.value = max(worst.value, load.value)
        with lock:
            load.value, count.value = load.value - weight, count.value - 1
        return weight

    assert list(busy_map(work, weights, workers, weight=float, budget=budget)) == weights
    assert worst.value <= budget
