"""A file to a folder: read, hold out, fit, measure, fit again, save."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ecrt.data import ColumnReading, DataFile, Images, column_rows, read_data, stratified_holdout
from ecrt.disk import write_json, write_text
from ecrt.errors import InputError, warn_user
from ecrt.estimators.base import log_prior_of
from ecrt.estimators.inputs import resolve_device
from ecrt.io import package_versions
from ecrt.runs.config import FitConfig
from ecrt.runs.evaluation import measure
from ecrt.runs.folder import CONFIG_FILE, HISTORY_FILE, MODEL_FOLDER, TARGET_FILE, VERSIONS_FILE
from ecrt.runs.records import Evaluation, Measured
from ecrt.runs.targets import ESTIMATORS, Target, labelled, read_target
from ecrt.training import interrupted_at_once, stop_requested

STOPPED = "training was interrupted; every part is in its best finished state"
NOT_REFITTED = "the fit on all rows was interrupted; this is the tested model, of {} rows"
MOST_NAMED = 5


def fit_file(
    path: Path,
    output: Path,
    config: FitConfig,
    *,
    say: Callable[[str], None],
    show: Callable[[Sequence[ColumnReading]], None] = lambda columns: None,
    verbose: bool = True,
) -> tuple[Evaluation | Measured | None, str]:
    """Fit a model on a file and write model, settings, history and figures to a folder, all of them at the end.

    The saved model is fitted on all rows, with the parts (de-mixing, head and the rest) that the tested one chose.
    Returns the test results, if any, and how the fit was interrupted, empty if it was not.

    Parameters
    ----------
    say : takes what is going on, a sentence at a time.
    show : takes how the columns of a table were read.
    verbose : show progress bars.
    """
    resolve_device(config.device)  # before the file is read, which may take long
    if config.image_size != FitConfig.image_size and not path.is_dir():
        raise InputError(f"image_size={config.image_size} is for a folder of images, which {path.name} is not.")
    data = read_data(
        path, target=config.target, ids=config.id, drop=config.drop, image_size=config.image_size,
        options=config.reading,
    )  # fmt: skip
    data = labelled(data)
    target = read_target(data, config.target, config.task)
    say(_summary(path, data, target))
    say(target.reason)
    left_out = [ColumnReading(name=name, kind="left out", note="As asked for.") for name in config.drop]
    columns = (*data.columns, *(left_out if data.columns else ()))
    show(columns)
    _check_decision(target, config)
    model = _make_estimator(data, target, config, verbose=verbose)
    train_rows, test_rows = stratified_holdout(_strata(target), config.test_size, np.random.default_rng(config.seed))

    found: Evaluation | Measured | None = None
    if len(test_rows):
        say(f"Fitting on {len(train_rows)} rows, to be tested on the other {len(test_rows)}.")
        if target.task == "classification":
            _warn_of_untested(target.y, test_rows)
    else:
        say(f"Fitting on all {len(target.y)} rows.")
    _fit(model, data.take(train_rows).X if len(test_rows) else data.X, target.y[train_rows])
    interrupted = STOPPED if stop_requested() else ""
    if len(test_rows):
        found = measure(model, data.take(test_rows).X, replace(target, y=target.y[test_rows]), title=path.name)
        again = config.refit and not interrupted
        if again:
            say(f"Fitting on all {len(target.y)} rows.")
            again = _refitted(model, data.X, target.y)
            interrupted = "" if again else NOT_REFITTED.format(len(train_rows))
        title = f"{found.title} ({interrupted})" if interrupted else found.title
        subject = _subject(len(train_rows), len(target.y), again=again)
        found = replace(found, title=title, subject=subject, columns=tuple(column_rows(columns)))
        model.metrics_, model.metrics_of_ = _card_figures(found, config)
    model.columns_read_ = tuple(column_rows(columns))
    if interrupted:
        model.interrupted_ = interrupted
    write_text(output / CONFIG_FILE, config.as_yaml())
    stored = {"task": target.task, "names": target.names, "columns": msgspec.to_builtins(data.columns)}
    write_json(output / TARGET_FILE, stored)
    write_json(output / VERSIONS_FILE, {"python": platform.python_version()} | package_versions())
    if found is not None:
        found.write(output)
    model.save(output / MODEL_FOLDER)
    write_json(output / HISTORY_FILE, model.history_)
    return found, interrupted


def _strata(target: Target) -> NDArray[np.int64]:
    """Groups of rows that a split keeps in proportion."""
    y = target.y
    if target.task == "multilabel":  # by the rarest label of a row
        return np.argmin(np.where(y > 0, y.sum(axis=0), len(y) + 1), axis=1)
    if target.task == "regression":
        first = y if y.ndim == 1 else y[:, 0]
        return pd.qcut(first, 10, labels=False, duplicates="drop").astype(np.int64)
    return np.unique(y, return_inverse=True)[1].astype(np.int64)


def _warn_of_untested(y: NDArray[Any], test_rows: NDArray[np.int64]) -> None:
    names = np.setdiff1d(y.astype(str), y[test_rows].astype(str))
    if len(names):
        shown = ", ".join(map(repr, names[:MOST_NAMED].tolist())) + (" and more" if len(names) > MOST_NAMED else "")
        warn_user(f"Too rare for a test row: {shown}. The figures do not include such classes.")


def _refitted(model: Any, X: Any, y: Any) -> bool:
    """Fit on all rows as the tested model was; False where that was interrupted, and the tested model is left."""
    if stop_requested():
        return False
    try:
        with interrupted_at_once():
            model.refit(X, y)
    except KeyboardInterrupt:
        if not stop_requested():
            raise
        return False
    return True


def _subject(n_fitted: int, n_rows: int, *, again: bool) -> str:
    """Which model the figures are of, and what it has to do with the saved one."""
    fitted = f"fitted on {n_fitted:,} of the {n_rows:,} rows ({n_fitted / n_rows:.0%})"
    if not again:
        return f"Figures are of the saved model, {fitted}, on the other rows."
    return (
        f"Figures are of a model {fitted}, on the other rows. The saved model has the same de-mixing, head and options "
        "and was then fitted on all rows."
    )


def _make_estimator(data: DataFile, target: Target, config: FitConfig, *, verbose: bool) -> Any:
    """The estimator that target and settings ask for; images have a network as encoder unless another is named."""
    options = dict(config.model)
    if isinstance(data.X, Images) or (isinstance(data.X, np.ndarray) and data.X.ndim == 4):
        encoder = options.get("encoder") or {}
        asked = encoder if isinstance(encoder, dict) else {"network": encoder}
        options["encoder"] = {"network": "resnet18", "learn_from": "all"} | asked
    options |= {"device": config.device, "random_state": config.seed, "verbose": verbose}
    if target.task == "classification":
        options["class_prior"] = config.prior
    elif target.task == "multilabel":
        options["class_prior"] = config.class_prior or "training"
    return ESTIMATORS[target.task]._from_plain_options(options)


def _check_decision(target: Target, config: FitConfig) -> None:
    """Whether prior, threshold and costs suit the classes should be known before the long run."""
    idle = [name for name in ("class_prior", "positive") if getattr(config, name) is not None]
    if idle and target.task == "regression":
        raise InputError(f"{' and '.join(idle)} would have no effect: the task is regression, which has no classes.")
    if isinstance(config.class_prior, tuple):
        several = target.task == "multilabel"
        log_prior_of(config.class_prior, np.array(target.names) if several else np.unique(target.y), several=several)
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


def _card_figures(found: Evaluation | Measured, config: FitConfig) -> tuple[dict[str, float], str]:
    """The figures that the model's card shows, and what they are of."""
    if isinstance(found, Evaluation):
        prior = "training" if config.prior == "training" else "balanced"
        return found.metrics[prior], f"{found.subject} They are under the {prior} class prior."
    main = next(iter(found.metrics.values()))
    return {name: value for name, value in main.items() if np.isfinite(value)}, found.subject


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
    if len(labels) == 1:
        return start + f"1 class, {str(labels[0])!r}."
    least, most = np.argsort(counts, kind="stable")[[0, -1]]
    rows = "row" if counts[least] == 1 else "rows"
    few, many = (f"{rows} of {str(labels[least])!r}", f"{counts[most]} of {str(labels[most])!r}")
    return start + f"{len(labels)} classes, from {counts[least]} {few} to {many}."
