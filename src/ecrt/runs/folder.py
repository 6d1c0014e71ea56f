"""The folder of a run: built beside its place, sealed, and switched when it is whole."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ecrt.disk import NewFolder, free_name, plain_bytes, recover, write_json
from ecrt.errors import InputError, ModelFileError
from ecrt.io import read_json
from ecrt.io.parsing import MOST_JSON_BYTES

MODEL_FOLDER, CONFIG_FILE, TARGET_FILE, SEAL_FILE = "model", "config.yaml", "target.json", "run.json"
HISTORY_FILE, VERSIONS_FILE = "history.json", "versions.json"
OWN = {MODEL_FOLDER, CONFIG_FILE, TARGET_FILE, SEAL_FILE, HISTORY_FILE, VERSIONS_FILE, "metrics.json",
       "evaluation.npz", "report.html", "plots"}  # fmt: skip
NOT_SEALED = re.compile(r"run\.json|report\.html|plots/.*|.*\.npz|model/.*\.safetensors")
"""Pages and what they are made from, and tensors, whose digest is in ``model.json``."""

FORMAT = 1
MOST_FILES = 12
"""Sealed files of a run; none of them may be longer than the JSON that is read."""


class _Seal(msgspec.Struct, forbid_unknown_fields=True):
    """What ``run.json`` says: the files of a run, with their digests."""

    format: Literal[1]
    interrupted: bool
    files: Annotated[dict[str, str], Meta(max_length=MOST_FILES)]


def open_output(folder: Path, *, force: bool) -> NewFolder:
    """A folder to build a run in, to take the place of ``folder``; one that holds other things is left alone."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CONFIG_FILE).is_file() and not force:
        raise InputError(f"The folder {folder} holds other files. Choose another, or add --force to write there.")
    before = {name.partition("/")[0] for name in _sealed(folder) or ()}
    return NewFolder(folder, own=OWN | before)


def open_report(folder: Path) -> NewFolder:
    """A folder to build figures and a page in, to take the place of those in ``folder``; not those of a run."""
    if (folder / CONFIG_FILE).exists():
        raise InputError(f"The folder {folder} holds a fitted model and its figures. Choose another.")
    return NewFolder(folder, own=("metrics.json", "evaluation.npz", "diagnosis.json", "report.html", "plots"))


def seal_run(folder: Path, *, interrupted: bool = False) -> None:
    """Write down the digests of a run's files, so that a file from elsewhere is noticed."""
    files = {
        name: _digest(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not NOT_SEALED.fullmatch(name := file.relative_to(folder).as_posix())
    }
    write_json(folder / SEAL_FILE, {"format": FORMAT, "interrupted": interrupted, "files": files})


def publish_run(new: NewFolder, *, interrupted: bool) -> Path:
    """Seal a run and put it into its place, which is given back.

    An interrupted run does not replace a model: it gets another folder beside that.
    """
    seal_run(new.path, interrupted=interrupted)
    taken = interrupted and (new.folder / MODEL_FOLDER).exists()
    return new.publish(free_name(new.folder, "interrupted") if taken else None)


def check_run(folder: Path) -> None:
    """Refuse a folder whose files are not of one run, by the name of the file."""
    recover(folder)
    if not (folder / CONFIG_FILE).is_file():
        raise InputError(f"{folder} was not written by ecrt fit: it has no {CONFIG_FILE}.")
    files = _sealed(folder)
    if files is None:
        raise ModelFileError(folder / SEAL_FILE, "The run has no such file, or not a readable one.", "Fit again.")
    for name, digest in files.items():
        if os.path.lexists(folder / name) and _digest(folder / name) != digest:
            raise ModelFileError(
                folder / name,
                "It does not belong to the run in this folder: it was changed, or comes from another run.",
                "Fit again, or copy the whole folder again.",
            )
    model = f"{MODEL_FOLDER}/model.json"
    for name in {CONFIG_FILE, TARGET_FILE, model} - {name for name in files if os.path.lexists(folder / name)}:
        raise ModelFileError(folder / name, "The run lacks it.", "Fit again, or copy the whole folder again.")


def _sealed(folder: Path) -> dict[str, str] | None:
    """Files of a run by name, with their digests; None without a readable list of them."""
    try:
        files: dict[str, str] = read_json(folder / SEAL_FILE, _Seal).files
    except InputError:
        return None
    outside = any(name.startswith("/") or ".." in name.split("/") for name in files)
    return None if outside else files


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(plain_bytes(file, MOST_JSON_BYTES)).hexdigest()
    except OSError as error:
        raise ModelFileError(file, f"It cannot be read: {error.strerror or error}.") from error
