"""Ctrl-C as a wish to stop training and keep what was reached, not to lose it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["stop_on_interrupt", "stop_requested"]

_asked = threading.Event()


def stop_requested() -> bool:
    """Whether training should end with its best state so far, and choices with the simplest candidate."""
    return _asked.is_set()


@contextmanager
def stop_on_interrupt(say: Callable[[str], None]) -> Iterator[None]:
    """Within this block the first Ctrl-C asks training to stop; a second one interrupts at once."""

    def handle(signum: int, frame: FrameType | None) -> None:
        if stop_requested():
            raise KeyboardInterrupt
        _asked.set()
        say("Stopping with the best state so far. Press Ctrl-C again to give up.")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _asked.clear()
