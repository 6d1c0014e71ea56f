"""What a comparison leaves on disk: whole files only, so that a run killed at any moment goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ecrt.disk import read_arrays, remove_litter, write_arrays, write_json
from ecrt.errors import InputError, warn_user
from ecrt.io import read_json
from ecrt.metrics import Predictions, read_predictions

SETTINGS_FILE, RESULTS_FILE, TIMES_FILE = "comparison.json", "results.json", "times.json"
RUN_FILE, SECONDS_FILE, PREDICTIONS_FILE = "run.json", "seconds.json", "predictions.npz"

MOST_BYTES = 16 * 2**30

Validation = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Log-probabilities under the balanced prior, and class indices, of the rows that a trial was judged on."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One setting that was tried.

    Attributes
    ----------
    parameters, value, error : the setting, the metric on validation rows, and what went wrong if it has none.
    cut : whether its time ran out.
    """

    parameters: dict[str, Any]
    value: float | None
    error: str
    cut: bool
    seconds: float


class RunRecord(TypedDict):
    """What ``run.json`` says of one method on one seed."""

    method: str
    seed: int
    error: str
    parameters: dict[str, Any]
    validation: float | None
    trials: dict[str, int]
    train_rows: int
    test_rows: int


@dataclass(frozen=True)
class Store:
    """The folder of a comparison."""

    folder: Path

    def run_folder(self, method: str, seed: int) -> Path:
        """The folder of one method on one seed."""
        return self.folder / "runs" / method / f"seed-{seed}"

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Take the folder for these settings, or go on with it; other settings, or other files, are refused.

        The folder must be held, so that what killed runs had half written can be removed first.
        """
        for folder in (self.folder, *self.folder.glob("runs/*/*")):
            remove_litter(folder)
        file = self.folder / SETTINGS_FILE
        plain = json.loads(json.dumps(settings))
        if file.is_file():
            before = read_json(file, dict[str, Any])
            differing = [name for name in {**before, **plain} if before.get(name) != plain.get(name)]
            if differing:
                changes = "; ".join(f"{name}: {_short(before.get(name))}, now {_short(plain.get(name))}"
                                 for name in differing)  # fmt: skip
                raise InputError(
                    f"The folder {self.folder} holds a comparison with other settings or data ({changes}). "
                    "Choose another folder, or give the same command to go on with that one."
                )
            return
        if any(self.folder.iterdir()):
            raise InputError(f"The folder {self.folder} holds other files. Choose another.")
        write_json(file, plain)

    def is_finished(self, method: str, seed: int) -> bool:
        """Whether a run is on disk, whole; one that cannot be read is named, and made again."""
        if not (self.run_folder(method, seed) / RUN_FILE).is_file():
            return False
        try:
            self.read_run(method, seed)
            self.read_seconds(method, seed)
        except InputError as error:
            warn_user(f"{error} This run is made again.")
            return False
        return True

    def remove_torn(self, method: str, seed: int) -> None:
        """Name and remove trials of an unfinished run that cannot be read, so that they are made again."""
        for file in sorted(self.run_folder(method, seed).glob("trial-*.json")):
            try:
                read_trial(file)
            except InputError as error:
                warn_user(f"{error} This trial is made again.")
                file.unlink()

    def write_run(self, method: str, seed: int, record: Mapping[str, Any], predictions: Predictions | None) -> None:
        """Write a finished run; the record comes last, since it says that the rest is there."""
        folder = self.run_folder(method, seed)
        if predictions is not None:
            predictions.write(folder / PREDICTIONS_FILE)
        write_json(folder / SECONDS_FILE, record["seconds"])
        write_json(folder / RUN_FILE, {name: value for name, value in record.items() if name != "seconds"})
        for trial in folder.glob("validation-*.npz"):  # the best one is among the predictions now
            trial.unlink(missing_ok=True)

    def read_run(self, method: str, seed: int) -> tuple[RunRecord, Predictions | None]:
        """The record of a run, and its predictions unless it failed."""
        folder = self.run_folder(method, seed)
        record: RunRecord = read_json(folder / RUN_FILE, RunRecord)
        return record, None if record["error"] else read_predictions(folder / PREDICTIONS_FILE)

    def read_seconds(self, method: str, seed: int) -> dict[str, float]:
        """What a run took."""
        seconds: dict[str, float] = read_json(self.run_folder(method, seed) / SECONDS_FILE, dict[str, float])
        return seconds


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


def write_trial(file: Path, trial: Trial, validation: Validation | None) -> None:
    """Keep a trial and its predictions of validation rows; the record comes last."""
    if validation is not None:
        write_arrays(_validation_file(file), {"log_proba": validation[0], "y": validation[1]})
    write_json(file, trial)


def read_trial(file: Path) -> tuple[Trial, Validation | None]:
    """A trial, and its predictions of validation rows unless it failed."""
    trial: Trial = read_json(file, Trial)
    if trial.value is None:
        return trial, None
    arrays = read_arrays(_validation_file(file), MOST_BYTES)
    if not {"log_proba", "y"} <= arrays.keys():
        raise InputError(f"{_validation_file(file)} holds no validation rows.")
    return trial, (arrays["log_proba"], arrays["y"])


def _validation_file(trial: Path) -> Path:
    return trial.with_name(trial.name.replace("trial-", "validation-")).with_suffix(".npz")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"
