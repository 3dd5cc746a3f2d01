"""A shield that holds back Python's signal handlers while HDF5 calls into Python.

A handler that raises inside a file callback would throw an exception through the C library, which then
crashes. Inside the shield a signal is only noted; on leaving, the handler that was there runs.
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


_shields = 0  # how deep the main thread is in them


class Shield:
    """`with Shield(): ...` around every call into h5py. Only the main thread ever runs handlers."""

    def __enter__(self) -> Shield:
        global _shields
        self._noted: list[tuple[int, FrameType | None]] = []
        self._saved: list[tuple[int, _Handler]] = []
        self._counted = threading.current_thread() is threading.main_thread()
        if self._counted and _shields == 0:
            try:
                for number in _HELD:
                    handler = signal.getsignal(number)
                    if callable(handler):
                        self._saved.append((number, handler))
                        signal.signal(number, self._note)
            except BaseException:
                self._restore(0)
                raise
        _shields += self._counted
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
        global _shields
        _shields -= self._counted
        self._restore(0)
        handlers = dict(self._saved)
        for number, frame in self._noted:
            handlers[number](number, frame)
