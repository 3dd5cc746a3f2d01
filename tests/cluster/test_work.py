"""Ends that are told late, or of tasks whose worker has gone since, change no result and are all counted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tpca_cli.cluster.cluster import Cluster


class Late:
    """A task that is done at once and says so a moment after its result could be had."""

    def __init__(self, value: Any, status: str) -> None:
        self.value = value
        self.status = status

    def done(self) -> bool:
        return True

    def result(self, timeout: float) -> Any:
        return self.value

    def add_done_callback(self, told: Callable[[Any], None]) -> None:
        threading.Timer(0.02, told, [self]).start()


class Client:
    """Runs tasks where they are submitted; `status` is what is found when an end is noted."""

    def __init__(self, status: str) -> None:
        self.status = status

    def submit(self, function: Callable[..., Any], *arguments: Any, pure: bool, priority: int) -> Late:
        plain = [a.value if isinstance(a, Late) else a for a in arguments]
        return Late(function(*plain), self.status)


@pytest.mark.parametrize("status", ["finished", "lost", "pending"])  # the last two: its worker has gone since
@pytest.mark.parametrize("count", [1, 2, 7])
def test_every_end_is_counted_before_the_work_is_called_done(count: int, status: str) -> None:
    cluster = Cluster(Client(status), "nowhere", wait=1.0)
    mapped: list[float] = []
    assert list(cluster.map(abs, range(count), weigh=float, done=mapped.append)) == list(range(count))
    assert sorted(mapped) == list(range(count))
    for fan in (None, 2):
        summed: list[float] = []
        total = cluster.reduce(
            abs, lambda one, other: one + other, range(count), weigh=float, done=summed.append, fan=fan
        )
        assert total == sum(range(count))
        assert sorted(summed) == list(range(count))
