"""Many items at once, with results in order and memory bounded: by threads or by forked processes.

Threads, because most work is in libraries that release the interpreter lock (decoders, BLAS, zlib, files),
and pixels need not be copied between processes. Small items are best handed over in batches by the caller.

Processes for work that is mostly short calls, such as decoding thumbnails: threads spend their time waiting
for one another there. The function, and whatever it refers to, is inherited by the fork: only the items and
small results are sent, large results go through shared memory.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import mmap
import os
import signal
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tpca_cli.errors import TpcaError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Item = TypeVar("Item")
Result = TypeVar("Result")
_LOOK = 0.2  # seconds between looks at whether a thread that is waited for lives
_ROOM = 24 << 20  # bytes that must be free for a thread: 8 MB of stack, and what its first calls take
_DIED = "a worker process died, perhaps for lack of memory; try again with --workers 1"
_AHEAD = 2  # items that a worker has before it: one under way and one to go on with


def ordered_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    *,
    window: int | None = None,
    weight: Callable[[Item], float] | None = None,
    budget: float = 0.0,
) -> Iterator[Result]:
    """Results in the order of the items, at most `window` (default: two per worker) under way or waiting.

    With `weight`, those under way or waiting weigh at most `budget` together; a heavier item goes alone.
    An exception of the function, of the items or in the consumer stops the work: what has not begun is
    dropped, what runs is waited for, so that nothing touches a file after its owner has cleaned up.
    """
    if workers <= 1:
        return map(function, items)
    return _in_threads(function, items, workers, window or 2 * workers, weight, budget)


def _in_threads(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    limit: int,
    weight: Callable[[Item], float] | None,
    budget: float,
) -> Iterator[Result]:
    pool = _Threads(function, workers)
    waiting: deque[tuple[_Task[Result], float]] = deque()
    load = 0.0
    try:
        for item in items:
            heavy = weight(item) if weight is not None else 0.0
            while waiting and (len(waiting) >= limit or load + heavy > budget > 0):
                load -= waiting[0][1]
                # no name for it: the consumer alone decides how long it lives
                yield pool.result(waiting.popleft()[0])
            waiting.append((pool.submit(item), heavy))
            load += heavy
        while waiting:
            yield pool.result(waiting.popleft()[0])
    finally:
        pool.dismiss()


class _Task(Generic[Result]):
    """An item on its way: `done` is locked until `outcome` holds the result or `error` what was raised."""

    __slots__ = ("done", "error", "item", "outcome")

    def __init__(self, item: Any) -> None:
        self.item = item
        self.outcome: list[Result] = []
        self.error: BaseException | None = None
        self.done = _thread.allocate_lock()
        self.done.acquire()


class _Token:
    """Held by a thread as long as it lives, whatever it dies of."""

    __slots__ = ("__weakref__", "ended")

    def __init__(self) -> None:
        self.ended = _thread.allocate_lock()
        self.ended.acquire()


class _Threads(Generic[Item, Result]):
    """Threads that work off one queue, started as they are needed.

    By hand, because `threading.Thread.start` and a future of `concurrent.futures` wait for ever where a new
    thread finds no memory for its first call: seen at two of 57 limits on memory, each 256 kB apart.
    """

    def __init__(self, function: Callable[[Item], Result], workers: int) -> None:
        self._function = function
        self._workers = workers
        self._tasks: SimpleQueue[_Task[Result] | None] = SimpleQueue()
        self._given: list[_Task[Result]] = []
        self._living: list[tuple[weakref.ref[_Token], _thread.LockType]] = []
        atexit.register(self.dismiss)  # a consumer that never ended: no thread lives on while Python goes

    def submit(self, item: Item) -> _Task[Result]:
        """Queue an item, with a thread of its own while there are fewer than asked for."""
        task: _Task[Result] = _Task(item)
        self._given = [task, *(other for other in self._given if other.done.locked())]
        self._tasks.put(task)
        if len(self._living) < min(self._workers, len(self._given)):
            self._start()
        return task

    def _start(self) -> None:
        token = _Token()
        self._living.append((weakref.ref(token), token.ended))
        try:
            mmap.mmap(-1, _ROOM).close()  # OSError: Python ends the process where a thread finds too little
            _thread.start_new_thread(_work_off, (self._function, self._tasks, token))
        except (OSError, RuntimeError) as error:
            self._living.pop()
            raise MemoryError(f"work needs threads: {error}") from error

    def result(self, task: _Task[Result]) -> Result:
        """Wait for an item; what its function raised is raised here."""
        while not task.done.acquire(timeout=_LOOK):
            if any(token() is None for token, _ in self._living):
                raise MemoryError("a thread found no memory to work in")
        if task.error is not None:
            error, task.error = task.error, None
            try:
                raise error
            finally:
                del error  # or it would hold itself, through this frame
        return task.outcome.pop()

    def dismiss(self) -> None:
        """Drop what has not begun, and wait for what runs."""
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()
        for _ in self._living:
            self._tasks.put(None)
        for token, ended in self._living:
            while token() is not None and not ended.acquire(timeout=_LOOK):
                pass
        self._living.clear()
        atexit.unregister(self.dismiss)


def _work_off(
    function: Callable[[Item], Result], tasks: SimpleQueue[_Task[Result] | None], token: _Token
) -> None:
    """The life of a thread."""
    ended = token.ended
    del token  # only what started the thread holds it now, and no traceback
    sys.settrace(threading.gettrace())  # as `threading` does it, for coverage and profilers
    sys.setprofile(threading.getprofile())
    try:
        while (task := tasks.get()) is not None:
            try:
                task.outcome.append(function(task.item))
            except BaseException as error:
                task.error = error
            task.item = None  # the consumer alone decides how long it lives
            task.done.release()
            del task
    finally:
        ended.release()


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item], *, held: int | None = None
) -> Iterator[Result]:
    """Results in order of numeric work in as many threads as BLAS may use, each with one of them.

    For products with work on arrays between them, which BLAS's own threads would wait for. What is computed
    does not depend on the number of threads. Large results are `held` one per thread, or fewer.
    """
    threads = max((int(library.num_threads) for library in _blas().lib_controllers), default=1)
    threads = threads if held is None else min(threads, held)
    with alone():
        yield from ordered_map(function, items, threads, window=None if held is None else threads)


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """BLAS in so many threads, here and in all threads: the last to ask counts, the last to go restores."""
    asked = [count]
    with _turn:
        _limits.append(asked)
        _limit()
    try:
        yield
    finally:
        with _turn:
            _limits[:] = [other for other in _limits if other is not asked]
            _limit()


alone = partial(blas_threads, 1)
"""For work whose threads would mostly wait: on a busy machine they do so for long."""


def _limit() -> None:
    for blas in _blas().lib_controllers:
        _before.setdefault(blas.filepath, blas.num_threads)
        free = getattr(blas, "clear_controlling_thread", lambda force: None)
        free(force=True)  # newer threadpoolctl ignores all threads but the one that set a limit first
        blas.set_num_threads(_limits[-1][0] if _limits else _before.pop(blas.filepath, blas.num_threads))
        free(force=True)


_limits: list[list[int]] = []
_before: dict[str, int] = {}  # threads that each library had
_found: dict[tuple[bool, bool], Any] = {}
_turn = threading.RLock()  # a map that nobody holds any more may end anywhere
os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release)


def _blas() -> Any:
    """The BLAS of numpy and that of scipy, where loaded; to look for it takes as long as a product."""
    loaded = "numpy" in sys.modules, "scipy.linalg" in sys.modules
    if loaded not in _found:
        from threadpoolctl import ThreadpoolController

        _found[loaded] = ThreadpoolController().select(user_api="blas")
    return _found[loaded]


def can_fork() -> bool:
    """Whether forking is safe here: not elsewhere than on Linux, from a side thread or from a worker."""
    from multiprocessing import current_process

    at_home = threading.get_ident() == threading.main_thread().ident and not current_process().daemon
    return sys.platform == "linux" and at_home


def busy_map(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int,
    *,
    weight: Callable[[Item], float] | None = None,
    budget: float = 0.0,
) -> Iterator[Result]:
    """Results in order of work that keeps the interpreter busy: in processes where they can be had.

    Each worker uses one thread of BLAS, so that as many workers as cores do not fight for them. With
    `weight`, those under way weigh at most `budget` together; a heavier item goes alone.
    """
    if workers <= 1:
        return map(function, items)
    return _kept_busy(function, items, workers, weight, budget)


def _kept_busy(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int,
    weight: Callable[[Item], float] | None,
    budget: float,
) -> Iterator[Result]:
    with alone():
        if len(items) > 1 and can_fork():
            # Forks inherit the items: numbers are all that is sent to them, and never fill a pipe.
            weights = None if weight is None else [weight(item) for item in items]
            work, numbers = (lambda k, _: function(items[k])), range(len(items))
            for result, _ in forked_map(work, numbers, workers, mmap.PAGESIZE, weights, budget):
                yield result
        else:
            yield from ordered_map(function, items, workers, weight=weight, budget=budget)


def forked_map(
    function: Callable[[Item, memoryview], Result],
    items: Iterable[Item],
    workers: int,
    slot_bytes: int,
    weights: Sequence[float] | None = None,
    budget: float = 0.0,
) -> Iterator[tuple[Result, memoryview]]:
    """Results in the order of the items, each with the `slot_bytes` of memory that the function filled.

    With `weights` of the items, those given out and not yet done weigh at most `budget`, or it is only one.
    Items must be small: a pipe filled with them, while its worker waits to send a result, would stop both.
    The memory is the consumer's until it asks for the next result. An exception of the function is raised
    here, in its place; a worker that dies ends the run.
    """
    slots = (_AHEAD + 1) * workers
    area = mmap.mmap(-1, slots * slot_bytes)
    crew = _Crew(lambda item, slot: function(item, _slot(area, slot, slot_bytes)), workers)
    free = deque(range(slots))
    places: dict[int, int] = {}
    done: dict[int, tuple[bool, Any]] = {}
    source = enumerate(items)
    upcoming = next(source, None)
    turn = 0

    def give_out() -> None:
        nonlocal upcoming
        while upcoming is not None and free and (worker := crew.idle()) is not None:
            index, item = upcoming
            under_way = [weights[k] for k in places if k not in done] if weights else []
            if weights and under_way and sum(under_way) + weights[index] > budget:
                break
            places[index] = free.popleft()
            crew.give(worker, index, item, places[index])
            upcoming = next(source, None)
            if upcoming is None:
                crew.no_more()

    left_alone = gc.get_freeze_count() > 0
    gc.freeze()  # looking through what was there before would copy it, page by page, here and in the workers
    try:
        give_out()  # the first begins while the others are still being forked
        crew.start()
        while places or upcoming is not None:
            give_out()
            if turn not in done:
                done.update(crew.collect())
                continue
            good, result = done.pop(turn)
            if not good:
                raise result
            slot = places.pop(turn)
            yield result, _slot(area, slot, slot_bytes)
            free.append(slot)
            turn += 1
    finally:
        if not left_alone:
            gc.unfreeze()
        crew.dismiss()


def _slot(area: mmap.mmap, slot: int, size: int) -> memoryview:
    return memoryview(area)[slot * size : (slot + 1) * size]


class _Crew:
    """The workers and the pipes to them; their end is the end of the pipe."""

    def __init__(self, function: Callable[[Any, int], Any], workers: int) -> None:
        from multiprocessing import get_context
        from multiprocessing.connection import Pipe

        pipes = [Pipe() for _ in range(workers)]
        self._pipes: list[Connection[Any, Any]] = [ours for ours, _ in pipes]
        self._theirs: list[Connection[Any, Any]] = [theirs for _, theirs in pipes]
        self._load = [0] * workers
        fork = get_context("fork")
        self._workers = [
            fork.Process(target=_serve, args=(function, pipes, number), daemon=True)
            for number in range(workers)
        ]

    def start(self) -> None:
        """Fork the workers, who find what they were given before."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads: see `can_fork`
            for worker in self._workers:
                worker.start()
        for theirs in self._theirs:
            theirs.close()

    def idle(self) -> int | None:
        """The worker with least before it, if it may have more."""
        worker = min(range(len(self._load)), key=self._load.__getitem__)
        return worker if self._load[worker] < _AHEAD else None

    def give(self, worker: int, index: int, item: Any, slot: int) -> None:
        try:
            self._pipes[worker].send((index, item, slot))
        except OSError as error:
            raise TpcaError(_DIED) from error
        self._load[worker] += 1

    def no_more(self) -> None:
        """Let each end after what it has: the last results are dealt with meanwhile."""
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError as error:
                raise TpcaError(_DIED) from error

    def collect(self) -> dict[int, tuple[bool, Any]]:
        """Wait for at least one result: by item, whether it is good, and it or the exception."""
        from multiprocessing.connection import wait

        results = {}
        busy = [pipe for pipe, load in zip(self._pipes, self._load, strict=True) if load]
        ready = wait(busy)
        for pipe in (each for each in busy if each in ready):
            try:
                index, good, result = pipe.recv()
            except (EOFError, OSError) as error:
                raise TpcaError(_DIED) from error
            results[index] = (good, result)
            self._load[self._pipes.index(pipe)] -= 1
        return results

    def dismiss(self) -> None:
        """Close the pipes, at which the workers end if they have not yet, and wait for them."""
        for pipe in (*self._pipes, *self._theirs):
            pipe.close()
        for worker in self._workers:
            if worker.pid is not None:
                worker.join()


def _serve(function: Callable[[Any, int], Any], pipes: list[tuple[Any, Any]], number: int) -> None:
    """The life of a worker: it ends when the other end of its pipe does, however the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and closes the pipe
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)
    for other, (ours, theirs) in enumerate(pipes):
        ours.close()
        if other != number:
            theirs.close()
    pipe = pipes[number][1]
    with suppress(EOFError, OSError):
        while (task := pipe.recv()) is not None:
            index, item, slot = task
            try:
                answer = (index, True, function(item, slot))
            except Exception as error:
                answer = (index, False, error)
            pipe.send(answer)
