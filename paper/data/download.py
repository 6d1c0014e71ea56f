"""Downloads that can be interrupted, are verified, and leave no half of a file behind as a whole one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from ecrt.disk import write_json
from ecrt.errors import InputError
from paper.data.catalogue import KnownData, RemoteFile

__all__ = ["Report", "default_folder", "download", "fetch", "unpack"]

CHUNK = 1 << 18
TIMEOUT = 60
RECORD = "checksums.json"
"""Checksums found at the first download of files that nobody publishes one of."""

Report = Callable[[int, int | None], None]
"""Told how many bytes of a file are there, and of how many, where the server says that."""


def default_folder() -> Path:
    """The folder of the data, ``ECRT_DATA``, or a cache in the user's home."""
    return Path(os.environ.get("ECRT_DATA") or Path.home() / ".cache" / "ecrt")


def fetch(known: KnownData, folder: Path, report: Callable[[RemoteFile], Report]) -> list[Path]:
    """Download and unpack all files of a data set into a folder of its name; what is there already is kept.

    Parameters
    ----------
    report : gives, for each file, whom to tell about its bytes.
    """
    if not known.files:
        raise InputError(f"{known.name} cannot be downloaded by a program. {known.by_hand}")
    target = folder / known.name
    try:
        target.mkdir(parents=True, exist_ok=True)
        return [unpack(download(file, target, report(file))) for file in known.files]
    except OSError as error:
        raise InputError(f"Cannot write to {target}: {error.strerror or error}.") from error


def download(file: RemoteFile, folder: Path, report: Report = lambda *_: None) -> Path:
    """Download a file, going on where an earlier try stopped, and verify it.

    The bytes collect in NAME.part, which gets its name only when the checksum agrees.
    """
    whole, part = folder / file.name, folder / f"{file.name}.part"
    if whole.is_file():
        _verify(file, whole, _digest(whole))
        report(whole.stat().st_size, whole.stat().st_size)
        return whole
    _collect(file, part, report)
    digest = _digest(part)
    try:
        _verify(file, part, digest)
    except InputError:
        part.unlink()  # going on from it could never end well
        raise
    _record(file, folder, digest)
    part.replace(whole)
    return whole


def _collect(file: RemoteFile, part: Path, report: Report) -> None:
    """Add what is missing to the part that is there."""
    there = part.stat().st_size if part.is_file() else 0
    request = Request(file.url, headers={"User-Agent": "ecrt"} | ({"Range": f"bytes={there}-"} if there else {}))
    try:
        with urlopen(request, timeout=TIMEOUT) as response:
            if there and response.status != 206:  # the server sends it from the start
                there = 0
            total = _total(response, there)
            with part.open("ab" if there else "wb") as out:
                _copy(response, out, there, total, report)
    except HTTPError as error:
        if error.code == 416 and there:  # nothing is left to send: the part is whole, or is not what it should be
            report(there, there)
            return
        raise InputError(f"{file.url}: the server answers {error.code} {error.reason}.") from error
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        rest = f" What has come stays in {part}: the same command goes on from there." if part.is_file() else ""
        raise InputError(f"{file.url} cannot be read: {reason}.{rest}") from error


def _total(response: HTTPResponse, there: int) -> int | None:
    length = response.headers.get("Content-Length")
    return there + int(length) if length and length.isdigit() else None


def _copy(response: HTTPResponse, out: IO[bytes], there: int, total: int | None, report: Report) -> None:
    done = there
    while block := response.read(CHUNK):
        out.write(block)
        done += len(block)
        report(done, total)
    if total is not None and done < total:
        raise HTTPException(f"the connection ended after {done:,} of {total:,} bytes")


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _verify(file: RemoteFile, path: Path, digest: str) -> None:
    expected = file.md5 or _recorded(path.parent).get(file.name)
    if expected is not None and digest != expected:
        raise InputError(
            f"{path.name} has the checksum {digest} and should have {expected}: it is damaged, or another version. "
            + ("Delete it and try again." if path.name == file.name else "It was removed; try again.")
        )


def _recorded(folder: Path) -> dict[str, str]:
    record = folder / RECORD
    return dict(json.loads(record.read_text(encoding="utf-8"))) if record.is_file() else {}


def _record(file: RemoteFile, folder: Path, digest: str) -> None:
    if file.md5 is None:
        found = _recorded(folder) | {file.name: digest}
        write_json(folder / RECORD, found)


# --- archives -----------------------------------------------------------------------------------------------------


def unpack(archive: Path) -> Path:
    """Unpack a zip or tar file beside itself, once; other files are left as they are.

    All goes to a folder of its own first, so that an interruption leaves nothing that looks complete; NAME.unpacked
    says that it was done.
    """
    is_zip = archive.suffix == ".zip"
    if not is_zip and not archive.name.endswith((".tar.gz", ".tgz", ".tar")):
        return archive
    done = archive.with_name(f"{archive.name}.unpacked")
    if done.is_file():
        return archive
    aside = archive.with_name(f"{archive.name}.unpacking")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        if is_zip:
            with zipfile.ZipFile(archive) as content:
                content.extractall(aside)
        else:
            with tarfile.open(archive) as content:
                content.extractall(aside, filter="data")
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise InputError(f"{archive} cannot be unpacked: {error}") from error
    for item in aside.iterdir():
        place = archive.parent / item.name
        if place.is_dir():
            shutil.rmtree(place)
        item.replace(place)
    aside.rmdir()
    done.touch()
    return archive
