"""Write a file whole: first beside its place, then to its name in one step. Readers see the old file or the new one."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ecrt.disk.locks import hold
from ecrt.errors import InputError

LEAST_BYTES = 2**22
"""Free space that a disk must have before a long run begins."""

LITTER = re.compile(r"\.ecrt-[0-9a-f]{16}\.tmp")


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
    try:
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
    except OSError as error:
        raise _cannot_write(file, error) from error


def write_bytes(file: str | os.PathLike[str], content: bytes) -> None:
    """Write a file whole."""
    with replacing(file) as unfinished:
        unfinished.write(content)


def write_text(file: str | os.PathLike[str], text: str, errors: str = "strict") -> None:
    """Write a text whole, as UTF-8; ``errors`` says what to do with letters that UTF-8 does not have."""
    write_bytes(file, text.encode("utf-8", errors))


def write_json(file: str | os.PathLike[str], content: Any, indent: int | None = 1) -> None:
    """Write a JSON file whole; numbers must be finite."""
    text = json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
    write_text(file, text + "\n", errors="backslashreplace")


def write_arrays(file: str | os.PathLike[str], arrays: dict[str, Any], *, compressed: bool = True) -> None:
    """Write an NPZ file whole, without pickles."""
    with replacing(file) as unfinished:
        save = np.savez_compressed if compressed else np.savez
        save(unfinished, allow_pickle=False, **arrays)


def check_writable(file: str | os.PathLike[str]) -> None:
    """Make the folder of a file, and check that the file can be written there, before a long run begins."""
    file = Path(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            raise InputError(f"Cannot write {file}: it is a folder.")
        if shutil.disk_usage(file.parent).free < LEAST_BYTES:
            raise InputError(f"Cannot write {file}: the disk is full.")
        remove_litter(file.parent)
        with _open_beside(file) as probe:
            os.unlink(probe.name)
    except OSError as error:
        raise _cannot_write(file, error) from error


def remove_litter(folder: Path) -> None:
    """Remove unfinished files of writers that were killed; files that are being written are left alone."""
    for entry in os.scandir(folder):
        if not LITTER.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
            continue
        try:
            descriptor = os.open(entry.path, os.O_RDONLY)
            try:
                if hold(descriptor, wait=False):
                    os.unlink(entry.path)
            finally:
                os.close(descriptor)
        except OSError:
            continue  # its writer was faster, or it is somebody else's


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


def _cannot_write(file: Path, error: OSError) -> InputError:
    return InputError(f"Cannot write {file}: {error.strerror or error}.")
