"""Files and folders are written whole, by one writer at a time: readers see the old one or the new one.

A file or folder is made beside its place, and takes its name in one step when it is complete. Folders are locked while
they are written to (``flock`` on the folder itself); the system frees a lock when its process ends. Windows and some
network drives have no such locks: there, two commands must not write to the same folder at the same time.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ecrt.errors import InputError

if sys.platform != "win32":
    import fcntl

LEAST_BYTES = 2**22
"""Free space that a disk must have before a long run begins."""

LONGEST_WAIT, BETWEEN = 60.0, 0.01
"""Seconds that short work waits for a folder, and seconds between two tries."""

LITTER = re.compile(r"\.ecrt-[0-9a-f]{16}\.tmp")


# --- locks ----------------------------------------------------------------------------------------------------------


@contextmanager
def locked(folder: str | os.PathLike[str], *, wait: bool, shown: Path | None = None) -> Iterator[None]:
    """Lock a folder while the block writes to it; make the folder if there is none.

    Parameters
    ----------
    wait : whether to wait for another writer to end; otherwise an ``InputError`` is raised at once.
    shown : the name of the folder for error messages, if it is another one.
    """
    folder = Path(folder)
    with _errors_name(shown or folder):
        while (held := _hold_folder(folder, wait, shown or folder)) is not None:
            if _is_at(held, folder):
                break
            os.close(held)  # another folder took its place while we waited
    try:
        yield
    finally:
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


def _hold_folder(folder: Path, wait: bool, shown: Path) -> int | None:
    """The open folder, locked; None on systems where a folder cannot be opened."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.name != "posix":
        return None
    held = os.open(folder, os.O_RDONLY)
    if not hold(held, wait=wait):
        os.close(held)
        raise InputError(f"Another command is writing to {shown}. Wait until it has finished, or choose another place.")
    return held


def _is_at(held: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(held), os.stat(folder))
    except FileNotFoundError:
        return False


@contextmanager
def _errors_name(place: Path) -> Iterator[None]:
    """Give the system's errors the name of what cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"Cannot write {place}: {error.strerror or error}.") from error


# --- files ----------------------------------------------------------------------------------------------------------


@contextmanager
def replacing(file: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``file`` when the block ends without an error.

    The new file has the permissions that the user's umask gives. A writer that is killed leaves a hidden file behind,
    which ``remove_litter`` removes.

    Raises
    ------
    InputError
        When the system refuses to write, with its reason; the old file is then as it was.
    """
    file = Path(file)
    with _errors_name(file):
        unfinished = _open_beside(file)
        try:
            with unfinished:
                yield unfinished
                unfinished.flush()
                os.fsync(unfinished.fileno())
                if os.name == "posix":  # while it is held: nobody takes it for litter
                    os.replace(unfinished.name, file)
            if os.name != "posix":  # there, an open file cannot be renamed
                os.replace(unfinished.name, file)
        except BaseException:
            Path(unfinished.name).unlink(missing_ok=True)
            raise
        sync_folder(file.parent)


def write_bytes(file: str | os.PathLike[str], content: bytes) -> None:
    """Write a file whole."""
    with replacing(file) as unfinished:
        unfinished.write(content)


def write_text(file: str | os.PathLike[str], text: str, errors: str = "backslashreplace") -> None:
    """Write a text whole, as UTF-8; ``errors`` says what to do with letters that UTF-8 does not have."""
    write_bytes(file, text.encode("utf-8", errors))


