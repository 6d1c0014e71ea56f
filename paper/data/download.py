"""Downloads by pooch: verified, and with no half of a file left behind as a whole one. They can be interrupted."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pooch
import requests

from ecrt.errors import InputError
from paper.data.catalogue import KnownData, RemoteFile

__all__ = ["Report", "default_folder", "download", "fetch", "unpack"]

CHUNK = 1 << 18
TIMEOUT = 60

Report = Callable[[int, int | None], None]
"""Told how many bytes of a file are there, and of how many, where the server says that."""

pooch.get_logger().setLevel("WARNING")


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
    """Download a file that is not there, or whose checksum is another one, and verify it.

    The bytes collect in NAME.part, so that the next try goes on where this one stops.
    """
    part = folder / f"{file.name}.part"

    def collect(url: str, output: str, _: Any) -> None:
        _add_what_is_missing(url, part, report)
        part.replace(output)

    try:
        found = pooch.retrieve(file.url, f"md5:{file.md5}", fname=file.name, path=folder, downloader=collect)
    except InputError:
        raise
    except requests.RequestException as error:
        rest = f" What has come stays in {part}: the same command goes on from there." if part.is_file() else ""
        raise InputError(f"{file.url} cannot be read: {error}.{rest}") from error
    except ValueError as error:
        raise InputError(
            f"{file.name} should have the checksum {file.md5}, and what came from {file.url} has another one: it is "
            "damaged, or another version. It was removed; try again."
        ) from error
    return Path(found)


def _add_what_is_missing(url: str, part: Path, report: Report) -> None:
    there = part.stat().st_size if part.is_file() else 0
    headers = {"Range": f"bytes={there}-"} if there else {}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code == 416 and there:  # nothing is left to send: the checksum says if the part is whole
            return
        if not response.ok:
            raise InputError(f"{url}: the server answers {response.status_code} {response.reason}.")
        if response.status_code != 206:  # the server sends it from the start
            there = 0
        length = response.headers.get("Content-Length", "")
        total = there + int(length) if length.isdigit() else None
        with part.open("ab" if there else "wb") as out:
            for block in response.iter_content(CHUNK):
                out.write(block)
                there += len(block)
                report(there, total)
    if total is not None and there < total:
        raise requests.ConnectionError(f"the connection ended after {there:,} of {total:,} bytes")


def unpack(archive: Path) -> Path:
    """Unpack a zip or tar file beside itself, once; other files are left as they are.

    All goes to a folder of its own first, so that an interruption leaves nothing that looks complete; NAME.unpacked
    says that it was done.
    """
    done, aside = (archive.with_name(f"{archive.name}.{ending}") for ending in ("unpacked", "unpacking"))
    if done.is_file() or not archive.name.endswith((".zip", ".tar.gz", ".tgz", ".tar")):
        return archive
    shutil.rmtree(aside, ignore_errors=True)
    try:
        # A tar file may name places outside; a zip file cannot.
        shutil.unpack_archive(archive, aside, filter=None if archive.suffix == ".zip" else "data")
    except (shutil.ReadError, tarfile.TarError, EOFError) as error:
        raise InputError(f"{archive} cannot be unpacked: {error}") from error
    for item in aside.iterdir():
        place = archive.parent / item.name
        if place.is_dir():
            shutil.rmtree(place)
        item.replace(place)
    aside.rmdir()
    done.touch()
    return archive
