"""One thread for the arithmetic of a fit, so that its bits do not depend on how many there are.

Sums over many values, and the steps of optimizers, are cut into as many parts as there are threads.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import joblib
import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

_before: ContextVar[int | None] = ContextVar("before", default=None)
"""Threads that this one had for arithmetic before it was held to one; ``None`` where it is not held."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold the calling thread to one thread for arithmetic: torch, OpenMP, and joblib's workers.

    Other threads of the process keep theirs, but for numpy's BLAS, whose number belongs to the process: it is one for
    as long as any thread is within such a block.
    """
    if _before.get() is not None:
        yield
        return
    before = torch.get_num_threads()  # also lets torch set up a new thread, which would undo what follows
    token = _before.set(before)
    try:
        # A forest on a Dask worker would add up its trees in the order in which they come back.
        with _blas.one_thread(), _limited(1), joblib.parallel_config(backend="sequential", n_jobs=1):
            yield
    finally:
        _before.reset(token)


@contextmanager
def all_threads(*, enabled: bool) -> Iterator[None]:
    """Within ``one_thread``, as many threads for torch as before: for images, which would take too long with one."""
    before = _before.get()
    if before is None or not enabled:
        yield
        return
    with _limited(before):
        yield


@contextmanager
def _limited(threads: int) -> Iterator[None]:
    # Of the calling thread alone, as OpenMP has it
    with ThreadpoolController().select(user_api="openmp").limit(limits=threads):
        _limit_mkl(1 if threads == 1 else 0)
        try:
            yield
        finally:
            _limit_mkl(0 if threads == 1 else 1)


class _Blas:
    """The threads of numpy's BLAS: who comes first has them set to one, who leaves last has them set back.

    By a helper, as threadpoolctl lets a limit be lifted by the thread that has set it alone, and the fit that began
    first need not be the last to end.
    """

    def __init__(self) -> None:
        self.lock, self.holders, self.over = threading.Lock(), 0, threading.Event()
        self.helper = threading.Thread()

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        with self.lock:
            if self.holders == 0:
                held, self.over = threading.Event(), threading.Event()
                self.helper = threading.Thread(target=_hold_blas, args=(held, self.over), daemon=True)
                self.helper.start()
                held.wait()
            self.holders += 1
        try:
            yield
        finally:
            with self.lock:
                self.holders -= 1
                if self.holders == 0:
                    self.over.set()
                    self.helper.join()


def _hold_blas(held: threading.Event, over: threading.Event) -> None:
    try:
        with ThreadpoolController().select(user_api="blas").limit(limits=1):
            held.set()
            over.wait()
    finally:
        held.set()


def _mkl_setter() -> Callable[[int], object]:
    """How to set the threads of the MKL inside torch for the calling thread; 0 is what the process has."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        setter: Callable[[int], object] = library.MKL_Set_Num_Threads_Local
    except (OSError, AttributeError):  # another system or another BLAS
        return lambda threads: None
    return setter


_blas = _Blas()
_limit_mkl = _mkl_setter()
