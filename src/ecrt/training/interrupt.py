"""Ctrl-C, or a deadline, as a wish to stop training and keep what was reached, not to lose it."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

__all__ = ["stop_on_interrupt", "stop_requested", "stopped_at"]

_asked: ContextVar[threading.Event | None] = ContextVar("asked", default=None)
_deadline = ContextVar("deadline", default=math.inf)


def stop_requested() -> bool:
    """Whether training should end with its best state so far, and choices with the simplest candidate."""
    asked = _asked.get()
    return (asked is not None and asked.is_set()) or time.monotonic() > _deadline.get()


@contextmanager
def stopped_at(deadline: float) -> Iterator[None]:
    """Within this block training is asked to stop once ``time.monotonic()`` passes the deadline."""
    token = _deadline.set(min(deadline, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def stop_on_interrupt(say: Callable[[str], None]) -> Iterator[None]:
    """Within this block the first Ctrl-C asks training to stop; a second one interrupts at once.

    Fits of other threads go on.
    """
    asked = threading.Event()

    def handle(signum: int, frame: FrameType | None) -> None:
        if stop_requested():
            raise KeyboardInterrupt
        asked.set()
        say("Stopping with the best state so far. Press Ctrl-C again to give up.")

    token = _asked.set(asked)
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _asked.reset(token)
