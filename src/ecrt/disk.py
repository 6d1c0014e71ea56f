"""Files: plain ones of limited size are read, and files and folders are written whole, by one writer at a time.

What is read may come from anybody: a size, a depth or a number beyond any of ours is refused before it costs memory.

A file or folder is made beside its place, and takes its name in one step when it is complete: readers see the old one
or the new one. Folders are locked while they are written to (``flock`` on the folder itself); the system frees a lock
when its process ends. Windows and some network drives have no such locks: there, two commands must not write to the
same folder at the same time.
"""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import re
import secrets
import shutil
import stat
import struct
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, is_dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from ecrt.errors import BadContentError, InputError

if sys.platform != "win32":
    import fcntl

MOST_JSON_BYTES = 32 * 2**20
MOST_TEXT_BYTES = 2**20
MOST_VALUES = 2_000_000
"""Values in a JSON file, each of which costs some hundred bytes of memory; commas in texts count too."""

MOST_YAML_EVENTS = 10_000
"""Values, keys, and beginnings and ends of lists."""

DEEPEST = 32
"""Lists and objects in one another."""

MOST_ARRAY_BYTES = 448 * 2**20
"""Of all arrays of a file, in memory."""

MOST_DIRECTORY_BYTES = 2**20
"""Of the list of contents at the end of a zip file."""

MOST_HEADER_BYTES = 2048
"""Of what comes before an array: its dtype and its shape."""

LEAST_BYTES = 2**22
"""Free space that a disk must have before a long run begins."""

LONGEST_WAIT, BETWEEN = 60.0, 0.01
"""Seconds that short work waits for a folder, and seconds between two tries."""

LITTER = re.compile(r"\.ecrt-[0-9a-f]{16}\.tmp")


# --- reading --------------------------------------------------------------------------------------------------------


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


def typed(value: Any, kind: Any, where: str) -> Any:
    """A value of plain JSON as a type: a ``msgspec.Struct``, a dataclass, or whatever else msgspec knows.

    Nothing is guessed: ``"1"`` is no number. Fields that a dataclass does not have are refused, and so are those that a
    Struct forbids.

    >>> typed({"a": 1}, dict[str, str], "The file")
    Traceback (most recent call last):
    ecrt.errors.BadContentError: The file: Expected `str`, got `int` - at `$[...]`.
    """
    try:
        found = msgspec.convert(value, kind)
        _check_fields(value, found)
        return found
    except (msgspec.MsgspecError, AttributeError, ValueError) as error:  # of arrays, and letters that UTF-8 lacks
        raise BadContentError(f"{where}: {str(error)[:300]}.") from error


def _check_fields(plain: Any, found: Any) -> None:
    """Refuse what msgspec would leave out: fields that a dataclass does not have, and values that have no fields."""
    if is_dataclass(found) and plain is not found:
        if not isinstance(plain, dict):
            raise ValueError(f"{type(found).__name__} cannot be made from a {type(plain).__name__}")
        if unknown := plain.keys() - {field.name for field in fields(found)}:
            raise ValueError(f"{type(found).__name__} has no fields {sorted(unknown)[:5]}")
        for name, part in plain.items():
            _check_fields(part, getattr(found, name))
    elif isinstance(found, dict):
        for name, part in found.items():
            _check_fields(plain.get(name), part)
    elif isinstance(found, list | tuple) and found and is_dataclass(found[0]):
        for entry, part in zip(plain, found, strict=True):
            _check_fields(entry, part)


def parse_json(data: bytes) -> Any:
    """The value that the bytes stand for; no key may be there twice."""
    if len(data) > MOST_JSON_BYTES:
        raise BadContentError(f"The JSON is {len(data)} bytes long; at most {MOST_JSON_BYTES} are read.")
    if 1 + sum(data.count(sign) for sign in (b"[", b"{", b",")) > MOST_VALUES:  # before memory is taken for them
        raise BadContentError(f"It holds more than {MOST_VALUES} values.")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_float=_number, parse_constant=_number)
        _check_plain(value)
    except RecursionError as error:
        raise BadContentError(f"It is nested more than {DEEPEST} deep.") from error
    except ValueError as error:
        raise BadContentError(f"It is not JSON that ecrt reads: {str(error)[:200]}.") from error
    return value


