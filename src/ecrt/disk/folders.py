"""Replace a folder in one step: the new one is built beside it and takes its name when it is complete."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from types import TracebackType

from ecrt.disk.files import LEAST_BYTES, sync_folder
from ecrt.disk.locks import hold_folder, release
from ecrt.errors import InputError


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
        self._held: list[int | None] = []

    def __enter__(self) -> NewFolder:
        self._check()
        self._held.append(hold_folder(self.path, wait=False, shown=self.folder))
        try:
            _empty(self.path)
            _restore(self.folder)
            if self.folder.exists():
                self._held.append(hold_folder(self.folder, wait=False))
        except OSError as error:
            self._leave()
            raise _cannot_write(self.folder, error) from error
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._leave()

    def publish(self, place: Path | None = None) -> Path:
        """Give the new folder its name in one step, or the name ``place`` where nothing is; returns where it is now."""
        try:
            if place is not None or not self.folder.exists():
                os.rename(self.path, place or self.folder)
            else:
                if len(self._held) == 1:  # it was made meanwhile
                    self._held.append(hold_folder(self.folder, wait=False))
                _keep_others(self.folder, self.path, self.own)
                shutil.copymode(self.folder, self.path)
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
            raise InputError(f"{self.folder} is the current folder, or holds it. Give a folder of its own.")
        if self.folder.is_file():
            raise InputError(f"{self.folder} is a file. Give a folder.")
        if os.path.ismount(self.folder):
            raise InputError(f"{self.folder} is a mounted disk. Give a folder on it, such as {self.folder / 'run'}.")
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(self.folder.parent).free < LEAST_BYTES:
                raise InputError(f"Cannot write to the folder {self.folder}: the disk is full.")
        except OSError as error:
            raise _cannot_write(self.folder, error) from error

    def _leave(self) -> None:
        """Remove what is not in use, while it is still locked."""
        shutil.rmtree(self.path, ignore_errors=True)
        for held in self._held:
            release(held)
        self._held.clear()


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
    held = hold_folder(path, wait=True)
    try:
        _restore(folder)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        release(held)


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
    """Link the user's own files into the new folder."""
    for entry in os.scandir(old):
        place = new / entry.name
        if entry.name in own or os.path.lexists(place):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.copytree(entry.path, place, symlinks=True, copy_function=_link)
        else:
            _link(entry.path, place)


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
    """In one step, by Linux's ``renameat2`` or macOS's ``renamex_np``; False where there is no such thing."""
    at, swap = (-100, 2) if sys.platform == "linux" else (-2, 2)
    name = {"linux": "renameat2", "darwin": "renameatx_np"}.get(sys.platform)
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None) if name else None
    if call is None:
        return False
    # The system's errors are left to the plain renames, which meet and report them too.
    return bool(call(at, os.fsencode(first), at, os.fsencode(second), ctypes.c_uint(swap)) == 0)


def _cannot_write(folder: Path, error: OSError) -> InputError:
    return InputError(f"Cannot write to the folder {folder}: {error.strerror or error}.")
