"""Ctrl-C, SIGTERM, or a deadline, as a wish to stop training and keep what was finished, not to lose it."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType

from ecrt.errors import TerminatedError


@dataclass
class Stop:
    """Whether work was asked to stop: by which signal, 0 for none, and whether it is to stop at once."""

    signal: int = 0
    at_once: bool = False


_stop: ContextVar[Stop | None] = ContextVar("stop", default=None)
_deadline = ContextVar("deadline", default=math.inf)


def stop_requested() -> bool:
    """Whether training and choices should end with what was finished so far."""
    stop = _stop.get()
    return (stop is not None and stop.signal != 0) or deadline_passed()


def deadline_passed() -> bool:
    """Whether the time that ``stopped_at`` gave is over."""
    return time.monotonic() > _deadline.get()


@contextmanager
def stopped_at(deadline: float) -> Iterator[None]:
    """Within this block training is asked to stop once ``time.monotonic()`` passes the deadline."""
    token = _deadline.set(min(deadline, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def stop_on_interrupt(say: Callable[[str], None]) -> Iterator[Stop]:
    """Within this block the first Ctrl-C, or SIGTERM, asks training to stop; a second one interrupts at once.

    What is being trained ends with its best finished state, or with a ``StoppedError`` if it has none. Of what must
    follow, the simplest is done where that takes no training by epochs. Fits outside of the block, as in other
    threads, are not asked.
    """
    stop = Stop()

    def handle(signum: int, frame: FrameType | None) -> None:
        again, stop.signal = stop.signal != 0, signum
        if not again:
            with suppress(RuntimeError):  # the signal came while something was being written to the same stream
                say("Stopping with what is finished. Press Ctrl-C again to give up.")
        if again or stop.at_once:
            raise TerminatedError if signum == signal.SIGTERM else KeyboardInterrupt

    before = {name: signal.signal(name, handle) for name in (signal.SIGINT, signal.SIGTERM)}
    token = _stop.set(stop)
    try:
        yield stop
    finally:
        _stop.reset(token)
        for name, handler in before.items():
            signal.signal(name, handler)


@contextmanager
def interrupted_at_once() -> Iterator[None]:
    """Within this block the first Ctrl-C interrupts too: nothing that it is worth waiting for would be kept."""
    stop = _stop.get() or Stop()
    stop.at_once = True
    try:
        yield
    finally:
        stop.at_once = False
