"""A file to a folder: read, hold out, fit, measure, fit again, save."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from ecrt.data import ColumnReading, DataFile, Images, column_rows, read_data, stratified_holdout
from ecrt.disk import write_json, write_text
from ecrt.errors import InputError, warn_user
from ecrt.estimators.inputs import resolve_device
from ecrt.estimators.refitting import refit
from ecrt.io import package_versions
from ecrt.runs.config import FitConfig
from ecrt.runs.evaluation import measure
from ecrt.runs.folder import CONFIG_FILE, HISTORY_FILE, MODEL_FOLDER, TARGET_FILE, VERSIONS_FILE
from ecrt.runs.records import Evaluation, Measured
from ecrt.runs.targets import ESTIMATORS, Target, labelled, read_target
from ecrt.training import interrupted_at_once, stop_requested

STOPPED = "training was interrupted; every part is in its best finished state"
NOT_REFITTED = "the fit on all rows was interrupted; this is the tested model, of {} rows"


@dataclass(frozen=True)
class Fitted:
    """What became of a fit: its test results, if any, and how it was interrupted, empty if it was not."""

    found: Evaluation | Measured | None
    interrupted: str


def fit_file(
    path: Path,
    output: Path,
    config: FitConfig,
    *,
    say: Callable[[str], None],
    show: Callable[[Sequence[ColumnReading]], None] = lambda columns: None,
    verbose: bool = True,
) -> Fitted:
    """Fit a model on a file and write model, settings, history and figures to a folder, all of them at the end.

    The saved model is fitted on all rows, with the parts (de-mixing, head and the rest) that the tested one chose.

    Parameters
    ----------
    say : takes what is going on, a sentence at a time.
    show : takes how the columns of a table were read.
    verbose : show progress bars.
    """
    resolve_device(config.device)  # before the file is read, which may take long
    data = read_data(
        path, target=config.target, ids=config.id, drop=config.drop, image_size=config.image_size,
        options=config.reading,
    )  # fmt: skip
    target = read_target(data, config.target, config.task)
    data = labelled(data, target)
    say(_summary(path, data, target))
    say(target.reason)
    columns = (*data.columns, *(_dropped(name) for name in config.drop if data.columns))
    cells = tuple(column_rows(columns))
    show(columns)
    _check_decision(target, config)
    model = make_estimator(data, target, config, verbose=verbose)
    train_rows, test_rows = stratified_holdout(target.strata, config.test_size, np.random.default_rng(config.seed))

    found: Evaluation | Measured | None = None
    interrupted = ""
    if len(test_rows):
        say(f"Fitting on {len(train_rows)} rows, to be tested on the other {len(test_rows)}.")
        if target.task == "classification":
            _tell_untested(target.y, test_rows)
        _fit(model, data.take(train_rows).X, target.y[train_rows])
        interrupted = STOPPED if stop_requested() else ""
        held_out = replace(target, y=target.y[test_rows])
        found = measure(model, data.take(test_rows).X, held_out, title=path.name)
        if config.refit and not interrupted:
            say(f"Fitting on all {len(target.y)} rows.")
            interrupted = "" if _refitted(model, data.X, target.y) else NOT_REFITTED.format(len(train_rows))
        again = config.refit and not interrupted
        found = replace(found, subject=_subject(len(train_rows), len(target.y), again=again), columns=cells)
    else:
        say(f"Fitting on all {len(target.y)} rows.")
        _fit(model, data.X, target.y)
        interrupted = STOPPED if stop_requested() else ""
    model.columns_read_ = cells
    model.metrics_ = {} if found is None else _main_metrics(found, config)
    model.metrics_of_ = "" if found is None else found.subject + _under_prior(found, config)
    if interrupted:
        model.interrupted_ = interrupted
        found = None if found is None else replace(found, title=f"{found.title} ({interrupted})")
    _write(output, config, data, target, model, found)
    return Fitted(found, interrupted)


def _tell_untested(y: Any, test_rows: Any) -> None:
    names = np.setdiff1d(y.astype(str), y[test_rows].astype(str))
    if len(names):
        shown = ", ".join(map(repr, names[:MOST_NAMED].tolist())) + (" and more" if len(names) > MOST_NAMED else "")
        warn_user(f"Too rare for a test row: {shown}. Figures say nothing of such classes.")


MOST_NAMED = 5


def _refitted(model: Any, X: Any, y: Any) -> bool:
    """Fit on all rows as the tested model was; False where that was interrupted, and the tested model is left."""
    if stop_requested():
        return False
    try:
        with interrupted_at_once():
            refit(model, X, y)
    except KeyboardInterrupt:
        if not stop_requested():
            raise
        return False
    return True


def _write(
    output: Path,
    config: FitConfig,
    data: DataFile,
    target: Target,
    model: Any,
    found: Evaluation | Measured | None,
) -> None:
    write_text(output / CONFIG_FILE, config.as_yaml())
    columns = msgspec.to_builtins(data.columns)
    write_json(output / TARGET_FILE, {"task": target.task, "names": target.names, "columns": columns})
    write_json(output / VERSIONS_FILE, {"python": platform.python_version()} | package_versions())
    if found is not None:
        found.write(output)
    model.save(output / MODEL_FOLDER)
    write_json(output / HISTORY_FILE, _plain(model.history_))


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
    options: dict[str, Any] = {} if not is_image else {"encoder": {"network": "resnet18", "learn_from": "all"}}
    encoder = config.model.get("encoder")
    if is_image and encoder is not None:
        options["encoder"] |= encoder if isinstance(encoder, dict) else {"network": encoder}
    options |= {name: value for name, value in config.model.items() if name not in options}
    options |= {"device": config.device, "random_state": config.seed, "verbose": verbose}
    if target.task == "classification":
        options["class_prior"] = config.prior
    elif target.task == "multilabel":
        options["class_prior"] = config.class_prior or "training"
    return ESTIMATORS[target.task]._from_plain_options(options)


def _check_decision(target: Target, config: FitConfig) -> None:
    """Whether threshold or costs suit the classes should be known before the long run."""
    if config.threshold is None and config.costs is None:
        return
    if target.task != "classification":
        raise InputError(f"A threshold or costs need two classes; the task is {target.task}.")
    config.decision(*np.unique(target.y, return_counts=True))


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
    width = data.X.shape[1] if isinstance(data.X, pd.DataFrame) else 0
    columns = f"{width} column{'' if width == 1 else 's'}, " if width else ""
    start = f"{path.name}: {len(data.ids)} rows, {columns}"
    if target.task == "regression":
        return start + f"targets from {target.y.min():g} to {target.y.max():g}."
    if target.task == "multilabel":
        counts = target.y.sum(axis=0)
        return start + f"{len(counts)} labels, on {counts.min()} to {counts.max()} rows each."
    labels, counts = np.unique(target.y.astype(str), return_counts=True)
    least, most = np.argsort(counts, kind="stable")[[0, -1]]
    rows = "row" if counts[least] == 1 else "rows"
    if len(labels) == 1:
        return start + f"1 class, {str(labels[0])!r}."
    return start + (
        f"{len(labels)} classes, from {counts[least]} {rows} of {str(labels[least])!r} to {counts[most]} of "
        f"{str(labels[most])!r}."
    )


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
