"""Memory is asked for before it is taken, and work that a device has no room for is done in smaller parts.

What is free is what the system says, or less where a control group (a container, a job of SLURM) or ``ulimit -v`` says
so. On systems that do not tell, nothing is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ecrt.errors import NotEnoughMemoryError

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