def canonical(value: Any) -> bytes:
    """The one way to write a value: what digests are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object has the same key twice")
    return result


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def _check_plain(value: Any, depth: int = 0) -> None:
    """Refuse values that are nested too deep, numbers that are too large, and what JSON has no form for."""
    if isinstance(value, (dict, list)):
        if depth == DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} deep")
        for entry in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_plain(entry, depth + 1)
    elif isinstance(value, int) and abs(value) >= 2**64:
        raise ValueError("it holds a whole number of more than 19 digits")
    elif not isinstance(value, (str, bool, int, float, type(None))):
        raise ValueError(f"it holds a {type(value).__name__}: put quotes around a value that is a text")


@contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Give what goes wrong with a file its name."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except BadContentError as error:
        raise InputError(f"{path} cannot be read. {error.problem}") from error


def read_text(path: str | os.PathLike[str]) -> str:
    """A short text."""
    with _reading(path):
        content = plain_bytes(path, MOST_TEXT_BYTES)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text in UTF-8.") from error


def read_json(path: str | os.PathLike[str], kind: Any = Any) -> Any:
    """A JSON file, with the limits of a model's; ``kind`` is the type that it must have, as for ``typed``."""
    with _reading(path):
        return typed(parse_json(plain_bytes(path, MOST_JSON_BYTES)), kind, "It is not as ecrt writes it")


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """A YAML file of plain values: no aliases, which let a few lines stand for gigabytes, and no key twice."""
    text = read_text(path)
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}.") from error


def parse_yaml(text: str) -> Any:
    """The value of a text in YAML; ``ValueError`` if it is not YAML, or not of plain values."""
    try:
        depth = 0
        for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                raise ValueError("anchors and aliases (& and *) are not read")
            if depth > DEEPEST or number > MOST_YAML_EVENTS:
                raise ValueError(f"it is nested more than {DEEPEST} deep, or longer than any settings")
        value = yaml.load(text, Loader=_Loader)
        _check_plain(value)
        return value
    except (yaml.YAMLError, OverflowError, RecursionError, TypeError, AttributeError, LookupError) as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())[:200]}") from error


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML's safe loader, which takes no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(found) != len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "the same key twice", node.start_mark)
        return found


# Numbers such as 1e-3, which YAML takes for text unless they have a point.
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[+-]?\d+e[+-]?\d+$", re.I), list("+-0123456789"))


# --- arrays ---------------------------------------------------------------------------------------------------------


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


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write several files whole, or none of them; each takes its name after those before it."""
    with ExitStack() as unfinished:
        for file, content in reversed(list(contents.items())):
            out = unfinished.enter_context(replacing(file))
            with _errors_name(file):
                out.write(content)
                out.flush()  # a full disk is met here, while nothing has its name yet


def make_folder(folder: Path) -> Path:
    """Make a folder, and those above it, unless it is there."""
    with _errors_name(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_text(file: str | os.PathLike[str], text: str, errors: str = "backslashreplace") -> None:
    """Write a text whole, as UTF-8; ``errors`` says what to do with letters that UTF-8 does not have."""
    write_bytes(file, text.encode("utf-8", errors))


def write_json(file: str | os.PathLike[str], content: Any, indent: int | None = 1) -> None:
    """Write a JSON file whole, with the ``plain`` form of its content."""
    write_text(file, json.dumps(plain(content), indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def plain(value: Any, without: Collection[str] = ()) -> Any:
    """A value as JSON has it: dataclasses, arrays and data frames too; numbers beyond float are null, the rest text.

    Parameters
    ----------
    without : names of entries to leave out, at any depth.
    """
    value = value.to_dict("records") if hasattr(value, "to_dict") else value  # a data frame
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
    if _beside(folder, "old").is_dir() and not folder.exists():
        with locked(path := _beside(folder, "new"), wait=True):
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
