"""What a fit takes of the machine: one thread for its arithmetic, and memory that is asked for first.

Sums over many values, and the steps of optimizers, are cut into as many parts as there are threads, so the bits of a
fit would depend on their number. Free memory is what the system says, or less where a control group (a container, a
job of SLURM) or ``ulimit -v`` says so; on systems that do not tell, nothing is refused. Work that a device has no room
for is done in smaller parts.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import joblib
import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from ecrt.errors import NotEnoughMemoryError

# --- threads ----------------------------------------------------------------------------------------------------------

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


# --- memory -----------------------------------------------------------------------------------------------------------

SMALL = 2**27
"""Bytes that nobody asks for: a look at what is free takes longer than to take them."""

SCORES_AT_ONCE = 2**24
"""Scores of all classes that prediction holds at a time: 128 MiB in each of a few arrays."""

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def free_memory(device: torch.device | None = None) -> int | None:
    """Bytes that this process can still take, of main memory or of a GPU; ``None`` where the system does not tell."""
    if device is not None and device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    found = [one for one in (_of_system(), _of_group(), _of_process()) if one is not None]
    return max(min(found), 0) if found else None


def ask(
    what: str, lower: str, *, numbers: int = 8, copies: int = 1, device: torch.device | None = None, **sizes: int
) -> None:
    """Raise an error if an array of so many rows, columns or classes does not fit into what is free.

    Parameters
    ----------
    what : it is for.
    lower : what to do to need less.
    numbers : bytes of each.
    copies : of the array, at the same time.
    sizes : of the array, by name; a name that is there twice ends in ``_``.

    >>> ask("A table", "Use fewer rows.", rows=10**9, columns=10**9)
    Traceback (most recent call last):
    ecrt.errors.NotEnoughMemoryError: A table of 1,000,000,000 rows x 1,000,000,000 columns needs 7,450,580,597 GiB ...
    """
    needed = numbers * copies
    for size in sizes.values():
        needed *= int(size)
    if needed <= SMALL or (free := free_memory(device)) is None or needed <= free:
        return
    shape = " x ".join(f"{size:,} {name.rstrip('_')}" for name, size in sizes.items())
    held = f", held {copies} times," if copies > 1 else ""
    where = "GPU memory" if device is not None and device.type == "cuda" else "memory"
    raise NotEnoughMemoryError(
        f"{what} of {shape}{held} needs {_gib(needed)} of {where}; {_gib(free)} are free. {lower}"
    )


def in_parts(work: Callable[[Any], Any], rows: Any, size: int, lower: str = "") -> Iterator[Any]:
    """What the work gives of ``size`` rows at a time; half as many from where a GPU has no memory for them.

    For work whose result for a row does not depend on the rows beside it.
    """
    start = 0
    while True:
        part = rows[start : start + size]
        try:
            found = work(part)
        except torch.OutOfMemoryError as error:
            size = smaller(len(part), error, lower)
            continue
        start += len(part)
        yield found
        if start >= len(rows):  # of no rows, too, the work says what shape they would have
            return


def smaller(size: int, error: BaseException, lower: str = "") -> int:
    """Half of the rows that a GPU had no memory for; an error where there is only one left."""
    if size <= 1:
        raise NotEnoughMemoryError(f"The GPU has no memory for one row at a time: {error} {lower}".strip()) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return size // 2


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size < 2**40 else f"{size / 2**30:,.0f} GiB"


def _of_system() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        lines = (PROC / "meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    with suppress(OSError, ValueError, AttributeError):  # as on macOS: all that there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _of_group() -> int | None:
    """The least that a control group of this process, or one around it, has left; cached files count as free."""
    found: list[int] = []
    with suppress(OSError):
        for line in (PROC / "self" / "cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds not in ("", "memory"):
                continue
            root = GROUPS if not kinds else GROUPS / "memory"
            limit, used = ("memory.max", "memory.current") if not kinds else ("limit_in_bytes", "usage_in_bytes")
            limit, used = (name if not kinds else f"memory.{name}" for name in (limit, used))
            place = root / path.lstrip("/")
            for folder in (place, *place.parents):
                with suppress(OSError, ValueError):  # "max", or no such file: no limit
                    left = int((folder / limit).read_text()) - int((folder / used).read_text())
                    found.append(left + _read_files(folder))
                if folder == root:
                    break
    return min(found, default=None)


def _read_files(group: Path) -> int:
    """Bytes of files that the system would give back."""
    lines = (group / "memory.stat").read_text().splitlines()
    kept = dict(line.split(maxsplit=1) for line in lines)
    return int(kept.get("total_inactive_file", kept.get("inactive_file", 0)))


def _of_process() -> int | None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most == resource.RLIM_INFINITY:
            return None
        return most - int((PROC / "self" / "statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return None
