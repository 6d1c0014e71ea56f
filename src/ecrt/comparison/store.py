"""What a comparison leaves on disk: whole files only, so that a run killed at any moment goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ecrt.disk import read_arrays
from ecrt.errors import InputError
from ecrt.metrics import Predictions, read_predictions

__all__ = ["Store", "Validation", "fingerprint", "read_json", "read_validation", "write_json", "write_validation"]

SETTINGS_FILE, RESULTS_FILE, TIMES_FILE = "comparison.json", "results.json", "times.json"
RUN_FILE, SECONDS_FILE, PREDICTIONS_FILE = "run.json", "seconds.json", "predictions.npz"
UNFINISHED = ".unfinished-"

Validation = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Log-probabilities under the balanced prior, and class indices, of the rows that a trial was judged on."""


@dataclass(frozen=True)
class Store:
    """The folder of a comparison."""

    folder: Path

    def run_folder(self, method: str, seed: int) -> Path:
        """Where the files of one method on one seed lie."""
        return self.folder / "runs" / method / f"seed-{seed}"

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Take the folder for these settings, or go on with it; other settings, or other files, are refused."""
        file = self.folder / SETTINGS_FILE
        plain = json.loads(json.dumps(settings))
        if file.is_file():
            before = read_json(file)
            differing = [name for name in {**before, **plain} if before.get(name) != plain.get(name)]
            if differing:
                told = "; ".join(f"{name}: {_short(before.get(name))}, now {_short(plain.get(name))}"
                                 for name in differing)  # fmt: skip
                raise InputError(
                    f"The folder {self.folder} holds a comparison with other settings or data ({told}). Choose another "
                    "folder, or give the same command to go on with that one."
                )
            return
        if self.folder.is_dir() and any(not part.name.startswith(UNFINISHED) for part in self.folder.iterdir()):
            raise InputError(f"The folder {self.folder} holds other files. Choose another.")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(file, plain)
        except OSError as error:
            raise InputError(f"Cannot write to the folder {self.folder}: {error.strerror or error}.") from error

    def is_finished(self, method: str, seed: int) -> bool:
        """Whether a run is on disk, whole."""
        return (self.run_folder(method, seed) / RUN_FILE).is_file()

    def write_run(self, method: str, seed: int, record: Mapping[str, Any], predictions: Predictions | None) -> None:
        """Write a finished run; the record comes last, since it says that the rest is there."""
        folder = self.run_folder(method, seed)
        if predictions is not None:
            with _replacing(folder / PREDICTIONS_FILE) as file:
                predictions.write(file)
        write_json(folder / SECONDS_FILE, record["seconds"])
        write_json(folder / RUN_FILE, {name: value for name, value in record.items() if name != "seconds"})
        for trial in folder.glob("validation-*.npz"):  # the best one is among the predictions now
            trial.unlink(missing_ok=True)

    def read_run(self, method: str, seed: int) -> tuple[dict[str, Any], Predictions | None]:
        """The record of a run, and its predictions unless it failed."""
        folder = self.run_folder(method, seed)
        record = read_json(folder / RUN_FILE)
        if record["error"]:
            return record, None
        return record, read_predictions(folder / PREDICTIONS_FILE)

    def read_seconds(self, method: str, seed: int) -> dict[str, float]:
        """What a run took."""
        return dict(read_json(self.run_folder(method, seed) / SECONDS_FILE))

    def tidy(self) -> None:
        """Remove what a killed run had half written."""
        for file in self.folder.rglob(f"{UNFINISHED}*"):
            file.unlink(missing_ok=True)


def fingerprint(X: pd.DataFrame, *columns: NDArray[Any] | None) -> str:
    """A short text that differs when a cell, a column's name or kind, or one of the other columns differs."""
    digest = hashlib.sha256()
    for name, kind in zip(X.columns, X.dtypes, strict=True):
        digest.update(f"{name}\0{kind}\0".encode())
    digest.update(pd.util.hash_pandas_object(X, index=False).to_numpy().tobytes())
    for column in columns:
        digest.update(b"\1")
        if column is not None:
            digest.update(pd.util.hash_array(np.asarray(column, dtype=object)).tobytes())
    return digest.hexdigest()[:16]


def write_json(file: Path, content: Any) -> None:
    """Write a JSON file whole: a reader sees the old one or the new one."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with _replacing(file) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def read_json(file: Path) -> Any:
    """Read a JSON file."""
    return json.loads(file.read_text(encoding="utf-8"))


def write_validation(file: Path, validation: Validation) -> None:
    """Keep what a trial said of its validation rows."""
    with _replacing(file) as unfinished:
        np.savez_compressed(unfinished, log_proba=validation[0], y=validation[1])


def read_validation(file: Path) -> Validation | None:
    """What a trial said, if it is kept."""
    if not file.is_file():
        return None
    arrays = read_arrays(file)
    return arrays["log_proba"], arrays["y"]


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """A file to write to, which takes the place of the other when the block is done."""
    # A name of its own: a worker that outlived its parent may be writing the same file.
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=UNFINISHED, suffix=file.suffix)
    os.close(handle)
    yield Path(name)
    Path(name).chmod(0o644)
    Path(name).replace(file)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"
