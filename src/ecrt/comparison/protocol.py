"""Compare methods on one table: the same splits, the same tuning, and tests for more than noise."""

from __future__ import annotations

import hashlib
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ecrt.comparison.methods import METHODS, Method, choose_methods
from ecrt.comparison.results import MEASURES, Comparison, Run, Store, choose_measure, collect
from ecrt.comparison.splits import Split, make_splits, warnings_of
from ecrt.comparison.tuning import Objective, Validation, error_text, optuna_library, seed_from, tune
from ecrt.data import ColumnReading, ColumnRow, TableEncoder, column_rows
from ecrt.disk import locked
from ecrt.errors import InputError, warn_user
from ecrt.io.model_files import package_versions
from ecrt.metrics import PRIORS, Predictions, PriorName, class_prior_of, shift_prior
from ecrt.rivals import BaselineClassifier
from ecrt.stages import MLPHead
from ecrt.threads import one_thread
from ecrt.training import Progress

Rows = NDArray[np.int64]

TRIALS = 10
"""Trials for each method and split, where neither their number nor their time is given."""

REFERENCE = "logit-adjusted"


def compare(
    X: Any,
    y: ArrayLike,
    *,
    methods: str | Sequence[str] = "default",
    metric: str = "balanced_accuracy",
    prior: PriorName = "balanced",
    seeds: int = 5,
    groups: ArrayLike | None = None,
    times: ArrayLike | None = None,
    trials: int | None = None,
    budget: float | None = None,
    test_size: float = 0.2,
    reference: str | None = None,
    output: str | PathLike[str] | None = None,
    jobs: int | None = None,
    title: str = "",
    reading: Sequence[ColumnReading] = (),
    progress: Progress | None = None,
) -> Comparison:
    """Find the best method for a table.

    Every method sees the same outer splits, one for each seed. Within a split it is tuned on an inner split of the
    training rows by Optuna, fitted on all training rows with the best setting, and asked about the test rows once.
    Runs are parallel by joblib, which can also use a Dask or Ray cluster.

    Parameters
    ----------
    X, y : a table or an array (also sparse), and the class of each row.
    methods : names of ``ecrt.comparison.METHODS``, ``"default"`` or ``"all"``.
    metric, prior : what tuning aims at and the verdict is about, under which class prior. All metrics are measured
        under both priors in any case.
    seeds : number of outer splits.
    groups : rows of one group are never on both sides of a split.
    times : numbers or dates; training rows always come before test rows.
    trials, budget : for each method and split, the number of settings to try (10 if neither is given) or the seconds to
        spend on them. With a number, the same call gives the same result.
    test_size : share of the rows that are tested, and of the training rows that settings are judged on.
    reference : the method to beat; logit adjustment, or the first one.
    output : folder for predictions and results. The same call on the same folder goes on where it was stopped.
    jobs : processes; ``None`` for as many as joblib is configured for, which is one by default.
    title : what the table is called.
    reading : how its columns were read from a file, for the page.
    progress : shows every run that is done.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> found = compare(X[:150], y[:150], methods=["weighted-logistic", "balanced-forest"], seeds=2, trials=1)
    >>> sorted(found.ranking("balanced"))
    ['balanced-forest', 'weighted-logistic']
    """
    optuna_library()  # before the work begins, not in a worker
    table, labels, codes, columns = _read(X, y)
    names = choose_methods(methods)
    chosen = reference or (REFERENCE if REFERENCE in names else names[0])
    if chosen not in names:
        raise InputError(f"The reference {chosen!r} is not among the methods: {', '.join(names)}.")
    if prior not in PRIORS:
        raise InputError(f"There is no class prior {prior!r} to compare under: use balanced or training.")
    if trials is not None and budget is not None:
        raise InputError("Tuning ends after a number of trials or after some seconds: give trials or budget, not both.")
    if (trials is not None and trials < 1) or (budget is not None and not budget > 0):
        raise InputError(f"trials={trials}, budget={budget}: at least one trial, or a time above 0, is needed.")
    splits = make_splits(codes, groups=groups, times=times, n_seeds=seeds, test_size=test_size)
    settings = {
        "title": title, "methods": list(names), "reference": chosen, "metric": choose_measure(metric, len(labels)),
        "prior": prior, "seeds": seeds, "test_size": test_size, "budget": budget,
        "splits": "grouped" if groups is not None else "timed" if times is not None else "stratified",
        "trials": TRIALS if trials is None and budget is None else trials,
        "data": fingerprint(table, codes, groups, times), "versions": package_versions(),
    }  # fmt: skip
    tested = [np.bincount(codes[split.test], minlength=len(labels)) for split in splits]
    data = {
        "rows": len(table), "columns": table.shape[1], "classes": labels, "counts": np.bincount(codes).tolist(),
        "test_rows": np.mean(tested, axis=0).tolist(),
        "reading": [list(row) for row in (column_rows(reading) if reading else columns)],
    }  # fmt: skip
    remarks = warnings_of(table, codes, splits, labels)
    place = tempfile.TemporaryDirectory(prefix="ecrt-compare-") if output is None else nullcontext(output)
    with place as folder, locked(folder, wait=False):
        store = Store(Path(folder))
        store.claim(settings)
        for sentence in remarks:
            warn_user(sentence)
        _run_all(store, table, codes, splits, settings, jobs, progress or Progress())
        found = collect(store, settings, data, remarks, codes, splits)
        found.write(store.folder)
    return found


