"""A file to a folder: read, hold out, fit, measure, fit again, save."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ecrt.data import ColumnReading, DataFile, Images, column_rows, read_data, stratified_holdout
from ecrt.errors import InputError, warn_user
from ecrt.estimators.inputs import resolve_device
from ecrt.estimators.refitting import refit
from ecrt.runs.config import FitConfig
from ecrt.runs.decisions import make_decision
from ecrt.runs.measured import Measured
from ecrt.runs.records import Evaluation
from ecrt.runs.tasks import ESTIMATORS, Target, measure, read_target
from ecrt.training import stop_requested

__all__ = ["CONFIG_FILE", "MODEL_FOLDER", "TARGET_FILE", "check_output", "fit_file"]

MODEL_FOLDER, CONFIG_FILE, TARGET_FILE = "model", "config.yaml", "target.json"
HISTORY_FILE, VERSIONS_FILE = "history.json", "versions.json"
PACKAGES = ("ecrt", "numpy", "pandas", "scikit-learn", "scipy", "torch", "zuko")


def check_output(folder: Path, *, force: bool) -> None:
    """Make the folder before the long run; one that holds other things is left alone."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CONFIG_FILE).is_file() and not force:
        raise InputError(f"The folder {folder} holds other files. Choose another, or add --force to write there.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot write to the folder {folder}: {error.strerror or error}.") from error


def fit_file(
    path: Path,
    output: Path,
    config: FitConfig,
    *,
    say: Callable[[str], None],
    show: Callable[[Sequence[ColumnReading]], None] = lambda columns: None,
    verbose: bool = True,
) -> Evaluation | Measured | None:
    """Fit a model on a file and write model, settings, history and figures to a folder; gives the test results, if any.

    The saved model is fitted on all rows, with the parts (de-mixing, head and the rest) that the tested one chose.

    Parameters
    ----------
    say : told what is going on, a sentence at a time.
    show : told how the columns of a table were read.
    verbose : show progress bars.
    """
    resolve_device(config.device)  # before the file is read, which may take long
    data = read_data(
        path, target=config.target, ids=config.id, drop=config.drop, image_size=config.image_size,
        options=config.reading,
    )  # fmt: skip
    target = read_target(data, config.target, config.task)
    left_out = len(data.ids) - len(target.rows)
    if left_out:
        warn_user(f"{left_out} rows without a label are left out.")
        data = data.take(target.rows)
    say(_summary(path, data, target))
    say(target.said)
    columns = (*data.columns, *(_dropped(name) for name in config.drop if data.columns))
    cells = tuple(row.cells for row in column_rows(columns))
    show(columns)
    _check_decision(target, config)
    model = make_estimator(data, target, config, verbose=verbose)
    train_rows, test_rows = stratified_holdout(target.strata, config.test_size, np.random.default_rng(config.seed))
    _write(output / CONFIG_FILE, config.as_yaml())
    _write(output / TARGET_FILE, json.dumps({
        "task": target.task, "names": target.names, "columns": [column.state() for column in data.columns],
    }))  # fmt: skip
    versions = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    _write(output / VERSIONS_FILE, json.dumps(versions, indent=1))

    found: Evaluation | Measured | None = None
    if len(test_rows):
        say(f"Fitting on {len(train_rows)} rows, to be tested on the other {len(test_rows)}.")
        _fit(model, data.take(train_rows).X, target.y[train_rows])
        held_out = replace(target, y=target.y[test_rows])
        found = measure(model, data.take(test_rows).X, held_out, title=path.name)
    again = len(test_rows) > 0 and config.refit and not stop_requested()
    if found is not None:
        found = replace(found, subject=_subject(len(train_rows), len(target.y), again=again), columns=cells)
        found.write(output)
    if again or len(test_rows) == 0:
        say(f"Fitting on all {len(target.y)} rows.")
        (refit if again else _fit)(model, data.X, target.y)
    model.columns_read_ = cells
    model.metrics_ = {} if found is None else _main_metrics(found, config)
    model.metrics_of_ = "" if found is None else found.subject + _under_prior(found, config)
    model.save(output / MODEL_FOLDER)
    _write(output / HISTORY_FILE, json.dumps(_plain(model.history_), indent=1))
    return found


def _dropped(name: str) -> ColumnReading:
    return ColumnReading(name=name, kind="left out", note="As asked for.")


def _subject(n_fitted: int, n_rows: int, *, again: bool) -> str:
    """Which model the figures are of, and what it has to do with the saved one."""
    fitted = f"fitted on {n_fitted:,} of the {n_rows:,} rows ({n_fitted / n_rows:.0%})"
    if not again:
        return f"Figures are of the saved model, {fitted}, on the other rows."
    return (
        f"Figures are of a model {fitted}, on the other rows. The saved model has the same de-mixing, head and options "
        "and was then fitted on all rows."
    )


def make_estimator(data: DataFile, target: Target, config: FitConfig, *, verbose: bool) -> Any:
    """The estimator that target and settings ask for; images have a network as encoder unless another is named."""
    X: Any = data.X
    is_image = isinstance(X, Images) or (isinstance(X, np.ndarray) and X.ndim == 4)
    options: dict[str, Any] = {"encoder": "resnet18", "encode_on": "all"} if is_image else {}
    options |= {"device": config.device, "random_state": config.seed, "verbose": verbose}
    if target.task == "classification":
        options["class_prior"] = config.prior
    elif target.task == "multilabel":
        options["class_prior"] = config.class_prior or "training"
    return ESTIMATORS[target.task](**(options | config.model))


def _check_decision(target: Target, config: FitConfig) -> None:
    """Whether threshold or costs suit the classes should be known before the long run."""
    if config.threshold is None and config.costs is None:
        return
    if target.task != "classification":
        raise InputError(f"A threshold or costs need two classes; the task is {target.task}.")
    classes, counts = np.unique(target.y, return_counts=True)
    make_decision(classes, counts, positive=config.positive, threshold=config.threshold, costs=config.costs)


def _fit(model: Any, X: Any, y: Any) -> None:
    if isinstance(X, Images):
        model.fit(X)
    else:
        model.fit(X, y)


def _under_prior(found: Evaluation | Measured, config: FitConfig) -> str:
    shown = "training" if config.prior == "training" else "balanced"
    return f" They are under the {shown} class prior." if isinstance(found, Evaluation) else ""


def _main_metrics(found: Evaluation | Measured, config: FitConfig) -> dict[str, float]:
    if isinstance(found, Evaluation):
        return found.metrics["training" if config.prior == "training" else "balanced"]
    return {name: value for name, value in next(iter(found.metrics.values())).items() if np.isfinite(value)}


def _summary(path: Path, data: DataFile, target: Target) -> str:
    columns = f"{data.X.shape[1]} columns, " if isinstance(data.X, pd.DataFrame) else ""
    start = f"{path.name}: {len(data.ids)} rows, {columns}"
    if target.task == "regression":
        return start + f"targets from {target.y.min():g} to {target.y.max():g}."
    if target.task == "multilabel":
        counts = target.y.sum(axis=0)
        return start + f"{len(counts)} labels, on {counts.min()} to {counts.max()} rows each."
    labels, counts = np.unique(target.y.astype(str), return_counts=True)
    least, most = int(counts.argmin()), int(counts.argmax())
    return start + (
        f"{len(labels)} classes, from {counts[least]} rows of {str(labels[least])!r} to {counts[most]} of "
        f"{str(labels[most])!r}."
    )


def _write(file: Path, text: str) -> None:
    file.write_text(text.rstrip() + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Records, tuples and NumPy numbers as what JSON has."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value
