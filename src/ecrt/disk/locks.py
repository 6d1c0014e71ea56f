"""Locks on folders that are being written to. The system frees a lock when its process ends, so none is left behind.

The folders themselves are locked (``flock``), not files beside them. Windows and some network drives have no such
locks: there, two commands must not write to the same folder at the same time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ecrt.errors import InputError

if sys.platform != "win32":
    import fcntl

LONGEST_WAIT, BETWEEN = 60.0, 0.01
"""Seconds that short work waits for a folder, and seconds between two tries."""


@contextmanager
def locked(folder: str | os.PathLike[str], *, wait: bool) -> Iterator[None]:
    """Lock a folder while the block writes to it; make the folder if there is none.

    Parameters
    ----------
    wait : whether to wait for another writer to end; otherwise an ``InputError`` is raised at once.
    """
    held = hold_folder(Path(folder), wait=wait)
    try:
        yield
    finally:
        release(held)


def hold_folder(folder: Path, *, wait: bool, shown: Path | None = None) -> int | None:
    """Lock a folder until ``release``; ``shown`` is the name for error messages, if it is another one."""
    try:
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            if os.name != "posix":
                return None
            held = os.open(folder, os.O_RDONLY)
            if not hold(held, wait=wait):
                os.close(held)
                name = shown or folder
                raise InputError(
                    f"Another command is writing to {name}. Wait until it has ended, or choose another place."
                )
            if _is_at(held, folder):
                return held
            os.close(held)  # another folder took its place while we waited
    except OSError as error:
        raise InputError(f"Cannot write to the folder {folder}: {error.strerror or error}.") from error


def release(held: int | None) -> None:
    """Free the lock."""
    if held is not None:
        os.close(held)


def hold(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file or folder until it is closed; False where another process has it."""
    if sys.platform == "win32":
        return True
    end = time.monotonic() + (LONGEST_WAIT if wait else 0.0)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(BETWEEN)
        except OSError:  # a file system without locks
            return True
        else:
            return True


def _is_at(held: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(held), os.stat(folder))
    except FileNotFoundError:
        return False
