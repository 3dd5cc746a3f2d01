"""Tasks, their results in order, and their sums: what a connection to a cluster can do."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tpca_cli.cluster import worker
from tpca_cli.errors import StorageError, TpcaError, printable
from tpca_cli.tensor_pca.fold import tree

Item = TypeVar("Item")
Result = TypeVar("Result")
Done = Callable[[float], None]

TICK = 5.0  # seconds between looks at whether anybody is still there
WINDOW = 3  # shards under way or waiting, per thread of the cluster


@dataclass(eq=False)
class _Node:
    """A task of a sum and those that it adds, which are kept until it is done."""

    future: Any
    parts: tuple[_Node, ...] = ()


@dataclass(eq=False)
class _Flight:
    """Tasks under way: how much of the work has ended, and which came to nothing."""

    done: Done | None
    weights: dict[int, float] = field(default_factory=dict)
    futures: dict[int, Any] = field(default_factory=dict)
    failed: bool = False


def _grouped(leaves: Iterable[_Node], join: Callable[[list[_Node]], _Node], together: int) -> _Node:
    """Neighbors joined as soon as there are enough of one size, and what is left at the end."""
    levels: list[list[_Node]] = [[]]
    for leaf in leaves:
        levels[0].append(leaf)
        for size, level in enumerate(levels):
            if len(level) < together:
                break
            if size + 1 == len(levels):
                levels.append([])
            levels[size + 1].append(join(level[:]))
            level.clear()
    rest = [node for level in reversed(levels) for node in level]
    if not rest:
        raise ValueError("a sum of nothing")
    while len(rest) > 1:
        rest[-together:] = [join(rest[-together:])]
    return rest[0]


class Cluster:
    """A connection. `threads` is how many tasks run at a time, `memory` the bytes of all workers together."""

    def __init__(self, client: Any, address: str, wait: float) -> None:
        self.address = address
        self.threads = 1
        self.memory = 0
        self.workers = 0
        self._client = client
        self._wait = wait
        self._versions = worker.versions()
        self._ended: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._alone = 0.0

    def check(self, workers: int = 1) -> None:
        """Wait for the first `workers`; see that scheduler and workers run what we run."""
        where = printable(self.address)
        try:
            self._client.wait_for_workers(workers, timeout=self._wait)
        except TimeoutError as error:
            raise StorageError(
                f"the scheduler at {where} has no worker after {self._wait:.0f} s; start `dask worker`"
            ) from error
        try:
            theirs = self._client.run(worker.versions)
            theirs["the scheduler"] = self._client.run_on_scheduler(worker.versions)
        except ImportError as error:
            raise self._cannot_import() from error
        for name, found in theirs.items():
            problem = worker.difference(found, self._versions, name)
            if problem is not None:
                raise problem
        self.memory = sum(self._client.run(worker.memory).values())
        self._count()

    def check_sees(self, path: bytes, size: int) -> None:
        """Every worker must find the images under the same path; better now than as skipped files."""
        for name, found in self._client.run(worker.size, path).items():
            if found != size:
                raise StorageError(
                    f"worker {name} does not see {printable(path)} as this machine does: --cluster needs "
                    "the images on storage that all workers share, under the same path"
                )

    def share(self, value: Any) -> Any:
        """`value` for many tasks: it travels to each worker once."""
        return self._submit(worker.same, value, priority=1)

    def hold(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Any]:
        """Results that stay with the workers, to be the items of later work."""
        return [self._submit(worker.task, self._versions, function, 1, item) for item in items]

    def map(
        self,
        function: Callable[..., Result],
        items: Iterable[Item],
        *shared: Any,
        weigh: Callable[[Item], float] | None = None,
        done: Done | None = None,
        blas: int = 1,
    ) -> Iterator[Result]:
        """`function(item, *shared)` for every item, in order, with few results waiting at a time."""
        flight = _Flight(done)
        waiting: deque[Any] = deque()
        for number, item in enumerate(items):
            while len(waiting) >= self._window:
                yield self._take(waiting.popleft())
            future = self._submit(worker.task, self._versions, function, blas, item, *shared)
            self._watch(flight, number, future, weigh(item) if weigh else 0.0)
            waiting.append(future)
        while waiting:
            yield self._take(waiting.popleft())
        self._land(flight)

    def reduce(
        self,
        function: Callable[..., Result],
        combine: Callable[[Result, Result], Result],
        items: Iterable[Item],
        *shared: Any,
        weigh: Callable[[Item], float] | None = None,
        done: Done | None = None,
        blas: int = 1,
        fan: int | None = None,
        together: int = 2,
    ) -> Result:
        """The sum of `function(item, *shared)` by `combine`, on the workers; only the last sum comes here.

        With `fan` it is added in the order of `operators.tree`, for sums that depend on it. Without, the
        order is that of the items and the tree is free: `together` neighbors are one task, many where
        results are small, as a task takes longer than a sum, and two where they fill the memory.
        """
        flight = _Flight(done)

        def leaves() -> Iterator[_Node]:
            for number, item in enumerate(items):
                self._until(lambda: len(flight.futures) < self._window or flight.failed)
                self._raise_first(flight)
                leaf = self._submit(worker.task, self._versions, function, blas, item, *shared)
                self._watch(flight, number, leaf, weigh(item) if weigh else 0.0)
                yield _Node(leaf)

        if fan is None:
            root = _grouped(leaves(), lambda parts: self._add(combine, *parts), together)
        else:
            root = tree(leaves(), lambda left, right: self._add(combine, left, right), fan)
        self._until(lambda: root.future.done() or flight.failed)
        self._raise_first(flight)
        result: Result = self._take(root.future)
        self._land(flight)
        return result

    def _add(self, combine: Callable[..., Any], *parts: _Node) -> _Node:
        futures = [part.future for part in parts]
        future = self._submit(worker.add, self._versions, combine, *futures, priority=10)
        node = _Node(future, parts)

        def ended() -> None:
            node.parts = ()  # only now: the scheduler may look at a release before the task that needs it

        future.add_done_callback(lambda _: self._ended.put(ended))
        return node

    def _submit(self, function: Callable[..., Any], *arguments: Any, priority: int = 0) -> Any:
        return self._client.submit(function, *arguments, pure=False, priority=priority)

    def _watch(self, flight: _Flight, number: int, future: Any, weight: float) -> None:
        flight.futures[number] = future
        flight.weights[number] = weight

        def ended() -> None:
            if future.status in ("error", "cancelled"):
                flight.failed = True
                return
            del flight.futures[number]  # also if its worker has gone since: who needs it computes it again
            if flight.done is not None:
                flight.done(flight.weights.pop(number))

        future.add_done_callback(lambda _: self._ended.put(ended))

    def _land(self, flight: _Flight) -> None:
        """Note the ends that are told later than their results."""
        self._until(lambda: not flight.futures or flight.failed)

    def _raise_first(self, flight: _Flight) -> None:
        """The failure that comes first in the order of the items, as on one machine."""
        if not flight.failed:
            return
        for number in sorted(flight.futures):
            future = flight.futures[number]
            self._until(future.done)
            if future.status != "finished":
                self._take(future)
        raise RuntimeError("a failed task has lost its error")

    def _take(self, future: Any) -> Any:
        from concurrent.futures import CancelledError

        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        self._until(future.done)
        patience = self._wait
        while True:
            try:
                return future.result(timeout=patience)
            except TpcaError:
                raise
            except KilledWorker as error:
                raise TpcaError(
                    "the same shard has ended several workers, probably for lack of memory; "
                    "give them more, or use smaller frames or --method rank1"
                ) from error
            except (CancelledError, CommClosedError) as error:
                raise self._lost() from error
            except ImportError as error:  # of a worker that came late
                raise self._cannot_import() from error
            except TimeoutError:
                self._look()
                patience *= 2

    def _until(self, ready: Callable[[], bool]) -> None:
        """Note the ends of tasks until `ready`; signals are heard, and a vanished cluster is noticed."""
        while not ready():
            try:
                self._ended.get(timeout=TICK)()
            except queue.Empty:
                self._look()
        with suppress(queue.Empty):
            while True:
                self._ended.get_nowait()()

    def _look(self) -> None:
        if self._client.status in ("closing", "closed"):
            raise self._lost()
        self._count()
        self._alone = 0.0 if self.workers else self._alone + TICK
        if self._alone > self._wait:
            raise StorageError(f"all workers of {printable(self.address)} have gone; nothing was written")

    def _count(self) -> None:
        try:
            threads = self._client.sync(self._client.scheduler.ncores, callback_timeout=self._wait)
        except Exception as error:
            raise self._lost() from error
        self.workers, self.threads = len(threads), max(1, sum(threads.values()))

    def _cannot_import(self) -> TpcaError:
        wanted = dict(self._versions)["tpca-cli"]
        return TpcaError(
            f"a worker at {printable(self.address)} cannot import tpca: install tpca-cli {wanted}"
        )

    def _lost(self) -> StorageError:
        return StorageError(f"lost the scheduler at {printable(self.address)}; nothing was written")

    @property
    def _window(self) -> int:
        return WINDOW * self.threads
