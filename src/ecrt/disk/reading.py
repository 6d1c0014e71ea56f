"""Read files that may come from anybody: plain files of limited size, and arrays that fit into them."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from ecrt.errors import InputError

MOST_ARRAY_BYTES = 448 * 2**20
"""Of all arrays of a file, in memory."""

MOST_DIRECTORY_BYTES = 2**20
"""Of the list of contents at the end of a zip file."""

MOST_HEADER_BYTES = 2048
"""Of what comes before an array: its dtype and its shape."""


@contextmanager
def open_plain(path: str | os.PathLike[str], most: int) -> Iterator[BufferedReader]:
    """Open a plain file of at most ``most`` bytes; pipes, devices and links are refused without waiting for them.

    Raises
    ------
    OSError
        With the reason, when it is not such a file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    if Path(path).is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link, not a file")
    if not stat.S_ISREG(os.stat(path).st_mode):  # a socket or a folder cannot be opened at all
        raise OSError(errno.EINVAL, "it is not a plain file")
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file")
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"it is {status.st_size} bytes long; at most {most} are read")
        yield file


def plain_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """Content of a plain file of at most ``most`` bytes."""
    with open_plain(path, most) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1)
    if len(content) != size:
        raise OSError(errno.EBUSY, "it changed while it was read")
    return content


def read_arrays(path: str | os.PathLike[str], most: int = MOST_ARRAY_BYTES) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file: numbers, truth values and text.

    Parameters
    ----------
    most : bytes of all arrays together.

    Raises
    ------
    InputError
        When the file is not what NumPy writes, or holds more.
    """
    try:
        with open_plain(path, most + MOST_DIRECTORY_BYTES) as file:
            _check_directory(file)
            with ZipFile(file) as packed:
                entries = packed.infolist()
                if sum(entry.file_size for entry in entries) > most:
                    raise ValueError(f"its arrays take more than {most} bytes")
                if len({entry.filename for entry in entries}) < len(entries):
                    raise ValueError("it holds the same name twice")
                return {entry.filename.removesuffix(".npy"): _read_array(packed, entry) for entry in entries}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except MemoryError as error:
        raise InputError(f"{path} cannot be read: its arrays need more memory than there is.") from error
    except Exception as error:  # of the parsers of Python and NumPy, on content that no writer of theirs wrote
        raise InputError(f"{path} cannot be read as an NPZ file: {str(error)[:200]}.") from error


def _check_directory(file: BufferedReader) -> None:
    """Refuse a long list of contents, since it would be read whole."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 22 - 2**16))
    end = file.read()
    place = end.rfind(b"PK\5\6")
    if place < 0 or len(end) < place + 22:
        raise BadZipFile("it is not a zip file")
    if struct.unpack("<L", end[place + 12 : place + 16])[0] > MOST_DIRECTORY_BYTES:
        raise BadZipFile("its list of contents is too long")
    file.seek(0)


def _read_array(packed: ZipFile, entry: ZipInfo) -> NDArray[Any]:
    """One array. NumPy makes it before it reads its numbers, but memory that nothing is written to costs nothing."""
    shown = repr(entry.filename[:80])
    if not entry.filename.endswith(".npy") or entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise ValueError(f"{shown} is not an array")
    with packed.open(entry) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False, max_header_size=MOST_HEADER_BYTES)
        if file.read(1):  # at the end, the checksum has been compared
            raise ValueError(f"{shown} is longer than its shape says")
    kind = array.dtype.kind
    if kind not in "biufU" or not array.itemsize:
        raise ValueError(f"{shown} does not hold plain numbers, truth values or text")
    if kind in "bU":
        codes = array.reshape(-1, order="A").view("u1" if kind == "b" else f"{array.dtype.byteorder}u4")
        if codes.max(initial=0) > (1 if kind == "b" else 0x10FFFF):
            raise ValueError(f"{shown} holds a value that is not {'text' if kind == 'U' else 'a truth value'}")
    return array
