"""Signals wait while they are deferred, and none is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from tpca_cli.store.files import DeferredSignals


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """A handler of SIGUSR1 that notes and raises."""
    seen: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise InterruptedError

    before = signal.signal(signal.SIGUSR1, handler)
    yield seen
    signal.signal(signal.SIGUSR1, before)


def test_deferred_signals_are_handled_at_the_end_of_the_outermost_block(handled: list[int]) -> None:
    with pytest.raises(InterruptedError), DeferredSignals():
        with DeferredSignals():
            os.kill(os.getpid(), signal.SIGUSR1)
        assert handled == []
    assert handled == [signal.SIGUSR1]
    with pytest.raises(InterruptedError):
        os.kill(os.getpid(), signal.SIGUSR1)


def test_a_handler_replaced_meanwhile_stays_replaced(handled: list[int]) -> None:
    with DeferredSignals():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
