"""A bound on one run: a trial ends when its time is out."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["OutOfTime", "time_limit"]

REPEAT = 0.1
"""Seconds after which the alarm rings again: the first may come at a bad moment, or be swallowed."""


class OutOfTime(BaseException):
    """The time of a trial is out. No ``Exception``, so that a method's own handlers let it pass."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``OutOfTime`` in the block after so many seconds, between two steps of Python.

    Only the main thread of a process can be interrupted, and not on Windows; elsewhere the block runs to its end. An
    import is never interrupted: it would leave a broken module to all that comes after.
    """
    possible = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not math.isfinite(seconds) or not possible:
        yield
        return

    def ring(signum: int, frame: FrameType | None) -> None:
        if not _importing(frame):
            raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), REPEAT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
