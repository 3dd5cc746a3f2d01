"""Holds back Python's signal handlers while HDF5 runs or a file is being cleaned up.

HDF5 calls our file objects. A handler that raises in there would throw an exception through the C library,
which then crashes. So a signal is only noted, and its handler runs when the call is over.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_HELD = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM")
    if hasattr(signal, name)
)
_Handler = Callable[[int, FrameType | None], Any]


_depth = 0  # blocks that the main thread is in


class DeferredSignals:
    """`with DeferredSignals(): ...`: signals that arrive in the block are handled at its end.

    Blocks may be nested; the outermost counts. In other threads it does nothing: Python runs signal handlers
    in the main thread only.
    """

    def __enter__(self) -> DeferredSignals:
        global _depth
        self._noted: list[tuple[int, FrameType | None]] = []
        self._saved: list[tuple[int, _Handler]] = []
        self._counted = threading.current_thread() is threading.main_thread()
        if self._counted and _depth == 0:
            try:
                for number in _HELD:
                    handler = signal.getsignal(number)
                    if callable(handler):
                        self._saved.append((number, handler))
                        signal.signal(number, self._note)
            except BaseException:
                self._restore(0)
                raise
        _depth += self._counted
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append((number, frame))

    def _restore(self, first: int) -> None:
        # a signal may arrive between two restorations and raise: the remaining ones must still happen
        if first < len(self._saved):
            number, handler = self._saved[first]
            try:
                current = signal.signal(number, handler)
                # a handler may have replaced itself, to be left alone by the next signal: it stays replaced
                if current != self._note:
                    signal.signal(number, current)
            finally:
                self._restore(first + 1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _depth
        _depth -= self._counted
        self._restore(0)
        handlers = dict(self._saved)
        for number, frame in self._noted:
            handlers[number](number, frame)