def fingerprint(X: pd.DataFrame, *columns: ArrayLike | None) -> str:
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


def _run_all(
    store: Store, X: pd.DataFrame, y: Rows, splits: Sequence[Split], settings: Mapping[str, Any], jobs: int | None,
    progress: Progress,
) -> None:  # fmt: skip
    """Every run that is not on disk yet; each is written as soon as it is done."""
    runs = [(name, seed) for seed in range(len(splits)) for name in settings["methods"]]
    tasks = [task for task in runs if not store.is_finished(*task)]
    finished = len(runs) - len(tasks)
    progress.start(f"compare: runs{f' ({finished} done before)' if finished else ''}", len(tasks))
    running: dict[tuple[str, int], None] = {}

    def calls() -> Iterator[Any]:
        for name, seed in tasks:
            running[name, seed] = None  # joblib takes a task when a process is free for it
            folder = store.run_folder(name, seed)
            folder.mkdir(parents=True, exist_ok=True)
            yield joblib.delayed(run)(name, seed, X, y, splits[seed], settings, folder)

    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)
    for done in parallel(calls()):
        store.write_run(done)
        running.pop((done.method, done.seed), None)
        names_now = ", ".join(f"{name} {seed}" for name, seed in list(running)[:4])
        progress.advance(f"running: {names_now}" if names_now else "")
    progress.finish()


def _read(X: Any, y: Any) -> tuple[pd.DataFrame, list[str], NDArray[np.int64], list[ColumnRow]]:
    """The table as a data frame, the labels as text, the class index of each row, and how named columns were read."""
    for convert in ("to_pandas", "toarray"):  # other data frames, and sparse matrices
        X = getattr(X, convert)() if hasattr(X, convert) else X
    named = isinstance(X, pd.DataFrame)
    if not isinstance(X, pd.DataFrame):
        values = np.asarray(X)
        if values.ndim != 2:
            raise InputError(f"X has the shape {values.shape}: tables can be compared, images cannot.")
        X = pd.DataFrame(values, columns=[f"x{place}" for place in range(values.shape[1])])
    X = X.reset_index(drop=True)
    labels = pd.Series(np.asarray(y).ravel() if not isinstance(y, pd.Series) else y.to_numpy())
    if len(labels) != len(X):
        raise InputError(f"X has {len(X)} rows and y has {len(labels)} labels.")
    if labels.isna().any():
        raise InputError(f"{int(labels.isna().sum())} rows have no label. Leave them out.")
    try:
        classes, codes = np.unique(labels.to_numpy(), return_inverse=True)
    except TypeError as error:
        raise InputError("y mixes labels of different kinds, such as text and numbers.") from error
    if len(classes) < 2:
        raise InputError(f"y holds one class only ({classes.tolist()}); at least 2 classes are needed.")
    encoder = TableEncoder.learn(X)  # once, on all rows: every split and method then reads the same columns
    encoder.encode(X)  # raises before the work begins if no method could read a column
    rows = encoder.column_rows() if named else []
    return encoder.typed(X), [str(label) for label in classes], codes.astype(np.int64), rows


