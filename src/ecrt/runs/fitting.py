"""A file to a folder: read, hold out, fit, measure, fit again, save."""

from __future__ import annotations

import json
import platform
import warnings
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ecrt.data import DataFile, Images, read_data, stratified_holdout
from ecrt.errors import ECRTWarning, InputError
from ecrt.estimators import ECRTClassifier
from ecrt.runs.config import FitConfig
from ecrt.runs.decisions import make_decision
from ecrt.runs.evaluation import evaluate
from ecrt.runs.records import Evaluation
from ecrt.training import stop_requested

__all__ = ["CONFIG_FILE", "MODEL_FOLDER", "check_output", "fit_file"]

MODEL_FOLDER, CONFIG_FILE, HISTORY_FILE, VERSIONS_FILE = "model", "config.yaml", "history.json", "versions.json"
PACKAGES = ("ecrt", "numpy", "pandas", "scikit-learn", "scipy", "torch", "zuko")

MOST_CLASSES_SHARE = 0.5
"""A target with more distinct values than this share of its rows is no class label."""


def check_output(folder: Path, *, force: bool) -> None:
    """Make the folder before the long run; one that holds other things is left alone."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CONFIG_FILE).is_file() and not force:
        raise InputError(f"The folder {folder} holds other files. Choose another, or add --force to write there.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot write to the folder {folder}: {error.strerror or error}.") from error


def fit_file(
    path: Path, output: Path, config: FitConfig, *, say: Callable[[str], None], verbose: bool = True
) -> Evaluation | None:
    """Fit a model on a file and write model, settings, history and figures to a folder; gives the test results, if any.

    Parameters
    ----------
    say : told what is going on, a sentence at a time.
    verbose : show progress bars.
    """
    data = _with_labels(
        read_data(path, target=config.target, ids=config.id, drop=config.drop, image_size=config.image_size)
    )
    y = data.y
    if y is None:
        raise InputError("There are no labels to learn from.")
    labels, index, counts = np.unique(y.astype(str), return_inverse=True, return_counts=True)
    say(_summary(path, data, labels, counts))
    clf = make_classifier(data, config, verbose=verbose)
    rng = np.random.default_rng(config.seed)
    train_rows, test_rows = stratified_holdout(index, config.test_size, rng)
    (output / CONFIG_FILE).write_text(config.as_yaml(), encoding="utf-8")
    versions = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    (output / VERSIONS_FILE).write_text(json.dumps(versions, indent=1) + "\n", encoding="utf-8")

    found: Evaluation | None = None
    if len(test_rows):
        say(f"Fitting on {len(train_rows)} rows, to be tested on the other {len(test_rows)}.")
        _fit(clf, data.take(train_rows))
        found = evaluate(clf, data.take(test_rows).X, y[test_rows], title=path.name)
        found.write(output)
    if len(test_rows) == 0 or (config.refit and not stop_requested()):
        say(f"Fitting on all {len(y)} rows.")
        _fit(clf, data)
    # Wrong settings for the classes at hand should be known now, not at the first prediction.
    make_decision(
        clf.classes_, clf.class_counts_, positive=config.positive, threshold=config.threshold, costs=config.costs
    )
    clf.metrics_ = {} if found is None else found.metrics["training" if config.prior == "training" else "balanced"]
    clf.save(output / MODEL_FOLDER)
    history = json.dumps(_plain(clf.history_), indent=1)
    (output / HISTORY_FILE).write_text(history + "\n", encoding="utf-8")
    return found


def make_classifier(data: DataFile, config: FitConfig, *, verbose: bool) -> ECRTClassifier:
    """The estimator that the settings ask for; images have a network as encoder unless another is named."""
    X: Any = data.X
    is_image = isinstance(X, Images) or (isinstance(X, np.ndarray) and X.ndim == 4)
    options: dict[str, Any] = {"encoder": "resnet18", "encode_on": "all"} if is_image else {}
    return ECRTClassifier(
        **(options | config.model),
        class_prior=config.prior,
        device=config.device,
        random_state=config.seed,
        verbose=verbose,
    )


def _fit(clf: ECRTClassifier, data: DataFile) -> None:
    if isinstance(data.X, Images):
        clf.fit(data.X)
    else:
        clf.fit(data.X, data.y)


def _with_labels(data: DataFile) -> DataFile:
    """Rows that have a label, said aloud when some have none; a target that is no class is refused."""
    if data.y is None:
        return data
    labels = pd.Series(data.y)
    missing = labels.isna().to_numpy()
    if missing.all():
        raise InputError("The target column is empty.")
    if missing.any():
        warnings.warn(f"{missing.sum()} rows without a label are left out.", ECRTWarning, stacklevel=2)
        data = data.take(np.flatnonzero(~missing))
        labels = labels[~missing]
        if labels.dtype.kind == "f" and (labels == labels.round()).all():
            data = DataFile(X=data.X, y=labels.to_numpy(dtype=np.int64), ids=data.ids)
    if labels.dtype.kind == "f" and not (labels == labels.round()).all():
        raise InputError("The target holds numbers with decimals, which name no classes.")
    if labels.nunique() > max(MOST_CLASSES_SHARE * len(labels), 2):
        raise InputError(
            f"The target has {labels.nunique()} distinct values in {len(labels)} rows: too many to be class labels. Is "
            "it the right column?"
        )
    return data


def _summary(path: Path, data: DataFile, labels: Any, counts: Any) -> str:
    columns = f"{data.X.shape[1]} columns, " if isinstance(data.X, pd.DataFrame) else ""
    least, most = int(counts.argmin()), int(counts.argmax())
    return (
        f"{path.name}: {len(data.ids)} rows, {columns}{len(labels)} classes, from {counts[least]} rows "
        f"of {str(labels[least])!r} to {counts[most]} of {str(labels[most])!r}."
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