def write_json(file: str | os.PathLike[str], content: Any, indent: int | None = 1) -> None:
    """Write a JSON file whole, with the ``plain`` form of its content."""
    write_text(file, json.dumps(plain(content), indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def plain(value: Any, without: Collection[str] = ()) -> Any:
    """A value as JSON has it: dataclasses and arrays too; numbers that are not finite are null, the rest is text.

    Parameters
    ----------
    without : names of entries to leave out, at any depth.
    """
    value = vars(value) if is_dataclass(value) else value.item() if isinstance(value, np.generic) else value
    if isinstance(value, dict):
        return {str(name): plain(entry, without) for name, entry in value.items() if name not in without}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(entry, without) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (str, int, type(None))) else str(value)


def write_arrays(file: str | os.PathLike[str], arrays: dict[str, Any], *, compressed: bool = True) -> None:
    """Write an NPZ file whole, without pickles."""
    with replacing(file) as unfinished:
        save = np.savez_compressed if compressed else np.savez
        save(unfinished, allow_pickle=False, **arrays)


def check_writable(file: str | os.PathLike[str]) -> None:
    """Make the folder of a file, and check that the file can be written there, before a long run begins."""
    file = Path(file)
    with _errors_name(file):
        _check_space(file)
        if file.is_dir():
            raise InputError(f"Cannot write {file}: it is a folder.")
        remove_litter(file.parent)
        with _open_beside(file) as probe:
            os.unlink(probe.name)


def remove_litter(folder: Path) -> None:
    """Remove unfinished files of writers that were killed; files that are being written are left alone."""
    for entry in os.scandir(folder):
        if not LITTER.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
            continue
        with suppress(OSError), open(entry.path, "rb") as file:  # its writer was faster, or it is somebody else's
            if hold(file.fileno(), wait=False):
                os.unlink(entry.path)


def sync_folder(folder: Path) -> None:
    """Make sure that the names of the files in a folder are on the disk."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_beside(file: Path) -> BinaryIO:
    """A new hidden file in the same folder, locked as long as it is open."""
    while True:
        unfinished = file.with_name(f".ecrt-{secrets.token_hex(8)}.tmp").open("xb")
        hold(unfinished.fileno(), wait=True)
        if os.fstat(unfinished.fileno()).st_nlink:  # else it was taken for litter before it was held
            return unfinished
        unfinished.close()


def _check_space(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(place.parent).free < LEAST_BYTES:
        raise InputError(f"Cannot write {place}: the disk is full.")


# --- folders --------------------------------------------------------------------------------------------------------


class NewFolder:
    """Build in ``path``; ``publish`` puts it in the place of ``folder``. What is not published is removed.

    Both are locked meanwhile, so that a second command is refused before its long run. ``path`` has a fixed name: what
    a killed command left there is removed by the next one. A mounted folder and the current folder cannot be replaced,
    and are refused.

    Parameters
    ----------
    folder : to be replaced, or made.
    own : names in it that belong to what is replaced; all else in it is the user's, and is kept.
    """

    def __init__(self, folder: str | os.PathLike[str], *, own: Collection[str]) -> None:
        self.folder = Path(folder).resolve()
        self.own = frozenset(own)
        self.path = _beside(self.folder, "new")
        self._held = ExitStack()

    def __enter__(self) -> NewFolder:
        self._check()
        with ExitStack() as held, _errors_name(self.folder):
            held.enter_context(locked(self.path, wait=False, shown=self.folder))
            held.callback(shutil.rmtree, self.path, ignore_errors=True)  # while it is locked
            _empty(self.path)
            _restore(self.folder)
            self._was_there = self.folder.exists()
            if self._was_there:
                held.enter_context(locked(self.folder, wait=False))
            self._held = held.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def publish(self, place: Path | None = None) -> Path:
        """Give the new folder its name in one step, or the name ``place`` where nothing is; returns where it is now."""
        try:
            if place is not None or not self.folder.exists():
                os.rename(self.path, place or self.folder)
            else:
                if not self._was_there:  # it was made meanwhile
                    self._held.enter_context(locked(self.folder, wait=False))
                _keep_others(self.folder, self.path, self.own)
                _exchange(self.path, self.folder)
            sync_folder(self.folder.parent)
        except OSError as error:
            aside = free_name(self.folder, "new")
            os.rename(self.path, aside)
            raise InputError(
                f"{self.folder} cannot be replaced: {error.strerror or error}. It is as it was; the new one is {aside}."
            ) from error
        return place or self.folder

    def _check(self) -> None:
        here = Path.cwd()
        if self.folder == here or self.folder in here.parents:
            raise InputError(f"{self.folder} is the current folder, or holds it. Give another folder.")
        if self.folder.is_file():
            raise InputError(f"{self.folder} is a file. Give a folder.")
        if os.path.ismount(self.folder):
            raise InputError(f"{self.folder} is a mounted disk. Give a folder on it, such as {self.folder / 'run'}.")
        with _errors_name(self.folder):
            _check_space(self.folder)


def free_name(folder: Path, ending: str) -> Path:
    """A name that is free: FOLDER.ENDING, or FOLDER.ENDING-2 and so on."""
    place, number = folder.with_name(f"{folder.name}.{ending}"), 1
    while place.exists():
        number += 1
        place = folder.with_name(f"{folder.name}.{ending}-{number}")
    return place


def recover(folder: str | os.PathLike[str]) -> None:
    """Put a folder back that a killed command had moved away, on systems that cannot exchange two folders."""
    folder = Path(folder).resolve()
    if folder.exists() or not _beside(folder, "old").is_dir():
        return
    path = _beside(folder, "new")
    with locked(path, wait=True):
        _restore(folder)
        shutil.rmtree(path, ignore_errors=True)


def _beside(folder: Path, ending: str) -> Path:
    return folder.with_name(f".{folder.name}.ecrt-{ending}")


def _restore(folder: Path) -> None:
    old = _beside(folder, "old")
    if old.is_dir() and not folder.exists():
        os.rename(old, folder)
    shutil.rmtree(old, ignore_errors=True)


def _empty(folder: Path) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _keep_others(old: Path, new: Path, own: Collection[str]) -> None:
    """Link the user's own files into the new folder, which gets the permissions of the old one."""
    ours = {*own, *os.listdir(new)}
    shutil.copytree(
        old, new, symlinks=True, copy_function=_link, dirs_exist_ok=True,
        ignore=lambda folder, names: ours if folder == os.fspath(old) else (),
    )  # fmt: skip


def _link(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target, follow_symlinks=False)


def _exchange(new: Path, old: Path) -> None:
    """Exchange the names of two folders; the old one is then ``new``, or is removed."""
    if _exchange_names(new, old):
        return
    aside = _beside(old, "old")
    os.rename(old, aside)
    os.rename(new, old)
    shutil.rmtree(aside, ignore_errors=True)


def _exchange_names(first: Path, second: Path) -> bool:
    """In one step, by Linux's ``renameat2`` or macOS's ``renameatx_np``; False on other systems."""
    at, swap = (-100, 2) if sys.platform == "linux" else (-2, 2)
    name = {"linux": "renameat2", "darwin": "renameatx_np"}.get(sys.platform)
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None) if name else None
    if call is None:
        return False
    # The system's errors are left to the plain renames, which meet and report them too.
    return bool(call(at, os.fsencode(first), at, os.fsencode(second), ctypes.c_uint(swap)) == 0)