def run(name: str, seed: int, X: pd.DataFrame, y: Rows, split: Split, settings: Mapping[str, Any], folder: Path) -> Run:
    """Tune a method on one split, fit it on all training rows and predict; a run that fails has no predictions."""
    method, started = METHODS[name], time.perf_counter()
    # A worker that outlived its parent may still be at it, and keep trials in the same folder.
    alone = locked(folder, wait=True) if folder.is_dir() else nullcontext()
    with alone, one_thread(), warnings.catch_warnings():
        # Warnings of libraries about one fit of hundreds do not help the user. Failures are recorded.
        warnings.simplefilter("ignore")
        if settings["budget"] is not None:
            _load_all()
        tuned, validation, seconds = tune(
            method,
            _objective(method, seed, X, y, split, settings),
            higher_is_better=MEASURES[settings["metric"]].higher_is_better,
            seed=seed_from(seed, *name.encode()),
            trials=settings["trials"],
            budget=settings["budget"],
            folder=folder,
        )
        tuning, refitting = time.perf_counter() - started, time.perf_counter()
        predictions = None
        if not tuned.error:
            try:
                predictions = _fit_predict(method, tuned.parameters, seed, X, y, split.train, split.test)
                predictions = replace(predictions, validation=validation)
            except Exception as fault:  # the other methods go on; this one is reported as failed
                tuned = replace(tuned, error=error_text(fault))
    took = {
        "tuning": seconds,  # of all trials, those of a run that was killed included
        "overhead": round(max(tuning - seconds, 0.0), 3),
        "refit": round(time.perf_counter() - refitting, 3),
    }
    return Run(name, seed, tuned, took, predictions)


@cache
def _load_all() -> None:
    """Fit a tiny network once in a process: torch loads much of itself then, and no trial should pay for that."""
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
    BaselineClassifier(head=MLPHead(epochs=1), device="cpu", random_state=0).fit(X, np.arange(40) % 2)


def _objective(
    method: Method, seed: int, X: pd.DataFrame, y: Rows, split: Split, settings: Mapping[str, Any]
) -> Objective:
    # Columns of all training classes: a class that no trial was fitted on is impossible, its rows are left out.
    classes = np.unique(y[split.train])
    columns = np.searchsorted(classes, np.unique(y[split.fitted]))

    def objective(parameters: Mapping[str, Any]) -> tuple[float, Validation]:
        found = _fit_predict(method, parameters, seed, X, y, split.fitted, split.judged)
        value = float(found.metrics(settings["prior"])[settings["metric"]])
        log_proba = np.full((len(split.judged), len(classes)), -np.inf)
        log_proba[:, columns] = found.log_proba
        return value, (log_proba, np.where(found.y >= 0, columns[found.y], -1))

    return objective


def _fit_predict(
    method: Method, parameters: Mapping[str, Any], seed: int, X: pd.DataFrame, y: Rows, train: Rows, test: Rows
) -> Predictions:
    """Fit on some rows and predict others, under the balanced prior."""
    classes, labels, counts = np.unique(y[train], return_inverse=True, return_counts=True)
    model = method.build(parameters, seed).fit(X.iloc[train], labels)
    has_logs = hasattr(model, "predict_log_proba")
    with np.errstate(divide="ignore"):  # a probability of zero is minus infinity
        found = model.predict_log_proba(X.iloc[test]) if has_logs else np.log(model.predict_proba(X.iloc[test]))
    log_proba = np.asarray(found, dtype=np.float64)
    if log_proba.shape != (len(test), len(classes)):
        raise ValueError(f"{log_proba.shape[1]} probabilities for {len(classes)} classes")
    balanced = shift_prior(log_proba, class_prior_of(method.prior, counts), class_prior_of("balanced", counts))
    place = np.searchsorted(classes, y[test])
    known = classes[np.minimum(place, len(classes) - 1)] == y[test]
    return Predictions(
        log_proba=balanced, y=np.where(known, place, -1), counts=counts.astype(np.int64), prior="balanced"
    )


@contextmanager
def dask_cluster(address: str | None) -> Iterator[None]:
    """Within this block joblib sends its tasks to the Dask scheduler at an address; ``None`` changes nothing.

    The workers need the same packages. One thread for each is best: ``dask worker ADDRESS --nthreads 1``.
    """
    if address is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError("A cluster needs Dask: pip install 'ecrt[cluster]'.") from error
    try:
        client = Client(address, timeout="5s")  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"No Dask scheduler answers at {address}: {error}") from error
    with client, joblib.parallel_config(backend="dask"):
        yield
