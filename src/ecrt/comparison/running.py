"""One run: a method on the split of one seed, tuned, fitted again on all training rows, and asked about test rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ecrt.comparison.methods import METHODS, Method
from ecrt.comparison.scoring import MEASURES, measure
from ecrt.comparison.splits import Splitter
from ecrt.comparison.store import Validation
from ecrt.comparison.tuning import tune
from ecrt.disk import locked
from ecrt.estimators import BaselineClassifier
from ecrt.metrics import Predictions, PriorName, class_prior_of, shift_prior
from ecrt.training import one_thread

__all__ = ["Plan", "run"]

Rows = NDArray[np.int64]
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What all runs of a comparison share.

    Attributes
    ----------
    metric, prior : what tuning aims at.
    trials, budget : how long it may go on for each method and split; one of them is None.
    """

    metric: str
    prior: PriorName
    trials: int | None
    budget: float | None


def run(
    name: str, seed: int, X: pd.DataFrame, splitter: Splitter, plan: Plan, folder: Path | None
) -> tuple[dict[str, Any], Predictions | None]:
    """Record and predictions of one run; a run that fails has a record with its error and no predictions."""
    method = METHODS[name]
    started = time.perf_counter()
    train, test = splitter.outer(seed)
    # A worker that outlived its parent may still be at it, and keep trials in the same folder.
    alone = nullcontext() if folder is None or not folder.is_dir() else locked(folder, wait=True)
    with alone, one_thread(), warnings.catch_warnings():
        # What libraries remark on a fit among hundreds is no news to the user; failures are recorded.
        warnings.simplefilter("ignore")
        if plan.budget is not None:
            _load_all()
        objective = _objective(method, seed, X, splitter, plan)
        tuned = tune(
            method, objective, higher_is_better=MEASURES[plan.metric].higher_is_better, seed=_stream(name, seed),
            trials=plan.trials, budget=plan.budget, folder=folder,
        )  # fmt: skip
        tuning, refitting = time.perf_counter() - started, time.perf_counter()
        predictions, error = None, tuned.error
        if not error:
            try:
                predictions = _fit_predict(method, tuned.parameters, seed, X, splitter.y, train, test)
            except Exception as fault:  # the other methods go on; this one is reported as failed
                error = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
    if predictions is not None and tuned.validation is not None:
        predictions = Predictions(**vars(predictions) | {"validation": tuned.validation})
    record = {
        "method": name,
        "seed": seed,
        "error": error,
        "parameters": tuned.parameters,
        "validation": tuned.value,
        "trials": {"finished": tuned.n_finished, "failed": tuned.n_failed, "cut": tuned.n_cut},
        "train_rows": len(train),
        "test_rows": len(test),
        "seconds": {
            "tuning": tuned.seconds,  # of all trials, those of a run that was killed included
            "overhead": round(max(tuning - tuned.seconds, 0.0), 3),
            "refit": round(time.perf_counter() - refitting, 3),
        },
    }
    return record, predictions


@cache
def _load_all() -> None:
    """Fit a tiny network once in a process: torch loads much of itself then, which should be on nobody's account."""
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
    BaselineClassifier(method="erm", head="mlp", epochs=1, device="cpu", random_state=0).fit(X, np.arange(40) % 2)


def _objective(method: Method, seed: int, X: pd.DataFrame, splitter: Splitter, plan: Plan) -> Any:
    fitted, judged = splitter.inner(splitter.outer(seed)[0], seed)
    classes = np.unique(splitter.y[splitter.outer(seed)[0]])

    def objective(parameters: Mapping[str, Any]) -> tuple[float, Validation]:
        said = _fit_predict(method, parameters, seed, X, splitter.y, fitted, judged)
        value = float(measure(said, plan.prior)[plan.metric])
        # Columns of all training classes: a class that no trial was fitted on is impossible, its rows are left out.
        columns = np.searchsorted(classes, np.unique(splitter.y[fitted]))
        log_proba = np.full((len(judged), len(classes)), -np.inf)
        log_proba[:, columns] = said.log_proba
        return value, (log_proba, np.where(said.y >= 0, columns[said.y], -1))

    return objective


def _fit_predict(
    method: Method, parameters: Mapping[str, Any], seed: int, X: pd.DataFrame, y: Rows, train: Rows, test: Rows
) -> Predictions:
    """Fit on some rows and predict others, under the balanced prior."""
    classes, labels, counts = np.unique(y[train], return_inverse=True, return_counts=True)
    model = method.build(parameters, seed).fit(X.iloc[train], labels)
    log_proba = _log_proba(model, X.iloc[test])
    if log_proba.shape != (len(test), len(classes)):
        raise ValueError(f"{log_proba.shape[1]} probabilities for {len(classes)} classes")
    balanced = shift_prior(log_proba, class_prior_of(method.prior, counts), class_prior_of("balanced", counts))
    place = np.searchsorted(classes, y[test])
    known = classes[np.minimum(place, len(classes) - 1)] == y[test]
    return Predictions(
        log_proba=balanced, y=np.where(known, place, -1), counts=counts.astype(np.int64), prior="balanced"
    )


def _log_proba(model: Any, X: pd.DataFrame) -> Array:
    with np.errstate(divide="ignore"):  # a probability of zero is minus infinity
        found = model.predict_log_proba(X) if hasattr(model, "predict_log_proba") else np.log(model.predict_proba(X))
    return np.asarray(found, dtype=np.float64)


def _stream(name: str, seed: int) -> int:
    """A seed of the sampler for each method: the same settings for none but by chance."""
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1)[0])
